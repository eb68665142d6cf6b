/* Key-value stores: the guarantees of kvstore.h, in one process and among several workers. */
#include <stdlib.h>

#include "stores.h"

enum { kWorkers = 3, kRounds = 12 };

/** The seed's examples, one after the other. */
static void the_examples_of_the_manual(void** state) {
  (void)state;
  kv_store kv = 0;
  expect_ok(kv_create(0, "local", &kv)); /* no mv_init() */
  const int64_t three = 3, many[] = {5, 7, 9};
  const kv_keys one = number_keys(&three, 1), list = number_keys(many, 3);
  mv_tensor two = full(kShape, 2, MV_F32, 2), a = full(kShape, 2, MV_F32, 0), eight = full(kShape, 2, MV_F32, 8);
  const kv_values given = values_of(&two, 1), out = values_of(&a, 1), eights = values_of(&eight, 1);
  expect_ok(kv_init(kv, &one, &given));
  expect_ok(kv_pull(kv, &one, &out, NULL));
  expect_all(a, 2);
  expect_ok(kv_push(kv, &one, &eights, NULL));
  expect_ok(kv_pull(kv, &one, &out, NULL));
  expect_all(a, 8);

  mv_tensor devices[4], lists[12];
  for (int i = 0; i < 4; ++i) devices[i] = full(kShape, 2, MV_F32, 1);
  for (int i = 0; i < 12; ++i) lists[i] = full(kShape, 2, MV_F32, 1);
  const kv_values four = values_of(devices, 4), three_values = values_of(lists, 3), twelve = values_of(lists, 12);
  expect_ok(kv_push(kv, &one, &four, NULL));
  expect_ok(kv_pull(kv, &one, &out, NULL));
  expect_all(a, 4);
  expect_ok(kv_pull(kv, &one, &four, NULL));
  for (int i = 0; i < 4; ++i) expect_all(devices[i], 4);

  expect_ok(kv_init(kv, &list, &three_values));
  expect_ok(kv_push(kv, &list, &three_values, NULL));
  expect_ok(kv_pull(kv, &list, &three_values, NULL));
  expect_all(lists[1], 1);
  expect_ok(kv_push(kv, &list, &twelve, NULL)); /* three keys of four devices */
  expect_ok(kv_pull(kv, &list, &twelve, NULL));
  for (int i = 0; i < 12; ++i) expect_all(lists[i], 4);

  const uint64_t uneven[] = {1, 2, 1};
  kv_values four_lists = values_of(lists, 4);
  four_lists.per_key = uneven;
  expect_ok(kv_pushpull(kv, &list, &four_lists, NULL, NULL));
  expect_all(lists[0], 4);
  expect_all(lists[2], 8);
  expect_ok(kv_free(kv));
}

static void types_are_matched_whole(void** state) {
  (void)state;
  kv_store kv = 0;
  char text[40];
  uint64_t length = 0;
  expect_ok(kv_create(0, "LOCAL_AllReduce_cpu", &kv));
  expect_ok(kv_type(kv, text, sizeof(text), &length));
  assert_string_equal(text, "local_allreduce_cpu");
  int64_t rank = -1, workers = -1;
  expect_ok(kv_rank(kv, &rank));
  expect_ok(kv_num_workers(kv, &workers));
  assert_true(rank == 0 && workers == 1);
  expect_ok(kv_barrier(kv, NULL)); /* there is no other worker */
  expect_ok(kv_free(kv));
  expect_error(kv_create(0, "dist_sink", &kv), MV_EINVAL, "dist_sync");
  expect_error(kv_create(0, "locally", &kv), MV_EINVAL, "locally");
  expect_error(kv_create(0, NULL, &kv), MV_EINVAL, "NULL");
  expect_error(kv_create(0, "dist", &kv), MV_ESTATE, "mv_init");
  expect_error(kv_rank(kv, &rank), MV_EHANDLE, "closed");
}

