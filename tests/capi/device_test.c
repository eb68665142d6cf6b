/* Devices and tensors on them, by an emulation of the plug-in unless POLYVERSO_DEVICE_PLUGIN names another one. What they compute:
 * unit/device_tensors_test. */
#include <dlfcn.h>
#include <math.h>
#include <polyverso/kvstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

#define DIMS(...) (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

/** 0, 1, 2, ... on a device. */
static mv_tensor range_on(int32_t device, mv_dtype dtype, const int64_t *shape, uint64_t dims) {
  mv_tensor tensor = 0;
  expect_ok(mv_tensor_create_on(device, dtype, shape, dims, &tensor));
  expect_ok(mv_tensor_range(tensor, 0, 1));
  return tensor;
}

static int64_t place_of(mv_tensor tensor) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  expect_ok(mv_tensor_describe(tensor, &info));
  return info.device;
}

static void expect_f32(mv_tensor tensor, const float *expected, uint64_t count) {
  mv_tensor here = 0;
  void *data = NULL;
  uint64_t got = 0;
  expect_ok(mv_tensor_to(tensor, MV_HOST, &here));
  expect_ok(mv_tensor_data(here, &data, &got, NULL));
  assert_int_equal(got, count);
  for (uint64_t i = 0; i < count; ++i) assert_true(((const float *)data)[i] == expected[i]);
  expect_ok(mv_tensor_free(here));
}
#define EXPECT_F32(tensor, ...) expect_f32(tensor, (const float[]){__VA_ARGS__}, sizeof((float[]){__VA_ARGS__}) / sizeof(float))

static void devices_have_names_and_numbers(void **state) {
  (void)state;
  int32_t count = 0, device = 77;
  expect_ok(mv_device_count(&count));
  assert_true(count > 0);
  const char *const first[] = {"cuda", "cuda:0", "gpu", "gpu:0"}, *const host[] = {"cpu", "host"};
  for (size_t i = 0; i < COUNT_OF(first); ++i) {
    expect_ok(mv_device_find(first[i], &device));
    assert_int_equal(device, 0);
  }
  for (size_t i = 0; i < COUNT_OF(host); ++i) {
    expect_ok(mv_device_find(host[i], &device));
    assert_int_equal(device, MV_HOST);
  }
  expect_ok(mv_device_find("cuda:63", &device));
  assert_int_equal(device, 63);
  const char *const wrong[] = {"", "tpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda1", "cuda: 1", "cuda:99999999999"};
  for (size_t i = 0; i < COUNT_OF(wrong); ++i) expect_error(mv_device_find(wrong[i], &device), MV_EINVAL, "\"cuda:0\"");
  expect_error(mv_device_find(NULL, &device), MV_EINVAL, "NULL");
  mv_device_info about = MV_DEVICE_INFO_INIT;
  expect_ok(mv_device_describe(0, &about));
  assert_string_equal(about.name, "cuda:0");
  assert_true(about.memory > 0 && about.unused <= about.memory && about.processors > 0 && about.model[0] != '\0');
  expect_error(mv_device_describe(63, &about), MV_ENOTFOUND, "there is no cuda:63");
  expect_error(mv_device_describe(-1, &about), MV_ENOTFOUND, "-1");
  expect_error(mv_device_describe(0, NULL), MV_EINVAL, "NULL");
  about.size = 4;
  expect_error(mv_device_describe(0, &about), MV_EINVAL, "_INIT");
  expect_error(mv_device_count(NULL), MV_EINVAL, "NULL");
}

static void tensors_are_made_on_a_device_and_copied(void **state) {
  (void)state;
  const mv_tensor there = range_on(0, MV_F32, DIMS(2, 3));
  mv_tensor row = 0, other = 0, here = 0, result = 0;
  void *data = NULL;
  assert_int_equal(place_of(there), 0);
  expect_ok(mv_tensor_row(there, 1, &row));
  assert_int_equal(place_of(row), 0);
  expect_ok(mv_tensor_scalar(MV_MUL, row, 10, 0, row, &result));
  EXPECT_F32(there, 0, 1, 2, 30, 40, 50);
  expect_error(mv_tensor_data(there, &data, NULL, NULL), MV_EINVAL, "f32 (2, 3) is on cuda:0: mv_tensor_to()");
  char text[128];
  uint64_t length = 0;
  expect_ok(mv_tensor_text(row, text, sizeof text, &length));
  assert_string_equal(text, "f32 (3,) on cuda:0\n[30, 40, 50]");
  double value = 0;
  int64_t integer = 0;
  expect_ok(mv_tensor_set(there, DIMS(0, 0), 7));
  expect_ok(mv_tensor_get(there, DIMS(0, 0), &value, &integer));
  assert_true(value == 7 && integer == 7);
  int32_t count = 0;
  expect_ok(mv_device_count(&count));
  expect_ok(mv_tensor_to(there, count - 1, &other));
  assert_int_equal(place_of(other), count - 1);
  EXPECT_F32(other, 7, 1, 2, 30, 40, 50);
  expect_ok(mv_tensor_create(MV_F64, DIMS(2, 3), &here));
  expect_ok(mv_tensor_copy(there, here, &result)); /* from one place to another, and to another dtype */
  expect_ok(mv_tensor_fill(there, 1));
  expect_ok(mv_tensor_copy(here, there, &result));
  EXPECT_F32(there, 7, 1, 2, 30, 40, 50);
  expect_ok(mv_tensor_free(there)); /* its row keeps the memory */
  EXPECT_F32(row, 30, 40, 50);
  expect_error(mv_tensor_create_on(63, MV_F32, DIMS(1), &result), MV_ENOTFOUND, "mv_tensor_create_on: there is no cuda:63");
  expect_error(mv_tensor_create_on(-2, MV_F32, DIMS(1), &result), MV_ENOTFOUND, "-2");
  expect_error(mv_tensor_create_on(0, MV_RAW, DIMS(1), &result), MV_EINVAL, "MV_RAW");
  expect_error(mv_tensor_create_on(0, MV_F32, DIMS(-1), &result), MV_ESHAPE, "(-1,)");
  expect_error(mv_tensor_to(here, 63, &result), MV_ENOTFOUND, "cuda:63");
  expect_error(mv_tensor_to(here, 0, NULL), MV_EINVAL, "NULL");
  expect_ok(mv_tensor_create_on(MV_HOST, MV_F32, DIMS(1), &result));
  assert_int_equal(place_of(result), MV_HOST);
  expect_ok(mv_tensor_free(result));
  expect_ok(mv_tensor_free(row));
  expect_ok(mv_tensor_free(other));
  expect_ok(mv_tensor_free(here));
}

