#pragma once
// The arrays of one operation as one value with consecutive element numbers.
//
// In out-of-place operations, large arrays of floats are not copied to the result first. They are reduced and sent from
// the input, which saves a pass over memory.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/collective/operation.hpp"
#include "engine/collective/schedule.hpp"

namespace mv::collective {

/// The most bytes of a message's tail; see Value::head().
inline constexpr size_t kTailBytes = 16;

class Value {
 public:
  /// Appends an array, unless it is empty. `from`, if not null, holds the input values, and must not change while the
  /// value lives.
  void add(const Array& array, math::Reduction reduction, const std::byte* from = nullptr);
  /// Numbers the next array's elements from `first` on. The elements before it that no array has are other ranks' only.
  void skip_to(uint64_t first) { count_ = first; }
  void reserve(size_t arrays) { pieces_.reserve(arrays); }
  uint64_t count() const { return count_; }

  /// The number of elements of a range in its first message. Elements of a large array are sent in place. Small arrays
  /// are gathered, so many of them need no more messages than one.
  uint64_t chunk(const Range& range) const;
  /// The elements of a message that are its payload: all, or those of a large array. The few that follow such an array are the
  /// message's tail: the number of contributors would otherwise need a message of its own.
  Range head(const Range& chunk) const;
  size_t bytes(const Range& range) const;
  /// The memory of the result for a range within one array; otherwise empty.
  std::span<std::byte> contiguous(const Range& range) const;
  /// The memory that holds the range now; empty if it is not within one array.
  std::span<std::byte> present(const Range& range);
  void gather(const Range& range, std::byte* to);
  void scatter(const Range& range, const std::byte* from);
  /// Notes that a range was written directly into contiguous().
  void written(const Range& range);
  /// value = f(value, theirs), or f(theirs, value).
  void reduce(const Range& range, const std::byte* theirs, math::Operand mine_is);
  /// Copies all values that are still in inputs to the result.
  void bring();

 private:
  /// A set of elements: those whose values are no longer in `from`.
  class Ranges {
   public:
    void add(uint64_t first, uint64_t end);
    bool covers(uint64_t first, uint64_t end) const;
    bool touches(uint64_t first, uint64_t end) const;
    /// Calls work(first, end) for each gap in the set.
    template <typename Work>
    void gaps(uint64_t first, uint64_t end, Work work) const;

   private:
    std::map<uint64_t, uint64_t> ends_;  ///< ends by beginnings; they neither overlap nor touch
  };
  struct ValueArray {
    uint64_t first;
    Array array;
    math::Reduction reduction;
    const std::byte* from;  ///< null: all values are in `array`
    Ranges written;
    size_t element() const { return tensor::dtype_bytes(array.dtype); }
  };
  static void bring(ValueArray& piece, uint64_t first, uint64_t end);
  /// Calls work(piece, first element within it, elements, bytes before them in the range) until it returns false.
  template <typename Work>
  void each(const Range& range, Work work) const;
  /// The same for all pieces, with mutable ones.
  template <typename Work>
  void change(const Range& range, Work work);
  size_t piece_at(uint64_t element) const;

  std::vector<ValueArray> pieces_;
  uint64_t count_ = 0;
};

/// Whether two ranges share elements.
inline bool overlap(const Range& a, const Range& b) {
  return a.count > 0 && b.count > 0 && a.first < b.first + b.count && b.first < a.first + a.count;
}

}  // namespace mv::collective
