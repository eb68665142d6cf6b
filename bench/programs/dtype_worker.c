/* A worker in a cluster of one process, on an array of any dtype. Operations f32, f64, f16, bf16, i64, i32, u8: a blocking add of BYTES
 * bytes. After every batch the array is compared with its expected content. */
#include <polyverso/polyverso.h>
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"

static const struct {
  const char *name;
  mv_dtype dtype;
  uint64_t size;
  unsigned char one[8]; /* little-endian */
} kTypes[] = {
    {"f32", MV_F32, 4, {0, 0, 0x80, 0x3f}}, {"f64", MV_F64, 8, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
    {"f16", MV_F16, 2, {0, 0x3c}},          {"bf16", MV_BF16, 2, {0x80, 0x3f}},
    {"i64", MV_I64, 8, {1}},                {"i32", MV_I32, 4, {1}},
    {"u8", MV_U8, 1, {1}},
};
enum { kCount = sizeof(kTypes) / sizeof(kTypes[0]) };

typedef struct worker {
  int type;
  uint64_t bytes;
  mv_table table;
  unsigned char *ones, *values;
} worker;

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  worker *w = self;
  int found = 0;
  while (found < kCount && strcmp(operation, kTypes[found].name) != 0) ++found;
  if (found == kCount) batch_fail("dtype_worker: unknown operation %s", operation);
  if (w->table && found == w->type && bytes == w->bytes) return;
  if (w->table) expect_ok(mv_table_destroy(w->table), "mv_table_destroy");
  free(w->ones);
  free(w->values);
  w->type = found;
  w->bytes = bytes;
  w->ones = batch_memory(bytes);
  w->values = batch_memory(bytes);
  const uint64_t size = kTypes[found].size;
  for (uint64_t at = 0; at < bytes; at += size) memcpy(w->ones + at, kTypes[found].one, size);
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.dtype = kTypes[found].dtype;
  spec.rows = bytes / size;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &w->table), "mv_table_create");
}

static void repeat(void *self, uint64_t times) {
  const worker *w = self;
  for (uint64_t i = 0; i < times; ++i) {
    expect_ok(mv_table_add(w->table, w->ones, w->bytes, MV_RAW, NULL), "mv_table_add");
  }
}

/* One add to zeros gives ones in every dtype. */
static void check(void *self) {
  const worker *w = self;
  memset(w->values, 0, w->bytes);
  expect_ok(mv_table_set(w->table, w->values, w->bytes, MV_RAW, NULL), "mv_table_set");
  expect_ok(mv_table_add(w->table, w->ones, w->bytes, MV_RAW, NULL), "mv_table_add");
  expect_ok(mv_table_get(w->table, w->values, w->bytes, MV_RAW, NULL), "mv_table_get");
  if (memcmp(w->values, w->ones, w->bytes) != 0) batch_fail("%s: 0 + 1 is not 1", kTypes[w->type].name);
}

int main(void) {
  expect_ok(mv_init(NULL), "mv_init");
  worker self = {0};
  batch_serve(&(batch_program){prepare, repeat, check, &self, NULL});
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
