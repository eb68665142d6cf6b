#pragma once
// The full memory fence for Dekker's pattern. Threads and processes use the pattern to skip needless wake-ups:
//
//   waker                             sleeper
//   store the work                    store "asleep"
//   full_fence()                      full_fence()
//   load "asleep"                     load the work
//
// At least one of the two loads sees the other side's store, so no wake-up is lost. Both fences are needed: a store may
// become visible after a later load of the same thread. A read-modify-write cannot replace the fence: in the C++ memory
// model and on AArch64 it orders only itself. On x86 it happens to work, because it is a full barrier there.
// tests/models has each use of the pattern.

#include <atomic>

namespace mv::base {

/// std::atomic_thread_fence(std::memory_order_seq_cst). Also orders an earlier store before a later load.
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not model fences; on its machines any locked instruction is one
  static thread_local std::atomic<int> here{0};
  here.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace mv::base