static void an_invalid_call_changes_nothing(void** state) {
  (void)state;
  kv_store kv = 0;
  expect_ok(kv_create(0, "local", &kv));
  const char* const names[] = {"w", "b"};
  const char* const twice[] = {"w", "w"};
  const char* const other[] = {"w", "nobody"};
  const kv_keys both = name_keys(names, 2), w = name_keys(names, 1), again = name_keys(twice, 2), unknown = name_keys(other, 2);
  const int64_t numbers[] = {1};
  const kv_keys number = number_keys(numbers, 1);
  const int64_t small[] = {3};
  mv_tensor ones[] = {full(kShape, 2, MV_F32, 1), full(kShape, 2, MV_F32, 1)};
  mv_tensor wrong_shape = full(small, 1, MV_F32, 5), wrong_dtype = full(kShape, 2, MV_F64, 5), a = full(kShape, 2, MV_F32, 0);
  const kv_values two = values_of(ones, 2), one = values_of(ones, 1), out = values_of(&a, 1);
  expect_error(kv_push(kv, &w, &one, NULL), MV_ENOTFOUND, "kv_init");
  expect_error(kv_init(kv, &again, &two), MV_EINVAL, "twice");
  expect_ok(kv_init(kv, &both, &two));
  expect_error(kv_init(kv, &w, &one), MV_EDISAGREE, "\"w\"");
  expect_error(kv_push(kv, &unknown, &two, NULL), MV_ENOTFOUND, "nobody");
  expect_error(kv_push(kv, &again, &two, NULL), MV_EINVAL, "twice");
  expect_error(kv_push(kv, &number, &one, NULL), MV_EINVAL, "names");
  const kv_values shape = values_of(&wrong_shape, 1), dtype = values_of(&wrong_dtype, 1);
  expect_error(kv_push(kv, &w, &shape, NULL), MV_ESHAPE, "(2, 3)");
  expect_error(kv_pull(kv, &w, &dtype, NULL), MV_EDTYPE, "f64");
  expect_error(kv_push(kv, &w, &dtype, NULL), MV_EDTYPE, ": convert the values to f32");
  const mv_tensor mixed[] = {ones[0], wrong_shape};
  const kv_values half = values_of(mixed, 2);
  expect_error(kv_push(kv, &both, &half, NULL), MV_ESHAPE, "\"b\"");
  expect_error(kv_push(kv, &both, &one, NULL), MV_ESHAPE, "1 values for 2 keys");
  kv_keys nothing = KV_KEYS_INIT;
  nothing.count = 1;
  expect_error(kv_push(kv, &nothing, &one, NULL), MV_EINVAL, "numbers or names");
  expect_error(kv_push(kv, NULL, &one, NULL), MV_EINVAL, "NULL");
  expect_error(kv_push(kv, &w, NULL, NULL), MV_EINVAL, "NULL");
  expect_error(kv_set_optimizer(kv, "nonesuch"), MV_EINVAL, "sgd");
  assert_null(strstr(strstr(mv_last_error(), "kv_set_optimizer") + 1, "kv_set_optimizer")); /* named once */
  const char* const empty = "";
  const kv_keys bad = name_keys(&empty, 1);
  expect_error(kv_init(kv, &bad, &one), MV_EINVAL, "200");
  const char* const latin1 = "stra\337e";
  const kv_keys not_utf8 = name_keys(&latin1, 1);
  expect_error(kv_init(kv, &not_utf8, &one), MV_EINVAL, "6 bytes that are not UTF-8");
  const kv_keys none = KV_KEYS_INIT; /* an empty list of keys is a no-op */
  const kv_values nothing_of_it = KV_VALUES_INIT;
  expect_ok(kv_init(kv, &none, &nothing_of_it));
  expect_ok(kv_pushpull(kv, &none, &nothing_of_it, NULL, NULL));
  expect_ok(kv_row_sparse_pull(kv, &none, &nothing_of_it, &nothing_of_it, NULL));
  expect_ok(kv_pull(kv, &w, &out, NULL)); /* the store still works */
  expect_all(a, 1);
  expect_ok(kv_free(kv));
}

