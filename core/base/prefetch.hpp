#pragma once
// Prefetches: a hint that memory will be used soon.

namespace mv::base {

/// The line of memory at `address` will be read soon, or written. The empty assembly keeps the hint: GCC assumes that a
/// function that only prefetches has no effect, and drops calls of it.
template <bool kToWrite = false>
inline void prefetch(const void* address) {
  __builtin_prefetch(address, kToWrite);
  asm volatile("");
}

inline void prefetch_to_write(const void* address) { prefetch<true>(address); }

}  // namespace mv::base
