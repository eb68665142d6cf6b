/* Tensors through the shared library, without an mv_init(): each function's results and argument checks. */
#include <math.h>
#include <stdlib.h>

#include "expect.h"

#define DIMS(...) (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

static mv_tensor of_f32(const float* values, uint64_t count, const int64_t* shape, uint64_t dims) {
  mv_tensor tensor = 0;
  expect_ok(mv_tensor_from(values, count, MV_F32, shape, dims, &tensor));
  return tensor;
}

static mv_tensor zeros(mv_dtype dtype, const int64_t* shape, uint64_t dims) {
  mv_tensor tensor = 0;
  expect_ok(mv_tensor_create(dtype, shape, dims, &tensor));
  return tensor;
}

static mv_tensor_info about(mv_tensor tensor) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  expect_ok(mv_tensor_describe(tensor, &info));
  return info;
}

static void* data_of(mv_tensor tensor) {
  void* data = NULL;
  expect_ok(mv_tensor_data(tensor, &data, NULL, NULL));
  return data;
}

static void expect_f32(mv_tensor tensor, const float* expected, uint64_t count) {
  void* data = NULL;
  uint64_t got = 0;
  mv_dtype dtype = 0;
  expect_ok(mv_tensor_data(tensor, &data, &got, &dtype));
  assert_int_equal(dtype, MV_F32);
  assert_int_equal(got, count);
  for (uint64_t i = 0; i < count; ++i) assert_true(((const float*)data)[i] == expected[i]);
}
#define EXPECT_F32(tensor, ...) \
  expect_f32(tensor, (const float[]){__VA_ARGS__}, sizeof((float[]){__VA_ARGS__}) / sizeof(float))

static double value_of(mv_tensor tensor, const int64_t* index, uint64_t dims) {
  double value = 0;
  int64_t integer = 0;
  expect_ok(mv_tensor_get(tensor, index, dims, &value, &integer));
  return value;
}

static void a_new_tensor_is_zero_shared_and_aligned(void** state) {
  (void)state;
  const mv_dtype dtypes[] = {MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_I8, MV_F16, MV_BF16};
  const uint64_t sizes[] = {4, 8, 8, 4, 1, 1, 2, 2};
  for (size_t i = 0; i < COUNT_OF(dtypes); ++i) {
    const mv_tensor tensor = zeros(dtypes[i], DIMS(3, 5));
    const mv_tensor_info info = about(tensor);
    const unsigned char* bytes = data_of(tensor);
    assert_int_equal(info.dtype, dtypes[i]);
    assert_true(info.dims == 2 && info.shape[0] == 3 && info.shape[1] == 5 && info.count == 15);
    assert_int_equal(info.bytes, 15 * sizes[i]);
    assert_true(info.is_shared == 1 && info.is_view == 0 && info.is_lent == 0 && info.row_sparse == 0);
    assert_true(info.sharers == 1 && (uintptr_t)bytes % 64 == 0);
    for (uint64_t b = 0; b < info.bytes; ++b) assert_int_equal(bytes[b], 0);
    expect_ok(mv_tensor_fill(tensor, 7)); /* the next tensor gets this memory, and must be zero again */
    expect_ok(mv_tensor_free(tensor));
  }
}

