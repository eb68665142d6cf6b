#pragma once
// How an operation spends its time, for the trace.

#include <array>
#include <cstddef>
#include <span>

#include "base/clock.hpp"
#include "base/trace.hpp"

namespace mv::intranode {

/// The parts of one operation in the order of time. An operation of many blocks alternates between its parts, and a block
/// takes little longer than to read the clock a few times. So only the first kMost slices are exact. Of the rest, only
/// the waits are measured, and shown as one slice before one of everything else. One thread at a time.
class Slices {
 public:
  using Part = base::TracePart;
  struct Slice {
    Part part;
    base::Nanos begin, end;
  };

  void turn_on() { on_ = true; }
  void begin_operation() {
    exact_ = 0;
    rest_wait_ = base::Nanos{0};
  }
  /// Whether to note the time of a step.
  bool wants_steps() const { return on_ && exact_ < kMost; }
  /// The first step begins.
  void begin_steps(base::Nanos now) { at_ = now; }
  /// A step has ended. It began at the end of the last step or of the last wait.
  void step(Part part, base::Nanos now) { note(part, at_, now); }
  void wait(base::Nanos begin, base::Nanos end) {
    if (exact_ < kMost) return note(Part::kWait, begin, end);
    rest_wait_ += end - begin;
  }
  /// To be called once, when the operation has ended.
  std::span<const Slice> all(base::Nanos now) {
    size_t count = exact_;
    if (exact_ == kMost && rest_wait_ > base::Nanos{0}) slices_[count++] = {Part::kWait, at_, at_ + rest_wait_};
    if (exact_ == kMost) slices_[count++] = {Part::kMore, at_ + rest_wait_, now};
    return std::span(slices_).first(count);
  }

  static constexpr size_t kMost = 12, kMostOfAll = kMost + 2;

 private:
  void note(Part part, base::Nanos begin, base::Nanos end) {
    if (exact_ > 0 && slices_[exact_ - 1].part == part)
      slices_[exact_ - 1].end = end;
    else
      slices_[exact_++] = {part, begin, end};
    at_ = end;
  }

  bool on_ = false;
  size_t exact_ = 0;
  std::array<Slice, kMostOfAll> slices_;
  base::Nanos at_{0}, rest_wait_{0};
};

}  // namespace mv::intranode