static void tensors_in_two_places_are_not_combined(void **state) {
  (void)state;
  const mv_tensor there = range_on(0, MV_F32, DIMS(4));
  mv_tensor here = 0, result = 0, rows = 0, far_rows = 0, wide = 0, far_wide = 0;
  expect_ok(mv_tensor_create(MV_F32, DIMS(4), &here));
  const char *const both = "is on the host, f32 (4,) on cuda:0: copy one of them with mv_tensor_to()";
  expect_error(mv_tensor_binary(MV_ADD, here, there, 0, &result), MV_EINVAL, both);
  expect_error(mv_tensor_unary(MV_NEG, here, there, &result), MV_EINVAL, both);
  expect_error(mv_tensor_scalar(MV_ADD, here, 1, 0, there, &result), MV_EINVAL, both);
  expect_error(mv_tensor_axpy(1, here, there), MV_EINVAL, both);
  double sum = 0;
  expect_error(mv_tensor_dot(here, there, &sum), MV_EINVAL, both);
  int32_t close = 7;
  expect_ok(mv_tensor_close(here, there, 0, 0, &close)); /* which compares on the host */
  assert_int_equal(close, 0);
  expect_error(kv_optimizer_step("sgd", 1, 0, here, there, NULL), MV_EINVAL, "copy one of them");
  /* Row-sparse tensors: only a copy crosses. */
  const int64_t ids[] = {7, 2};
  expect_ok(mv_tensor_create(MV_F32, DIMS(2, 3), &wide));
  expect_ok(mv_tensor_fill(wide, 5));
  expect_ok(mv_tensor_sparse(ids, 2, wide, 9, &rows));
  expect_ok(mv_tensor_to(wide, 0, &far_wide));
  expect_ok(mv_tensor_sparse(ids, 1, (expect_ok(mv_tensor_slice(far_wide, 0, 1, &result)), result), 9, &far_rows));
  expect_ok(mv_tensor_free(result));
  expect_error(mv_tensor_binary(MV_ADD, rows, far_rows, 0, &result), MV_EINVAL, "copy one of them");
  expect_error(mv_tensor_scalar(MV_MUL, rows, 2, 0, far_rows, &result), MV_EINVAL, "copy one of them");
  expect_error(mv_tensor_axpy(1, rows, far_rows), MV_EINVAL, "copy one of them");
  expect_ok(mv_tensor_copy(rows, far_rows, &result));
  assert_int_equal(place_of(far_rows), 0);
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  expect_ok(mv_tensor_describe(far_rows, &info));
  assert_int_equal(info.rows_held, 2);
  const mv_tensor all[] = {there, here, rows, far_rows, wide, far_wide};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
}

static void memory_of_a_device_is_viewed(void **state) {
  (void)state;
  const mv_tensor owner = range_on(0, MV_F32, DIMS(6));
  mv_tensor view = 0, wrong = 0, sparse = 0;
  uint64_t address = 0;
  expect_ok(mv_tensor_address(owner, &address));
  expect_ok(mv_tensor_view_on(0, address + 8, 4, MV_F32, DIMS(2, 2), &view));
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  expect_ok(mv_tensor_describe(view, &info));
  assert_true(info.is_lent == 1 && info.is_view == 1 && info.device == 0);
  expect_ok(mv_tensor_fill(view, 9));
  EXPECT_F32(owner, 0, 1, 9, 9, 9, 9);
  expect_error(mv_tensor_view_on(0, address, 5, MV_F32, DIMS(2, 2), &wrong), MV_ESHAPE, "5");
  expect_error(mv_tensor_view_on(0, address + 1, 4, MV_F32, DIMS(2, 2), &wrong), MV_EINVAL, "aligned");
  expect_error(mv_tensor_view_on(0, 0, 4, MV_F32, DIMS(2, 2), &wrong), MV_EINVAL, "");
  expect_error(mv_tensor_view_on(63, address, 4, MV_F32, DIMS(2, 2), &wrong), MV_ENOTFOUND, "cuda:63");
  expect_error(mv_tensor_address(owner, NULL), MV_EINVAL, "NULL");
  expect_ok(mv_tensor_sparse((const int64_t[]){1}, 1, (expect_ok(mv_tensor_slice(view, 0, 1, &wrong)), wrong), 5, &sparse));
  expect_error(mv_tensor_address(sparse, &address), MV_EINVAL, "row-sparse");
  expect_ok(mv_tensor_free(wrong));
  expect_ok(mv_tensor_free(sparse));
  expect_ok(mv_tensor_free(view));
  expect_ok(mv_tensor_free(owner));
}

static void work_is_done_on_the_callers_stream(void **state) {
  (void)state;
  uint64_t own = 0, now = 0;
  expect_ok(mv_device_current_stream(0, &own));
  assert_true(own != 0);
  expect_ok(mv_device_set_stream(0, 1)); /* CUDA's default stream */
  expect_ok(mv_device_current_stream(0, &now));
  assert_true(now == 1);
  const mv_tensor tensor = range_on(0, MV_F32, DIMS(3));
  EXPECT_F32(tensor, 0, 1, 2);
  expect_ok(mv_device_order(0, own));
  expect_ok(mv_device_follow(0, own));
  expect_ok(mv_device_set_stream(0, 0));
  expect_ok(mv_device_current_stream(0, &now));
  assert_true(now == own);
  expect_ok(mv_device_wait(0));
  expect_ok(mv_tensor_free(tensor));
  expect_error(mv_device_wait(63), MV_ENOTFOUND, "cuda:63");
  expect_error(mv_device_current_stream(0, NULL), MV_EINVAL, "NULL");
}

static void a_device_without_memory_goes_on(void **state) {
  (void)state;
  const mv_tensor small = range_on(0, MV_F32, DIMS(3));
  mv_tensor large = 0;
  expect_error(mv_tensor_create_on(0, MV_F32, DIMS(INT64_C(1) << 50), &large), MV_ENOMEM, "free tensors");
  EXPECT_F32(small, 0, 1, 2);
  expect_ok(mv_tensor_free(small));
}

