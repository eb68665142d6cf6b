/* A worker whose calls grow with the work. The "bytes" of a batch are a number N. Operations, all blocking:
 *   keys    an add to N keys of a key-value table
 *   rows    a get of N random rows of a matrix of a million rows
 *   tables  an add of one float to each of N tables, fire-and-forget, and the wait until all are applied
 *   create  the creation of N tables, and their destruction */
#include <polyverso/polyverso.h>
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"

enum { kRows = 1000000, kCols = 16 };
enum operation { kKeys, kOfRows, kTables, kCreate, kOperations };
static const char *const kNames[] = {"keys", "rows", "tables", "create"};

typedef struct worker {
  enum operation operation;
  uint64_t n;
  mv_table keyed, matrix, *tables;
  uint64_t made;      /* of tables */
  uint64_t done;      /* adds of this batch */
  int64_t *numbers;   /* keys or rows */
  float *values;      /* of them */
} worker;

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static mv_table make(int32_t kind, uint64_t rows, uint64_t cols) {
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  mv_table table;
  spec.kind = kind;
  spec.rows = rows;
  spec.cols = cols;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), "mv_table_create");
  return table;
}

static void destroy(mv_table table) { expect_ok(mv_table_destroy(table), "mv_table_destroy"); }

static void clear(worker *w) {
  if (w->keyed != 0) destroy(w->keyed);
  if (w->matrix != 0) destroy(w->matrix);
  for (uint64_t i = 0; i < w->made; ++i) destroy(w->tables[i]);
  free(w->tables);
  free(w->numbers);
  free(w->values);
  memset(w, 0, sizeof(*w));
}

static void prepare(void *self, const char *operation, uint64_t n) {
  worker *w = self;
  clear(w);
  while (w->operation < kOperations && strcmp(operation, kNames[w->operation]) != 0) ++w->operation;
  if (w->operation == kOperations) batch_fail("growth_worker: unknown operation %s", operation);
  w->n = n;
  w->numbers = batch_memory(n * sizeof(*w->numbers));
  w->values = batch_memory(n * kCols * sizeof(*w->values));
  for (uint64_t i = 0; i < n * kCols; ++i) w->values[i] = 1;
  uint64_t random = 1;
  for (uint64_t i = 0; i < n; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    w->numbers[i] = w->operation == kOfRows ? (int64_t)((random >> 33) % kRows) : (int64_t)(random >> 1);
  }
  if (w->operation == kKeys) w->keyed = make(MV_KEYVALUE, 0, 1);
  if (w->operation == kOfRows) w->matrix = make(MV_MATRIX, kRows, kCols);
  if (w->operation == kOfRows) expect_ok(mv_table_add_rows(w->matrix, w->numbers, n, w->values, n * kCols, MV_F32, NULL), "mv_table_add_rows");
  if (w->operation == kTables || w->operation == kCreate) w->tables = batch_memory(n * sizeof(*w->tables));
  if (w->operation == kTables) {
    for (; w->made < n; ++w->made) w->tables[w->made] = make(MV_ARRAY, 1, 1);
  }
}

static void add_to_tables(worker *w) {
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_FORGET;
  for (uint64_t i = 0; i < w->n; ++i) expect_ok(mv_table_add(w->tables[i], w->values, 1, MV_F32, &options), "mv_table_add, forgotten");
  expect_ok(mv_barrier(0, NULL), "mv_barrier");
}

static void create(worker *w) {
  for (uint64_t i = 0; i < w->n; ++i) w->tables[i] = make(MV_ARRAY, 1, 1);
  for (uint64_t i = 0; i < w->n; ++i) destroy(w->tables[i]);
}

static void repeat(void *self, uint64_t times) {
  worker *w = self;
  for (uint64_t i = 0; i < times; ++i, ++w->done) {
    if (w->operation == kKeys) expect_ok(mv_table_add_rows(w->keyed, w->numbers, w->n, w->values, w->n, MV_F32, NULL), "mv_table_add_rows");
    if (w->operation == kOfRows) {
      expect_ok(mv_table_get_rows(w->matrix, w->numbers, w->n, w->values, w->n * kCols, MV_F32, NULL), "mv_table_get_rows");
    }
    if (w->operation == kTables) add_to_tables(w);
    if (w->operation == kCreate) create(w);
  }
}

/* The value of a key, of the last row, or of the last table; a row may have been drawn twice. */
static void check(void *self) {
  const worker *w = self;
  const int64_t last = w->operation == kTables ? 0 : w->numbers[w->n - 1];
  const mv_table table = w->operation == kKeys ? w->keyed : w->operation == kTables ? w->tables[w->n - 1] : w->matrix;
  if (w->operation == kCreate) return;
  float values[kCols] = {0};
  expect_ok(mv_table_get_rows(table, &last, 1, values, w->operation == kOfRows ? kCols : 1, MV_F32, NULL), "mv_table_get_rows");
  const int wrong = w->operation == kOfRows ? values[0] < 1 : values[0] != (float)w->done;
  if (wrong) batch_fail("%s: after %llu calls the value is %g", kNames[w->operation], (unsigned long long)w->done, (double)values[0]);
}

int main(void) {
  expect_ok(mv_init(NULL), "mv_init");
  worker self = {0};
  batch_serve(&(batch_program){prepare, repeat, check, &self, NULL});
  clear(&self);
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
