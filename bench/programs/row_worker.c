/* A worker on some rows of a matrix of f32. Operations on BYTES bytes of rows: get, add: blocking, of the chosen rows. After every batch
 * the whole table is compared with its expected content. */
#include <polyverso/polyverso.h>
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"
#include "programs/chosen.h"

typedef struct worker {
  int adds;
  mv_table table;
  uint64_t count;      /* of chosen rows */
  int64_t *rows;
  float *delta, *values, *all;
  uint64_t done; /* adds since the batch began */
} worker;

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static void make_table(worker *w) {
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.kind = MV_MATRIX;
  spec.rows = kRows;
  spec.cols = kCols;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &w->table), "mv_table_create");
  w->all = batch_memory(sizeof(float) * kRows * kCols);
}

static void choose(worker *w, uint64_t bytes) {
  const uint64_t count = bytes / (kCols * sizeof(float));
  if (count == w->count) return;
  free(w->rows);
  free(w->delta);
  free(w->values);
  w->rows = chosen_rows(count);
  w->delta = batch_memory(bytes);
  w->values = batch_memory(bytes);
  w->count = count;
  for (uint64_t i = 0; i < count * kCols; ++i) w->delta[i] = (float)(1 + i % 7);
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  worker *w = self;
  w->adds = strcmp(operation, "add") == 0;
  if (!w->adds && strcmp(operation, "get") != 0) batch_fail("row_worker: unknown operation %s", operation);
  choose(w, bytes);
  memset(w->all, 0, sizeof(float) * kRows * kCols);
  expect_ok(mv_table_set(w->table, w->all, (uint64_t)kRows * kCols, MV_F32, NULL), "mv_table_set");
  w->done = 0;
}

static void repeat(void *self, uint64_t times) {
  worker *w = self;
  const uint64_t elements = w->count * kCols;
  for (uint64_t i = 0; i < times; ++i) {
    if (w->adds) {
      expect_ok(mv_table_add_rows(w->table, w->rows, w->count, w->delta, elements, MV_F32, NULL), "mv_table_add_rows");
    } else {
      expect_ok(mv_table_get_rows(w->table, w->rows, w->count, w->values, elements, MV_F32, NULL), "mv_table_get_rows");
    }
  }
  w->done += w->adds ? times : 0;
}

static void check(void *self) {
  worker *w = self;
  expect_ok(mv_table_get(w->table, w->all, (uint64_t)kRows * kCols, MV_F32, NULL), "mv_table_get");
  for (uint64_t i = 0; i < w->count * kCols; ++i) {
    float *found = &w->all[w->rows[i / kCols] * kCols + (int64_t)(i % kCols)];
    const float wanted = (float)w->done * w->delta[i];
    if (*found != wanted) {
      batch_fail("after %llu adds row %lld holds %.9g, not %.9g", (unsigned long long)w->done,
                 (long long)w->rows[i / kCols], *found, wanted);
    }
    *found = 0;
  }
  for (uint64_t i = 0; i < (uint64_t)kRows * kCols; ++i) {
    if (w->all[i] == 0) continue;
    batch_fail("row %llu holds %.9g, but nothing was added to it", (unsigned long long)(i / kCols), w->all[i]);
  }
}

int main(void) {
  expect_ok(mv_init(NULL), "mv_init");
  worker self = {0};
  make_table(&self);
  batch_serve(&(batch_program){prepare, repeat, check, &self, NULL});
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
