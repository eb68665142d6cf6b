/* Measures asynchronous operations that start and wait at random moments relative to each other: wakeup_probe WHAT HOW COUNT SEED.
 * WHAT  allreduce, add, get, push (with the pull that sees it) or pull, of 256 floats
 * HOW   wait: mv_request_wait();  poll: mv_poll();  fd: poll(2) on mv_event_fd(), then mv_poll()
 * Rank 0 prints one line of JSON: microseconds, operations above 20 ms, and those that were given up after 20 s ("stalled"). A lost
 * wake-up shows only if no other event wakes the process meanwhile: run with heartbeat_timeout_ms=3600000 to count them. */
#include <poll.h>
#include <polyverso/group.h>
#include <polyverso/kvstore.h>
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kFloats = 256 };
static const double kGivenUpAfter = 20.0;

static float values[kFloats];
static mv_group group;
static mv_table table;
static kv_store store;
static mv_tensor tensor;
static const int64_t kKey[] = {1};
static int32_t fd;

static void expect_ok(mv_status status, const char* doing) {
  if (status == MV_OK) return;
  fprintf(stderr, "%s: %s: %s\n", doing, mv_status_name(status), mv_last_error());
  exit(1);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* xorshift64* (Vigna 2016) */
static double draw(uint64_t* state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return (double)((*state * UINT64_C(0x2545F4914F6CDD1D)) >> 11) / (double)(UINT64_C(1) << 53);
}

static void be_busy(double seconds) {
  const double until = now() + seconds;
  while (now() < until) continue;
}

static mv_status begin(const char* what, mv_request* request) {
  mv_call_options later = MV_CALL_OPTIONS_INIT;
  later.flags = MV_ASYNC;
  later.request = request;
  kv_keys keys = KV_KEYS_INIT;
  keys.count = 1;
  keys.numbers = kKey;
  kv_values given = KV_VALUES_INIT;
  given.count = 1;
  given.tensors = &tensor;
  if (strcmp(what, "allreduce") == 0) return mv_allreduce(group, NULL, values, kFloats, MV_F32, MV_REDUCE_SUM, &later);
  if (strcmp(what, "add") == 0) return mv_table_add(table, values, kFloats, MV_F32, &later);
  if (strcmp(what, "get") == 0) return mv_table_get(table, values, kFloats, MV_F32, &later);
  if (strcmp(what, "push") == 0) { /* still in flight when the push returns: the pull sees it */
    const mv_status pushed = kv_push(store, &keys, &given, NULL);
    if (pushed != MV_OK) return pushed;
  }
  return kv_pull(store, &keys, &given, &later);
}

/* Waits until the request is over; false if it was given up. */
static int finish(const char* how, mv_request request) {
  if (strcmp(how, "wait") == 0) {
    const mv_status status = mv_request_wait(request, (int64_t)(1000 * kGivenUpAfter));
    if (status != MV_ETIMEOUT) expect_ok(status, "mv_request_wait");
    if (status == MV_ETIMEOUT) expect_ok(mv_request_wait(request, 0), "mv_request_wait");
    return status == MV_OK;
  }
  const double begun = now();
  int stalled = 0;
  for (;;) {
    mv_request finished = 0;
    uint64_t count = 0;
    int64_t most_ms = (int64_t)(1000 * kGivenUpAfter);
    if (strcmp(how, "fd") == 0) {
      struct pollfd readable = {fd, POLLIN, 0};
      poll(&readable, 1, (int)most_ms);
      most_ms = 0;
    }
    expect_ok(mv_poll(0, &finished, 1, &count, most_ms), "mv_poll");
    stalled |= now() - begun > kGivenUpAfter;
    if (count == 0) continue;
    expect_ok(mv_request_wait(finished, 0), "mv_request_wait");
    if (finished == request) return !stalled;
  }
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const char *what = argv[1], *how = argv[2];
  const long count = atol(argv[3]);
  int64_t rank = 0;
  expect_ok(mv_init(NULL), "mv_init");
  expect_ok(mv_rank(0, &rank), "mv_rank");
  uint64_t random_state = strtoull(argv[4], NULL, 10) * 1000003 + (uint64_t)rank * 7919 + 1;
  const int64_t shape[] = {kFloats};
  kv_keys keys = KV_KEYS_INIT;
  keys.count = 1;
  keys.numbers = kKey;
  kv_values given = KV_VALUES_INIT;
  given.count = 1;
  given.tensors = &tensor;
  expect_ok(mv_event_fd(0, &fd), "mv_event_fd");
  expect_ok(mv_group_open(0, NULL, 0, &group), "mv_group_open");
  expect_ok(mv_table_create_text(0, "size=256 name=probe", NULL, 0, MV_F32, &table), "mv_table_create_text");
  expect_ok(mv_tensor_create(MV_F32, shape, 1, &tensor), "mv_tensor_create");
  expect_ok(kv_create(0, "dist_async", &store), "kv_create");
  expect_ok(kv_init(store, &keys, &given), "kv_init");
  expect_ok(kv_set_optimizer(store, "mx.test"), "kv_set_optimizer");
  double* const took = calloc((size_t)count, sizeof *took);
  if (took == NULL) return 1;
  long slow = 0, stalled = 0;
  for (long i = 0; i < count; ++i) {
    be_busy(120e-6 * draw(&random_state));
    const double begun = now();
    mv_request request = 0;
    expect_ok(begin(what, &request), what);
    be_busy(60e-6 * draw(&random_state));
    stalled += !finish(how, request);
    took[i] = now() - begun;
    slow += took[i] > 20e-3;
  }
  qsort(took, (size_t)count, sizeof *took, ascending);
  if (rank == 0)
    printf(
        "{\"count\": %ld, \"median_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"most_us\": %.1f, \"above_20ms\": "
        "%ld, \"stalled\": %ld}\n",
        count, 1e6 * took[count / 2], 1e6 * took[count * 99 / 100], 1e6 * took[count * 999 / 1000],
        1e6 * took[count - 1], slow, stalled);
  else if (stalled > 0)
    printf("rank %d: %ld stalled\n", (int)rank, stalled);
  free(took);
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return stalled > 0;
}