static void shapes_may_be_empty_but_not_wrong(void** state) {
  (void)state;
  mv_tensor tensor = 77;
  const mv_tensor none = zeros(MV_F32, NULL, 0), empty = zeros(MV_F32, DIMS(0, 4)), far = zeros(MV_U8, DIMS(4, 0));
  assert_true(about(none).count == 1 && about(none).dims == 0);
  assert_true(about(empty).count == 0 && about(far).count == 0);
  expect_ok(mv_tensor_binary(MV_ADD, empty, none, 0, &tensor));
  assert_true(about(tensor).count == 0 && about(tensor).shape[1] == 4);
  expect_ok(mv_tensor_free(tensor));
  expect_ok(mv_tensor_reduce(MV_SUM, empty, 0, &tensor));
  EXPECT_F32(tensor, 0, 0, 0, 0);
  expect_ok(mv_tensor_free(tensor));
  mv_tensor lent = 0;
  expect_ok(mv_tensor_view(NULL, 0, MV_F64, DIMS(0), &lent));
  expect_ok(mv_tensor_copy(lent, 0, &tensor));
  expect_ok(mv_tensor_free(tensor));
  expect_ok(mv_tensor_binary(MV_ADD, lent, lent, lent, &tensor));
  expect_ok(mv_tensor_reduce(MV_SUM, lent, MV_ALL_AXES, &tensor));
  assert_true(value_of(tensor, NULL, 0) == 0);
  expect_ok(mv_tensor_free(tensor));
  expect_ok(mv_tensor_free(lent));
  tensor = 77;
  expect_error(mv_tensor_reduce(MV_LEAST, empty, 0, &tensor), MV_EINVAL, "f32 (0, 4)");
  expect_error(mv_tensor_create(MV_RAW, DIMS(1), &tensor), MV_EINVAL, "MV_RAW");
  expect_error(mv_tensor_create(99, DIMS(1), &tensor), MV_EINVAL, "99");
  expect_error(mv_tensor_create(MV_F32, DIMS(2, -1), &tensor), MV_ESHAPE, "(2, -1)");
  expect_error(mv_tensor_create(MV_U8, DIMS(INT64_MAX, 2), &tensor), MV_ESHAPE, "9223372036854775807");
  expect_error(mv_tensor_create(MV_U8, DIMS(0, INT64_MAX, 3), &tensor), MV_ESHAPE, "(0, ");
  expect_error(mv_tensor_create(MV_U8, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1), &tensor), MV_EINVAL, "9 dimensions");
  expect_error(mv_tensor_create(MV_F32, NULL, 1, &tensor), MV_EINVAL, "NULL");
  expect_error(mv_tensor_create(MV_F32, DIMS(1), NULL), MV_EINVAL, "NULL");
  assert_int_equal(tensor, 77);
  expect_ok(mv_tensor_free(none));
  expect_ok(mv_tensor_free(empty));
  expect_ok(mv_tensor_free(far));
}

static void a_handle_ends_with_its_tensor(void** state) {
  (void)state;
  const mv_tensor tensor = zeros(MV_F32, DIMS(2));
  mv_tensor other = 0;
  expect_ok(mv_tensor_free(tensor));
  expect_error(mv_tensor_free(tensor), MV_EHANDLE, "closed tensor");
  expect_error(mv_tensor_fill(tensor, 1), MV_EHANDLE, "closed tensor");
  expect_error(mv_tensor_copy(12345, 0, &other), MV_EHANDLE, "not a handle");
  expect_error(mv_tensor_copy(-1, 0, &other), MV_EHANDLE, "");
  expect_error(mv_tensor_copy(0, 0, &other), MV_EHANDLE, "");
  const mv_tensor live = zeros(MV_F32, DIMS(2));
  expect_error(mv_tensor_binary(MV_ADD, live, live, tensor, &other), MV_EHANDLE, "closed tensor");
  expect_error(mv_table_close(live), MV_EHANDLE, "is a tensor, not a table");
  assert_true(live < INT64_C(1) << 53);
  expect_ok(mv_tensor_free(live));
}