/** Stores copy through the host. */
static void stores_take_and_give_tensors_of_devices(void **state) {
  (void)state;
  kv_store store = 0;
  expect_ok(kv_create(0, "local", &store));
  int32_t count = 0;
  expect_ok(mv_device_count(&count));
  const mv_tensor first = range_on(0, MV_F32, DIMS(2, 2)), second = range_on(count - 1, MV_F32, DIMS(2, 2));
  mv_tensor here = 0, far = 0, result = 0;
  expect_ok(mv_tensor_create(MV_F32, DIMS(2, 2), &here));
  const char *const name = "w";
  kv_keys keys = KV_KEYS_INIT;
  keys.names = &name;
  keys.count = 1;
  kv_values values = KV_VALUES_INIT;
  values.tensors = &first;
  values.count = 1;
  expect_ok(kv_init(store, &keys, &values));
  const mv_tensor two[] = {first, second, here};
  values.tensors = two;
  values.count = 2;
  expect_ok(kv_push(store, &keys, &values, NULL)); /* both devices' values are summed */
  expect_ok(mv_tensor_fill(first, 0));
  values.count = 3;
  expect_ok(kv_pull(store, &keys, &values, NULL));
  EXPECT_F32(first, 0, 2, 4, 6);
  EXPECT_F32(second, 0, 2, 4, 6);
  EXPECT_F32(here, 0, 2, 4, 6);
  values.tensors = &second;
  values.count = 1;
  expect_ok(mv_tensor_fill(second, 3));
  expect_ok(kv_pushpull(store, &keys, &values, NULL, NULL));
  EXPECT_F32(second, 3, 3, 3, 3);
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  mv_request request = 0;
  options.flags = MV_ASYNC;
  options.request = &request;
  values.tensors = &first;
  expect_ok(kv_pull(store, &keys, &values, &options));
  if (request != 0) expect_ok(mv_request_wait(request, MV_FOREVER));
  EXPECT_F32(first, 3, 3, 3, 3);

  const char *const table = "rows"; /* row-sparse ones stay on their device */
  keys.names = &table;
  mv_tensor sparse = 0, ids = 0;
  expect_ok(mv_tensor_sparse((const int64_t[]){3, 0}, 2, first, 5, &sparse));
  values.tensors = &sparse;
  expect_ok(kv_init(store, &keys, &values));
  expect_ok(kv_push(store, &keys, &values, NULL));
  expect_ok(mv_tensor_create_on(0, MV_I64, DIMS(2), &ids));
  expect_ok(mv_tensor_range(ids, 0, 3));
  expect_ok(mv_tensor_sparse((const int64_t[]){1, 2}, 2, second, 5, &far));
  kv_values row_ids = KV_VALUES_INIT, out = KV_VALUES_INIT;
  row_ids.tensors = &ids;
  row_ids.count = out.count = 1;
  out.tensors = &far;
  expect_ok(kv_row_sparse_pull(store, &keys, &out, &row_ids, NULL));
  assert_int_equal(place_of(far), count - 1);
  expect_ok(mv_tensor_to_dense(far, &result));
  EXPECT_F32(result, 3, 3, 0, 0, 0, 0, 3, 3, 0, 0);
  const mv_tensor all[] = {first, second, here, far, result, sparse, ids};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
  expect_ok(kv_free(store));
}

/* ---- stores whose keys stay on devices */

static const int64_t kMatrix[2] = {40, 30};
enum { kElements = 1200, kRounds = 4 };

static mv_tensor drawn(int32_t device, mv_dtype dtype, int64_t seed) {
  mv_tensor made = 0;
  expect_ok(mv_tensor_create_on(device, dtype, kMatrix, 2, &made));
  expect_ok(mv_tensor_uniform(made, seed, -1, 1));
  return made;
}

static kv_store store_of(const char *type, const char *optimizer, const char *codec, const kv_keys *keys, const mv_tensor *first, uint64_t count) {
  kv_store store = 0;
  kv_values values = KV_VALUES_INIT;
  values.tensors = first;
  values.count = count;
  expect_ok(kv_create(0, type, &store));
  expect_ok(kv_init(store, keys, &values));
  if (optimizer != NULL) expect_ok(kv_set_optimizer(store, optimizer));
  expect_ok(kv_set_gradient_compression(store, codec));
  return store;
}

/** Pushes from both devices and the host, and pulls into all of them; the bytes of all pulled values go to `out`. */
static unsigned char *train(kv_store store, const kv_keys *keys, mv_dtype dtype, int round, int end, unsigned char *out) {
  for (; round < end; ++round) {
    mv_tensor tensors[6], here = 0;
    kv_values values = KV_VALUES_INIT;
    for (int i = 0; i < 6; ++i) tensors[i] = drawn((i + round) % 3 - 1, dtype, 10 * round + i);
    values.tensors = tensors;
    values.count = 6; /* three for each key */
    expect_ok(kv_push(store, keys, &values, NULL));
    expect_ok(kv_pull(store, keys, &values, NULL));
    for (int i = 0; i < 6; ++i) {
      void *data = NULL;
      uint64_t count = 0;
      expect_ok(mv_tensor_to(tensors[i], MV_HOST, &here));
      expect_ok(mv_tensor_data(here, &data, &count, NULL));
      const uint64_t bytes = count * (dtype == MV_F64 ? 8 : dtype == MV_F32 ? 4 : 2);
      memcpy(out, data, bytes);
      out += bytes;
      expect_ok(mv_tensor_free(here));
      expect_ok(mv_tensor_free(tensors[i]));
    }
  }
  return out;
}

/** Whether the keys are on a device or on the host, and whether states are saved and loaded between, the values are the same. */
static void keys_on_devices_have_the_bits_of_the_host(void **state) {
  (void)state;
  static unsigned char host[kRounds * 6 * kElements * 8], device[sizeof host];
  const char *const optimizers[] = {NULL, "mx.sgd learning_rate=0.1 momentum=0.9", "mx.adam", "mx.sgld", "mx.lbsgd momentum=0.5"};
  const char *const codecs[] = {"none", "2bit threshold=0.5", "fp16"};
  const char *const names[] = {"w", "v"};
  kv_keys keys = KV_KEYS_INIT;
  keys.names = names;
  keys.count = 2;
  char path[] = "/tmp/pv-device-XXXXXX";
  assert_true(close(mkstemp(path)) == 0);
  for (size_t i = 0; i < COUNT_OF(optimizers) * COUNT_OF(codecs) * 3; ++i) {
    const char *const optimizer = optimizers[i % COUNT_OF(optimizers)], *const codec = codecs[i / COUNT_OF(optimizers) % COUNT_OF(codecs)];
    const mv_dtype dtype = (const mv_dtype[]){MV_F32, MV_F16, MV_F64}[i / COUNT_OF(optimizers) / COUNT_OF(codecs)];
    const mv_tensor first[] = {drawn(0, dtype, 1), drawn(1, dtype, 2)};
    const kv_store one = store_of("local", optimizer, codec, &keys, first, 2), other = store_of("device", optimizer, codec, &keys, first, 2);
    memset(host, 0, sizeof host);
    memset(device, 0, sizeof device);
    train(one, &keys, dtype, 0, kRounds, host);
    unsigned char *const half = train(other, &keys, dtype, 0, kRounds / 2, device);
    if (optimizer != NULL) {
      expect_ok(kv_save_optimizer_states(other, path, KV_DUMP_OPTIMIZER));
      expect_ok(kv_load_optimizer_states(other, path));
    }
    train(other, &keys, dtype, kRounds / 2, kRounds, half);
    if (memcmp(host, device, sizeof host) != 0) fail_msg("%s with %s of dtype %d", optimizer != NULL ? optimizer : "no optimizer", codec, (int)dtype);
    for (int k = 0; k < 2; ++k) expect_ok(mv_tensor_free(first[k]));
    expect_ok(kv_free(one));
    expect_ok(kv_free(other));
  }
  assert_true(unlink(path) == 0);
}

