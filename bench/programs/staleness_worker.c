/* One of several workers that train together, one of which is slow:  staleness_worker STALENESS SECONDS TURN
 *
 * Each iteration is a get, work (a sleep: 2 ms, or 8 ms for the slow worker), an add and the end of the iteration. STALENESS is the
 * table's, -1 for async. The slow worker is worker 0, or, with TURN > 0, every TURN iterations the next worker, as if the operating
 * system or the data slowed down different workers at different times.
 *
 * Elements 0 .. workers - 1 of the table count each worker's adds, so that every get shows how many iterations it is behind: this
 * worker's clock minus the count of the slowest. At the end each worker writes {"iterations": i, "seconds": s, "behind": [gets that were
 * 0, 1, 2 ... behind, the last one by that or more]}. */
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "programs/batch.h"

enum { kElements = 4096, kMostBehind = 64, kFastMs = 2, kSlowMs = 8 };

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static void sleep_ms(int ms) {
  const struct timespec span = {0, ms * 1000000L};
  nanosleep(&span, NULL);
}

/* How many iterations of the slowest worker are missing from a get at this clock; own adds must all be included. */
static int64_t behind(const float *values, int64_t workers, int64_t self, int64_t clock) {
  if (values[self] != (float)clock) batch_fail("a get at clock %lld shows %g own adds", (long long)clock, values[self]);
  float least = values[0];
  for (int64_t i = 1; i < workers; ++i) least = values[i] < least ? values[i] : least;
  const int64_t lacks = clock - (int64_t)least;
  return lacks > 0 ? lacks : 0;
}

static void report(int64_t iterations, double seconds, const uint64_t *counts) {
  printf("{\"iterations\": %lld, \"seconds\": %.6g, \"behind\": [", (long long)iterations, seconds);
  for (int i = 0; i <= kMostBehind; ++i) printf("%s%llu", i > 0 ? ", " : "", (unsigned long long)counts[i]);
  printf("]}\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  if (argc != 4) batch_fail("usage: staleness_worker STALENESS SECONDS TURN");
  const double seconds = strtod(argv[2], NULL);
  const long turn = strtol(argv[3], NULL, 10);
  int64_t self = 0, workers = 0;
  expect_ok(mv_init(NULL), "mv_init");
  expect_ok(mv_worker_id(0, &self), "mv_worker_id");
  expect_ok(mv_num_workers(0, &workers), "mv_num_workers");
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.rows = kElements;
  spec.staleness = strtol(argv[1], NULL, 10);
  mv_table table;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), "mv_table_create");

  static float values[kElements], gradient[kElements];
  static uint64_t counts[kMostBehind + 1];
  gradient[self] = 1;
  expect_ok(mv_barrier(0, NULL), "mv_barrier");
  const double begun = batch_now();
  int64_t clock = 0;
  for (; batch_now() - begun < seconds; ++clock) {
    expect_ok(mv_table_get(table, values, kElements, MV_F32, NULL), "mv_table_get");
    const int64_t lacks = behind(values, workers, self, clock);
    const int all_run = batch_now() - begun < 0.8 * seconds; /* the others do not wait for a worker that has finished */
    if (all_run) ++counts[lacks < kMostBehind ? lacks : kMostBehind];
    sleep_ms(self == (turn > 0 ? clock / turn % workers : 0) ? kSlowMs : kFastMs);
    expect_ok(mv_table_add(table, gradient, kElements, MV_F32, NULL), "mv_table_add");
    expect_ok(mv_table_clock(table), "mv_table_clock");
  }
  report(clock, batch_now() - begun, counts);
  expect_ok(mv_shutdown(0), "mv_shutdown"); /* after this, no worker waits for this one */
  return 0;
}
