/* One of several workers that add to one table at the same time:  many_adders BYTES SECONDS
 * Each makes blocking adds of BYTES bytes of f32 for SECONDS. Worker 0 writes {"begun": true} when they begin, {"adds": of all workers,
 * "seconds": s} when they have ended, and checks the sum. All workers stay until worker 0's standard input ends. */
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>

#include "programs/batch.h"

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static void meet(void) { expect_ok(mv_barrier(0, NULL), "mv_barrier"); }

static mv_table make(uint64_t rows, mv_dtype dtype) {
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  mv_table table;
  spec.rows = rows;
  spec.dtype = dtype;
  expect_ok(mv_table_create(0, &spec, NULL, 0, dtype, &table), "mv_table_create");
  return table;
}

int main(int argc, char **argv) {
  if (argc != 3) batch_fail("usage: many_adders BYTES SECONDS");
  const uint64_t count = strtoull(argv[1], NULL, 10) / sizeof(float);
  const double seconds = strtod(argv[2], NULL);
  expect_ok(mv_init(NULL), "mv_init");
  const mv_table table = make(count, MV_F32), tally = make(1, MV_F64);
  float *ones = batch_memory(count * sizeof(float)), *sums = batch_memory(count * sizeof(float));
  for (uint64_t i = 0; i < count; ++i) ones[i] = 1;
  int32_t is_master = 0;
  expect_ok(mv_is_master(0, &is_master), "mv_is_master");
  for (int i = 0; i < 3; ++i) expect_ok(mv_table_add(table, ones, count, MV_F32, NULL), "mv_table_add");
  double adds = 3;

  meet();
  if (is_master) {
    printf("{\"begun\": true}\n");
    fflush(stdout);
  }
  const double begun = batch_now();
  do {
    expect_ok(mv_table_add(table, ones, count, MV_F32, NULL), "mv_table_add");
    ++adds;
  } while (batch_now() - begun < seconds);
  const double took = batch_now() - begun;
  meet();

  expect_ok(mv_table_add(tally, &adds, 1, MV_F64, NULL), "mv_table_add");
  meet();
  if (is_master) {
    double all = 0;
    expect_ok(mv_table_get(tally, &all, 1, MV_F64, NULL), "mv_table_get");
    printf("{\"adds\": %.0f, \"seconds\": %.6g}\n", all, took);
    fflush(stdout);
    expect_ok(mv_table_get(table, sums, count, MV_F32, NULL), "mv_table_get");
    /* Beyond 2^24 a float does not change by one. */
    for (uint64_t i = 0; i < count; ++i) {
      const float wanted = all < 16777216 ? (float)all : 16777216;
      if (sums[i] != wanted) batch_fail("element %llu is %.9g, not %.9g", (unsigned long long)i, sums[i], wanted);
    }
    while (getchar() != EOF) continue;
  }
  meet();
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
