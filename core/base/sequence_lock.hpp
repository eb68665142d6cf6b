#pragma once
// The parts of sequence locks (Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012). A writer never waits;
// a reader copies the data and throws its copy away if the sequence has moved meanwhile.
//
//   writer                              reader
//   store an odd sequence, relaxed      load the sequence, acquire; even
//   sequence_fence()                    copy the data
//   write the data                      sequence_fence()
//   store an even sequence, release     load the sequence again, relaxed; unchanged: the copy is whole
//
// If the copy saw anything of a later write, the writer's fence synchronises with the reader's, and the second load sees that write's odd
// sequence. If the first load saw an even sequence, it synchronises with the write before. Both fences are needed on weakly ordered processors
// (AArch64); on x86 they only keep the compiler from moving accesses.
//
// The copy races with the writer, which for plain data is undefined behaviour in the C++ model; Boehm makes every access relaxed atomic. The
// data here are large arrays that SIMD kernels copy, so they stay plain. That is sound in practice for these reasons, and a new user has to
// keep to them: the writer is mostly another process, of whose stores the compiler knows nothing; the copy goes to memory of the reader's own,
// through memcpy or a kernel, and decides nothing before the sequence was checked; everything that decides where to read or how much (sizes,
// offsets) is atomic or local. ThreadSanitizer knows no fences and reports the race, so the copy is hidden from it.

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
