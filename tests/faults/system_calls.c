/* Makes system calls of this process fail, as a seed decides. These functions replace the C library's, also for the library and for
 * libuv.
 *
 * A seed chooses one of the kinds below and its frequency. Some kinds must be absorbed because every program has to expect them: calls
 * that a signal interrupts, that would block, or that do only a part. Refusals by the machine begin at some call and end after one call,
 * after a few, or never. */
#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum call {
  kRead = 1, kWrite = 2, kSend = 4, kReceive = 8, kAccept = 16, kConnect = 32, kOpen = 64, kCreate = 128, kDescriptor = 256, kMemory = 512,
  kGrow = 1024, kSync = 2048, kMap = 4096, kThread = 8192, kSleep = 16384
};

static const struct sort {
  const char* name;
  int error; /* 0: a short count */
  int calls;
  int absorbed;
} kSorts[] = {
    {"EINTR", EINTR, kRead | kWrite | kSend | kReceive | kAccept | kOpen | kCreate | kGrow | kSync, 1},
    {"EAGAIN", EAGAIN, kRead | kWrite | kSend | kReceive | kAccept, 1},
    {"short", 0, kRead | kWrite | kSend | kReceive, 1},
    {"a signal", EINTR, kSleep, 0},
    {"EMFILE", EMFILE, kAccept | kOpen | kCreate | kDescriptor | kMemory, 0},
    {"ENFILE", ENFILE, kAccept | kOpen | kCreate | kDescriptor | kMemory, 0},
    {"ENOSPC", ENOSPC, kWrite | kCreate | kGrow | kSync, 0},
    {"EIO", EIO, kWrite | kSync, 0},
    {"ENOMEM", ENOMEM, kMap | kGrow | kMemory, 0},
    {"ENOSYS", ENOSYS, kMemory, 0},
    {"ENOBUFS", ENOBUFS, kSend, 0},
    {"no thread", EAGAIN, kThread, 0},
};
enum { kSortCount = sizeof kSorts / sizeof kSorts[0] };

static atomic_int armed, has_failed;
static atomic_uint_fast64_t counted;
static const struct sort* sort = &kSorts[0];
static uint64_t seed, first, last, odds;

static uint64_t mix(uint64_t z) { /* splitmix64 */
  z += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

void fault_arm(uint64_t n) {
  if (n == 0) return;
  seed = mix(n);
  sort = &kSorts[n % kSortCount];
  const int often = sort->absorbed || sort->calls == kSleep;
  odds = often ? 2 + seed % 8 : 1;
  first = often ? 0 : mix(seed) % (UINT64_C(1) << mix(seed + 2) % 6);
  const uint64_t lengths[] = {1, 4, UINT64_MAX / 2};
  last = often ? UINT64_MAX : first + lengths[mix(seed + 1) % 3];
  atomic_store(&counted, 0);
  atomic_store(&has_failed, 0);
  atomic_store(&armed, 1);
}
int fault_happened(void) {
  atomic_store(&armed, 0);
  return atomic_load(&has_failed);
}
uint64_t fault_count(void) { return atomic_load(&counted); }
const char* fault_name(void) { return sort->name; }
int fault_is_absorbed(void) { return sort->absorbed; }

/* Whether this call fails. Sets errno if it does. */
static int fails(int call) {
  if (!atomic_load_explicit(&armed, memory_order_relaxed) || (sort->calls & call) == 0) return 0;
  const uint64_t at = atomic_fetch_add(&counted, 1);
  if (at < first || at >= last || mix(seed + at) % odds != 0) return 0;
  atomic_store(&has_failed, 1);
  if (getenv("FAULT_TRACE") != NULL) {
    void* frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
  }
  errno = sort->error;
  return 1;
}
static int fails_fully(int call) { return sort->error != 0 && fails(call); }

/* The bytes of `bytes` that are transferred. */
static size_t part(int call, size_t bytes) {
  if (sort->error != 0 || bytes < 2 || !fails(call)) return bytes;
  return 1 + mix(seed + atomic_load(&counted)) % (bytes - 1);
}

/* Sockets, and files except for EAGAIN. An eventfd transfers all or nothing, and is never interrupted. */
static int may_fail(int fd) {
  struct stat about;
  const int error = errno;
  const int known = atomic_load(&armed) && fstat(fd, &about) == 0;
  const int is_socket = known && S_ISSOCK(about.st_mode), is_file = known && S_ISREG(about.st_mode);
  const int may = sort->error == EAGAIN ? is_socket && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0
                  : sort->error == ENOSPC || sort->error == EIO ? is_file
                                                                : is_socket || is_file;
  errno = error;
  return may;
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void* real(const char* name) { return dlsym(RTLD_NEXT, name); }

ssize_t read(int fd, void* to, size_t bytes) {
  const int may = may_fail(fd);
  if (may && fails_fully(kRead)) return -1;
  return REAL(read)(fd, to, may ? part(kRead, bytes) : bytes);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  const int may = may_fail(fd);
  if (may && fails_fully(kRead)) return -1;
  return REAL(pread)(fd, to, may ? part(kRead, bytes) : bytes, at);
}
ssize_t write(int fd, const void* from, size_t bytes) {
  const int may = may_fail(fd);
  if (may && fails_fully(kWrite)) return -1;
  return REAL(write)(fd, from, may ? part(kWrite, bytes) : bytes);
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  const int may = may_fail(fd);
  if (may && fails_fully(kWrite)) return -1;
  return REAL(pwrite)(fd, from, may ? part(kWrite, bytes) : bytes, at);
}
ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  const int may = may_fail(fd);
  if (may && fails_fully(kSend)) return -1;
  return REAL(send)(fd, from, may ? part(kSend, bytes) : bytes, flags);
}
ssize_t recv(int fd, void* to, size_t bytes, int flags) {
  const int may = may_fail(fd);
  if (may && fails_fully(kReceive)) return -1;
  return REAL(recv)(fd, to, may ? part(kReceive, bytes) : bytes, flags);
}
/* The first piece, shortened to the part that is transferred. */
static struct msghdr shortened(const struct msghdr* whole, struct iovec* piece, int call) {
  struct msghdr message = *whole;
  if (whole->msg_iovlen == 0) return message;
  *piece = whole->msg_iov[0];
  const size_t some = part(call, piece->iov_len);
  if (some == piece->iov_len) return message;
  piece->iov_len = some;
  message.msg_iov = piece;
  message.msg_iovlen = 1;
  return message;
}
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  if (!may_fail(fd)) return REAL(sendmsg)(fd, message, flags);
  if (fails_fully(kSend)) return -1;
  struct iovec piece;
  const struct msghdr some = shortened(message, &piece, kSend);
  return REAL(sendmsg)(fd, &some, flags);
}
ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  if (!may_fail(fd)) return REAL(recvmsg)(fd, message, flags);
  if (fails_fully(kReceive)) return -1;
  struct iovec piece, *const all = message->msg_iov;
  const size_t count = message->msg_iovlen;
  *message = shortened(message, &piece, kReceive);
  const ssize_t got = REAL(recvmsg)(fd, message, flags);
  message->msg_iov = all;
  message->msg_iovlen = count;
  return got;
}