static void several_stores_are_apart(void** state) {
  (void)state;
  kv_store stores[3];
  const int64_t key = 1;
  const kv_keys keys = number_keys(&key, 1);
  mv_tensor a = full(kShape, 2, MV_F32, 0);
  const kv_values out = values_of(&a, 1);
  for (int i = 0; i < 3; ++i) {
    expect_ok(kv_create(0, "device", &stores[i]));
    expect_ok(mv_tensor_fill(a, i));
    expect_ok(kv_init(stores[i], &keys, &out));
  }
  for (int i = 0; i < 3; ++i) {
    expect_ok(kv_pull(stores[i], &keys, &out, NULL));
    expect_all(a, i);
    expect_ok(kv_free(stores[i]));
  }
}

/** Calls with the previous call's keys, with other keys, with fewer, and with the same keys as text and as numbers. */
static void many_keys_in_any_order(void** state) {
  (void)state;
  enum { kMany = 300 };
  kv_store kv = 0;
  expect_ok(kv_create(0, "local", &kv));
  int64_t numbers[kMany], backwards[kMany];
  mv_tensor values[kMany], outs[kMany];
  for (int i = 0; i < kMany; ++i) {
    numbers[i] = i;
    backwards[i] = kMany - 1 - i;
    values[i] = full(kShape, 2, MV_F32, i);
    outs[i] = full(kShape, 2, MV_F32, -1);
  }
  const kv_keys keys = number_keys(numbers, kMany), reversed = number_keys(backwards, kMany), few = number_keys(numbers + 10, 5);
  const kv_values given = values_of(values, kMany), out = values_of(outs, kMany), five = values_of(outs, 5);
  expect_ok(kv_init(kv, &keys, &given));
  for (int round = 0; round < 3; ++round) {
    expect_ok(kv_push(kv, &keys, &given, NULL));
    expect_ok(kv_pull(kv, &keys, &out, NULL));
    for (int i = 0; i < kMany; ++i) expect_all(outs[i], i);
    expect_ok(kv_push(kv, &reversed, &given, NULL));
    expect_ok(kv_pull(kv, &reversed, &out, NULL));
    for (int i = 0; i < kMany; ++i) expect_all(outs[i], i);
    expect_ok(kv_pull(kv, &keys, &out, NULL));
    for (int i = 0; i < kMany; ++i) expect_all(outs[i], kMany - 1 - i);
    expect_ok(kv_pull(kv, &few, &five, NULL));
    for (int i = 0; i < 5; ++i) expect_all(outs[i], kMany - 1 - (10 + i));
  }
  const char* const names[] = {"10", "11", "12", "13", "14"};
  const kv_keys named = name_keys(names, 5);
  expect_error(kv_pull(kv, &named, &five, NULL), MV_EINVAL, "numbers");
  backwards[1] = backwards[0];
  expect_error(kv_push(kv, &reversed, &given, NULL), MV_EINVAL, "twice");
  mv_request request = 0;
  mv_call_options later = MV_CALL_OPTIONS_INIT;
  later.flags = MV_ASYNC;
  later.request = &request;
  expect_ok(kv_pull(kv, &keys, &out, &later)); /* one request for all of them */
  expect_ok(mv_request_wait(request, 0));
  for (int i = 0; i < kMany; ++i) expect_all(outs[i], kMany - 1 - i);
  expect_ok(kv_free(kv));
  for (int i = 0; i < kMany; ++i) {
    expect_ok(mv_tensor_free(values[i]));
    expect_ok(mv_tensor_free(outs[i]));
  }
}

