/* Key-value stores: row-sparse keys, asynchronous pulls, keys that refuse NaN, and the placement of keys. */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "stores.h"

enum { kWorkers = 3, kHeight = 6, kCols = 2 };

static const int64_t kTall[] = {kHeight, kCols};

/** A row-sparse tensor of kHeight rows; every stored element is `value`. */
static mv_tensor rows_of(const int64_t* ids, uint64_t count, mv_dtype dtype, double value) {
  const int64_t shape[] = {(int64_t)count, kCols};
  mv_tensor values = full(shape, 2, dtype, value), made = 0;
  expect_ok(mv_tensor_sparse(ids, count, values, kHeight, &made));
  expect_ok(mv_tensor_free(values));
  return made;
}

/** An MV_I64 tensor of ids, or one of another dtype. */
static mv_tensor ids_of(const int64_t* ids, uint64_t count, mv_dtype dtype) {
  const int64_t shape[] = {(int64_t)count};
  mv_tensor whole = 0, made = 0;
  expect_ok(mv_tensor_from(ids, count, MV_I64, shape, 1, &whole));
  expect_ok(mv_tensor_cast(whole, dtype, &made));
  expect_ok(mv_tensor_free(whole));
  return made;
}

static double element(mv_tensor tensor, int64_t row, int64_t col) {
  const int64_t at[] = {row, col};
  double value = NAN;
  int64_t ignored;
  expect_ok(mv_tensor_get(tensor, at, 2, &value, &ignored));
  return value;
}

/** The tensor holds exactly these rows, with these values. */
static void expect_rows(mv_tensor tensor, const int64_t* ids, const double* values, uint64_t count) {
  mv_tensor held = 0, rows = 0;
  uint64_t found = 0;
  void* data = NULL;
  expect_ok(mv_tensor_parts(tensor, &held, &rows));
  expect_ok(mv_tensor_data(held, &data, &found, NULL));
  assert_int_equal(found, count);
  for (uint64_t i = 0; i < count; ++i) {
    assert_int_equal(((const int64_t*)data)[i], ids[i]);
    for (int64_t col = 0; col < kCols; ++col)
      if (element(rows, (int64_t)i, col) != values[i]) fail_msg("row %d: %g, not %g", (int)ids[i], element(rows, (int64_t)i, col), values[i]);
  }
  expect_ok(mv_tensor_free(held));
  expect_ok(mv_tensor_free(rows));
}

/** All rows of a dense tensor. */
static void expect_dense(mv_tensor tensor, const double* values) {
  for (int64_t row = 0; row < kHeight; ++row)
    if (element(tensor, row, 1) != values[row]) fail_msg("row %d: %g, not %g", (int)row, element(tensor, row, 1), values[row]);
}

/** A store on `node` with the row-sparse key "w" that holds 10, 11 ... 15 in its rows. */
static kv_store store_with_w(mv_node node, const char* type) {
  const char* name = "w";
  const kv_keys key = name_keys(&name, 1);
  kv_store kv = 0;
  mv_tensor dense = full(kTall, 2, MV_F32, 0), value = 0;
  for (int64_t row = 0; row < kHeight; ++row)
    for (int64_t col = 0; col < kCols; ++col) {
      const int64_t at[] = {row, col};
      expect_ok(mv_tensor_set(dense, at, 2, 10 + (double)row));
    }
  expect_ok(mv_tensor_to_sparse(dense, &value));
  const kv_values values = values_of(&value, 1);
  expect_ok(kv_create(node, type, &kv));
  expect_ok(kv_init(kv, &key, &values));
  expect_ok(mv_tensor_free(dense));
  expect_ok(mv_tensor_free(value));
  return kv;
}

