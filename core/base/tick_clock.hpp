#pragma once
// A cheap clock for frequent events.

#include <chrono>
#include <cstdint>

#include "base/clock.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mv::base {

/// A clock that is cheaper to read than the system's: the processor's time-stamp counter if it is invariant, otherwise
/// the steady clock.
class TickClock {
 public:
  TickClock() : begin_(read()), began_(steady()) {}

  uint64_t read() const {
#if defined(__x86_64__)
    if (even_) return __builtin_ia32_rdtsc();
#endif
    return static_cast<uint64_t>(steady().count());
  }
  /// Converts ticks to monotonic time. The longer this clock has run, the more precise the result.
  class Scale {
   public:
    Scale(uint64_t begin, Nanos began, uint64_t end, Nanos ended)
        : begin_(begin), began_(began), nanos_(end > begin ? static_cast<double>((ended - began).count()) / static_cast<double>(end - begin) : 1) {}
    Nanos operator()(uint64_t ticks) const { return began_ + span(static_cast<int64_t>(ticks - begin_)); }
    Nanos span(int64_t ticks) const { return Nanos(static_cast<int64_t>(static_cast<double>(ticks) * nanos_)); }

   private:
    uint64_t begin_;
    Nanos began_;
    double nanos_;  // per tick
  };
  Scale scale() const { return {begin_, began_, read(), steady()}; }

 private:
  static Nanos steady() { return std::chrono::steady_clock::now().time_since_epoch(); }
  static bool is_even() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x8000'0007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
    return false;
#endif
  }

  const bool even_ = is_even();
  const uint64_t begin_;
  const Nanos began_;
};

}  // namespace mv::base
