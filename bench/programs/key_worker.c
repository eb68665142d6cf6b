/* A worker on a key-value table of f64. Operation add: blocking, 1 to each of BYTES / 8 keys. After every batch, the sum of the table
 * must equal the number of adds so far. With an argument, `key_worker KEYS` measures the memory of so many keys, see draws_fill(). */
#include <polyverso/polyverso.h>
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"
#include "programs/draws.h"

typedef struct worker {
  mv_table table;
  int64_t *draws;
  uint64_t at;    /* the next draw */
  uint64_t count; /* keys of an add */
  double *ones;   /* count of them */
  uint64_t added; /* since the program's start */
} worker;

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static void make_ones(worker *w, uint64_t count) {
  free(w->ones);
  w->ones = batch_memory(count * sizeof(double));
  for (uint64_t i = 0; i < count; ++i) w->ones[i] = 1;
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  worker *w = self;
  w->count = bytes / sizeof(double);
  if (strcmp(operation, "add") != 0) batch_fail("key_worker: unknown operation %s", operation);
  if (w->count == 0 || kDraws % w->count != 0) batch_fail("key_worker: %d draws are not a multiple of the keys of an add", kDraws);
  make_ones(w, w->count);
  w->at = 0;
}

static void add(void *self, const int64_t *keys, uint64_t count) {
  worker *w = self;
  expect_ok(mv_table_add_rows(w->table, keys, count, w->ones, count, MV_F64, NULL), "mv_table_add_rows");
  w->added += count;
}

static void repeat(void *self, uint64_t times) {
  worker *w = self;
  for (uint64_t i = 0; i < times; ++i) {
    add(w, w->draws + w->at, w->count);
    w->at = (w->at + w->count) % kDraws;
  }
}

static void check(void *self) {
  const worker *w = self;
  enum { kSome = 100000 };
  static int64_t keys[kSome];
  static double values[kSome];
  double sum = 0;
  for (int64_t next = 0; next >= 0;) {
    uint64_t found = 0;
    expect_ok(mv_table_scan(w->table, next, keys, kSome, values, kSome, MV_F64, &next, &found), "mv_table_scan");
    for (uint64_t i = 0; i < found; ++i) sum += values[i];
  }
  if (sum != (double)w->added) batch_fail("after %llu adds of 1 the sum is %.17g", (unsigned long long)w->added, sum);
}

int main(int count, char **words) {
  expect_ok(mv_init(NULL), "mv_init");
  worker self = {0};
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.kind = MV_KEYVALUE;
  spec.dtype = MV_F64;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F64, &self.table), "mv_table_create");
  if (count == 2) {
    make_ones(&self, kFill);
    draws_fill(&(draws_map){add, check, &self}, strtoull(words[1], NULL, 10));
  } else {
    self.draws = draws_make();
    batch_serve(&(batch_program){.prepare = prepare, .repeat = repeat, .check = check, .self = &self});
  }
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