static void views_share_their_memory_and_keep_it(void** state) {
  (void)state;
  const float values[6] = {1, 2, 3, 4, 5, 6};
  mv_tensor flat = 0, last = 0, row = 0;
  const mv_tensor matrix = of_f32(values, 6, DIMS(3, 2));
  expect_ok(mv_tensor_reshape(matrix, DIMS(2, -1), &flat));
  expect_ok(mv_tensor_slice(matrix, 1, 3, &last));
  expect_ok(mv_tensor_row(last, 1, &row));
  assert_true(about(flat).shape[1] == 3 && about(last).shape[0] == 2 && about(row).dims == 1);
  assert_true(about(row).is_view == 1 && about(row).storage == about(matrix).storage && about(matrix).sharers == 4);
  expect_ok(mv_tensor_fill(row, 9));
  EXPECT_F32(matrix, 1, 2, 3, 4, 9, 9);
  expect_ok(mv_tensor_free(matrix));
  expect_ok(mv_tensor_free(last));
  EXPECT_F32(flat, 1, 2, 3, 4, 9, 9);
  assert_int_equal(about(row).sharers, 2);
  mv_tensor bad = 0;
  expect_error(mv_tensor_reshape(flat, DIMS(4), &bad), MV_ESHAPE, "6 elements do not fit shape (4,)");
  expect_error(mv_tensor_reshape(flat, DIMS(-1, -1), &bad), MV_ESHAPE, "");
  expect_error(mv_tensor_reshape(flat, DIMS(4, -1), &bad), MV_ESHAPE, "");
  expect_error(mv_tensor_slice(flat, 1, 3, &bad), MV_ERANGE, "f32 (2, 3)");
  expect_error(mv_tensor_slice(flat, 2, 1, &bad), MV_ERANGE, "");
  expect_error(mv_tensor_row(flat, -1, &bad), MV_ERANGE, "row -1");
  expect_ok(mv_tensor_free(flat));
  expect_ok(mv_tensor_free(row));
}

static void lent_memory_is_used_as_it_is(void** state) {
  (void)state;
  double mine[4] = {1, 2, 3, 4};
  mv_tensor view = 0, result = 0;
  expect_ok(mv_tensor_view(mine, 4, MV_F64, DIMS(2, 2), &view));
  assert_true(data_of(view) == mine && about(view).is_lent == 1 && about(view).is_shared == 0);
  expect_ok(mv_tensor_scalar(MV_MUL, view, 10, 0, view, &result));
  assert_true(result == view && mine[3] == 40);
  expect_ok(mv_tensor_free(view));
  expect_error(mv_tensor_view(mine, 3, MV_F64, DIMS(2, 2), &view), MV_ESHAPE, "3 values given");
  expect_error(mv_tensor_view(NULL, 4, MV_F64, DIMS(2, 2), &view), MV_EINVAL, "NULL");
  expect_error(mv_tensor_view((char*)mine + 4, 1, MV_F64, DIMS(1), &view), MV_EINVAL, "not aligned");
}

static void arithmetic_matches_shapes_and_dtypes(void** state) {
  (void)state;
  const float six[6] = {1, 2, 3, 4, 5, 6}, three[3] = {10, 20, 30};
  const int64_t whole[3] = {1, 2, 3};
  mv_tensor sum = 0, quotient = 0, integers = 0;
  const mv_tensor matrix = of_f32(six, 6, DIMS(2, 3)), row = of_f32(three, 3, DIMS(3));
  expect_ok(mv_tensor_binary(MV_ADD, matrix, row, 0, &sum));
  EXPECT_F32(sum, 11, 22, 33, 14, 25, 36);
  expect_ok(mv_tensor_binary(MV_SUB, row, sum, sum, &sum));
  EXPECT_F32(sum, -1, -2, -3, -4, -5, -6);
  expect_ok(mv_tensor_unary(MV_ABS, sum, sum, &sum));
  expect_ok(mv_tensor_scalar(MV_DIV, sum, 12, 1, sum, &sum));
  EXPECT_F32(sum, 12, 6, 4, 3, 12.0f / 5, 2);
  expect_ok(mv_tensor_from(whole, 3, MV_I64, DIMS(3), &integers));
  expect_ok(mv_tensor_binary(MV_DIV, integers, integers, 0, &quotient));
  assert_int_equal(about(quotient).dtype, MV_F64);
  expect_ok(mv_tensor_free(quotient));
  expect_ok(mv_tensor_binary(MV_MUL, integers, row, 0, &quotient)); /* the float type for a wide integer */
  assert_int_equal(about(quotient).dtype, MV_F64);
  assert_true(value_of(quotient, DIMS(2)) == 90);
  mv_tensor bad = 0;
  expect_error(mv_tensor_scalar(MV_MUL, integers, 0.5, 0, 0, &bad), MV_EDTYPE, "MV_MUL 0.5 of i64 (3,)");
  expect_error(mv_tensor_scalar(MV_POW, integers, -1, 0, 0, &bad), MV_EINVAL, "negative");
  expect_error(mv_tensor_binary(MV_ADD, matrix, matrix, row, &bad), MV_ESHAPE, "out is f32 (3,)");
  expect_error(mv_tensor_binary(99, matrix, matrix, 0, &bad), MV_EINVAL, "99");
  const mv_tensor two = zeros(MV_F32, DIMS(2));
  expect_error(mv_tensor_binary(MV_ADD, matrix, two, 0, &bad), MV_ESHAPE, "(2, 3) and (2,)");
  const mv_tensor all[] = {matrix, row, sum, quotient, integers, two};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
}