enum { kManyKeys = 30, kRepeats = 7, kManyBytes = 2 * kManyKeys * kElements * 4 };

/** Pushes and pulls the same tensors again and again, one of each device for each key. In the middle a few are replaced. */
static void repeat(kv_store store, const kv_keys *keys, unsigned char *out) {
  mv_tensor tensors[2 * kManyKeys], here = 0;
  kv_values values = KV_VALUES_INIT;
  for (int i = 0; i < 2 * kManyKeys; ++i) tensors[i] = drawn(i % 2, MV_F32, i);
  values.tensors = tensors;
  values.count = 2 * kManyKeys;
  for (int round = 0; round < kRepeats; ++round) {
    for (int i = 0; i < 2 * kManyKeys && round == kRepeats / 2; i += 7) {
      expect_ok(mv_tensor_free(tensors[i]));
      tensors[i] = drawn(i % 2, MV_F32, 100 + i);
    }
    expect_ok(kv_push(store, keys, &values, NULL));
    expect_ok(kv_pull(store, keys, &values, NULL));
    for (int i = 0; i < 2 * kManyKeys; ++i, out += kElements * 4) {
      void *data = NULL;
      expect_ok(mv_tensor_to(tensors[i], MV_HOST, &here));
      expect_ok(mv_tensor_data(here, &data, NULL, NULL));
      memcpy(out, data, kElements * 4);
      expect_ok(mv_tensor_free(here));
    }
  }
  for (int i = 0; i < 2 * kManyKeys; ++i) expect_ok(mv_tensor_free(tensors[i]));
}

static void repeated_calls_have_the_bits_of_the_host(void **state) {
  (void)state;
  static unsigned char host[kRepeats * kManyBytes], device[sizeof host];
  static char texts[kManyKeys][8];
  const char *names[kManyKeys];
  mv_tensor first[kManyKeys];
  const char *const optimizers[] = {NULL, "mx.adam"};
  kv_keys keys = KV_KEYS_INIT;
  keys.names = names;
  keys.count = kManyKeys;
  for (int k = 0; k < kManyKeys; ++k) {
    snprintf(texts[k], sizeof texts[k], "w%d", k);
    names[k] = texts[k];
    first[k] = drawn(k % 3 == 0, MV_F32, k);
  }
  for (size_t i = 0; i < COUNT_OF(optimizers); ++i) {
    const kv_store one = store_of("local", optimizers[i], "none", &keys, first, kManyKeys);
    const kv_store other = store_of("device", optimizers[i], "none", &keys, first, kManyKeys);
    repeat(one, &keys, host);
    repeat(other, &keys, device);
    for (int round = 0; round < kRepeats; ++round)
      if (memcmp(host + round * kManyBytes, device + round * kManyBytes, kManyBytes) != 0) fail_msg("optimizer %d, round %d", (int)i, round);
    expect_ok(kv_free(one));
    expect_ok(kv_free(other));
  }
  for (int k = 0; k < kManyKeys; ++k) expect_ok(mv_tensor_free(first[k]));
}

static uint64_t unused_of(int32_t device) {
  mv_device_info info = MV_DEVICE_INFO_INIT;
  expect_ok(mv_device_describe(device, &info));
  return info.unused;
}

static mv_status add_there(void *user, const char *key, mv_tensor merged, mv_tensor stored) {
  *(int *)user += 1;
  assert_string_equal(key, "w");
  assert_int_equal(place_of(merged), 0);
  assert_int_equal(place_of(stored), 0);
  return mv_tensor_axpy(1, merged, stored);
}

static void keys_of_device_stores_are_on_their_device(void **state) {
  (void)state;
  const char *const types[] = {"device", "local_allreduce_device", "nccl", "local"}, *const name = "w";
  kv_keys keys = KV_KEYS_INIT;
  keys.names = &name;
  keys.count = 1;
  for (size_t i = 0; i < COUNT_OF(types); ++i) {
    const mv_tensor value = drawn(0, MV_F32, 1);
    const uint64_t before = unused_of(0);
    const kv_store store = store_of(types[i], "mx.adam", "none", &keys, &value, 1); /* with two states */
    assert_int_equal(before - unused_of(0), strcmp(types[i], "local") == 0 ? 0 : 3 * kElements * 4);
    expect_ok(kv_free(store));
    assert_int_equal(before, unused_of(0));
    expect_ok(mv_tensor_free(value));
  }
  /* An updater's tensors are there, too. */
  const mv_tensor value = range_on(0, MV_F32, DIMS(3));
  kv_store store = store_of("device", NULL, "none", &keys, &value, 1);
  int calls = 0;
  kv_values values = KV_VALUES_INIT;
  values.tensors = &value;
  values.count = 1;
  expect_ok(kv_set_updater(store, add_there, &calls));
  expect_ok(kv_push(store, &keys, &values, NULL));
  expect_ok(kv_pull(store, &keys, &values, NULL));
  EXPECT_F32(value, 0, 2, 4);
  assert_int_equal(calls, 1);
  expect_ok(kv_free(store));
  /* What an updater, a device or a value is not fit for is refused, and changes nothing. */
  store = store_of("device", "sgd rate=1", "none", &keys, &value, 1);
  expect_ok(kv_set_optimizer(store, "dcasgd"));
  expect_ok(kv_set_optimizer(store, "sgd rate=1"));
  mv_tensor wrong = range_on(0, MV_F32, DIMS(4));
  values.tensors = &wrong;
  expect_error(kv_push(store, &keys, &values, NULL), MV_ESHAPE, "key \"w\" holds f32 (3,)");
  values.tensors = &value;
  expect_ok(kv_push(store, &keys, &values, NULL)); /* 1 - 1 */
  expect_ok(kv_pull(store, &keys, &values, NULL));
  EXPECT_F32(value, 0, 0, 0);
  expect_ok(kv_free(store));
  expect_ok(kv_create(0, "device", &store));
  expect_ok(kv_set_reject_nonfinite(store, 1));
  expect_ok(kv_init(store, &keys, &values));
  expect_ok(mv_tensor_fill(value, 1.0 / 0.0));
  expect_error(kv_push(store, &keys, &values, NULL), MV_ENONFINITE, "key \"w\"");
  expect_ok(mv_tensor_fill(value, 5));
  expect_ok(kv_push(store, &keys, &values, NULL));
  expect_ok(mv_tensor_fill(value, 1));
  expect_ok(kv_pull(store, &keys, &values, NULL));
  EXPECT_F32(value, 5, 5, 5);
  expect_ok(kv_free(store));
  expect_ok(mv_tensor_free(value));
  expect_ok(mv_tensor_free(wrong));
}

