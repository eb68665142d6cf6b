#pragma once
// A hint for spin loops.

namespace mv::base {

/// Tells the processor that the caller spins: PAUSE on x86, YIELD on AArch64.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mv::base