static mv_status pull_rows(kv_store kv, mv_tensor out, mv_tensor ids) {
  const char* name = "w";
  const kv_keys key = name_keys(&name, 1);
  const kv_values outs = values_of(&out, 1), lists = values_of(&ids, 1);
  return kv_row_sparse_pull(kv, &key, &outs, &lists, NULL);
}
static mv_status push_w(kv_store kv, const mv_tensor* tensors, uint64_t count) {
  const char* name = "w";
  const kv_keys key = name_keys(&name, 1);
  const kv_values values = values_of(tensors, count);
  return kv_push(kv, &key, &values, NULL);
}
static mv_status pull_w(kv_store kv, const mv_tensor* tensors, uint64_t count, uint32_t flags) {
  const char* name = "w";
  const kv_keys key = name_keys(&name, 1);
  const kv_values values = values_of(tensors, count);
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = flags;
  return kv_pull(kv, &key, &values, &options);
}
static mv_tensor empty_rows(void) { return rows_of(NULL, 0, MV_F32, 0); }

/* ------------------------------------------------------------------ ids */

static void ids_are_of_any_order_dtype_and_shape(void** state) {
  (void)state;
  const kv_store kv = store_with_w(0, "local");
  const mv_tensor out = empty_rows();
  static const mv_dtype dtypes[] = {MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_F16, MV_BF16, MV_I8};
  const int64_t given[] = {4, 1, 4, 0, 1, 4}, square[] = {2, 3};
  for (size_t i = 0; i < COUNT_OF(dtypes); ++i) {
    mv_tensor ids = ids_of(given, 6, dtypes[i]), folded = 0;
    expect_ok(mv_tensor_reshape(ids, square, 2, &folded));
    expect_ok(pull_rows(kv, out, folded));
    expect_rows(out, (const int64_t[]){0, 1, 4}, (const double[]){10, 11, 14}, 3);
    expect_ok(mv_tensor_free(folded));
    expect_ok(mv_tensor_free(ids));
  }
  const mv_tensor none = ids_of(NULL, 0, MV_I64), one = full(NULL, 0, MV_I64, 5);
  expect_ok(pull_rows(kv, out, one)); /* without dimensions: one id */
  expect_rows(out, (const int64_t[]){5}, (const double[]){15}, 1);
  expect_ok(pull_rows(kv, out, none));
  expect_rows(out, NULL, NULL, 0);
  expect_ok(kv_free(kv));
}

static void wrong_ids_change_nothing(void** state) {
  (void)state;
  const kv_store kv = store_with_w(0, "local");
  const mv_tensor out = empty_rows();
  expect_ok(pull_rows(kv, out, ids_of((const int64_t[]){2}, 1, MV_I64)));
  const int64_t two[] = {2};
  const mv_tensor half = full(two, 1, MV_F32, 0.5), minus = full(two, 1, MV_I32, -1), far = full(two, 1, MV_F64, kHeight);
  const mv_tensor nan = full(two, 1, MV_F32, NAN), huge = full(two, 1, MV_F64, 1e300), sparse = empty_rows();
  expect_error(pull_rows(kv, out, half), MV_EINVAL, "row id 0.5 is not an integer");
  expect_error(pull_rows(kv, out, nan), MV_EINVAL, "not an integer");
  expect_error(pull_rows(kv, out, huge), MV_EINVAL, "not an integer");
  expect_error(pull_rows(kv, out, minus), MV_ERANGE, "row id -1 is outside 0 .. 5");
  expect_error(pull_rows(kv, out, far), MV_ERANGE, "row id 6 is outside 0 .. 5");
  expect_error(pull_rows(kv, out, sparse), MV_EINVAL, "dense tensor");
  expect_error(pull_rows(kv, out, 0), MV_EHANDLE, "");
  expect_rows(out, two, (const double[]){12}, 1);
  expect_ok(kv_free(kv));
}