/** The result of a counter of the emulation; 0 with another plug-in. */
static int64_t counted(const char *name) {
  void *const emulation = dlopen(EMULATION, RTLD_NOW | RTLD_NOLOAD);
  int64_t (*count)(void) = NULL;
  if (emulation == NULL) return 0;
  *(void **)&count = dlsym(emulation, name);
  return count();
}

/** Values are checked where they are, and so is the sum of those of several devices. */
static void keys_on_devices_reject_nan_and_infinity(void **state) {
  (void)state;
  const char *const names[] = {"w", "v"};
  kv_keys keys = KV_KEYS_INIT;
  keys.names = names;
  keys.count = 2;
  const int32_t places[] = {0, 1, 0, 1};
  mv_tensor tensors[4], first[2];
  for (int i = 0; i < 4; ++i) tensors[i] = range_on(places[i], MV_F32, DIMS(5000));
  for (int i = 0; i < 2; ++i) first[i] = tensors[2 * i];
  kv_values values = KV_VALUES_INIT;
  values.tensors = first;
  values.count = 2;
  kv_store store = 0;
  expect_ok(kv_create(0, "device", &store));
  expect_ok(kv_set_reject_nonfinite(store, 1));
  expect_ok(kv_init(store, &keys, &values));
  values.tensors = tensors;
  values.count = 4;
  const int64_t last[] = {4999};
  const struct {
    double one, other;
    mv_status wanted;
  } cases[] = {{1, 2, MV_OK}, {1, NAN, MV_ENONFINITE}, {-INFINITY, 1, MV_ENONFINITE}, {3e38, 3e38, MV_ENONFINITE}, {3e38, -3e38, MV_OK}};
  for (size_t i = 0; i < COUNT_OF(cases); ++i) {
    expect_ok(mv_tensor_set(tensors[2], last, 1, cases[i].one));
    expect_ok(mv_tensor_set(tensors[3], last, 1, cases[i].other));
    const int64_t before = counted("emulation_crossed");
    if (cases[i].wanted == MV_OK)
      expect_ok(kv_push(store, &keys, &values, NULL));
    else
      expect_error(kv_push(store, &keys, &values, NULL), cases[i].wanted, "key \"v\"");
    assert_true(counted("emulation_crossed") - before < 5000); /* flags and parameters */
  }
  expect_ok(kv_pull(store, &keys, &values, NULL));
  double got = 0;
  int64_t whole = 0;
  expect_ok(mv_tensor_get(tensors[2], last, 1, &got, &whole));
  assert_true(got == 0); /* the last push that was accepted */
  expect_ok(kv_free(store));
  for (int i = 0; i < 4; ++i) expect_ok(mv_tensor_free(tensors[i]));
  mv_table table = 0;
  const mv_tensor there = range_on(0, MV_F32, DIMS(5000));
  uint64_t address = 0;
  expect_ok(mv_tensor_address(there, &address));
  expect_ok(mv_table_create_text(0, "size=5000 device=cuda:0 reject_nonfinite=1", NULL, 0, MV_F32, &table));
  const int64_t before = counted("emulation_crossed");
  expect_ok(mv_table_add(table, (const void *)(uintptr_t)address, 5000, MV_F32, NULL));
  expect_ok(mv_tensor_set(there, last, 1, NAN));
  expect_error(mv_table_add(table, (const void *)(uintptr_t)address, 5000, MV_F32, NULL), MV_ENONFINITE, "rejects NaN");
  assert_true(counted("emulation_crossed") - before < 5000);
  expect_ok(mv_table_destroy(table));
  expect_ok(mv_tensor_free(there));
}

/** The 160 keys of a push are encoded, decoded and updated in 3 launches and a copy of parameters; topk has stages. */
static void a_compressed_push_takes_few_launches(void **state) {
  (void)state;
#ifdef __SANITIZE_THREAD__
  enum { kKeys = 40 }; /* it takes at most 64 locks of a thread, and a push locks its keys */
#else
  enum { kKeys = 160 };
#endif
  static const struct {
    const char *codec;
    mv_dtype dtype;
    int64_t launches;
  } cases[] = {{"none", MV_F32, 2}, {"2bit", MV_F32, 4}, {"1bit", MV_F32, 4},  {"fp16", MV_F32, 4},
               {"int8", MV_F32, 4}, {"topk", MV_F32, 14}, {"2bit", MV_F16, 5}};
  static char texts[kKeys][8];
  static const char *names[kKeys];
  for (int i = 0; i < kKeys; ++i) {
    snprintf(texts[i], sizeof texts[i], "k%d", i);
    names[i] = texts[i];
  }
  kv_keys keys = KV_KEYS_INIT;
  keys.names = names;
  keys.count = kKeys;
  for (size_t i = 0; i < COUNT_OF(cases); ++i) {
    mv_tensor tensors[kKeys];
    for (int k = 0; k < kKeys; ++k) tensors[k] = range_on(0, cases[i].dtype, DIMS(4 * (k + 1)));
    const kv_store store = store_of("device", "mx.sgd momentum=0.9", cases[i].codec, &keys, tensors, kKeys);
    kv_values values = KV_VALUES_INIT;
    values.tensors = tensors;
    values.count = kKeys;
    expect_ok(kv_push(store, &keys, &values, NULL)); /* makes the residuals */
    const int64_t before = counted("emulation_submitted");
    expect_ok(kv_push(store, &keys, &values, NULL));
    const int64_t launches = counted("emulation_submitted") - before;
    if (launches > cases[i].launches) fail_msg("%s: %d launches", cases[i].codec, (int)launches);
    expect_ok(kv_free(store));
    for (int k = 0; k < kKeys; ++k) expect_ok(mv_tensor_free(tensors[k]));
  }
}

