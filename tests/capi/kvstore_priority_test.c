/* Priorities change the order of keys, never the order of one key's calls. (tests/cluster/priority_test.py has a slow line, where the
 * effect shows.) */
#include "stores.h"

enum { kWorkers = 2, kCalls = 20 };
static const int64_t kLarge[] = {4 << 20}, kSmall[] = {1000};

static void in_order(const struct member* self, const char* type) {
  kv_store kv = 0;
  const int64_t numbers[] = {1, 2};
  const kv_keys both = number_keys(numbers, 2), key = number_keys(numbers + 1, 1), other = number_keys(numbers, 1);
  mv_tensor tensors[] = {full(kLarge, 1, MV_F32, 0), full(kSmall, 1, MV_F32, 0)};
  const kv_values all = values_of(tensors, 2), large = values_of(tensors, 1);
  kv_values value = values_of(tensors + 1, 1);
  expect_ok(kv_create(self->node, type, &kv));
  expect_ok(kv_init(kv, &both, &all));
  expect_ok(mv_tensor_fill(tensors[0], 3));
  expect_ok(kv_push(kv, &other, &large, NULL));
  for (int round = 1; round <= kCalls; ++round) {
    expect_ok(mv_tensor_fill(tensors[1], round));
    value.priority = round % 7 - 3;
    expect_ok(kv_push(kv, &key, &value, NULL));
    if (round % 5 != 0) continue;
    value.priority = 100 - round;
    expect_ok(kv_pull(kv, &key, &value, NULL));
    expect_all(tensors[1], round * kWorkers);
  }
  expect_ok(kv_pull(kv, &other, &large, NULL));
  expect_all(tensors[0], 3 * kWorkers);
  expect_ok(kv_free(kv));
}
static void whole(struct member* self) { in_order(self, "dist_sync"); }
static void a_key_keeps_its_order(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, whole);
}
static void in_slices(struct member* self) { in_order(self, "p3"); }
static void a_key_of_slices_keeps_its_order(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, in_slices);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_key_keeps_its_order),
      cmocka_unit_test(a_key_of_slices_keeps_its_order),
  };
  return cmocka_run_group_tests_name("kvstore_priority", tests, NULL, NULL);
}
