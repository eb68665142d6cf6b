/* One of several workers that read a whole table at the same time:  many_readers BYTES ROUNDS SECONDS
 * In each round all of them get it for SECONDS; then two of them copy as many bytes with memcpy, for as long. Worker 0 writes {"gets":
 * bytes per second of all workers together, "copies": of the two} for each round. With 0 rounds, every worker reads the table once, a
 * megabyte at a time, and stays until worker 0's standard input ends, so that the processes' memory can be measured. */
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"

enum { kCols = 1024, kChunkRows = 256, kCopiers = 2 };

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static void meet(void) { expect_ok(mv_barrier(0, NULL), "mv_barrier"); }

/* Writes, or reads, every page of the table through a buffer of a megabyte. */
static void by_chunks(mv_table table, uint64_t rows, int writes) {
  float *values = batch_memory(sizeof(float) * kChunkRows * kCols);
  int64_t ids[kChunkRows];
  for (uint64_t i = 0; i < kChunkRows * kCols; ++i) values[i] = 1;
  for (uint64_t first = 0; first < rows; first += kChunkRows) {
    const uint64_t count = rows - first < kChunkRows ? rows - first : kChunkRows;
    for (uint64_t i = 0; i < count; ++i) ids[i] = (int64_t)(first + i);
    if (writes) {
      expect_ok(mv_table_add_rows(table, ids, count, values, count * kCols, MV_F32, NULL), "mv_table_add_rows");
    } else {
      expect_ok(mv_table_get_rows(table, ids, count, values, count * kCols, MV_F32, NULL), "mv_table_get_rows");
      const float last = values[count * kCols - 1];
      if (last != 1) batch_fail("row %llu holds %g", (unsigned long long)(first + count - 1), last);
    }
  }
  free(values);
}

static double bytes_per_second(mv_table table, float *values, const float *from, uint64_t bytes, double seconds) {
  const double begun = batch_now();
  double done = 0;
  do {
    if (from)
      memcpy(values, from, bytes);
    else
      expect_ok(mv_table_get(table, values, bytes / sizeof(float), MV_F32, NULL), "mv_table_get");
    __asm__ volatile("" : : "r"(values) : "memory");
    done += (double)bytes;
  } while (batch_now() - begun < seconds);
  return done / (batch_now() - begun);
}

/* The sum over all workers of their values added to element `which`. */
static double total(mv_table tally, int which, double value) {
  double before[2], after[2], added[2] = {0, 0};
  expect_ok(mv_table_get(tally, before, 2, MV_F64, NULL), "mv_table_get");
  meet();
  added[which] = value;
  expect_ok(mv_table_add(tally, added, 2, MV_F64, NULL), "mv_table_add");
  meet();
  expect_ok(mv_table_get(tally, after, 2, MV_F64, NULL), "mv_table_get");
  meet();
  return after[which] - before[which];
}

static mv_table make(int32_t kind, mv_dtype dtype, uint64_t rows, uint64_t cols) {
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.kind = kind;
  spec.dtype = dtype;
  spec.rows = rows;
  spec.cols = cols;
  mv_table table;
  expect_ok(mv_table_create(0, &spec, NULL, 0, dtype, &table), "mv_table_create");
  return table;
}

int main(int argc, char **argv) {
  if (argc != 4) batch_fail("usage: many_readers BYTES ROUNDS SECONDS");
  const uint64_t bytes = strtoull(argv[1], NULL, 10), rows = bytes / sizeof(float) / kCols;
  const long rounds = strtol(argv[2], NULL, 10);
  const double seconds = strtod(argv[3], NULL);
  int64_t worker = 0;
  expect_ok(mv_init(NULL), "mv_init");
  expect_ok(mv_worker_id(0, &worker), "mv_worker_id");
  const mv_table table = make(MV_MATRIX, MV_F32, rows, kCols), tally = make(MV_ARRAY, MV_F64, 2, 1);
  if (worker == 0) by_chunks(table, rows, 1);
  meet();
  by_chunks(table, rows, 0);
  meet();
  if (rounds == 0 && worker == 0) {
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (getchar() != EOF) continue;
  }
  float *values = rounds > 0 ? batch_memory(bytes) : NULL;
  float *from = rounds > 0 && worker < kCopiers ? batch_memory(bytes) : NULL;
  for (long round = 0; round < rounds; ++round) {
    meet();
    const double gets = total(tally, 0, bytes_per_second(table, values, NULL, bytes, seconds));
    const double copies = total(tally, 1, from ? bytes_per_second(table, values, from, bytes, seconds) : 0);
    if (worker == 0) printf("{\"gets\": %.6g, \"copies\": %.6g}\n", gets, copies);
    fflush(stdout);
  }
  meet();
  free(values);
  free(from);
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
