// Replaces ThreadSanitizer's runtime and functions of the C library for the sources under test: see scheduler.hpp. Not instrumented.

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "real.hpp"
#include "scheduler.hpp"

using namespace mv::schedules;

#define EXPORT extern "C" __attribute__((visibility("default")))
/// The C library's function of this name. The lookup takes no lock, because threads that do not have the turn call some of them, too.
#define REAL(name)                                                     \
  reinterpret_cast<decltype(&name)>([] {                               \
    static std::atomic<void*> found{nullptr};                          \
    if (found.load() == nullptr) found.store(dlsym(RTLD_NEXT, #name)); \
    return found.load();                                               \
  }())
#define HERE __builtin_return_address(0)

namespace {

int64_t nanoseconds_of(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

/// A system call that may make a descriptor of another thread ready.
template <typename Call>
auto around(const void* where, Call&& call) {
  if (current_thread() == nullptr) return call();
  step(where);
  flush_stores();
  const auto result = call();
  const int error = errno;
  descriptors_changed();
  errno = error;
  return result;
}

}  // namespace

namespace mv::schedules::real {

void futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  REAL(syscall)(SYS_futex, word, operation, value, nullptr, nullptr, 0);
}
int poll_now(pollfd* polled, nfds_t count) { return REAL(poll)(polled, count, 0); }
int create_thread(pthread_t* made, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  return REAL(pthread_create)(made, attributes, start, argument);
}

}  // namespace mv::schedules::real

// ------------------------------------------------------------ atomic operations

namespace {

/// Before a read-modify-write or a fence.
void full_step(const void* where) {
  if (current_thread() == nullptr) return;
  step(where);
  flush_stores();
}

template <typename T>
T load(const volatile T* at, const void* where) {
  if (current_thread() != nullptr) {
    step(where);
    if (uint64_t value; find_buffered(at, &value)) return static_cast<T>(value);
  }
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

template <typename T>
void store(volatile T* at, T value, int order, const void* where) {
  if (current_thread() != nullptr) {
    step(where);
    if (order != __ATOMIC_SEQ_CST && try_buffer(at, value, sizeof value)) return;
    flush_stores();
  }
  __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}

}  // namespace

// clang-format off
#define FETCH(T, bits, name)                                                  \
  EXPORT T __tsan_atomic##bits##_fetch_##name(volatile T* at, T value, int) { \
    full_step(HERE);                                                          \
    return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST);                \
  }
#define EXCHANGE(T, bits, kind)                                                                              \
  EXPORT int __tsan_atomic##bits##_compare_exchange_##kind(volatile T* at, T* expected, T value, int, int) { \
    full_step(HERE);                                                                                         \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }
#define ATOMICS(T, bits)                                                                                         \
  EXPORT T __tsan_atomic##bits##_load(const volatile T* at, int) { return load(at, HERE); }                      \
  EXPORT void __tsan_atomic##bits##_store(volatile T* at, T value, int order) { store(at, value, order, HERE); } \
  EXPORT T __tsan_atomic##bits##_exchange(volatile T* at, T value, int) {                                        \
    full_step(HERE);                                                                                             \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                              \
  EXPORT T __tsan_atomic##bits##_compare_exchange_val(volatile T* at, T expected, T value, int, int) {           \
    full_step(HERE);                                                                                             \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                \
    return expected;                                                                                             \
  }                                                                                                              \
  FETCH(T, bits, add) FETCH(T, bits, sub) FETCH(T, bits, and) FETCH(T, bits, or) FETCH(T, bits, xor)             \
  FETCH(T, bits, nand) EXCHANGE(T, bits, strong) EXCHANGE(T, bits, weak)
ATOMICS(uint8_t, 8)
ATOMICS(uint16_t, 16)
ATOMICS(uint32_t, 32)
ATOMICS(uint64_t, 64)

EXPORT void __tsan_atomic_thread_fence(int) { full_step(HERE); }
EXPORT void __tsan_atomic_signal_fence(int) {}

// ThreadSanitizer itself finds races of ordinary accesses; they are no switching points.
#define NOTHING(name) \
  EXPORT void __tsan_##name(void*) {}
