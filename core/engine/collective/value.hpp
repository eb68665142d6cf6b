#pragma once
// The arrays of one operation as one value, whose elements are counted through.
//
// Out of place large floats are not brought to where the results go: they are reduced and sent from where they are, so that they go
// through memory once less.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/collective/operation.hpp"
#include "engine/collective/schedule.hpp"

namespace mv::collective {

class Value {
 public:
  /// Empty arrays are left out. `from`, if not null, has their values, and stays as it is while the value lives.
  void add(const Array& array, math::Reduction reduction, const std::byte* from = nullptr);
  uint64_t count() const { return count_; }

  /// How many elements of a range travel in its first message: what lies in one large array is sent from where it is, small ones
  /// are gathered, so that many of them are no more messages than one.
  uint64_t chunk(const Range& range) const;
  size_t bytes(const Range& range) const;
  /// The memory in which a range that lies in one array is written; else empty.
  std::span<std::byte> contiguous(const Range& range) const;
  /// The memory in which it is now.
  std::span<std::byte> present(const Range& range);
  void gather(const Range& range, std::byte* to);
  void scatter(const Range& range, const std::byte* from);
  /// It was written into contiguous() by somebody else.
  void written(const Range& range);
  /// value = f(value, theirs), or f(theirs, value).
  void reduce(const Range& range, const std::byte* theirs, math::Operand mine_is);
  /// Everything where results belong.
  void bring();

 private:
  /// Elements that are no longer in `from`.
  class Ranges {
   public:
    void add(uint64_t first, uint64_t end);
    bool covers(uint64_t first, uint64_t end) const;
    bool touches(uint64_t first, uint64_t end) const;
    /// work(first, end) for what is missing.
    template <typename Work>
    void gaps(uint64_t first, uint64_t end, Work work) const;

   private:
    std::map<uint64_t, uint64_t> ends_;  ///< by their beginnings; they neither overlap nor touch
  };
  struct ValueArray {
    uint64_t first;
    Array array;
    math::Reduction reduction;
    const std::byte* from;  ///< null: there is nothing in it
    Ranges written;
    size_t element() const { return tensor::dtype_bytes(array.dtype); }
  };
  static void bring(ValueArray& piece, uint64_t first, uint64_t end);
  /// work(piece, first element within it, elements, bytes before them in the range)
  template <typename Work>
  void each(const Range& range, Work work) const;
  /// The same with a ValueArray that may be changed, for all of them.
  template <typename Work>
  void change(const Range& range, Work work);
  size_t piece_at(uint64_t element) const;

  std::vector<ValueArray> pieces_;
  uint64_t count_ = 0;
};

/// Ranges that share elements.
inline bool overlap(const Range& a, const Range& b) {
  return a.count > 0 && b.count > 0 && a.first < b.first + b.count && b.first < a.first + a.count;
}

}  // namespace mv::collective