static void a_result_may_overlap_its_operands(void** state) {
  (void)state;
  const float values[6] = {1, 2, 3, 4, 5, 6};
  mv_tensor first = 0, last = 0, row = 0, result = 0;
  const mv_tensor matrix = of_f32(values, 6, DIMS(3, 2));
  expect_ok(mv_tensor_slice(matrix, 0, 2, &first));
  expect_ok(mv_tensor_slice(matrix, 1, 3, &last));
  expect_ok(mv_tensor_row(matrix, 0, &row));
  expect_ok(mv_tensor_binary(MV_ADD, first, last, last, &result));
  EXPECT_F32(matrix, 1, 2, 4, 6, 8, 10);
  expect_ok(mv_tensor_binary(MV_ADD, matrix, row, matrix, &result)); /* a row of it with each of its rows */
  EXPECT_F32(matrix, 2, 4, 5, 8, 9, 12);
  expect_ok(mv_tensor_copy(first, last, &result));
  EXPECT_F32(matrix, 2, 4, 2, 4, 5, 8);
  expect_ok(mv_tensor_axpy(10, first, last));
  EXPECT_F32(matrix, 2, 4, 22, 44, 25, 48);
  const mv_tensor all[] = {matrix, first, last, row};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
}

static void casts_round_saturate_and_wrap(void** state) {
  (void)state;
  const double values[6] = {-1.9, 2.9, 1e300, -1e300, NAN, 256.5};
  const int64_t wide[2] = {300, -1};
  mv_tensor doubles = 0, integers = 0, half = 0;
  expect_ok(mv_tensor_from(values, 6, MV_F64, DIMS(6), &doubles));
  expect_ok(mv_tensor_cast(doubles, MV_I32, &integers));
  const int32_t expected[6] = {-1, 2, INT32_MAX, INT32_MIN, 0, 256};
  assert_memory_equal(data_of(integers), expected, sizeof(expected));
  expect_ok(mv_tensor_free(integers));
  expect_ok(mv_tensor_from(wide, 2, MV_I64, DIMS(2), &integers));
  expect_ok(mv_tensor_cast(integers, MV_U8, &half));
  assert_true(((const uint8_t*)data_of(half))[0] == 44 && ((const uint8_t*)data_of(half))[1] == 255);
  expect_ok(mv_tensor_free(half));
  /* 1 + 2^-11 + 2^-40 is above the midpoint of two halves; rounded to a float first, it would be the midpoint, and round down. */
  const double above = 1 + 0x1p-11 + 0x1p-40;
  expect_ok(mv_tensor_free(doubles));
  expect_ok(mv_tensor_from(&above, 1, MV_F64, NULL, 0, &doubles));
  expect_ok(mv_tensor_cast(doubles, MV_F16, &half));
  assert_int_equal(*(const uint16_t*)data_of(half), 0x3c01);
  const mv_tensor all[] = {doubles, integers, half};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
}

