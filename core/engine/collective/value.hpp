#pragma once
// The arrays of one operation as one value, whose elements are counted through.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/collective/operation.hpp"
#include "engine/collective/schedule.hpp"

namespace mv::collective {

class Value {
 public:
  /// Empty arrays are left out.
  void add(const Array& array, math::Reduction reduction);
  uint64_t count() const { return count_; }

  /// How many elements of a range travel in its first message: what lies in one large array is sent from where it is, small ones
  /// are gathered, so that many of them are no more messages than one.
  uint64_t chunk(const Range& range) const;
  size_t bytes(const Range& range) const;
  /// The memory of a range that lies in one array; else empty.
  std::span<std::byte> contiguous(const Range& range) const;
  void gather(const Range& range, std::byte* to) const;
  void scatter(const Range& range, const std::byte* from) const;
  /// value = f(value, theirs), or f(theirs, value).
  void reduce(const Range& range, const std::byte* theirs, math::Operand mine_is) const;

 private:
  struct Piece {
    uint64_t first;
    Array array;
    math::Reduction reduction;
  };
  /// work(piece, first element within it, elements, bytes before them in the range)
  template <typename Work>
  void each(const Range& range, Work work) const;
  size_t piece_at(uint64_t element) const;

  std::vector<Piece> pieces_;
  uint64_t count_ = 0;
};

/// Ranges that share elements.
inline bool overlap(const Range& a, const Range& b) {
  return a.count > 0 && b.count > 0 && a.first < b.first + b.count && b.first < a.first + a.count;
}

}  // namespace mv::collective
