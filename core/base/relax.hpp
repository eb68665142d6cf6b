#pragma once
// For loops that wait for memory to change.

namespace mv::base {

/// A hint to the processor that this is such a loop.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mv::base