static void reductions_along_rows_columns_and_all(void** state) {
  (void)state;
  const float values[6] = {3, 1, 2, NAN, 5, 4};
  mv_tensor result = 0;
  const mv_tensor matrix = of_f32(values, 6, DIMS(2, 3));
  expect_ok(mv_tensor_reduce(MV_ARGMAX, matrix, 1, &result));
  const int64_t positions[2] = {0, 0}; /* NaN is the maximum */
  assert_memory_equal(data_of(result), positions, sizeof(positions));
  expect_ok(mv_tensor_free(result));
  expect_ok(mv_tensor_set(matrix, DIMS(1, 0), 6));
  expect_ok(mv_tensor_reduce(MV_SUM, matrix, 0, &result));
  EXPECT_F32(result, 9, 6, 6);
  expect_ok(mv_tensor_free(result));
  expect_ok(mv_tensor_reduce(MV_MEAN, matrix, 1, &result));
  EXPECT_F32(result, 2, 5);
  expect_ok(mv_tensor_free(result));
  expect_ok(mv_tensor_reduce(MV_LEAST, matrix, MV_ALL_AXES, &result));
  EXPECT_F32(result, 1);
  expect_ok(mv_tensor_free(result));
  expect_error(mv_tensor_reduce(MV_SUM, matrix, 2, &result), MV_EINVAL, "no dimension 2");
  expect_error(mv_tensor_reduce(0, matrix, 0, &result), MV_EINVAL, "");
  double dot = 0;
  expect_ok(mv_tensor_dot(matrix, matrix, &dot));
  assert_true(dot == 9 + 1 + 4 + 36 + 25 + 16);
  int32_t close = 0;
  expect_ok(mv_tensor_copy(matrix, 0, &result));
  expect_ok(mv_tensor_close(matrix, result, 0, 0, &close));
  assert_int_equal(close, 1);
  expect_ok(mv_tensor_set(result, DIMS(0, 0), 3.001));
  expect_ok(mv_tensor_close(matrix, result, 0, 0, &close));
  assert_int_equal(close, 0);
  expect_ok(mv_tensor_close(matrix, result, 1e-3, 0, &close));
  assert_int_equal(close, 1);
  expect_ok(mv_tensor_free(result));
  expect_ok(mv_tensor_free(matrix));
}

static void sums_are_accurate(void** state) {
  (void)state;
  enum { kCount = 10000000 };
  mv_tensor sum = 0;
  const mv_tensor many = zeros(MV_F32, DIMS(kCount));
  expect_ok(mv_tensor_fill(many, 0.1));
  expect_ok(mv_tensor_reduce(MV_SUM, many, MV_ALL_AXES, &sum));
  assert_true(value_of(sum, NULL, 0) == (float)((double)0.1f * kCount));
  expect_ok(mv_tensor_free(sum));
  expect_ok(mv_tensor_free(many));
  const mv_tensor columns = zeros(MV_F64, DIMS(100000, 3));
  expect_ok(mv_tensor_fill(columns, 0.1));
  expect_ok(mv_tensor_reduce(MV_SUM, columns, 0, &sum));
  assert_true(fabs(value_of(sum, DIMS(1)) - 10000) < 1e-11 * 10000);
  expect_ok(mv_tensor_free(sum));
  expect_ok(mv_tensor_free(columns));
}