static void one_list_serves_all_or_each_has_its_own(void** state) {
  (void)state;
  const kv_store kv = store_with_w(0, "device");
  const char* name = "w";
  const kv_keys key = name_keys(&name, 1);
  const mv_tensor outs[] = {empty_rows(), empty_rows(), empty_rows()};
  const mv_tensor lists[] = {ids_of((const int64_t[]){3, 1}, 2, MV_I32), ids_of((const int64_t[]){0}, 1, MV_I64),
                             ids_of((const int64_t[]){5, 5}, 2, MV_F32)};
  const kv_values three = values_of(outs, 3), one_list = values_of(lists, 1), two_lists = values_of(lists, 2), all_lists = values_of(lists, 3);
  expect_ok(kv_row_sparse_pull(kv, &key, &three, &one_list, NULL));
  for (int i = 0; i < 3; ++i) expect_rows(outs[i], (const int64_t[]){1, 3}, (const double[]){11, 13}, 2);
  mv_tensor held = 0, rows = 0;
  expect_ok(mv_tensor_parts(outs[0], &held, &rows));
  expect_ok(mv_tensor_fill(rows, 7)); /* they share no memory */
  expect_rows(outs[1], (const int64_t[]){1, 3}, (const double[]){11, 13}, 2);
  expect_ok(kv_row_sparse_pull(kv, &key, &three, &all_lists, NULL));
  expect_rows(outs[0], (const int64_t[]){1, 3}, (const double[]){11, 13}, 2);
  expect_rows(outs[1], (const int64_t[]){0}, (const double[]){10}, 1);
  expect_rows(outs[2], (const int64_t[]){5}, (const double[]){15}, 1);
  assert_true(element(rows, 0, 0) == 7); /* earlier results stay as they are */
  expect_error(kv_row_sparse_pull(kv, &key, &three, &two_lists, NULL), MV_ESHAPE, "2 lists of row ids for 3 tensors");
  expect_error(kv_row_sparse_pull(kv, &key, &three, NULL, NULL), MV_EINVAL, "row_ids is NULL");
  expect_ok(kv_free(kv));
}

static void dense_and_sparse_are_distinguished(void** state) {
  (void)state;
  const kv_store kv = store_with_w(0, "local");
  const char* name = "dense";
  const kv_keys dense_key = name_keys(&name, 1);
  const mv_tensor dense = full(kTall, 2, MV_F32, 3), out = empty_rows(), ids = ids_of((const int64_t[]){1}, 1, MV_I64);
  const mv_tensor doubles = rows_of(NULL, 0, MV_F64, 0);
  const kv_values denses = values_of(&dense, 1), outs = values_of(&out, 1), lists = values_of(&ids, 1);
  expect_ok(kv_init(kv, &dense_key, &denses));
  expect_error(kv_row_sparse_pull(kv, &dense_key, &outs, &lists, NULL), MV_EINVAL, "not row-sparse");
  expect_error(pull_rows(kv, dense, ids), MV_EINVAL, "row-sparse tensors");
  expect_error(pull_rows(kv, doubles, ids), MV_EDTYPE, "row-sparse f32 (6, 2)");

  expect_ok(pull_rows(kv, out, ids));
  expect_ok(pull_w(kv, &out, 1, 0)); /* ignored */
  expect_ok(pull_w(kv, &doubles, 1, 0));
  expect_rows(out, (const int64_t[]){1}, (const double[]){11}, 1);
  expect_error(pull_w(kv, &doubles, 1, KV_SPARSE_TOO), MV_EDTYPE, "");
  expect_ok(push_w(kv, &(const mv_tensor){rows_of((const int64_t[]){4, 2}, 2, MV_F32, 8)}, 1));
  const mv_tensor both[] = {out, dense, empty_rows()};
  expect_ok(pull_w(kv, both, 3, KV_SPARSE_TOO));
  expect_rows(both[0], (const int64_t[]){2, 4}, (const double[]){8, 8}, 2);
  expect_rows(both[2], (const int64_t[]){2, 4}, (const double[]){8, 8}, 2);
  expect_dense(dense, (const double[]){0, 0, 8, 0, 8, 0});
  expect_ok(kv_pull(kv, &dense_key, &outs, NULL));
  expect_rows(out, (const int64_t[]){2, 4}, (const double[]){8, 8}, 2);
  expect_ok(kv_free(kv));
}

