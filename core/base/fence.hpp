#pragma once
// The fence of Dekker's pattern, which threads and processes use here to wake each other only when that is needed:
//
//   waker                             sleeper
//   store what there is to do         store that it sleeps
//   full_fence()                      full_fence()
//   load whether it sleeps            load what there is to do
//
// At least one of the two loads sees the other side's store, so no wake-up is lost. Both fences are needed: a store may become visible after
// a later load of the same thread. A read-modify-write in place of the fence orders nothing but itself in the C++ memory model, and on
// AArch64; it happens to work on x86, where it is a full barrier. tests/models has each use of the pattern.

#include <atomic>

namespace mv::base {

/// std::atomic_thread_fence(std::memory_order_seq_cst). Orders an earlier store and a later load, too.
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer knows no fences; on its machines any locked instruction is one
  static thread_local std::atomic<int> here{0};
  here.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace mv::base