#define ACCESSES(bytes)                                                                                                \
  NOTHING(read##bytes) NOTHING(write##bytes) NOTHING(unaligned_read##bytes) NOTHING(unaligned_write##bytes)            \
  NOTHING(volatile_read##bytes) NOTHING(volatile_write##bytes) NOTHING(unaligned_volatile_read##bytes)                 \
  NOTHING(unaligned_volatile_write##bytes)
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
// clang-format on
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void*) {}
EXPORT void __tsan_func_exit() {}
EXPORT void __tsan_read_range(void*, size_t) {}
EXPORT void __tsan_write_range(void*, size_t) {}
EXPORT void __tsan_vptr_update(void**, void*) {}
EXPORT void __tsan_vptr_read(void**) {}

// ------------------------------------------------------------ locks and condition variables

EXPORT int pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (current_thread() == nullptr) return REAL(pthread_mutex_lock)(mutex);
  step(HERE);
  flush_stores();
  int taken;
  while ((taken = REAL(pthread_mutex_trylock)(mutex)) == EBUSY) block({.doing = "waits for a lock", .on = mutex});
  return taken;
}
EXPORT int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  full_step(HERE);
  return REAL(pthread_mutex_trylock)(mutex);
}
EXPORT int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (current_thread() == nullptr) return REAL(pthread_mutex_unlock)(mutex);
  flush_stores();
  const int given = REAL(pthread_mutex_unlock)(mutex);
  wake(mutex, true);
  step(HERE);
  return given;
}

namespace {

int wait_for(pthread_cond_t* condition, pthread_mutex_t* mutex, int64_t until) {
  if (current_thread() == nullptr) abort();  // only threads of a schedule may wait
  REAL(pthread_mutex_unlock)(mutex);
  wake(mutex, true);
  const Woken how = block({.doing = "waits for a condition", .on = condition, .until = until});
  pthread_mutex_lock(mutex);
  return how == Woken::kTimeout ? ETIMEDOUT : 0;
}

int notify(pthread_cond_t* condition, bool all, const void* where) {
  if (current_thread() == nullptr) return 0;
  step(where);
  wake(condition, all);
  return 0;
}

}  // namespace

EXPORT int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return wait_for(condition, mutex, kForEver);
}
EXPORT int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  return wait_for(condition, mutex, nanoseconds_of(*until));
}
EXPORT int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t, const timespec* until) {
  return wait_for(condition, mutex, nanoseconds_of(*until));
}
EXPORT int pthread_cond_signal(pthread_cond_t* condition) { return notify(condition, false, HERE); }
EXPORT int pthread_cond_broadcast(pthread_cond_t* condition) { return notify(condition, true, HERE); }

// ------------------------------------------------------------ threads, signals, processors

EXPORT int pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  if (current_thread() == nullptr) return REAL(pthread_create)(made, attributes, start, argument);
  return start_thread(made, attributes, start, argument);
}
EXPORT int pthread_join(pthread_t thread, void** result) {
  if (current_thread() != nullptr) wait_for_end(thread);
  return REAL(pthread_join)(thread, result);
}
EXPORT int pthread_kill(pthread_t thread, int signal) {
  if (current_thread() == nullptr) return REAL(pthread_kill)(thread, signal);
  step(HERE);
  interrupt(thread);
  return 0;
}
/// SIGUSR1 represents all signals.
EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  if (current_thread() == nullptr) return REAL(pthread_sigmask)(how, set, before);
  if (before != nullptr) {
    sigemptyset(before);
    if (blocks_signals()) sigaddset(before, SIGUSR1);
  }
  if (set != nullptr && how == SIG_SETMASK) block_signals(sigismember(set, SIGUSR1) != 0);
  if (set != nullptr && how != SIG_SETMASK && sigismember(set, SIGUSR1) != 0) block_signals(how == SIG_BLOCK);
  return 0;
}
EXPORT int sched_yield() {
  if (current_thread() == nullptr) return REAL(sched_yield)();
  yield();
  return 0;
}
EXPORT int sched_getcpu() {
  return current_thread() == nullptr ? REAL(sched_getcpu)() : static_cast<int>(processor_of_this_thread());
}
EXPORT int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t* set) {
  if (current_thread() == nullptr) return REAL(sched_getaffinity)(process, bytes, set);
  CPU_ZERO_S(bytes, set);
  for (size_t i = 0; i < processors(); ++i) CPU_SET_S(i, bytes, set);
  return 0;
}

// ------------------------------------------------------------ time

