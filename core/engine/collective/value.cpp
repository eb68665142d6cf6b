#include "engine/collective/value.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "math/reduction.hpp"

namespace mv::collective {

namespace {
/// The bytes of a large array in one message: one chunk is reduced while the next is in flight.
constexpr size_t kChunkBytes = 512 << 10;
/// The last chunk of an array may be somewhat longer, so that no message has only a few elements.
constexpr size_t kLargestChunk = kChunkBytes + kChunkBytes / 4;
/// Smaller arrays are gathered into common messages.
constexpr size_t kSmallArray = 64 << 10;
constexpr size_t kGatheredBytes = 256 << 10;
/// Smaller inputs are copied to the result at once. A chunk that is sent from an input must be taken before the
/// operation ends, and that takes longer than such a small copy.
constexpr size_t kLeftArray = kChunkBytes;

bool may_be_left(const Array& array, const std::byte* from) {
  const size_t bytes = array.bytes();
  const bool apart = from + bytes <= array.data || array.data + bytes <= from;
  return apart && bytes >= kLeftArray && tensor::is_floating(array.dtype);
}
}  // namespace

void Value::add(const Array& array, math::Reduction reduction, const std::byte* from) {
  if (array.count == 0) return;
  if (from == array.data) from = nullptr;
  if (from != nullptr && !may_be_left(array, from)) {
    std::memmove(array.data, from, array.bytes());
    from = nullptr;
  }
  pieces_.push_back({count_, array, reduction, from, {}});
  count_ += array.count;
}

size_t Value::piece_at(uint64_t element) const {
  if (!pieces_.empty() && element - pieces_.front().first < pieces_.front().array.count) return 0;
  const auto behind = std::upper_bound(pieces_.begin(), pieces_.end(), element, [](uint64_t at, const ValueArray& piece) { return at < piece.first; });
  return static_cast<size_t>(behind - pieces_.begin()) - 1;
}

template <typename Work>
void Value::each(const Range& range, Work work) const {
  const uint64_t end = range.first + range.count;
  size_t before = 0;
  for (size_t i = range.count > 0 ? piece_at(range.first) : pieces_.size(); i < pieces_.size() && pieces_[i].first < end; ++i) {
    const ValueArray& piece = pieces_[i];
    const uint64_t from = std::max(range.first, piece.first), to = std::min(end, piece.first + piece.array.count);
    if (!work(piece, from - piece.first, to - from, before)) return;
    before += (to - from) * tensor::dtype_bytes(piece.array.dtype);
  }
}

template <typename Work>
void Value::change(const Range& range, Work work) {
  each(range, [&](const ValueArray& piece, uint64_t first, uint64_t count, size_t before) {
    work(pieces_[static_cast<size_t>(&piece - pieces_.data())], first, count, before);
    return true;
  });
}

uint64_t Value::chunk(const Range& range) const {
  uint64_t taken = 0;
  each(range, [&](const ValueArray& piece, uint64_t, uint64_t count, size_t before) {
    const size_t element = tensor::dtype_bytes(piece.array.dtype), here = count * element;
    if (here >= kSmallArray) {
      if (taken > 0) return false;
      taken = here <= kLargestChunk ? count : kChunkBytes / element;
      if (taken == count && bytes({range.first + count, range.count - count}) <= kTailBytes) taken = range.count;
      return false;
    }
    if (taken > 0 && before + here > kGatheredBytes) return false;
    taken += count;
    return true;
  });
  return taken;
}

Range Value::head(const Range& chunk) const {
  Range head = chunk;
  each(chunk, [&](const ValueArray& piece, uint64_t, uint64_t count, size_t) {
    if (count * tensor::dtype_bytes(piece.array.dtype) >= kSmallArray) head.count = count;
    return false;
  });
  return head;
}

size_t Value::bytes(const Range& range) const {
  size_t bytes = 0;
  each(range, [&](const ValueArray& piece, uint64_t, uint64_t count, size_t) {
    bytes += count * tensor::dtype_bytes(piece.array.dtype);
    return true;
  });
  return bytes;
}

std::span<std::byte> Value::contiguous(const Range& range) const {
  std::span<std::byte> memory;
  each(range, [&](const ValueArray& piece, uint64_t first, uint64_t count, size_t) {
    const size_t element = tensor::dtype_bytes(piece.array.dtype);
    if (count == range.count) memory = {piece.array.data + first * element, count * element};
    return false;
  });
  return memory;
}

std::span<std::byte> Value::present(const Range& range) {
  std::span<std::byte> memory = contiguous(range);
  change(range, [&](ValueArray& piece, uint64_t first, uint64_t count, size_t) {
    if (memory.empty() || piece.from == nullptr || piece.written.covers(first, first + count)) return;
    if (piece.written.touches(first, first + count)) return bring(piece, first, first + count);
    memory = {const_cast<std::byte*>(piece.from) + first * piece.element(), memory.size()};  // only sent, never written
  });
  return memory;
}

void Value::gather(const Range& range, std::byte* to) {
  change(range, [&](ValueArray& piece, uint64_t first, uint64_t count, size_t before) {
    bring(piece, first, first + count);
    std::memcpy(to + before, piece.array.data + first * piece.element(), count * piece.element());
  });
}

void Value::scatter(const Range& range, const std::byte* from) {
  change(range, [&](ValueArray& piece, uint64_t first, uint64_t count, size_t before) {
    std::memcpy(piece.array.data + first * piece.element(), from + before, count * piece.element());
  });
  written(range);
}

void Value::written(const Range& range) {
  change(range, [](ValueArray& piece, uint64_t first, uint64_t count, size_t) {
    if (piece.from != nullptr) piece.written.add(first, first + count);
  });
}

void Value::reduce(const Range& range, const std::byte* theirs, math::Operand mine_is) {
  change(range, [&](ValueArray& piece, uint64_t first, uint64_t count, size_t before) {
    std::byte* const here = piece.array.data + first * piece.element();
    if (piece.from == nullptr || piece.written.touches(first, first + count)) {
      bring(piece, first, first + count);
      return math::reduce_bytes(piece.reduction, piece.array.dtype, here, theirs + before, count, mine_is);
    }
    const std::byte* sources[] = {piece.from + first * piece.element(), theirs + before};
    if (mine_is == math::Operand::kSecond) std::swap(sources[0], sources[1]);
    const math::Reduction reduction = piece.reduction == math::Reduction::kAverage ? math::Reduction::kSum : piece.reduction;
    math::merge_bytes(reduction, piece.array.dtype, here, sources, count);
    piece.written.add(first, first + count);
  });
}

void Value::bring() {
  for (ValueArray& piece : pieces_) bring(piece, 0, piece.array.count);
}

void Value::bring(ValueArray& piece, uint64_t first, uint64_t end) {
  if (piece.from == nullptr) return;
  const size_t element = piece.element();
  piece.written.gaps(first, end, [&](uint64_t from, uint64_t to) {
    std::memcpy(piece.array.data + from * element, piece.from + from * element, (to - from) * element);
  });
  piece.written.add(first, end);
}

// ------------------------------------------------------------ ranges

void Value::Ranges::add(uint64_t first, uint64_t end) {
  if (first >= end) return;
  auto at = ends_.upper_bound(first);
  if (at != ends_.begin() && std::prev(at)->second >= first) {
    --at;
    first = at->first;
    end = std::max(end, at->second);
  }
  while (at != ends_.end() && at->first <= end) {
    end = std::max(end, at->second);
    at = ends_.erase(at);
  }
  ends_.emplace_hint(at, first, end);
}

template <typename Work>
void Value::Ranges::gaps(uint64_t first, uint64_t end, Work work) const {
  auto at = ends_.upper_bound(first);
  if (at != ends_.begin()) first = std::max(first, std::prev(at)->second);
  for (; first < end; ++at) {
    const uint64_t until = at == ends_.end() ? end : std::min(end, at->first);
    if (first < until) work(first, until);
    if (at == ends_.end()) return;
    first = std::max(first, at->second);
  }
}

bool Value::Ranges::covers(uint64_t first, uint64_t end) const {
  bool all = true;
  gaps(first, end, [&](uint64_t, uint64_t) { all = false; });
  return all;
}

bool Value::Ranges::touches(uint64_t first, uint64_t end) const {
  uint64_t missing = 0;
  gaps(first, end, [&](uint64_t from, uint64_t to) { missing += to - from; });
  return missing < end - first;
}

}  // namespace mv::collective