int accept4(int fd, struct sockaddr* peer, socklen_t* bytes, int flags) { return fails(kAccept) ? -1 : REAL(accept4)(fd, peer, bytes, flags); }
int socket(int family, int kind, int protocol) { return fails(kDescriptor) ? -1 : REAL(socket)(family, kind, protocol); }
int eventfd(unsigned int value, int flags) { return fails(kDescriptor) ? -1 : REAL(eventfd)(value, flags); }
int epoll_create1(int flags) { return fails(kDescriptor) ? -1 : REAL(epoll_create1)(flags); }
int memfd_create(const char* name, unsigned int flags) { return fails(kMemory) ? -1 : REAL(memfd_create)(name, flags); }
int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  return fails((flags & O_CREAT) != 0 ? kCreate : kOpen) ? -1 : REAL(open)(path, flags, mode);
}
int mkdir(const char* path, mode_t mode) { return sort->error != EINTR && fails(kCreate) ? -1 : REAL(mkdir)(path, mode); }
int ftruncate(int fd, off_t bytes) { return fails(kGrow) ? -1 : REAL(ftruncate)(fd, bytes); }
int fallocate(int fd, int mode, off_t at, off_t bytes) { return fails(kGrow) ? -1 : REAL(fallocate)(fd, mode, at, bytes); }
int fsync(int fd) { return fails(kSync) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails(kSync) ? -1 : REAL(fdatasync)(fd); }
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return fails(kMap) ? MAP_FAILED : (void*)REAL(syscall)(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
int pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  return fails(kThread) ? EAGAIN : REAL(pthread_create)(made, attributes, start, argument);
}

/* A signal interrupts a thread's sleep only if the thread does not block signals. */
static int fails_asleep(const sigset_t* blocked) {
  sigset_t now;
  if (blocked == NULL) pthread_sigmask(SIG_BLOCK, NULL, &now), blocked = &now;
  return !sigismember(blocked, SIGUSR1) && fails(kSleep);
}
int ppoll(struct pollfd* polled, nfds_t count, const struct timespec* limit, const sigset_t* signals) {
  return fails_asleep(signals) ? -1 : REAL(ppoll)(polled, count, limit, signals);
}
long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && fails_asleep(NULL)) return -1;
  return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
