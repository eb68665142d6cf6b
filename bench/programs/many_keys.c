/* The cost of small keys: `many_keys KEYS ROUNDS` in a dist_sync store. All workers create KEYS keys of 64 floats in one call, then push
 * and pull all of them ROUNDS times. The first worker writes one line of JSON: nanoseconds per key, in the fastest round. */
#include <inttypes.h>
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>

#include "programs/batch.h"

enum { kValues = 64 };

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

int main(int count, char **words) {
  if (count != 3) batch_fail("usage: many_keys KEYS ROUNDS");
  const uint64_t keys = strtoull(words[1], NULL, 10), rounds = strtoull(words[2], NULL, 10);
  const int64_t shape[1] = {kValues};
  int64_t *numbers = malloc(keys * sizeof *numbers);
  mv_tensor *tensors = malloc(keys * sizeof *tensors);
  kv_keys of = KV_KEYS_INIT;
  kv_values values = KV_VALUES_INIT;
  kv_store store = 0;
  int64_t rank = 0, workers = 0;
  expect_ok(mv_init(NULL), "mv_init");
  expect_ok(kv_create(0, "dist_sync", &store), "kv_create");
  expect_ok(kv_rank(store, &rank), "kv_rank");
  expect_ok(kv_num_workers(store, &workers), "kv_num_workers");
  for (uint64_t i = 0; i < keys; ++i) {
    numbers[i] = (int64_t)i;
    expect_ok(mv_tensor_create(MV_F32, shape, 1, &tensors[i]), "mv_tensor_create");
    expect_ok(mv_tensor_fill(tensors[i], (double)(i % 1000)), "mv_tensor_fill");
  }
  of.count = values.count = keys;
  of.numbers = numbers;
  values.tensors = tensors;
  expect_ok(mv_barrier(0, NULL), "mv_barrier");
  double begun = batch_now();
  expect_ok(kv_init(store, &of, &values), "kv_init");
  const double init = batch_now() - begun;
  double push = 1e9, pull = 1e9, both = 1e9;
  for (uint64_t round = 0; round < rounds; ++round) {
    expect_ok(mv_barrier(0, NULL), "mv_barrier");
    begun = batch_now();
    expect_ok(kv_push(store, &of, &values, NULL), "kv_push");
    const double pushed = batch_now();
    expect_ok(kv_pull(store, &of, &values, NULL), "kv_pull");
    const double pulled = batch_now();
    if (pushed - begun < push) push = pushed - begun;
    if (pulled - pushed < pull) pull = pulled - pushed;
    if (pulled - begun < both) both = pulled - begun;
    const int64_t first[1] = {0};
    double value = 0, want = 999 % keys;
    int64_t whole = 0;
    for (uint64_t i = 0; i <= round; ++i) want *= (double)workers;
    expect_ok(mv_tensor_get(tensors[999 % keys], first, 1, &value, &whole), "mv_tensor_get");
    if (value != want) batch_fail("key %" PRIu64 " is %g instead of %g", 999 % keys, value, want);
  }
  begun = batch_now();
  expect_ok(mv_shutdown(0), "mv_shutdown");
  const double end = batch_now() - begun, each = 1e9 / (double)keys;
  if (rank == 0)
    printf("{\"init\": %.1f, \"push\": %.1f, \"pull\": %.1f, \"both\": %.1f, \"shutdown\": %.1f}\n", init * each,
           push * each, pull * each, both * each, end * each);
  return 0;
}
