#include "engine/collective/value.hpp"

#include <algorithm>
#include <cstring>

namespace mv::collective {

namespace {
/// Of a large array at a time: reducing one chunk goes on while the next one travels.
constexpr size_t kChunkBytes = 512 << 10;
/// Arrays below this are copied into messages of many.
constexpr size_t kSmallArray = 64 << 10;
constexpr size_t kGatheredBytes = 256 << 10;
}  // namespace

void Value::add(const Array& array, math::Reduction reduction) {
  if (array.count == 0) return;
  pieces_.push_back({count_, array, reduction});
  count_ += array.count;
}

size_t Value::piece_at(uint64_t element) const {
  const auto behind = std::upper_bound(pieces_.begin(), pieces_.end(), element, [](uint64_t at, const Piece& piece) { return at < piece.first; });
  return static_cast<size_t>(behind - pieces_.begin()) - 1;
}

template <typename Work>
void Value::each(const Range& range, Work work) const {
  const uint64_t end = range.first + range.count;
  size_t before = 0;
  for (size_t i = range.count > 0 ? piece_at(range.first) : pieces_.size(); i < pieces_.size() && pieces_[i].first < end; ++i) {
    const Piece& piece = pieces_[i];
    const uint64_t from = std::max(range.first, piece.first), to = std::min(end, piece.first + piece.array.count);
    if (!work(piece, from - piece.first, to - from, before)) return;
    before += (to - from) * tensor::dtype_bytes(piece.array.dtype);
  }
}

uint64_t Value::chunk(const Range& range) const {
  uint64_t taken = 0;
  each(range, [&](const Piece& piece, uint64_t, uint64_t count, size_t before) {
    const size_t element = tensor::dtype_bytes(piece.array.dtype), bytes = count * element;
    if (bytes >= kSmallArray) {
      if (taken == 0) taken = std::min<uint64_t>(count, kChunkBytes / element);
      return false;
    }
    if (taken > 0 && before + bytes > kGatheredBytes) return false;
    taken += count;
    return true;
  });
  return taken;
}

size_t Value::bytes(const Range& range) const {
  size_t bytes = 0;
  each(range, [&](const Piece& piece, uint64_t, uint64_t count, size_t) {
    bytes += count * tensor::dtype_bytes(piece.array.dtype);
    return true;
  });
  return bytes;
}

std::span<std::byte> Value::contiguous(const Range& range) const {
  std::span<std::byte> memory;
  each(range, [&](const Piece& piece, uint64_t first, uint64_t count, size_t) {
    const size_t element = tensor::dtype_bytes(piece.array.dtype);
    if (count == range.count) memory = {piece.array.data + first * element, count * element};
    return false;
  });
  return memory;
}

void Value::gather(const Range& range, std::byte* to) const {
  each(range, [&](const Piece& piece, uint64_t first, uint64_t count, size_t before) {
    const size_t element = tensor::dtype_bytes(piece.array.dtype);
    std::memcpy(to + before, piece.array.data + first * element, count * element);
    return true;
  });
}

void Value::scatter(const Range& range, const std::byte* from) const {
  each(range, [&](const Piece& piece, uint64_t first, uint64_t count, size_t before) {
    const size_t element = tensor::dtype_bytes(piece.array.dtype);
    std::memcpy(piece.array.data + first * element, from + before, count * element);
    return true;
  });
}

void Value::reduce(const Range& range, const std::byte* theirs, math::Operand mine_is) const {
  each(range, [&](const Piece& piece, uint64_t first, uint64_t count, size_t before) {
    const size_t element = tensor::dtype_bytes(piece.array.dtype);
    math::reduce_bytes(piece.reduction, piece.array.dtype, piece.array.data + first * element, theirs + before, count, mine_is);
    return true;
  });
}

}  // namespace mv::collective