/** Row-sparse keys on a device have the values of those on the host, whatever comes from wherever. */
static void row_sparse_keys_have_the_bits_of_the_host(void **state) {
  (void)state;
  const char *const optimizers[] = {NULL, "mx.sgd learning_rate=0.1 momentum=0.9", "mx.adam", "mx.sgld", "adagrad", "mx.lamb"}, *const name = "w";
  const mv_dtype dtypes[] = {MV_F32, MV_F64, MV_F16};
  kv_keys keys = KV_KEYS_INIT;
  keys.names = &name;
  keys.count = 1;
  for (size_t i = 0; i < COUNT_OF(optimizers) * COUNT_OF(dtypes); ++i) {
    const char *const optimizer = optimizers[i / COUNT_OF(dtypes)];
    const mv_dtype dtype = dtypes[i % COUNT_OF(dtypes)];
    const double tolerance = optimizer != NULL && strcmp(optimizer, "mx.lamb") == 0 ? 1e-3 : 0; /* norms are summed in another order */
    mv_tensor first = 0, value = drawn(0, dtype, 3);
    expect_ok(mv_tensor_to_sparse(value, &first));
    const kv_store stores[] = {store_of("local", optimizer, "none", &keys, &first, 1), store_of("device", optimizer, "none", &keys, &first, 1)};
    for (int round = 0; round < 5; ++round) {
      mv_tensor some[2], rows[2], outs[2][2], dense[2], ids = 0, expected = 0, difference = 0, norm = 0;
      for (int k = 0; k < 2; ++k) { /* two tensors in the last rounds; on the key's device, on another one, and on the host */
        const int64_t shape[] = {3, 30}, numbers[] = {2 * round + k, 20, 39 - round};
        expect_ok(mv_tensor_create_on(round % 3 - 1, dtype, shape, 2, &some[k]));
        expect_ok(mv_tensor_uniform(some[k], 10 * round + k, -1, 1));
        expect_ok(mv_tensor_sparse(numbers, 3, some[k], 40, &rows[k]));
      }
      for (int s = 0; s < 2; ++s) {
        kv_values values = KV_VALUES_INIT, out = KV_VALUES_INIT, wanted = KV_VALUES_INIT;
        values.tensors = rows;
        values.count = round >= 2 ? 2 : 1;
        expect_ok(kv_push(stores[s], &keys, &values, NULL));
        for (int k = 0; k < 2; ++k) expect_ok(mv_tensor_copy(rows[k], 0, &outs[s][k]));
        expect_ok(mv_tensor_create_on(0, MV_I64, (const int64_t[]){25}, 1, &ids));
        expect_ok(mv_tensor_range(ids, 15, 1));
        out.tensors = outs[s];
        out.count = 2;
        wanted.tensors = &ids;
        wanted.count = 1;
        expect_ok(kv_row_sparse_pull(stores[s], &keys, &out, &wanted, NULL));
        for (int k = 0; k < 2; ++k) assert_int_equal(place_of(outs[s][k]), round % 3 - 1);
        dense[s] = drawn(0, dtype, 1);
        out.tensors = &dense[s];
        out.count = 1;
        expect_ok(kv_pull(stores[s], &keys, &out, NULL));
        expect_ok(mv_tensor_free(ids));
      }
      const mv_tensor pairs[3][2] = {{dense[0], dense[1]}, {outs[0][0], outs[1][0]}, {outs[0][1], outs[1][1]}};
      for (int p = 0; p < 3; ++p) {
        double far = 1;
        int64_t whole = 0;
        expect_ok(mv_tensor_binary(MV_SUB, pairs[p][0], pairs[p][1], 0, &difference));
        expect_ok(mv_tensor_to_dense(difference, &expected));
        expect_ok(mv_tensor_reduce(MV_NORM, expected, MV_ALL_AXES, &norm));
        expect_ok(mv_tensor_get(norm, NULL, 0, &far, &whole));
        if (!(far <= tolerance)) fail_msg("%s of dtype %d, round %d: %g", optimizer != NULL ? optimizer : "no optimizer", (int)dtype, round, far);
        expect_ok(mv_tensor_free(difference));
        expect_ok(mv_tensor_free(expected));
        expect_ok(mv_tensor_free(norm));
      }
      for (int k = 0; k < 2; ++k) {
        const mv_tensor all[] = {some[k], rows[k], outs[0][k], outs[1][k], dense[k]};
        for (size_t t = 0; t < COUNT_OF(all); ++t) expect_ok(mv_tensor_free(all[t]));
      }
    }
    for (int s = 0; s < 2; ++s) expect_ok(kv_free(stores[s]));
    expect_ok(mv_tensor_free(first));
    expect_ok(mv_tensor_free(value));
  }
}

/** Row-sparse values go to a dense key on a device. */
static void rows_are_pushed_to_keys_on_a_device(void **state) {
  (void)state;
  const char *const name = "w";
  kv_keys keys = KV_KEYS_INIT;
  keys.names = &name;
  keys.count = 1;
  const mv_tensor value = range_on(0, MV_F32, DIMS(3, 2)), some = range_on(0, MV_F32, DIMS(2, 2));
  mv_tensor rows = 0;
  expect_ok(mv_tensor_sparse((const int64_t[]){2, 0}, 2, some, 3, &rows));
  kv_values values = KV_VALUES_INIT;
  values.count = 1;
  const kv_store store = store_of("device", "sgd rate=1", "none", &keys, &value, 1);
  values.tensors = &rows;
  expect_ok(kv_push(store, &keys, &values, NULL));
  values.tensors = &value;
  expect_ok(kv_pull(store, &keys, &values, NULL));
  EXPECT_F32(value, -2, -2, 2, 3, 4, 4);
  const mv_tensor all[] = {value, some, rows};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
  expect_ok(kv_free(store));
}

/* ---- tables */

static void tables_are_on_devices(void **state) {
  (void)state;
  const uint64_t before = unused_of(1);
  float values[12] = {0}, got[12];
  for (int i = 0; i < 12; ++i) values[i] = (float)i;
  mv_table table = 0, same = 0;
  expect_ok(mv_table_create_text(0, "kind=matrix rows=4 cols=3 device=cuda:1 updater=\"adagrad rate=1\" name=there", values, 12, MV_F32, &table));
  assert_int_equal(before - unused_of(1), 2 * sizeof values);
  expect_ok(mv_table_create_text(0, "kind=matrix rows=4 cols=3 updater=\"adagrad rate=1\" name=here", values, 12, MV_F32, &same));
  const int64_t rows[] = {3, 1};
  for (int i = 0; i < 3; ++i) {
    expect_ok(mv_table_add(table, values, 12, MV_F32, NULL));
    expect_ok(mv_table_add(same, values, 12, MV_F32, NULL));
    expect_ok(mv_table_add_rows(table, rows, 2, values, 6, MV_F32, NULL));
    expect_ok(mv_table_add_rows(same, rows, 2, values, 6, MV_F32, NULL));
  }
  float expected[12];
  expect_ok(mv_table_get(table, got, 12, MV_F32, NULL));
  expect_ok(mv_table_get(same, expected, 12, MV_F32, NULL));
  assert_memory_equal(got, expected, sizeof got);
  expect_ok(mv_table_get_rows(table, rows, 2, got, 6, MV_F32, NULL));
  assert_memory_equal(got, expected + 9, 3 * sizeof(float));
  assert_memory_equal(got + 3, expected + 3, 3 * sizeof(float));
  expect_ok(mv_table_destroy(table));
  expect_ok(mv_table_destroy(same));
  assert_int_equal(before, unused_of(1));
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.rows = 5;
  spec.device = 0;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &table));
  expect_ok(mv_table_get(table, got, 5, MV_F32, NULL));
  for (int i = 0; i < 5; ++i) assert_true(got[i] == 0);
  expect_ok(mv_table_destroy(table));
  spec.device = 77;
  expect_error(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), MV_ENOTFOUND, "no cuda:77");
  spec.device = -2;
  expect_error(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), MV_EINVAL, "device is -2");
  spec.device = INT64_C(1) << 33;
  expect_error(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), MV_EINVAL, "device is 8589934592");
  expect_error(mv_table_create_text(0, "kind=keyvalue cols=3 capacity=9 device=0", NULL, 0, MV_F32, &table), MV_EINVAL, "leave out capacity, or device");
  expect_error(mv_table_create_text(0, "size=4 device=tpu:0", NULL, 0, MV_F32, &table), MV_EINVAL, "\"tpu:0\" is not a device");
  expect_error(mv_table_create_text(0, "kind=keyvalue cols=3 device=0 updater=dcasgd", NULL, 0, MV_F32, &table), MV_ENOSYS, "keep the table on the host");
}