static void row_sparse_tensors_hold_some_rows(void** state) {
  (void)state;
  const float values[6] = {1, 2, 3, 4, 10, 20};
  const int64_t rows[3] = {7, 2, 7}, wanted[2] = {7, 5}, beyond[1] = {10};
  mv_tensor sparse = 0, ids = 0, held = 0, dense = 0, kept = 0, again = 0;
  const mv_tensor three = of_f32(values, 6, DIMS(3, 2));
  expect_ok(mv_tensor_sparse(rows, 3, three, 10, &sparse));
  assert_true(about(sparse).row_sparse == 1 && about(sparse).rows_held == 2 && about(sparse).shape[0] == 10);
  assert_int_equal(about(sparse).bytes, 16);
  expect_ok(mv_tensor_parts(sparse, &ids, &held));
  const int64_t sorted[2] = {2, 7};
  assert_memory_equal(data_of(ids), sorted, sizeof(sorted));
  EXPECT_F32(held, 3, 4, 11, 22);
  expect_ok(mv_tensor_to_dense(sparse, &dense));
  assert_true(value_of(dense, DIMS(7, 1)) == 22 && value_of(sparse, DIMS(7, 1)) == 22 &&
              value_of(sparse, DIMS(3, 1)) == 0);
  expect_ok(mv_tensor_axpy(2, sparse, dense));
  assert_true(value_of(dense, DIMS(7, 1)) == 66 && value_of(dense, DIMS(2, 0)) == 9 &&
              value_of(dense, DIMS(0, 0)) == 0);
  expect_ok(mv_tensor_take(sparse, wanted, 2, &kept));
  assert_int_equal(about(kept).rows_held, 1);
  expect_ok(mv_tensor_to_sparse(dense, &again));
  assert_int_equal(about(again).rows_held, 2);
  mv_tensor bad = 0;
  expect_error(mv_tensor_sparse(beyond, 1, three, 10, &bad), MV_ESHAPE, "f32 (3, 2)");
  expect_error(mv_tensor_take(dense, beyond, 1, &bad), MV_ERANGE, "row id 10");
  expect_error(mv_tensor_binary(MV_ADD, sparse, dense, 0, &bad), MV_EINVAL, "row-sparse f32 (10, 2)");
  expect_error(mv_tensor_parts(dense, &ids, &held), MV_EINVAL, "row-sparse");
  expect_ok(mv_tensor_free(sparse));
  EXPECT_F32(held, 3, 4, 11, 22);
  const mv_tensor all[] = {three, ids, held, dense, kept, again};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
}

static void random_numbers_are_functions_of_seed_and_position(void** state) {
  (void)state;
  enum { kCount = 100000 };
  double sum = 0, squares = 0;
  mv_tensor head = 0;
  int32_t same = 0;
  const mv_tensor normal = zeros(MV_F64, DIMS(kCount)), few = zeros(MV_F64, DIMS(10));
  expect_ok(mv_tensor_normal(normal, 42, 1, 2));
  expect_ok(mv_tensor_normal(few, 42, 1, 2));
  expect_ok(mv_tensor_slice(normal, 0, 10, &head));
  expect_ok(mv_tensor_close(head, few, 0, 0, &same));
  assert_int_equal(same, 1);
  for (int i = 0; i < kCount; ++i) {
    const double value = ((const double*)data_of(normal))[i];
    sum += value;
    squares += value * value;
  }
  assert_true(fabs(sum / kCount - 1) < 0.03 && fabs(squares / kCount - 5) < 0.1);
  const mv_tensor bytes = zeros(MV_U8, DIMS(1000));
  expect_ok(mv_tensor_uniform(bytes, -1, 3, 6));
  for (int i = 0; i < 1000; ++i) assert_in_range(((const uint8_t*)data_of(bytes))[i], 3, 5);
  expect_error(mv_tensor_uniform(bytes, 1, 0, 257), MV_EINVAL, "u8 (1000,)");
  expect_error(mv_tensor_uniform(few, 1, 1, 1), MV_EINVAL, "low < high");
  expect_error(mv_tensor_uniform(few, 1, NAN, 1), MV_EINVAL, "");
  expect_error(mv_tensor_normal(bytes, 1, 0, 1), MV_EDTYPE, "u8");
  const mv_tensor all[] = {normal, few, head, bytes};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
}

static void matrices_multiply(void** state) {
  (void)state;
  const float left[6] = {1, 2, 3, 4, 5, 6}, right[6] = {1, 0, 0, 1, 1, 1};
  mv_tensor product = 0, turned = 0;
  const mv_tensor a = of_f32(left, 6, DIMS(2, 3)), b = of_f32(right, 6, DIMS(3, 2));
  expect_ok(mv_tensor_matmul(a, b, 0, 0, &product));
  EXPECT_F32(product, 4, 5, 10, 11);
  expect_ok(mv_tensor_matmul(b, a, MV_TRANSPOSE_A | MV_TRANSPOSE_B, product, &product));
  EXPECT_F32(product, 4, 10, 5, 11);
  expect_ok(mv_tensor_transpose(a, &turned));
  EXPECT_F32(turned, 1, 4, 2, 5, 3, 6);
  mv_tensor bad = 0;
  expect_error(mv_tensor_matmul(a, a, 0, 0, &bad), MV_ESHAPE, "3 columns do not match 2 rows");
  expect_error(mv_tensor_matmul(a, b, 4, 0, &bad), MV_EINVAL, "0x4");
  const mv_tensor all[] = {a, b, product, turned};
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_tensor_free(all[i]));
}