static void an_optimizer_updates_existing_and_later_keys(void** state) {
  (void)state;
  kv_store kv = 0;
  expect_ok(kv_create(0, "local", &kv));
  const int64_t numbers[] = {1, 2};
  const kv_keys first = number_keys(numbers, 1), second = number_keys(numbers + 1, 1), both = number_keys(numbers, 2);
  mv_tensor ones = full(kShape, 2, MV_F32, 1), outs[] = {full(kShape, 2, MV_F32, 0), full(kShape, 2, MV_F32, 0)};
  const kv_values one = values_of(&ones, 1), out = values_of(outs, 2);
  expect_ok(kv_init(kv, &first, &one));
  expect_ok(kv_set_optimizer(kv, "sgd rate=0.5"));
  expect_ok(kv_init(kv, &second, &one));
  const mv_tensor gradients[] = {ones, ones};
  const kv_values pushed = values_of(gradients, 2);
  expect_ok(kv_pushpull(kv, &both, &pushed, &out, NULL));
  expect_all(outs[0], 0.5);
  expect_all(outs[1], 0.5);
  expect_ok(kv_free(kv));
}

static void every_dtype_is_summed_over_devices(void** state) {
  (void)state;
  static const mv_dtype kDtypes[] = {MV_F32, MV_F64, MV_F16, MV_BF16, MV_I32, MV_I64, MV_U8, MV_I8};
  const int64_t large[] = {70001};
  for (size_t i = 0; i < COUNT_OF(kDtypes); ++i) {
    kv_store kv = 0;
    expect_ok(kv_create(0, "local", &kv));
    const int64_t key = 4;
    const kv_keys keys = number_keys(&key, 1);
    mv_tensor devices[3];
    for (int device = 0; device < 3; ++device) devices[device] = full(large, 1, kDtypes[i], device + 1);
    const kv_values values = values_of(devices, 3);
    expect_ok(kv_init(kv, &keys, &values));
    expect_ok(kv_pull(kv, &keys, &values, NULL));
    for (int device = 0; device < 3; ++device) {
      expect_all(devices[device], 1); /* the first device's value counts */
      expect_ok(mv_tensor_fill(devices[device], device + 1));
    }
    expect_ok(kv_pushpull(kv, &keys, &values, NULL, NULL));
    for (int device = 0; device < 3; ++device) {
      expect_all(devices[device], 6);
      expect_ok(mv_tensor_free(devices[device]));
    }
    expect_ok(kv_free(kv));
  }
}

/* ------------------------------------------------------------------ several workers */

static void train_in_rounds(struct member* self) {
  kv_store kv = 0;
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  int64_t rank = -1, workers = 0;
  expect_ok(kv_rank(kv, &rank));
  expect_ok(kv_num_workers(kv, &workers));
  assert_int_equal(workers, kWorkers);
  const char* const names[] = {"small", "large"};
  const int64_t large[] = {1500000};
  const kv_keys keys = name_keys(names, 2);
  mv_tensor values[] = {full(kShape, 2, MV_F32, (double)rank + 5), full(large, 1, MV_F32, (double)rank + 6)};
  const kv_values given = values_of(values, 2);
  expect_ok(kv_broadcast(kv, &keys, &given, NULL));
  expect_all(values[0], 5); /* worker 0's */
  expect_all(values[1], 6);
  for (int round = 1; round <= kRounds; ++round) {
    expect_ok(mv_tensor_fill(values[0], (double)(round * (rank + 1))));
    expect_ok(mv_tensor_fill(values[1], (double)(rank + 1)));
    expect_ok(kv_push(kv, &keys, &given, NULL));
    expect_ok(mv_tensor_fill(values[0], -1)); /* a push takes a snapshot */
    expect_ok(mv_tensor_fill(values[1], -1));
    expect_ok(kv_pull(kv, &keys, &given, NULL));
    expect_all(values[0], round * 6); /* without an optimizer the merged value replaces the old one */
    expect_all(values[1], 6);
  }
  expect_ok(kv_barrier(kv, NULL));
  if (rank == 0) expect_ok(kv_set_optimizer(kv, "sgd rate=0.25"));
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(mv_tensor_fill(values[0], 4));
  expect_ok(mv_tensor_fill(values[1], 4));
  expect_ok(kv_pushpull(kv, &keys, &given, NULL, NULL)); /* one step with all workers' gradients */
  expect_all(values[0], kRounds * 6 - 3);
  expect_all(values[1], 6 - 3);
  expect_ok(kv_free(kv));
}
static void rounds_are_merged_once(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, train_in_rounds);
}

