#pragma once
// What sequence locks are made of (Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012): a
// writer never waits, a reader copies, and throws its copy away if the sequence has moved meanwhile.
//
// ThreadSanitizer knows no fences, and would call the copy a race, which it is: one whose outcome is thrown away.

#include <atomic>

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace mv::base {

#if defined(__SANITIZE_THREAD__)
inline void sequence_fence() { asm volatile("" ::: "memory"); }  // enough on the machines that the sanitizers run on
/// Around the copy.
struct RacyReads {
  RacyReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~RacyReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};
#else
/// Between a sequence and what it guards, on either side.
inline void sequence_fence() { std::atomic_thread_fence(std::memory_order_acq_rel); }
/// Around the copy.
struct RacyReads {
  RacyReads() {}
};
#endif

}  // namespace mv::base
