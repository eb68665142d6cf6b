#pragma once
// Runs real threads one at a time, in an order that a seed decides, on virtual time.
//
// The sources under test are compiled with -fsanitize=thread, but linked with intercept.cpp in place of ThreadSanitizer, so every atomic
// operation calls step(). intercept.cpp also replaces locks, condition variables, futexes, sleeps, clocks and the system calls that make a
// descriptor readable. Only one thread runs at any time, and each of these operations is a point at which the scheduler may switch. A
// blocked thread costs no time: when all are blocked, the clock jumps to the next time-out. A seed therefore always gives the same
// schedule.
//
// A seed chooses one of two strategies. kRandom switches at each point with a fixed probability. kPriorities (PCT: Burckhardt et al.,
// ASPLOS 2010) always runs the ready thread of the highest priority, and lowers the running thread's priority at a few random points; it
// finds bugs that need few switches at exact points. The seed also chooses how long a step takes, how many processors there are, and
// whether stores are buffered. A buffered store that is weaker than seq_cst stays invisible to other threads until a fence, a
// read-modify-write, a lock, a system call or a random later step of its thread, as on x86. Other reorderings of weak memory models are not
// tried.
//
// It reports deadlocks, stalls (all threads wait, and only a time-out will end that: a lost wake-up), livelocks, and failed checks.

#include <poll.h>
#include <pthread.h>

#include <cstdint>
#include <functional>

#include "base/clock.hpp"

namespace mv::schedules {

/// Runs `work` and all threads that it starts and joins under the schedule of `seed`. May be called once in a process. Returns a
/// fingerprint of the schedule. On a failure, ends the process with kFailed and a report on standard error.
uint64_t run(uint64_t seed, const std::function<void()>& work);
inline constexpr int kFailed = 3;

/// Ends the set-up. During the set-up, the scheduler switches only when a thread waits. The scenario calls this before the part under test.
void begin_here();
/// A number below `most`, from the seed.
uint64_t random_below(uint64_t most);
inline bool one_in(uint64_t n) { return random_below(n) == 0; }
/// Reports this message and ends the process.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
#define EXPECT(holds) ((holds) ? void() : ::mv::schedules::fail("%s:%d: %s does not hold", __FILE__, __LINE__, #holds))
/// From now on all threads may sleep this long at the same time; a longer sleep is a stall. Default: 100 ms.
void expect_sleeps_up_to(base::Nanos longest);

// ---- for intercept.cpp, on a thread of the schedule, where current_thread() is not null

struct Thread;
Thread* current_thread();
/// A point at which the scheduler may switch. `where`: for reports.
void step(const void* where);
/// Like step(), but prefers other threads: for polling loops.
void yield();
int64_t nanoseconds();
uint64_t processors();
uint64_t processor_of_this_thread();

enum class Woken { kByOthers, kTimeout, kSignal };
inline constexpr int64_t kForEver = INT64_MAX;
/// The condition of a wait: wake(on), or a descriptor. `doing` is for reports.
struct Waiting {
  const char* doing;
  const void* on = nullptr;
  int64_t until = kForEver;
  pollfd* polled = nullptr;
  nfds_t polled_count = 0;
  bool is_interruptible = false;
};
Woken block(const Waiting& waiting);
/// Wakes the threads that block on it: all, or one that the seed chooses.
void wake(const void* on, bool all);
/// A descriptor may have become ready.
void descriptors_changed();

/// Stores of this thread that others don't see yet. try_buffer() returns false if the store has to be made at once.
bool try_buffer(volatile void* at, uint64_t value, int bytes);
bool find_buffered(const volatile void* at, uint64_t* value);
void flush_stores();

int start_thread(pthread_t* made, const pthread_attr_t* attributes, void* (*start)(void*), void* argument);
void wait_for_end(pthread_t thread);
/// Delivers a signal. It ends an interruptible wait; otherwise it stays pending if the thread blocks signals, or is dropped if the thread
/// is over.
void interrupt(pthread_t thread);
void block_signals(bool blocks);
bool blocks_signals();

}  // namespace mv::schedules