/** Three steps with the same gradients on the host and on the device, where only sums of whole tensors may differ a little. */
static void keyed_tables_are_on_devices(void **state) {
  (void)state;
  const uint64_t before = unused_of(1);
  const int64_t ids[] = {7, -1, INT64_MIN, INT64_MAX, 0}, wanted[] = {INT64_MAX, 8, -1};
  float values[15], got[9];
  for (int i = 0; i < 15; ++i) values[i] = (float)i;
  mv_table table = 0;
  expect_ok(mv_table_create_text(0, "kind=keyvalue cols=3 device=cuda:1 initial=0.5", NULL, 0, MV_F32, &table));
  expect_ok(mv_table_add_rows(table, ids, 5, values, 15, MV_F32, NULL));
  expect_ok(mv_table_add_rows(table, ids, 5, values, 15, MV_F32, NULL));
  expect_ok(mv_table_get_rows(table, wanted, 3, got, 9, MV_F32, NULL));
  for (int i = 0; i < 3; ++i) {
    assert_true(got[i] == 0.5F + 2 * values[9 + i]);
    assert_true(got[3 + i] == 0.5F);
    assert_true(got[6 + i] == 0.5F + 2 * values[3 + i]);
  }
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(table, &info));
  assert_int_equal(info.stored, 5);
  assert_int_equal(info.memory_bytes, before - unused_of(1) - 2 * 64 * sizeof(void *)); /* without the tables of chunks */
  expect_ok(mv_table_destroy(table));
  assert_int_equal(before, unused_of(1));
}

static void step_in_both_places(const char *optimizer, mv_dtype gradient_dtype, int rows, double tolerance) {
  int64_t count = 0, shared = 0;
  expect_ok(kv_optimizer_states(optimizer, &count, &shared));
  mv_tensor value[2], gradient[2], states[2][4], part = 0, moved = 0;
  for (int32_t place = MV_HOST; place <= 0; ++place) {
    const int at = place + 1;
    expect_ok(mv_tensor_create_on(place, MV_F32, DIMS(100, 50), &value[at]));
    expect_ok(mv_tensor_normal(value[at], 1, 0, 1));
    for (int64_t i = 0; i < count + (shared > 0); ++i)
      expect_ok(i < count ? mv_tensor_create_on(place, MV_F32, DIMS(100, 50), &states[at][i])
                          : mv_tensor_create_on(place, MV_F64, DIMS(shared), &states[at][i]));
    expect_ok(mv_tensor_create_on(place, gradient_dtype, DIMS(rows ? 3 : 100, 50), &part));
    expect_ok(mv_tensor_normal(part, 2, 0, 1));
    gradient[at] = part;
    if (rows) {
      const int64_t which[] = {5, 99, 0};
      expect_ok(mv_tensor_sparse(which, 3, part, 100, &gradient[at]));
      expect_ok(mv_tensor_free(part));
    }
    kv_values of = KV_VALUES_INIT;
    of.tensors = states[at];
    of.count = (uint64_t)(count + (shared > 0));
    for (uint64_t step = 1; step < 4; ++step) expect_ok(kv_optimizer_step(optimizer, step, step - 1, value[at], gradient[at], &of));
  }
  for (int64_t i = -1; i < count + (shared > 0); ++i) {
    int32_t close = 0;
    expect_ok(mv_tensor_to(i < 0 ? value[1] : states[1][i], MV_HOST, &moved));
    expect_ok(mv_tensor_close(moved, i < 0 ? value[0] : states[0][i], tolerance, tolerance, &close));
    if (close != 1) fail_msg("%s: %s differ", optimizer, i < 0 ? "the values" : "states");
    expect_ok(mv_tensor_free(moved));
  }
  for (int at = 0; at < 2; ++at) {
    expect_ok(mv_tensor_free(value[at]));
    expect_ok(mv_tensor_free(gradient[at]));
    for (int64_t i = 0; i < count + (shared > 0); ++i) expect_ok(mv_tensor_free(states[at][i]));
  }
}
static void an_optimizer_steps_tensors_of_a_device(void **state) {
  (void)state;
  static const char *const optimizers[] = {"sgd rate=0.1", "adagrad", "ftrl", "mx.sgd learning_rate=0.1 momentum=0.9", "mx.adam", "mx.nadam",
                                           "mx.ftml", "mx.rmsprop centered=1", "mx.sgld", "add"};
  for (size_t i = 0; i < COUNT_OF(optimizers); ++i)
    for (int rows = 0; rows < 2; ++rows) {
      step_in_both_places(optimizers[i], MV_F32, rows, 0);
      step_in_both_places(optimizers[i], MV_BF16, rows, 0);
    }
  step_in_both_places("mx.lamb", MV_F32, 0, 1e-6);
  step_in_both_places("mx.lbsgd momentum=0.9", MV_F32, 1, 1e-6);
}

/** Runs check() in a child, and expects its exit code 0. */
static void in_child(void (*check)(void)) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(60);
    check();
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (status != 0) fail_msg("the child ended with %d at line %d", status, WEXITSTATUS(status) + 300);
}
#define CHILD_CHECK(holds) \
  if (!(holds)) _exit((__LINE__ - 300) % 127 + 1)
#define CHILD_FAILS(call, status, part) CHILD_CHECK((call) == (status) && strstr(mv_last_error(), part) != NULL)

