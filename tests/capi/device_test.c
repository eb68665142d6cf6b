/* Devices and tensors on them, by an emulation of the plug-in unless POLYVERSO_DEVICE_PLUGIN names another one. What they compute:
 * unit/device_tensors_test. */
#include <polyverso/kvstore.h>
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

/** Three steps with the same gradients on the host and on the device, where only sums of whole tensors may differ a little. */
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
  CHILD_CHECK(mv_tensor_create(MV_F32, DIMS(2), &here) == MV_OK && mv_tensor_fill(here, 1) == MV_OK); /* the CPU goes on */
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
  CHILD_FAILS(mv_tensor_create_on(0, MV_F32, DIMS(2), &made), MV_ENOSYS, "mv_tensor_create_on: there is no driver: install it; the CPU goes on");
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
      cmocka_unit_test(a_forked_child_is_told),
  };
  setenv("POLYVERSO_DEVICE_PLUGIN", EMULATION, 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