/** Worker 0 pushes twice before any other worker pushes, then meets them in a barrier. */
static void run_ahead(struct member* self) {
  kv_store kv = 0;
  const int64_t key = 1;
  const kv_keys keys = number_keys(&key, 1);
  mv_tensor value = full(kShape, 2, MV_F32, 0);
  const kv_values values = values_of(&value, 1);
  expect_ok(kv_create(self->node, "dist", &kv));
  expect_ok(kv_init(kv, &keys, &values));
  expect_ok(mv_tensor_fill(value, 1));
  const int before = self->index == 0 ? 2 : 0;
  for (int i = 0; i < before; ++i) expect_ok(kv_push(kv, &keys, &values, NULL));
  expect_ok(kv_barrier(kv, NULL));
  for (int i = before; i < 2; ++i) expect_ok(kv_push(kv, &keys, &values, NULL));
  expect_ok(kv_pull(kv, &keys, &values, NULL));
  expect_all(value, kWorkers);
  expect_ok(kv_free(kv));
}
static void a_barrier_waits_for_no_round(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, run_ahead);
}

static void leave_early(struct member* self) {
  kv_store kv = 0;
  const int64_t key = 1;
  const kv_keys keys = number_keys(&key, 1);
  mv_tensor value = full(kShape, 2, MV_F32, 0);
  const kv_values values = values_of(&value, 1);
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  expect_ok(kv_init(kv, &keys, &values));
  for (int round = 0; round < 4; ++round) {
    if (self->index == 2 && round == 2) {
      expect_ok(kv_leave(kv));
      expect_error(kv_push(kv, &keys, &values, NULL), MV_ESTATE, "left");
      break;
    }
    expect_ok(mv_tensor_fill(value, 1));
    expect_ok(kv_pushpull(kv, &keys, &values, NULL, NULL));
    expect_all(value, round < 2 ? 3 : 2);
  }
  expect_ok(mv_barrier(self->node, NULL)); /* it is still a worker of the cluster */
  expect_ok(kv_pull(kv, &keys, &values, NULL));
  expect_all(value, 2);
}
static void rounds_continue_without_a_worker_that_has_left(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, leave_early);
}

static void without_rounds(struct member* self) {
  kv_store kv = 0;
  const int64_t key = 1;
  const kv_keys keys = number_keys(&key, 1);
  mv_tensor value = full(kShape, 2, MV_F32, 0);
  const kv_values values = values_of(&value, 1);
  expect_ok(kv_create(self->node, "dist_async", &kv));
  expect_ok(kv_init(kv, &keys, &values));
  expect_error(kv_push(kv, &keys, &values, NULL), MV_ESTATE, "kv_set_optimizer");
  expect_ok(kv_barrier(kv, NULL));
  if (self->index == 1) expect_ok(kv_set_optimizer(kv, "sgd rate=1"));
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(mv_tensor_fill(value, -1));
  for (int i = 0; i < 5; ++i) expect_ok(kv_push(kv, &keys, &values, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(kv_pull(kv, &keys, &values, NULL));
  expect_all(value, 5 * kWorkers);
}
static void asynchronous_pushes_need_an_optimizer(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, without_rounds);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(types_are_matched_whole),
      cmocka_unit_test(the_examples_of_the_manual),
      cmocka_unit_test(an_invalid_call_changes_nothing),
      cmocka_unit_test(several_stores_are_apart),
      cmocka_unit_test(many_keys_in_any_order),
      cmocka_unit_test(an_optimizer_updates_existing_and_later_keys),
      cmocka_unit_test(every_dtype_is_summed_over_devices),
      cmocka_unit_test(rounds_are_merged_once),
      cmocka_unit_test(a_barrier_waits_for_no_round),
      cmocka_unit_test(rounds_continue_without_a_worker_that_has_left),
      cmocka_unit_test(asynchronous_pushes_need_an_optimizer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
