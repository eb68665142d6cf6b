#include "shard/updater/apply.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "math/convert.hpp"

namespace mv::shard {

namespace {
/// 16-bit floats that are widened at a time: they stay in the L1 cache.
constexpr size_t kPiece = 1024;
}  // namespace

namespace {

/// work(piece) for pieces of the block, with the added values widened to the storage dtype.
template <typename Work>
void for_widened(mv_dtype dtype, const Block& block, size_t states, const std::byte* added, const Work& work) {
  Block piece = block;
  if (tensor::storage_dtype(dtype) == dtype) {
    piece.added = added;
    return work(piece);
  }
  alignas(64) std::array<std::byte, kPiece * sizeof(float)> widened;
  std::array<std::byte*, kMostStates> moved{};
  piece.added = widened.data();
  piece.states = moved.data();
  for (size_t done = 0; done < block.count; done += kPiece) {
    const size_t offset = done * sizeof(float);
    piece.count = std::min(kPiece, block.count - done);
    piece.first = block.first + done;
    piece.values = block.values + offset;
    for (size_t i = 0; i < states; ++i) moved[i] = block.states[i] + offset;
    piece.backup = block.backup != nullptr ? block.backup + offset : nullptr;
    math::widen_bytes(dtype, widened.data(), added + done * tensor::dtype_bytes(dtype), piece.count);
    work(piece);
  }
}

}  // namespace

void apply_added(const Updater& updater, mv_dtype dtype, const Block& block, size_t states, const std::byte* added) {
  if (updater.sums() == 0)
    return for_widened(dtype, block, states, added, [&](const Block& piece) { updater.apply(piece); });
  Step measured = *block.step;
  Block whole = block;
  whole.step = &measured;
  auto sums = measured.sums;
  for_widened(dtype, whole, states, added, [&](const Block& piece) { updater.measure(piece, sums.data()); });
  measured.sums = sums;
  for_widened(dtype, whole, states, added, [&](const Block& piece) { updater.apply(piece); });
}

void copy_inverted(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, from + i, sizeof(word));
    word = ~word;
    std::memcpy(to + i, &word, sizeof(word));
  }
}

bool is_zero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace mv::shard