static mv_tensor inherited;
static void use_the_parents_devices(void) {
  mv_tensor made = 0, here = 0;
  int32_t count = 7;
  mv_device_info about = MV_DEVICE_INFO_INIT;
  CHILD_FAILS(mv_tensor_to(inherited, MV_HOST, &made), MV_EFORK, "a forked child can't use its parent's devices");
  CHILD_FAILS(mv_tensor_create_on(0, MV_F32, DIMS(2), &made), MV_EFORK, "spawn");
  CHILD_FAILS(mv_tensor_fill(inherited, 1), MV_EFORK, "spawn");
  CHILD_FAILS(mv_device_describe(0, &about), MV_EFORK, "spawn");
  CHILD_FAILS(mv_device_describe(1, &about), MV_EFORK, "spawn");
  CHILD_CHECK(mv_device_count(&count) == MV_OK && count == 0);
  CHILD_CHECK(mv_tensor_free(inherited) == MV_OK);
  CHILD_CHECK(mv_tensor_create(MV_F32, DIMS(2), &here) == MV_OK && mv_tensor_fill(here, 1) == MV_OK); /* the CPU still works */
}

static void a_forked_child_is_told(void **state) {
  (void)state;
  inherited = range_on(0, MV_F32, DIMS(3));
  in_child(use_the_parents_devices);
  EXPECT_F32(inherited, 0, 1, 2);
  expect_ok(mv_tensor_free(inherited));
}

/** In a child that has never used a device, and loads the plug-in by these variables. */
static const char *plugin_file, *emulation;
static int32_t devices_here(void) {
  int32_t count = 77;
  setenv("POLYVERSO_DEVICE_PLUGIN", plugin_file, 1);
  setenv("POLYVERSO_EMULATION", emulation, 1);
  return mv_device_count(&count) == MV_OK ? count : -1;
}
static void fail_without_a_plugin(void) {
  mv_tensor made = 0;
  CHILD_CHECK(devices_here() == 0);
  CHILD_FAILS(mv_tensor_create_on(0, MV_F32, DIMS(2), &made), MV_ENOSYS, "make cuda");
  CHILD_FAILS(mv_device_wait(0), MV_ENOSYS, "mv_device_wait: there are no devices in this process");
}
static void fail_without_a_driver(void) {
  mv_tensor made = 0;
  CHILD_CHECK(devices_here() == 0);
  CHILD_FAILS(mv_tensor_create_on(0, MV_F32, DIMS(2), &made), MV_ENOSYS, "mv_tensor_create_on: there is no driver: install it; the CPU still works");
}
static void fail_without_a_device(void) {
  mv_tensor made = 0;
  CHILD_CHECK(devices_here() == 0);
  CHILD_FAILS(mv_tensor_create_on(0, MV_F32, DIMS(2), &made), MV_ENOSYS, "finds no device");
}
static void fail_with_a_lost_device(void) {
  mv_tensor made = 0, here = 0;
  CHILD_CHECK(devices_here() == 2);
  CHILD_CHECK(mv_tensor_create_on(0, MV_F32, DIMS(2), &made) == MV_OK);
  CHILD_FAILS(mv_tensor_fill(made, 1), MV_ESYSTEM, "restart");
  CHILD_FAILS(mv_tensor_to(made, MV_HOST, &here), MV_ESYSTEM, "restart");
  CHILD_FAILS(mv_device_wait(0), MV_ESYSTEM, "mv_device_wait: cuda:0: wait: an earlier kernel failed");
  CHILD_CHECK(mv_tensor_free(made) == MV_OK);
  CHILD_CHECK(mv_tensor_create(MV_F32, DIMS(2), &here) == MV_OK && mv_tensor_fill(here, 1) == MV_OK);
}
/** Calls on what is on the device fail; what is on the host goes on. */
static void fail_with_a_device_lost_by_a_table(void) {
  mv_table there = 0, here = 0;
  float values[4] = {1, 2, 3, 4};
  CHILD_CHECK(devices_here() == 2 && mv_init(NULL) == MV_OK);
  CHILD_CHECK(mv_table_create_text(0, "size=4", NULL, 0, MV_F32, &here) == MV_OK);
  CHILD_CHECK(mv_table_create_text(0, "size=4 device=0", NULL, 0, MV_F32, &there) == MV_OK);
  CHILD_CHECK(mv_table_add(there, values, 4, MV_F32, NULL) == MV_OK);
  CHILD_FAILS(mv_table_add(there, values, 4, MV_F32, NULL), MV_ESYSTEM, "restart");
  CHILD_FAILS(mv_table_get(there, values, 4, MV_F32, NULL), MV_ESYSTEM, "restart");
  CHILD_CHECK(mv_table_add(here, values, 4, MV_F32, NULL) == MV_OK && mv_table_get(here, values, 4, MV_F32, NULL) == MV_OK);
  CHILD_CHECK(mv_table_destroy(there) == MV_OK && mv_shutdown(0) == MV_OK);
}

/** The first test: this process has not loaded a plug-in yet. */
static void what_is_missing_is_told(void **state) {
  (void)state;
  plugin_file = "/nowhere/libpolyverso_cuda.so";
  emulation = "";
  in_child(fail_without_a_plugin);
  plugin_file = EMULATION;
  emulation = "driver=0";
  in_child(fail_without_a_driver);
  emulation = "devices=0";
  in_child(fail_without_a_device);
  emulation = "launches=1";
  in_child(fail_with_a_lost_device);
  emulation = "launches=2"; /* zeros, and an add */
  in_child(fail_with_a_device_lost_by_a_table);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_missing_is_told),
      cmocka_unit_test(devices_have_names_and_numbers),
      cmocka_unit_test(tensors_are_made_on_a_device_and_copied),
      cmocka_unit_test(tensors_in_two_places_are_not_combined),
      cmocka_unit_test(memory_of_a_device_is_viewed),
      cmocka_unit_test(work_is_done_on_the_callers_stream),
      cmocka_unit_test(a_device_without_memory_goes_on),
      cmocka_unit_test(an_optimizer_steps_tensors_of_a_device),
      TEST_ALONE(stores_take_and_give_tensors_of_devices),
      cmocka_unit_test(keys_on_devices_have_the_bits_of_the_host),
      cmocka_unit_test(repeated_calls_have_the_bits_of_the_host),
      cmocka_unit_test(keys_of_device_stores_are_on_their_device),
      TEST_ALONE(keys_on_devices_reject_nan_and_infinity),
      cmocka_unit_test(a_compressed_push_takes_few_launches),
      cmocka_unit_test(row_sparse_keys_have_the_bits_of_the_host),
      cmocka_unit_test(rows_are_pushed_to_keys_on_a_device),
      TEST_ALONE(tables_are_on_devices),
      TEST_ALONE(keyed_tables_are_on_devices),
      cmocka_unit_test(a_forked_child_is_told),
  };
  setenv("POLYVERSO_DEVICE_PLUGIN", EMULATION, 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