/* ------------------------------------------------------------------ pushes */

static void pushes_replace_the_value(void** state) {
  (void)state;
  const kv_store kv = store_with_w(0, "local");
  const mv_tensor all = full(kTall, 2, MV_F32, 0);
  const mv_tensor devices[] = {rows_of((const int64_t[]){5, 0}, 2, MV_F32, 1), rows_of((const int64_t[]){0, 3}, 2, MV_F32, 2),
                               rows_of(NULL, 0, MV_F32, 0)};
  expect_ok(push_w(kv, devices, 3)); /* the union of their rows */
  expect_ok(pull_w(kv, &all, 1, 0));
  expect_dense(all, (const double[]){3, 0, 0, 2, 0, 1});
  expect_ok(push_w(kv, devices + 1, 1));
  expect_ok(pull_w(kv, &all, 1, 0));
  expect_dense(all, (const double[]){2, 0, 0, 2, 0, 0});
  const mv_tensor dense = full(kTall, 2, MV_F32, 4), mixed[] = {dense, devices[0]};
  expect_ok(push_w(kv, mixed, 2));
  expect_ok(pull_w(kv, &all, 1, 0));
  expect_dense(all, (const double[]){5, 4, 4, 4, 4, 5});
  expect_ok(push_w(kv, devices + 2, 1)); /* no row at all */
  expect_ok(pull_w(kv, &all, 1, 0));
  expect_dense(all, (const double[]){0, 0, 0, 0, 0, 0});
  expect_ok(kv_free(kv));
}

/** Rows pushed to a dense key, whose table is split by rows or, with few long rows, by elements. */
static void rows_reach_dense_keys(void** state) {
  (void)state;
  const int64_t shapes[][2] = {{kHeight, kCols}, {4, 400000}};
  for (size_t i = 0; i < COUNT_OF(shapes); ++i) {
    kv_store kv = 0;
    const int64_t number = 1, row = 2, one[] = {1, shapes[i][1]};
    const kv_keys key = number_keys(&number, 1);
    mv_tensor value = full(shapes[i], 2, MV_F32, 1), values = full(one, 2, MV_F32, 6), pushed = 0;
    expect_ok(mv_tensor_sparse(&row, 1, values, shapes[i][0], &pushed));
    const kv_values given = values_of(&value, 1), rows = values_of(&pushed, 1);
    expect_ok(kv_create(0, "local", &kv));
    expect_ok(kv_init(kv, &key, &given));
    expect_ok(kv_set_optimizer(kv, "sgd rate=0.5"));
    expect_ok(kv_push(kv, &key, &rows, NULL));
    expect_ok(kv_pull(kv, &key, &given, NULL));
    for (int64_t r = 0; r < shapes[i][0]; ++r) assert_true(element(value, r, shapes[i][1] - 1) == (r == 2 ? -2 : 1));
    expect_ok(kv_set_optimizer(kv, "assign"));
    expect_ok(kv_push(kv, &key, &rows, NULL));
    expect_ok(kv_pull(kv, &key, &given, NULL));
    for (int64_t r = 0; r < shapes[i][0]; ++r) assert_true(element(value, r, 0) == (r == 2 ? 6 : 0));
    expect_ok(kv_free(kv));
  }
}

static void optimizers_step_the_rows_that_are_pushed(void** state) {
  (void)state;
  const kv_store kv = store_with_w(0, "local");
  const mv_tensor all = full(kTall, 2, MV_F32, 0), first = rows_of((const int64_t[]){1, 3}, 2, MV_F32, 2),
                  second = rows_of((const int64_t[]){3}, 1, MV_F32, 2);
  expect_ok(kv_set_optimizer(kv, "mx.sgd learning_rate=0.5 momentum=0.5"));
  expect_ok(push_w(kv, &first, 1));
  expect_ok(push_w(kv, &second, 1)); /* row 1's momentum is unchanged */
  expect_ok(pull_w(kv, &all, 1, 0));
  expect_dense(all, (const double[]){10, 10, 12, 10.5, 14, 15});
  expect_ok(kv_free(kv));
}