EXPORT int clock_gettime(clockid_t clock, timespec* now) {
  if (current_thread() == nullptr) return REAL(clock_gettime)(clock, now);
  now->tv_sec = nanoseconds() / 1'000'000'000;
  now->tv_nsec = nanoseconds() % 1'000'000'000;
  return 0;
}
EXPORT int nanosleep(const timespec* span, timespec* left) {
  if (current_thread() == nullptr) return REAL(nanosleep)(span, left);
  block({.doing = "sleeps", .until = nanoseconds() + nanoseconds_of(*span)});
  return 0;
}
EXPORT int clock_nanosleep(clockid_t clock, int flags, const timespec* span, timespec* left) {
  if (current_thread() == nullptr) return REAL(clock_nanosleep)(clock, flags, span, left);
  block({.doing = "sleeps", .until = ((flags & TIMER_ABSTIME) != 0 ? 0 : nanoseconds()) + nanoseconds_of(*span)});
  return 0;
}

// ------------------------------------------------------------ system calls

/// Only futexes block. Between processes they are shared; here all users are threads, which have them at the same address.
EXPORT long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number != SYS_futex || current_thread() == nullptr)
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  step(HERE);
  flush_stores();
  const auto* const word = reinterpret_cast<const uint32_t*>(a[0]);
  const auto* const limit = reinterpret_cast<const timespec*>(a[3]);
  switch (a[1] & FUTEX_CMD_MASK) {
    case FUTEX_WAKE:
      wake(word, a[2] > 1);
      return 0;
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET: {
      if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != static_cast<uint32_t>(a[2])) return errno = EAGAIN, -1;
      const bool is_absolute = (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
      const int64_t until = limit == nullptr ? kForEver : nanoseconds_of(*limit) + (is_absolute ? 0 : nanoseconds());
      const Woken how =
          block({.doing = "waits for a futex", .on = word, .until = until, .is_interruptible = !blocks_signals()});
      if (how == Woken::kByOthers) return 0;
      return errno = how == Woken::kSignal ? EINTR : ETIMEDOUT, -1;
    }
    default:
      fail("unsupported futex operation %ld", a[1]);
  }
}

EXPORT int ppoll(pollfd* polled, nfds_t count, const timespec* limit, const sigset_t* signals) {
  if (current_thread() == nullptr) return REAL(ppoll)(polled, count, limit, signals);
  step(HERE);
  flush_stores();
  const bool is_interruptible = signals == nullptr ? !blocks_signals() : sigismember(signals, SIGUSR1) == 0;
  const int64_t until = limit == nullptr ? kForEver : nanoseconds() + nanoseconds_of(*limit);
  while (true) {
    const int ready = real::poll_now(polled, count);
    if (ready != 0) return ready;
    if (nanoseconds() >= until) return 0;
    if (block({.doing = "polls",
               .until = until,
               .polled = polled,
               .polled_count = count,
               .is_interruptible = is_interruptible}) == Woken::kSignal)
      return errno = EINTR, -1;
  }
}
EXPORT int poll(pollfd* polled, nfds_t count, int limit) {
  if (current_thread() == nullptr) return REAL(poll)(polled, count, limit);
  const timespec span{limit / 1000, limit % 1000 * 1'000'000};
  return ppoll(polled, count, limit < 0 ? nullptr : &span, nullptr);
}

EXPORT ssize_t read(int fd, void* to, size_t bytes) {
  return around(HERE, [&] { return REAL(read)(fd, to, bytes); });
}
EXPORT ssize_t write(int fd, const void* from, size_t bytes) {
  return around(HERE, [&] { return REAL(write)(fd, from, bytes); });
}
EXPORT ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return around(HERE, [&] { return REAL(sendmsg)(fd, message, flags); });
}
EXPORT ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return around(HERE, [&] { return REAL(recvmsg)(fd, message, flags); });
}
EXPORT int eventfd_write(int fd, eventfd_t value) {
  return around(HERE, [&] { return REAL(eventfd_write)(fd, value); });
}
EXPORT int eventfd_read(int fd, eventfd_t* value) {
  return around(HERE, [&] { return REAL(eventfd_read)(fd, value); });
}
EXPORT int connect(int fd, const sockaddr* to, socklen_t bytes) {
  return around(HERE, [&] { return REAL(connect)(fd, to, bytes); });
}
EXPORT int shutdown(int fd, int how) {
  return around(HERE, [&] { return REAL(shutdown)(fd, how); });
}
EXPORT int close(int fd) {
  return around(HERE, [&] { return REAL(close)(fd); });
}

// ------------------------------------------------------------ memory

extern "C" void __libc_free(void* memory);

/// Called before the memory is reused.
EXPORT void free(void* memory) {
  if (current_thread() != nullptr) flush_stores();
  __libc_free(memory);
}
EXPORT int munmap(void* memory, size_t bytes) {
  if (current_thread() != nullptr) flush_stores();
  return static_cast<int>(REAL(syscall)(SYS_munmap, memory, bytes));
}
