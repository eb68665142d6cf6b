#pragma once
// The interface from which engines read the time. libuv's loop and the simulator implement it.

#include <chrono>
#include <cstdint>

namespace mv::base {

/// Monotonic time. Virtual in the simulator.
using Nanos = std::chrono::nanoseconds;
inline constexpr Nanos kNever = Nanos::max();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
};

/// `now + span`, where a span of kNever stays kNever.
inline Nanos after(Nanos now, Nanos span) { return span == kNever ? kNever : now + span; }
/// For texts and rates.
inline double seconds(Nanos span) { return std::chrono::duration<double>(span).count(); }

}  // namespace mv::base