static void every_dtype_has_rows(void** state) {
  (void)state;
  static const mv_dtype dtypes[] = {MV_F32, MV_F64, MV_F16, MV_BF16, MV_I32, MV_I64, MV_U8, MV_I8};
  for (size_t i = 0; i < COUNT_OF(dtypes); ++i) {
    kv_store kv = 0;
    const char* name = "w";
    const kv_keys key = name_keys(&name, 1);
    const mv_tensor devices[] = {rows_of((const int64_t[]){0, 1}, 2, dtypes[i], 3), rows_of((const int64_t[]){1, 2}, 2, dtypes[i], 4)};
    const mv_tensor ids = ids_of((const int64_t[]){2, 1}, 2, MV_I64);
    const kv_values values = values_of(devices, 2), outs = values_of(devices, 1), lists = values_of(&ids, 1);
    expect_ok(kv_create(0, "local", &kv));
    expect_ok(kv_init(kv, &key, &values));
    expect_ok(kv_push(kv, &key, &values, NULL));
    expect_ok(kv_row_sparse_pull(kv, &key, &outs, &lists, NULL));
    expect_rows(devices[0], (const int64_t[]){1, 2}, (const double[]){7, 4}, 2);
    expect_ok(kv_free(kv));
  }
}

static void nan_and_infinity_are_refused(void** state) {
  (void)state;
  const char* names[] = {"a", "b"};
  const kv_keys both = name_keys(names, 2), a = name_keys(names, 1);
  kv_store kv = 0;
  const mv_tensor values[] = {full(kTall, 2, MV_F32, 1), full(kTall, 2, MV_F32, 2)}, outs[] = {full(kTall, 2, MV_F32, 0), full(kTall, 2, MV_F32, 0)};
  const kv_values given = values_of(values, 2), out = values_of(outs, 2), first = values_of(values, 1);
  expect_ok(kv_create(0, "local", &kv));
  expect_ok(kv_set_reject_nonfinite(kv, 1));
  expect_ok(mv_tensor_fill(values[0], INFINITY));
  expect_error(kv_init(kv, &a, &first), MV_ENONFINITE, "key \"a\"");
  expect_ok(mv_tensor_fill(values[0], 1));
  expect_ok(kv_init(kv, &both, &given));
  expect_ok(mv_tensor_fill(values[0], 5));
  expect_ok(mv_tensor_fill(values[1], NAN));
  expect_error(kv_push(kv, &both, &given, NULL), MV_ENONFINITE, "key \"b\": f32 (6, 2) holds NaN or infinity");
  const mv_tensor rows = rows_of((const int64_t[]){1}, 1, MV_F32, -INFINITY);
  const kv_values bad_rows = values_of(&rows, 1);
  expect_error(kv_push(kv, &a, &bad_rows, NULL), MV_ENONFINITE, "");
  expect_ok(kv_pull(kv, &both, &out, NULL));
  expect_all(outs[0], 1); /* none of its rows was pushed */
  expect_all(outs[1], 2);
  expect_ok(kv_free(kv));
}

/* ------------------------------------------------------------------ requests */

