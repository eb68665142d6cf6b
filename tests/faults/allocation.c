/* Makes the N-th allocation of this process fail, once. The program that links this file replaces malloc() and its relatives, also for
 * the library. libuv's own allocations never fail here, because libuv calls abort() when it has no memory. */
#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void* __libc_malloc(size_t bytes);
extern void* __libc_calloc(size_t count, size_t bytes);
extern void* __libc_realloc(void* memory, size_t bytes);
extern void* __libc_memalign(size_t alignment, size_t bytes);

static atomic_uint_fast64_t fails_at, counted;
static atomic_int has_failed;
static uintptr_t uv_begin, uv_end;

static int find_uv(struct dl_phdr_info* info, size_t size, void* unused) {
  (void)size, (void)unused;
  if (strstr(info->dlpi_name, "libuv.so") == NULL) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    uv_begin = info->dlpi_addr + part->p_vaddr;
    uv_end = uv_begin + part->p_memsz;
  }
  return 1;
}

static _Thread_local int resolves;

/* glibc's name service asserts that it has memory. */
int getaddrinfo(const char* host, const char* port, const struct addrinfo* hints, struct addrinfo** found) {
  static int (*real)(const char*, const char*, const struct addrinfo*, struct addrinfo**);
  ++resolves;
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "getaddrinfo");
  const int status = real(host, port, hints, found);
  --resolves;
  return status;
}

void fault_arm(uint64_t n) {
  dl_iterate_phdr(find_uv, NULL);
  atomic_store(&has_failed, 0);
  atomic_store(&counted, 0);
  atomic_store(&fails_at, n);
}

int fault_happened(void) {
  atomic_store(&fails_at, 0);
  return atomic_load(&has_failed);
}

uint64_t fault_count(void) { return atomic_load(&counted); }
const char* fault_name(void) { return "allocation"; }
int fault_is_absorbed(void) { return 0; }

/* Prints the place of the failed allocation on standard error, without allocating. */
static void tell_where(void) {
  void* frames[24];
  if (getenv("FAULT_TRACE") == NULL) return;
  backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
}

static int fails(const void* caller) {
  const uint64_t at = atomic_load_explicit(&fails_at, memory_order_relaxed);
  const uintptr_t from = (uintptr_t)caller;
  if (at == 0 || resolves > 0 || (from >= uv_begin && from < uv_end)) return 0;
  if (atomic_fetch_add(&counted, 1) + 1 != at) return 0;
  atomic_store(&has_failed, 1);
  atomic_store(&fails_at, 0);
  tell_where();
  errno = ENOMEM;
  return 1;
}

#define CALLER __builtin_return_address(0)

void* malloc(size_t bytes) { return fails(CALLER) ? NULL : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return fails(CALLER) ? NULL : __libc_calloc(count, bytes); }
void* realloc(void* memory, size_t bytes) { return fails(CALLER) ? NULL : __libc_realloc(memory, bytes); }
void* memalign(size_t alignment, size_t bytes) { return fails(CALLER) ? NULL : __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return fails(CALLER) ? NULL : __libc_memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (fails(CALLER)) return ENOMEM;
  *memory = __libc_memalign(alignment, bytes);
  return *memory == NULL ? ENOMEM : 0;
}
