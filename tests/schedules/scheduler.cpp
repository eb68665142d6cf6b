#include "scheduler.hpp"

#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "real.hpp"

// This file is not instrumented. Only the thread that has the turn touches the state below; hand_over() orders one turn before the next.

namespace mv::schedules {

namespace {

constexpr size_t kMostBuffered = 8;
constexpr uint64_t kMostSteps = 3'000'000;
constexpr int64_t kBegin = 1'000'000'000'000;  // of the clock

struct Store {
  volatile void* at;
  uint64_t value;
  int bytes;
};

}  // namespace

struct Thread {
  enum class State { kReady, kBlocked, kOver };
  int number = 0;
  std::atomic<uint32_t> turn{0};  // a futex
  pthread_t handle{};
  void* (*start)(void*) = nullptr;
  void* argument = nullptr;
  void* result = nullptr;

  State state = State::kReady;
  int64_t priority = 0;
  Waiting waiting{};
  Woken woken{};
  bool blocks_signals = false, has_signal = false;
  const void* where = nullptr;  // its last step
  std::vector<Store> stores;
  const char* stack_begin = nullptr;
  const char* stack_end = nullptr;
};

namespace {

thread_local Thread* self = nullptr;

struct Schedule {
  uint64_t seed = 0, random = 0;
  bool has_begun = false, by_priorities = false, buffers_stores = false;
  uint64_t switch_one_in = 1;           // kRandom
  std::vector<uint64_t> change_points;  // kPriorities: steps, descending
  int64_t lowest = 0;
  uint64_t most_in_a_row = 0, in_a_row = 0;
  int64_t tick = 0, now = kBegin, longest_sleep = 100'000'000;
  uint64_t processors = 1;
  uint64_t steps = 0, print = 0;
  std::vector<Thread*> threads;
} schedule;

uint64_t next_random() {  // splitmix64
  uint64_t z = schedule.random += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

template <size_t n>
uint64_t any_of(const uint64_t (&choices)[n]) {
  return choices[random_below(n)];
}

void choose_strategy() {
  schedule.by_priorities = random_below(2) == 0;
  schedule.buffers_stores = random_below(2) == 0;
  schedule.switch_one_in = any_of({2, 4, 10, 40, 150});
  const uint64_t length = any_of({100, 500, 2000, 10000});
  for (uint64_t left = 1 + random_below(6); left > 0; --left) schedule.change_points.push_back(random_below(length));
  std::sort(schedule.change_points.rbegin(), schedule.change_points.rend());
  schedule.most_in_a_row = any_of({200, 2000});
  schedule.tick = static_cast<int64_t>(any_of({10, 100, 1000}));
  schedule.processors = any_of({1, 2, 16});
}

void make_ready(Thread& thread, Woken how) {
  thread.state = Thread::State::kReady;
  thread.woken = how;
}

void wake_late() {
  for (Thread* thread : schedule.threads)
    if (thread->state == Thread::State::kBlocked && thread->waiting.until <= schedule.now)
      make_ready(*thread, Woken::kTimeout);
}

Thread* choose() {
  Thread* ready[64];
  size_t count = 0;
  for (Thread* thread : schedule.threads)
    if (thread->state == Thread::State::kReady && count < 64) ready[count++] = thread;
  if (count == 0) return nullptr;
  if (!schedule.by_priorities) return ready[random_below(count)];
  return *std::max_element(ready, ready + count,
                           [](const Thread* a, const Thread* b) { return a->priority < b->priority; });
}

/// Called when no thread can continue at the current time.
void pass_time() {
  descriptors_changed();
  if (choose() != nullptr) return;
  int64_t next = kForEver;
  for (const Thread* thread : schedule.threads)
    if (thread->state == Thread::State::kBlocked) next = std::min(next, thread->waiting.until);
  if (next == kForEver) fail("deadlock: every thread waits");
  if (next - schedule.now > schedule.longest_sleep)
    fail("stall: every thread waits, and only a time-out in %.3f ms would end the wait",
         static_cast<double>(next - schedule.now) / 1e6);
  schedule.now = std::max(schedule.now, next);
  wake_late();
}

void hand_over(Thread& next) {
  Thread* const me = self;
  if (&next == me) return;
  schedule.in_a_row = 0;
  schedule.print = (schedule.print ^ static_cast<uint64_t>(next.number) ^ schedule.steps << 8) * 0x9e3779b97f4a7c15;
  next.turn.store(1, std::memory_order_release);
  real::futex(&next.turn, FUTEX_WAKE_PRIVATE, 1);
  if (me->state == Thread::State::kOver) return;
  while (me->turn.exchange(0, std::memory_order_acquire) == 0) real::futex(&me->turn, FUTEX_WAIT_PRIVATE, 0);
}

void go_on_with_anybody() {
  Thread* next = choose();
  while (next == nullptr) {
    pass_time();
    next = choose();
  }
  hand_over(*next);
}

void write_store(const Store& store) {
  switch (store.bytes) {
    case 1:
      *static_cast<volatile uint8_t*>(store.at) = static_cast<uint8_t>(store.value);
      break;
    case 2:
      *static_cast<volatile uint16_t*>(store.at) = static_cast<uint16_t>(store.value);
      break;
    case 4:
      *static_cast<volatile uint32_t*>(store.at) = static_cast<uint32_t>(store.value);
      break;
    default:
      *static_cast<volatile uint64_t*>(store.at) = store.value;
  }
}

void flush_oldest(Thread& thread) {
  write_store(thread.stores.front());
  thread.stores.erase(thread.stores.begin());
}

Thread& add_thread() {
  auto* const thread = new Thread;
  thread->number = static_cast<int>(schedule.threads.size());
  thread->priority = static_cast<int64_t>(random_below(1 << 20));
  thread->stores.reserve(kMostBuffered);
  schedule.threads.push_back(thread);
  return *thread;
}

void find_stack(Thread& thread) {
  pthread_attr_t attributes;
  void* begin = nullptr;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  pthread_attr_getstack(&attributes, &begin, &bytes);
  pthread_attr_destroy(&attributes);
  thread.stack_begin = static_cast<const char*>(begin);
  thread.stack_end = thread.stack_begin + bytes;
}

void* run_thread(void* argument) {
  auto& thread = *static_cast<Thread*>(argument);
  while (thread.turn.exchange(0, std::memory_order_acquire) == 0) real::futex(&thread.turn, FUTEX_WAIT_PRIVATE, 0);
  find_stack(thread);
  self = &thread;
  void* const result = thread.start(thread.argument);
  flush_stores();
  thread.state = Thread::State::kOver;
  wake(&thread, true);
  go_on_with_anybody();
  self = nullptr;
  return result;
}

}  // namespace

uint64_t run(uint64_t seed, const std::function<void()>& work) {
  schedule.seed = schedule.random = seed;
  choose_strategy();
  Thread& main = add_thread();
  main.handle = pthread_self();
  find_stack(main);
  self = &main;
  work();
  flush_stores();
  self = nullptr;
  return schedule.print ^ schedule.steps;
}

void begin_here() {
  for (uint64_t& point : schedule.change_points) point += schedule.steps;
  schedule.has_begun = true;
}

uint64_t random_below(uint64_t most) { return next_random() % most; }

void fail(const char* format, ...) {
  char text[500];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  fprintf(stderr, "%s\n  after %lu steps and %.3f ms of virtual time, %s%s\n", text, schedule.steps,
          static_cast<double>(schedule.now - kBegin) / 1e6, schedule.by_priorities ? "by priorities" : "at random",
          schedule.buffers_stores ? ", stores are buffered" : "");
  for (const Thread* thread : schedule.threads) {
    const bool waits = thread->state == Thread::State::kBlocked;
    fprintf(stderr, "  thread %d: %s", thread->number,
            waits                                   ? thread->waiting.doing
            : thread->state == Thread::State::kOver ? "over"
                                                    : "ready");
    if (waits && thread->waiting.until != kForEver)
      fprintf(stderr, " for %.3f ms", static_cast<double>(thread->waiting.until - schedule.now) / 1e6);
    Dl_info about{};
    if (thread->where != nullptr && dladdr(thread->where, &about) != 0)
      fprintf(stderr, "; addr2line -Cfipe %s %#lx", about.dli_fname,
              static_cast<const char*>(thread->where) - static_cast<const char*>(about.dli_fbase) - 1);
    fprintf(stderr, "\n");
  }
  if (getenv("SCHEDULES_ABORT") != nullptr) abort();  // for a debugger
  _exit(kFailed);
}

void expect_sleeps_up_to(base::Nanos longest) { schedule.longest_sleep = longest.count(); }

Thread* current_thread() { return self; }

int64_t nanoseconds() { return schedule.now; }
uint64_t processors() { return schedule.processors; }
uint64_t processor_of_this_thread() { return static_cast<uint64_t>(self->number) % schedule.processors; }

void step(const void* where) {
  Thread& me = *self;
  if (++schedule.steps > kMostSteps) fail("livelock: no end after %lu steps", kMostSteps);
  me.where = where;
  schedule.now += schedule.tick;
  wake_late();
  while (!me.stores.empty() && one_in(3)) flush_oldest(me);
  bool switches = ++schedule.in_a_row > schedule.most_in_a_row;
  if (schedule.by_priorities) {
    while (schedule.has_begun && !schedule.change_points.empty() && schedule.change_points.back() <= schedule.steps) {
      schedule.change_points.pop_back();
      me.priority = --schedule.lowest;
    }
    if (switches) me.priority = --schedule.lowest;
    switches = true;
  } else {
    switches |= schedule.has_begun && one_in(schedule.switch_one_in);
  }
  if (switches) {
    Thread* const next = choose();
    if (next == &me) schedule.in_a_row = std::min(schedule.in_a_row, schedule.most_in_a_row);
    hand_over(*next);
  }
}

void yield() {
  self->priority = --schedule.lowest;
  schedule.in_a_row = schedule.most_in_a_row;
  step(__builtin_return_address(0));
}

// ------------------------------------------------------------ waiting

Woken block(const Waiting& waiting) {
  Thread& me = *self;
  flush_stores();
  if (waiting.is_interruptible && me.has_signal) {
    me.has_signal = false;
    return Woken::kSignal;
  }
  me.waiting = waiting;
  me.state = Thread::State::kBlocked;
  wake_late();
  go_on_with_anybody();
  return me.woken;
}

void wake(const void* on, bool all) {
  std::vector<Thread*> found;
  for (Thread* thread : schedule.threads)
    if (thread->state == Thread::State::kBlocked && thread->waiting.on == on) found.push_back(thread);
  if (found.empty()) return;
  if (!all) return make_ready(*found[random_below(found.size())], Woken::kByOthers);
  for (Thread* thread : found) make_ready(*thread, Woken::kByOthers);
}

void descriptors_changed() {
  for (Thread* thread : schedule.threads) {
    if (thread->state != Thread::State::kBlocked || thread->waiting.polled == nullptr) continue;
    if (real::poll_now(thread->waiting.polled, thread->waiting.polled_count) > 0) make_ready(*thread, Woken::kByOthers);
  }
}

// ------------------------------------------------------------ buffered stores

bool try_buffer(volatile void* at, uint64_t value, int bytes) {
  Thread& me = *self;
  const auto* const place = static_cast<const char*>(const_cast<const void*>(at));
  if (!schedule.buffers_stores || (place >= me.stack_begin && place < me.stack_end))
    return false;  // a stack's memory ends with its function
  if (me.stores.size() == kMostBuffered) flush_oldest(me);
  me.stores.push_back({at, value, bytes});
  return true;
}

bool find_buffered(const volatile void* at, uint64_t* value) {
  const auto& stores = self->stores;
  const auto found = std::find_if(stores.rbegin(), stores.rend(), [at](const Store& store) { return store.at == at; });
  if (found == stores.rend()) return false;
  *value = found->value;
  return true;
}

void flush_stores() {
  for (const Store& store : self->stores) write_store(store);
  self->stores.clear();
}

// ------------------------------------------------------------ threads

int start_thread(pthread_t* made, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  flush_stores();
  Thread& thread = add_thread();
  thread.start = start;
  thread.argument = argument;
  const int failed = real::create_thread(made, attributes, run_thread, &thread);
  if (failed != 0) fail("no thread can be started: %d", failed);
  thread.handle = *made;
  step(__builtin_return_address(0));
  return 0;
}

void wait_for_end(pthread_t handle) {
  const auto is_meant = [handle](const Thread* thread) {
    return pthread_equal(thread->handle, handle) != 0 && thread->state != Thread::State::kOver;
  };
  const auto found = std::find_if(schedule.threads.begin(), schedule.threads.end(), is_meant);
  if (found == schedule.threads.end()) return;
  Thread* const thread = *found;  // more threads may begin meanwhile
  while (thread->state != Thread::State::kOver) block({.doing = "waits for a thread's end", .on = thread});
}

void interrupt(pthread_t handle) {
  for (Thread* thread : schedule.threads) {
    if (pthread_equal(thread->handle, handle) == 0 || thread->state == Thread::State::kOver) continue;
    if (thread->state == Thread::State::kBlocked && thread->waiting.is_interruptible)
      make_ready(*thread, Woken::kSignal);
    else if (thread->blocks_signals)
      thread->has_signal = true;
  }
}

void block_signals(bool blocks) {
  self->blocks_signals = blocks;
  if (!blocks) self->has_signal = false;  // its handler has run
}

bool blocks_signals() { return self->blocks_signals; }

}  // namespace mv::schedules