static void one_request_stands_for_a_call(void** state) {
  (void)state;
  kv_store kv = 0;
  const int64_t numbers[] = {1, 2, 3}, unknown = 4;
  const kv_keys keys = number_keys(numbers, 3), none = number_keys(&unknown, 1);
  mv_tensor values[6];
  for (int i = 0; i < 6; ++i) values[i] = full(kTall, 2, MV_F32, i / 2 + 1);
  const kv_values pairs = values_of(values, 6);
  expect_ok(kv_create(0, "dist_sync", &kv));
  expect_ok(kv_init(kv, &keys, &pairs));
  for (int i = 0; i < 6; ++i) expect_ok(mv_tensor_fill(values[i], 0));
  mv_request request = 0, finished = 0;
  uint64_t count = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = &request;
  expect_error(kv_pull(kv, &none, &pairs, &options), MV_ENOTFOUND, "no key \"4\"");
  assert_true(request == 0);
  expect_ok(kv_pull(kv, &keys, &pairs, &options));
  expect_ok(mv_poll(0, &finished, 1, &count, 20000));
  assert_true(count == 1 && finished == request);
  expect_ok(mv_request_wait(request, 0));
  for (int i = 0; i < 6; ++i) expect_all(values[i], i / 2 + 1);
  expect_ok(kv_pushpull(kv, &keys, &pairs, NULL, &options));
  expect_ok(mv_request_wait(request, 0));
  for (int i = 0; i < 6; ++i) expect_all(values[i], 2 * (i / 2 + 1));
  expect_ok(kv_free(kv));

  kv = store_with_w(0, "local");
  const char* name = "w";
  const kv_keys w = name_keys(&name, 1);
  const mv_tensor out = empty_rows(), ids = ids_of((const int64_t[]){4, 2}, 2, MV_I64);
  const kv_values outs = values_of(&out, 1), lists = values_of(&ids, 1);
  expect_ok(kv_row_sparse_pull(kv, &w, &outs, &lists, &options));
  expect_ok(mv_request_wait(request, 0));
  expect_rows(out, (const int64_t[]){2, 4}, (const double[]){12, 14}, 2);
  expect_ok(kv_free(kv));
}

/** Worker 0's pull of round 1 waits until the others have pushed; it gives up its pull of round 2. */
static void pull_ahead(struct member* self) {
  const kv_store kv = store_with_w(self->node, "dist_sync");
  const char* name = "w";
  const kv_keys key = name_keys(&name, 1);
  const mv_tensor mine = rows_of((const int64_t[]){0}, 1, MV_F32, 1), out = empty_rows(), ids = ids_of((const int64_t[]){0}, 1, MV_I64);
  const kv_values outs = values_of(&out, 1), lists = values_of(&ids, 1);
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = &request;
  for (int round = 0; round < 2; ++round) {
    if (self->index == 0) {
      int32_t done = 1;
      expect_ok(push_w(kv, &mine, 1));
      expect_ok(kv_row_sparse_pull(kv, &key, &outs, &lists, &options));
      expect_ok(mv_request_test(request, &done));
      assert_false(done);
      if (round == 1) expect_ok(mv_request_cancel(request));
    }
    expect_ok(kv_barrier(kv, NULL));
    if (self->index != 0) expect_ok(push_w(kv, &mine, 1));
    if (self->index == 0 && round == 0) {
      expect_ok(mv_request_wait(request, 0));
      expect_rows(out, (const int64_t[]){0}, (const double[]){kWorkers}, 1);
    }
  }
  expect_ok(pull_rows(kv, out, ids));
  expect_rows(out, (const int64_t[]){0}, (const double[]){kWorkers}, 1);
  expect_ok(kv_free(kv));
}
static void a_pull_waits_for_its_round_without_its_caller(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, pull_ahead);
}

/* ------------------------------------------------------------------ several workers */

