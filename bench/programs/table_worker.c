/* A worker on one array table of f32: alone, or the only worker of a cluster (`polyverso run -n 1 --servers 1`). Operations: add, get,
 * add_get: blocking, of the whole table of BYTES bytes; forget: fire-and-forget adds of it, and at the end of each BLOCK the wait until
 * the last is applied; get_fresh, get_tensor: get into memory that the kernel has just given, and into a new tensor; sync: Multiverso's scheme, which adds what has changed in private values since the last sync, and copies the table
 * to them. After every batch the table is compared with its expected content. */
#include <polyverso/polyverso.h>
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"

enum operation { kAdd, kGet, kAddGet, kOneWay, kSync, kGetFresh, kGetTensor, kOperations };
static const char *const kNames[] = {"add", "get", "add_get", "forget", "sync", "get_fresh", "get_tensor"};

/* Numbers of both signs whose magnitudes differ by ten orders: their sum in floats depends on the order. */
enum { kWild = 4096 };

typedef struct worker {
  enum operation operation;
  mv_table table;
  uint64_t bytes, count; /* of the table; elements */
  float *delta, *values, *trained; /* trained: the private values of sync, which changes delta */
  float wild[kWild];
  uint64_t adds; /* since the batch began */
} worker;

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static void make_table(worker *w, uint64_t bytes) {
  if (w->bytes == bytes) return;
  if (w->table) expect_ok(mv_table_destroy(w->table), "mv_table_destroy");
  free(w->delta);
  free(w->values);
  free(w->trained);
  w->bytes = bytes;
  w->count = bytes / sizeof(float);
  w->delta = batch_memory(bytes);
  w->values = batch_memory(bytes);
  w->trained = NULL;
  for (uint64_t i = 0; i < w->count; ++i) w->delta[i] = (float)(1 + i % 3);
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.rows = w->count;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &w->table), "mv_table_create");
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  worker *w = self;
  size_t found = 0;
  while (found < kOperations && strcmp(operation, kNames[found]) != 0) ++found;
  if (found == kOperations) batch_fail("table_worker: unknown operation %s", operation);
  w->operation = (enum operation)found;
  make_table(w, bytes);
  memset(w->values, 0, bytes);
  expect_ok(mv_table_set(w->table, w->values, w->count, MV_F32, NULL), "mv_table_set");
  w->adds = 0;
  if (w->operation == kSync) {
    if (w->trained == NULL) w->trained = batch_memory(bytes);
    memset(w->trained, 0, bytes);
  }
}

static void add(worker *w) {
  expect_ok(mv_table_add(w->table, w->delta, w->count, MV_F32, NULL), "mv_table_add");
  ++w->adds;
}

static void get(worker *w) { expect_ok(mv_table_get(w->table, w->values, w->count, MV_F32, NULL), "mv_table_get"); }

static void get_fresh(worker *w) {
  float *fresh = batch_fresh_memory(w->bytes);
  expect_ok(mv_table_get(w->table, fresh, w->count, MV_F32, NULL), "mv_table_get");
  batch_free_fresh(fresh, w->bytes);
}

static void get_tensor(worker *w) {
  const int64_t shape[] = {(int64_t)w->count};
  mv_tensor tensor;
  void *data;
  expect_ok(mv_tensor_create(MV_F32, shape, 1, &tensor), "mv_tensor_create");
  expect_ok(mv_tensor_data(tensor, &data, NULL, NULL), "mv_tensor_data");
  expect_ok(mv_table_get(w->table, data, w->count, MV_F32, NULL), "mv_table_get");
  expect_ok(mv_tensor_free(tensor), "mv_tensor_free");
}

/* With a change of the first element. */
static void synchronize(worker *w) {
  w->trained[0] += 1;
  for (uint64_t i = 0; i < w->count; ++i) w->delta[i] = w->trained[i] - w->values[i];
  add(w);
  get(w);
  memcpy(w->trained, w->values, w->bytes);
}

static void forget(worker *w, uint64_t times) {
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_FORGET;
  for (uint64_t i = 0; i < times; ++i) {
    const float *data = w->count == 1 ? &w->wild[w->adds % kWild] : w->delta;
    expect_ok(mv_table_add(w->table, data, w->count, MV_F32, &options), "mv_table_add, forgotten");
    ++w->adds;
  }
  expect_ok(mv_barrier(0, NULL), "mv_barrier");
}

static void repeat(void *self, uint64_t times) {
  worker *w = self;
  if (w->operation == kOneWay) {
    forget(w, times);
    return;
  }
  for (uint64_t i = 0; i < times; ++i) {
    if (w->operation == kSync) synchronize(w);
    if (w->operation == kGetFresh) get_fresh(w);
    if (w->operation == kGetTensor) get_tensor(w);
    if (w->operation == kAdd || w->operation == kAddGet) add(w);
    if (w->operation == kGet || w->operation == kAddGet) get(w);
  }
}

/* The expected value of one element after all adds of the batch, applied one by one in order. */
static float expected(const worker *w, uint64_t element) {
  float sum = 0;
  const int wild = w->operation == kOneWay && w->count == 1;
  for (uint64_t i = 0; i < w->adds; ++i) sum += wild ? w->wild[i % kWild] : w->delta[element];
  return sum;
}

static void check(void *self) {
  worker *w = self;
  get(w);
  float sums[3] = {(float)w->adds, 0, 0}; /* of sync */
  for (uint64_t i = 0; i < 3 && i < w->count && w->operation != kSync; ++i) sums[i] = expected(w, i);
  for (uint64_t i = 0; i < w->count; ++i) {
    const float *sum = w->operation == kSync ? &sums[i > 0] : &sums[i % 3];
    if (memcmp(&w->values[i], sum, sizeof(float)) == 0) continue;
    batch_fail("%s: after %llu adds element %llu is %.9g, not %.9g: adds are lost, doubled or out of order",
               kNames[w->operation], (unsigned long long)w->adds, (unsigned long long)i, w->values[i], *sum);
  }
}

static void fill_wild(float *wild) {
  uint32_t state = 1;
  for (int i = 0; i < kWild; ++i) {
    state = state * 1664525u + 1013904223u;
    const float size = (float)(1u << (state >> 24) % 20) / (float)(1u << (state >> 16) % 20);
    wild[i] = (state >> 31 ? -size : size) / 3;
  }
}

int main(void) {
  expect_ok(mv_init(NULL), "mv_init");
  worker self = {0};
  fill_wild(self.wild);
  batch_serve(&(batch_program){prepare, repeat, check, &self, NULL});
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
