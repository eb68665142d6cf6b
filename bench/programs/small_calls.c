/* The calls of caller.py on four rows, and on four keys, in C: rows_add, rows_get, keys_add and keys_get, blocking, in a cluster of one.
 * After every batch the values are compared with their expected content. */
#include <polyverso/polyverso.h>
#include <string.h>

#include "programs/batch.h"

enum { kRows = 1000, kCols = 4, kIds = 4, kValues = kIds * kCols };
static const int64_t kChosen[kIds] = {7, 300, 12, 999};

typedef struct caller {
  mv_table rows, keys, table; /* the last is the one of the batch */
  int adds;
  float ones[kValues], values[kValues];
  uint64_t done; /* adds since the batch began */
} caller;

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static mv_table make(int32_t kind, uint64_t rows) {
  mv_table table = 0;
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.kind = kind;
  spec.rows = rows;
  spec.cols = kCols;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), "mv_table_create");
  return table;
}

static void get(caller *c) {
  expect_ok(mv_table_get_rows(c->table, kChosen, kIds, c->values, kValues, MV_F32, NULL), "mv_table_get_rows");
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  caller *c = self;
  static const char *const kNames[] = {"rows_add", "rows_get", "keys_add", "keys_get"};
  int found = 0;
  while (found < 4 && strcmp(operation, kNames[found]) != 0) ++found;
  if (found == 4) batch_fail("small_calls: unknown operation %s", operation);
  if (bytes != sizeof(c->values)) batch_fail("small_calls: the calls move %zu bytes", sizeof(c->values));
  c->table = found < 2 ? c->rows : c->keys;
  c->adds = found % 2 == 0;
  c->done = 0;
  expect_ok(mv_table_set_rows(c->table, kChosen, kIds, c->ones, kValues, MV_F32, NULL), "mv_table_set_rows");
  memset(c->values, 0, sizeof(c->values));
}

static void repeat(void *self, uint64_t times) {
  caller *c = self;
  for (uint64_t i = 0; i < times; ++i) {
    if (c->adds) {
      expect_ok(mv_table_add_rows(c->table, kChosen, kIds, c->ones, kValues, MV_F32, NULL), "mv_table_add_rows");
    } else {
      get(c);
    }
  }
  c->done += c->adds ? times : 0;
}

static void check(void *self) {
  caller *c = self;
  if (c->adds) get(c);
  for (int i = 0; i < kValues; ++i) {
    if (c->values[i] != (float)(1 + c->done)) batch_fail("1 is %g after %llu adds of 1", c->values[i], (unsigned long long)c->done);
  }
}

int main(void) {
  expect_ok(mv_init(NULL), "mv_init");
  caller self = {.rows = make(MV_MATRIX, kRows), .keys = make(MV_KEYVALUE, 0)};
  for (int i = 0; i < kValues; ++i) self.ones[i] = 1;
  batch_serve(&(batch_program){.prepare = prepare, .repeat = repeat, .check = check, .self = &self});
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