static void merge_rows(struct member* self) {
  const kv_store kv = store_with_w(self->node, "dist_sync");
  const int64_t own[] = {self->index, 4};
  const mv_tensor mine = rows_of(own, 2, MV_F32, self->index + 1), all = full(kTall, 2, MV_F32, 0), none = rows_of(NULL, 0, MV_F32, 0);
  expect_ok(pull_w(kv, &all, 1, 0));
  expect_dense(all, (const double[]){10, 11, 12, 13, 14, 15});
  for (int round = 0; round < 3; ++round) {
    expect_ok(push_w(kv, &mine, 1));
    expect_ok(pull_w(kv, &all, 1, 0));
    expect_dense(all, (const double[]){1, 2, 3, 0, 6, 0}); /* replaced by the union, every time */
  }
  expect_ok(push_w(kv, self->index == 1 ? &none : &mine, 1));
  expect_ok(pull_w(kv, &all, 1, 0));
  expect_dense(all, (const double[]){1, 0, 3, 0, 4, 0});
  expect_ok(kv_barrier(kv, NULL));
  if (self->index == 2) expect_ok(kv_set_optimizer(kv, "mx.sgd learning_rate=1 momentum=0.5"));
  expect_ok(kv_barrier(kv, NULL));
  for (int round = 0; round < 2; ++round) expect_ok(push_w(kv, &mine, 1));
  expect_ok(pull_w(kv, &all, 1, 0));
  /* Each round is one step of the sum: g, then g + g / 2. */
  expect_dense(all, (const double[]){1 - 2.5 * 1, -2.5 * 2, 3 - 2.5 * 3, 0, 4 - 2.5 * 6, 0});
  expect_ok(kv_barrier(kv, NULL));
  const mv_tensor dense = full(kTall, 2, MV_F32, 1);
  expect_ok(kv_set_optimizer(kv, "assign"));
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(push_w(kv, self->index == 1 ? &dense : &mine, 1)); /* a dense tensor has all rows */
  expect_ok(pull_w(kv, &all, 1, 0));
  expect_dense(all, (const double[]){2, 1, 4, 1, 5, 1});
  expect_ok(kv_free(kv));
}
static void rounds_merge_the_union_of_rows(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, merge_rows);
}

/** Bytes that this node has received from others. */
static double received(mv_node node) {
  static const char kName[] = "polyverso_peer_received_bytes_total{";
  uint64_t length = 0;
  double sum = 0;
  expect_ok(mv_metrics_text(node, NULL, 0, &length));
  char* text = malloc(length + 4096);
  assert_non_null(text);
  expect_ok(mv_metrics_text(node, text, length + 4096, &length));
  for (const char* line = strstr(text, kName); line != NULL; line = strstr(line + 1, kName)) sum += atof(strchr(line, '}') + 1);
  free(text);
  return sum;
}

/** A key of 10 MB, spread over the servers; only 30 rows are pulled. */
static void pull_few_of_many(struct member* self) {
  enum { kMany = 40000, kWide = 64, kWanted = 30 };
  const int64_t shape[] = {kMany, kWide}, none[] = {0, kWide};
  const char* name = "w";
  const kv_keys key = name_keys(&name, 1);
  kv_store kv = 0;
  mv_tensor dense = full(shape, 2, MV_F32, 3), value = 0, no_rows = full(none, 2, MV_F32, 0), out = 0, ids = 0;
  int64_t wanted[kWanted];
  for (int i = 0; i < kWanted; ++i) wanted[i] = (int64_t)i * (kMany / kWanted) + 7;
  expect_ok(mv_tensor_to_sparse(dense, &value));
  expect_ok(mv_tensor_sparse(NULL, 0, no_rows, kMany, &out));
  expect_ok(mv_tensor_from(wanted, kWanted, MV_I64, (const int64_t[]){kWanted}, 1, &ids));
  const kv_values values = values_of(&value, 1), outs = values_of(&out, 1), lists = values_of(&ids, 1);
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  expect_ok(kv_init(kv, &key, &values));
  expect_ok(mv_barrier(self->node, NULL));
  const double before = received(self->node);
  expect_ok(kv_row_sparse_pull(kv, &key, &outs, &lists, NULL));
  const double got = received(self->node) - before, rows = kWanted * kWide * 4;
  if (got < rows / 2 || got > 2 * rows) fail_msg("%g bytes for %g of rows, of which two thirds are elsewhere", got, rows);
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  expect_ok(mv_tensor_describe(out, &info));
  assert_int_equal(info.rows_held, kWanted);
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(kv_free(kv));
}
static void only_wanted_rows_travel(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, pull_few_of_many);
}

