#pragma once
// The building blocks of sequence locks (Boehm, "Can seqlocks get along with programming language memory models?", MSPC
// 2012). A writer never waits. A reader copies the data and discards its copy if the sequence has changed meanwhile.
//
//   writer                              reader
//   store an odd sequence, relaxed      load the sequence, acquire; even
//   sequence_fence()                    copy the data
//   write the data                      sequence_fence()
//   store an even sequence, release     load the sequence again, relaxed; unchanged: the copy is whole
//
// If the copy saw any part of a later write, the writer's fence synchronises with the reader's, and the second load
// sees that write's odd sequence. If the first load saw an even sequence, it synchronises with the preceding write.
// Both fences are needed on weakly ordered processors (AArch64); on x86 they only keep the compiler from moving
// accesses.
//
// The copy races with the writer. For plain data that is undefined behaviour in the C++ model; Boehm makes every access
// relaxed atomic. The data here are large arrays that SIMD kernels copy, so they stay plain. That is sound in practice
// under these rules, which every user must follow. The writer is mostly another process, whose stores the compiler does
// not see. The copy goes to the reader's own memory, through memcpy or a kernel, and nothing depends on it before the
// sequence is checked. All values that determine where to read or how much (sizes, offsets) are atomic or local.
// ThreadSanitizer does not model fences and reports the race, so the copy is hidden from it.

#include <atomic>

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace mv::base {

#if defined(__SANITIZE_THREAD__)
inline void sequence_fence() { asm volatile("" ::: "memory"); }  // sufficient on the machines that run the sanitizers
/// Scope of the racy copy.
struct RacyReads {
  RacyReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~RacyReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};
#else
/// Orders accesses to a sequence against accesses to the data that it guards, for writer and reader.
inline void sequence_fence() { std::atomic_thread_fence(std::memory_order_acq_rel); }
/// Scope of the racy copy.
struct RacyReads {
  RacyReads() {}
};
#endif

}  // namespace mv::base
