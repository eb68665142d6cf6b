#pragma once
// Prefetches: a hint that memory will be used soon.

namespace mv::base {

/// The line of memory at `address` will be read soon. The empty assembly keeps the hint: GCC assumes that a function that
/// only prefetches has no effect, and drops calls of it.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

/// The same, if it will be written.
inline void prefetch_to_write(const void* address) {
  __builtin_prefetch(address, 1);
  asm volatile("");
}

}  // namespace mv::base