/* ------------------------------------------------------------------ placement of keys */

enum { kKeys = 60 };
static char directory[] = "/tmp/polyverso-kvstore-rows-XXXXXX";

static kv_store small_keys(struct member* self, const char* const* names, mv_tensor* tensors, double value) {
  kv_store kv = 0;
  const kv_keys keys = name_keys(names, kKeys);
  for (int i = 0; i < kKeys; ++i) tensors[i] = full(kTall, 2, MV_F32, value < 0 ? value : value + i);
  const kv_values values = values_of(tensors, kKeys);
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  expect_ok(kv_init(kv, &keys, &values));
  return kv;
}
static void name_all(char (*names)[16], const char** pointers) {
  for (int i = 0; i < kKeys; ++i) {
    snprintf(names[i], sizeof(names[i]), "k%d", i);
    pointers[i] = names[i];
  }
}

static void save_keys(struct member* self) {
  char names[kKeys][16];
  const char* pointers[kKeys];
  mv_tensor tensors[kKeys];
  name_all(names, pointers);
  const kv_store kv = small_keys(self, pointers, tensors, 1000);
  const kv_keys keys = name_keys(pointers, kKeys);
  const kv_values values = values_of(tensors, kKeys);
  for (int i = 0; i < kKeys; ++i) expect_ok(mv_tensor_fill(tensors[i], i));
  expect_ok(kv_pushpull(kv, &keys, &values, NULL, NULL));
  for (int i = 0; i < kKeys; ++i) expect_all(tensors[i], self->nodes * i);
  expect_ok(mv_checkpoint_save(self->node, directory, 1, NULL));
  expect_ok(kv_free(kv));
}
static void load_keys(struct member* self) {
  char names[kKeys][16];
  const char* pointers[kKeys];
  mv_tensor tensors[kKeys];
  name_all(names, pointers);
  expect_ok(mv_checkpoint_load(self->node, directory, NULL));
  const kv_store kv = small_keys(self, pointers, tensors, -1); /* finds the existing keys */
  const kv_keys keys = name_keys(pointers, kKeys);
  const kv_values values = values_of(tensors, kKeys);
  expect_ok(kv_pull(kv, &keys, &values, NULL));
  for (int i = 0; i < kKeys; ++i) expect_all(tensors[i], 3 * i);
  for (int i = 0; i < kKeys; ++i) expect_ok(mv_tensor_fill(tensors[i], 1));
  expect_ok(kv_pushpull(kv, &keys, &values, NULL, NULL));
  for (int i = 0; i < kKeys; ++i) expect_all(tensors[i], self->nodes);
  expect_ok(kv_free(kv));
}
static void keys_move_with_the_number_of_servers(void** state) {
  (void)state;
  char command[100];
  assert_non_null(mkdtemp(directory));
  run_nodes(3, NULL, save_keys);
  run_nodes(2, NULL, load_keys);
  run_nodes(4, NULL, load_keys);
  snprintf(command, sizeof(command), "rm -r %s", directory);
  assert_int_equal(system(command), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ids_are_of_any_order_dtype_and_shape),
      cmocka_unit_test(wrong_ids_change_nothing),
      cmocka_unit_test(one_list_serves_all_or_each_has_its_own),
      cmocka_unit_test(dense_and_sparse_are_distinguished),
      cmocka_unit_test(pushes_replace_the_value),
      cmocka_unit_test(rows_reach_dense_keys),
      cmocka_unit_test(optimizers_step_the_rows_that_are_pushed),
      cmocka_unit_test(every_dtype_has_rows),
      cmocka_unit_test(nan_and_infinity_are_refused),
      TEST_ALONE(one_request_stands_for_a_call),
      cmocka_unit_test(a_pull_waits_for_its_round_without_its_caller),
      cmocka_unit_test(rounds_merge_the_union_of_rows),
      cmocka_unit_test(only_wanted_rows_travel),
      cmocka_unit_test(keys_move_with_the_number_of_servers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