static void a_tensor_can_be_read(void** state) {
  (void)state;
  char text[64];
  uint64_t length = 0;
  const float values[4] = {1, 0.1f, -2.5f, 1e20f};
  const mv_tensor matrix = of_f32(values, 4, DIMS(2, 2)), many = zeros(MV_I32, DIMS(1000));
  expect_ok(mv_tensor_text(matrix, text, sizeof(text), &length));
  assert_string_equal(text, "f32 (2, 2)\n[[1, 0.1],\n [-2.5, 1e+20]]");
  assert_int_equal(length, strlen(text));
  expect_ok(mv_tensor_text(many, text, sizeof(text), &length));
  assert_string_equal(text, "i32 (1000,)\n[0, 0, 0, ..., 0, 0, 0]");
  expect_ok(mv_tensor_text(matrix, text, 5, &length));
  assert_string_equal(text, "f32 ");
  expect_error(mv_tensor_text(matrix, NULL, 5, &length), MV_EINVAL, "NULL");
  expect_error(mv_tensor_get(matrix, DIMS(0, 2), NULL, NULL), MV_EINVAL, "");
  expect_error(mv_tensor_set(matrix, DIMS(0, 2), 1), MV_ERANGE, "position 2");
  expect_error(mv_tensor_set(matrix, DIMS(0), 1), MV_ESHAPE, "1 positions");
  expect_ok(mv_tensor_free(matrix));
  expect_ok(mv_tensor_free(many));
}

static void a_tensor_is_a_tables_data(void** state) {
  (void)state;
  mv_table table = 0;
  void* data = NULL;
  uint64_t count = 0;
  mv_dtype dtype = 0;
  const mv_tensor delta = zeros(MV_F32, DIMS(4)), got = zeros(MV_F32, DIMS(4));
  expect_ok(mv_tensor_fill(delta, 2.5));
  expect_ok(mv_init(NULL));
  expect_ok(mv_table_create_text(0, "size=4", NULL, 0, MV_F32, &table));
  expect_ok(mv_tensor_data(delta, &data, &count, &dtype));
  expect_ok(mv_table_add(table, data, count, dtype, NULL));
  expect_ok(mv_tensor_data(got, &data, &count, &dtype));
  expect_ok(mv_table_get(table, data, count, dtype, NULL));
  expect_ok(mv_shutdown(0));
  EXPECT_F32(got, 2.5f, 2.5f, 2.5f, 2.5f);
  expect_ok(mv_tensor_free(delta));
  expect_ok(mv_tensor_free(got));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_new_tensor_is_zero_shared_and_aligned),
      cmocka_unit_test(shapes_may_be_empty_but_not_wrong),
      cmocka_unit_test(a_handle_ends_with_its_tensor),
      cmocka_unit_test(views_share_their_memory_and_keep_it),
      cmocka_unit_test(lent_memory_is_used_as_it_is),
      cmocka_unit_test(arithmetic_matches_shapes_and_dtypes),
      cmocka_unit_test(a_result_may_overlap_its_operands),
      cmocka_unit_test(casts_round_saturate_and_wrap),
      cmocka_unit_test(reductions_along_rows_columns_and_all),
      cmocka_unit_test(sums_are_accurate),
      cmocka_unit_test(row_sparse_tensors_hold_some_rows),
      cmocka_unit_test(random_numbers_are_functions_of_seed_and_position),
      cmocka_unit_test(matrices_multiply),
      cmocka_unit_test(a_tensor_can_be_read),
      cmocka_unit_test(a_tensor_is_a_tables_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
