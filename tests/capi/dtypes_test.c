/* Every dtype in every kind of table: values round-trip, integers wrap around, half-precision values are rounded when read. */
#include <stdio.h>

#include "expect.h"

enum { kValues = 3 };

struct dtype {
  const char* name;
  mv_dtype code;
  size_t bytes;
  union { /* 1 2 3, 10 20 30, and their sums */
    float f32[3 * kValues];
    double f64[3 * kValues];
    int64_t i64[3 * kValues];
    int32_t i32[3 * kValues];
    uint8_t u8[3 * kValues];
    uint16_t half[3 * kValues];
  } as;
};

static const struct dtype dtypes[] = {
    {"f32", MV_F32, 4, {.f32 = {1, 2, 3, 10, 20, 30, 11, 22, 33}}},
    {"f64", MV_F64, 8, {.f64 = {1, 2, 3, 10, 20, 30, 11, 22, 33}}},
    {"i64", MV_I64, 8, {.i64 = {1, 2, 3, 10, 20, 30, 11, 22, 33}}},
    {"i32", MV_I32, 4, {.i32 = {1, 2, 3, 10, 20, 30, 11, 22, 33}}},
    {"u8", MV_U8, 1, {.u8 = {1, 2, 3, 10, 20, 30, 11, 22, 33}}},
    {"i8", MV_I8, 1, {.u8 = {1, 2, 3, 10, 20, 30, 11, 22, 33}}},
    {"f16", MV_F16, 2, {.half = {0x3c00, 0x4000, 0x4200, 0x4900, 0x4d00, 0x4f80, 0x4980, 0x4d80, 0x5020}}},
    {"bf16", MV_BF16, 2, {.half = {0x3f80, 0x4000, 0x4040, 0x4120, 0x41a0, 0x41f0, 0x4130, 0x41b0, 0x4204}}},
};
static const char* const kinds[] = {"size=3", "kind=matrix rows=3 cols=1", "kind=sparse rows=3 cols=1",
                                    "kind=keyvalue cols=1"};
static const int64_t rows[kValues] = {0, 1, 2};

/** values[0 .. 2], [3 .. 5] or [6 .. 8] */
static const void* part(const struct dtype* dtype, int which) {
  return (const char*)&dtype->as + (size_t)which * kValues * dtype->bytes;
}

static mv_table create_of(const struct dtype* dtype, const char* kind) {
  char spec[100];
  snprintf(spec, sizeof(spec), "%s dtype=%s", kind, dtype->name);
  return create_table(spec);
}

static void what_goes_in_comes_out(void** state) {
  (void)state;
  for (size_t d = 0; d < COUNT_OF(dtypes); ++d) {
    const struct dtype* dtype = &dtypes[d];
    for (size_t k = 0; k < COUNT_OF(kinds); ++k) {
      const mv_table table = create_of(dtype, kinds[k]);
      const size_t bytes = kValues * dtype->bytes;
      char got[kValues * 8] = {0};
      mv_table_info info = MV_TABLE_INFO_INIT;
      expect_ok(mv_table_add_rows(table, rows, kValues, part(dtype, 0), kValues, dtype->code, NULL));
      expect_ok(mv_table_add_rows(table, rows, kValues, part(dtype, 1), bytes, MV_RAW, NULL));
      expect_ok(mv_table_get_rows(table, rows, kValues, got, kValues, dtype->code, NULL));
      assert_memory_equal(got, part(dtype, 2), bytes);
      expect_ok(mv_table_set_rows(table, rows, kValues, part(dtype, 0), kValues, dtype->code, NULL));
      expect_ok(mv_table_peek_rows(table, rows, kValues, got, bytes, MV_RAW, NULL));
      assert_memory_equal(got, part(dtype, 0), bytes);
      expect_ok(mv_table_describe(table, &info));
      assert_true(info.dtype == dtype->code && info.stored == kValues);
      if (k < 3) assert_int_equal(info.bytes, bytes);
    }
  }
}

static void initial_values_are_of_the_dtype(void** state) {
  (void)state;
  for (size_t d = 0; d < COUNT_OF(dtypes); ++d) {
    char spec[100], got[kValues * 8];
    mv_table table = 0;
    snprintf(spec, sizeof(spec), "size=3 dtype=%s", dtypes[d].name);
    expect_ok(mv_table_create_text(0, spec, part(&dtypes[d], 1), kValues, dtypes[d].code, &table));
    expect_ok(mv_table_get(table, got, kValues, dtypes[d].code, NULL));
    assert_memory_equal(got, part(&dtypes[d], 1), kValues * dtypes[d].bytes);
    snprintf(spec, sizeof(spec), "kind=keyvalue initial=2 dtype=%s", dtypes[d].name);
    table = create_table(spec);
    expect_ok(mv_table_get_rows(table, rows, 1, got, 1, dtypes[d].code, NULL));
    assert_memory_equal(got, (const char*)part(&dtypes[d], 0) + dtypes[d].bytes, dtypes[d].bytes);
  }
}

static void other_dtypes_are_refused(void** state) {
  (void)state;
  char values[kValues * 8] = {0};
  for (size_t d = 0; d < COUNT_OF(dtypes); ++d) {
    const mv_table table = create_of(&dtypes[d], kinds[d % 2]);
    for (size_t other = 0; other < COUNT_OF(dtypes); ++other) {
      if (other == d) continue;
      expect_error(mv_table_add(table, values, kValues, dtypes[other].code, NULL), MV_EDTYPE, dtypes[other].name);
      expect_error(mv_table_get(table, values, kValues, dtypes[other].code, NULL), MV_EDTYPE, dtypes[d].name);
    }
    expect_error(mv_table_add(table, values, kValues, 9, NULL), MV_EINVAL, "9 is not an mv_dtype");
    expect_error(mv_table_add(table, values, kValues * dtypes[d].bytes + 1, MV_RAW, NULL), MV_ESHAPE, "");
  }
}

static void integers_wrap_around(void** state) {
  (void)state;
  mv_table table = 0;
  const int64_t most = INT64_MAX, one64 = 1;
  int64_t got64 = 0;
  expect_ok(mv_table_create_text(0, "size=1 dtype=i64", &most, 1, MV_I64, &table));
  expect_ok(mv_table_add(table, &one64, 1, MV_I64, NULL));
  expect_ok(mv_table_get(table, &got64, 1, MV_I64, NULL));
  assert_true(got64 == INT64_MIN);
  const int32_t least = INT32_MIN, minus = -1;
  int32_t got32 = 0;
  expect_ok(mv_table_create_text(0, "size=1 dtype=i32", &least, 1, MV_I32, &table));
  expect_ok(mv_table_add(table, &minus, 1, MV_I32, NULL));
  expect_ok(mv_table_get(table, &got32, 1, MV_I32, NULL));
  assert_true(got32 == INT32_MAX);
  const uint8_t high = 250, ten = 10;
  uint8_t got8 = 0;
  expect_ok(mv_table_create_text(0, "size=1 dtype=u8", &high, 1, MV_U8, &table));
  expect_ok(mv_table_add(table, &ten, 1, MV_U8, NULL));
  expect_ok(mv_table_get(table, &got8, 1, MV_U8, NULL));
  assert_true(got8 == 4);
  const int8_t top = 127, one8 = 1;
  int8_t signed8 = 0;
  expect_ok(mv_table_create_text(0, "size=1 dtype=int8", &top, 1, MV_I8, &table));
  expect_ok(mv_table_add(table, &one8, 1, MV_I8, NULL));
  expect_ok(mv_table_get(table, &signed8, 1, MV_I8, NULL));
  assert_true(signed8 == INT8_MIN);
}

/** Adds `added` to `initial` `times` times, and reads the result. */
static uint16_t sum_of(const char* spec, mv_dtype dtype, uint16_t initial, uint16_t added, int times) {
  mv_table table = 0;
  uint16_t got = 0;
  expect_ok(mv_table_create_text(0, spec, &initial, 1, dtype, &table));
  for (int i = 0; i < times; ++i) expect_ok(mv_table_add(table, &added, 1, dtype, NULL));
  expect_ok(mv_table_get(table, &got, 1, dtype, NULL));
  return got;
}

static void halves_are_summed_wide_and_rounded_to_even(void** state) {
  (void)state;
  const char *f16 = "size=1 dtype=f16", *bf16 = "size=1 dtype=bf16";
  /* 2048 + n / 2: at this size, f16 has no fractions and only even numbers. */
  assert_int_equal(sum_of(f16, MV_F16, 0x6800, 0x3800, 1), 0x6800);   /* 2048.5 -> 2048 */
  assert_int_equal(sum_of(f16, MV_F16, 0x6800, 0x3800, 2), 0x6800);   /* 2049, a tie -> 2048, even */
  assert_int_equal(sum_of(f16, MV_F16, 0x6800, 0x3800, 3), 0x6801);   /* 2049.5 -> 2050 */
  assert_int_equal(sum_of(f16, MV_F16, 0x6800, 0x3800, 6), 0x6802);   /* 2051, a tie -> 2052, even */
  assert_int_equal(sum_of(f16, MV_F16, 0x7bff, 0x7bff, 1), 0x7c00);   /* 131008 -> infinity */
  assert_int_equal(sum_of(f16, MV_F16, 0x0001, 0x0001, 1), 0x0002);   /* subnormal numbers are kept */
  assert_int_equal(sum_of(bf16, MV_BF16, 0x4380, 0x3f80, 1), 0x4380); /* 257, a tie -> 256, even */
  assert_int_equal(sum_of(bf16, MV_BF16, 0x4380, 0x3f80, 3), 0x4382); /* 259, a tie -> 260, even */
  assert_int_equal(sum_of(bf16, MV_BF16, 0x4380, 0x3f80, 2), 0x4381); /* 258 */
  assert_int_equal(sum_of(bf16, MV_BF16, 0x7f7f, 0x7f7f, 1), 0x7f80); /* infinity */
}

static void halves_that_are_not_finite_are_seen(void** state) {
  (void)state;
  const uint16_t f16[] = {0x7c00, 0xfc00, 0x7e00, 0x7c01}, bf16[] = {0x7f80, 0xff80, 0x7fc0, 0x7f81};
  const mv_table half = create_table("size=1 dtype=f16 reject_nonfinite=1"),
                 brain = create_table("size=1 dtype=bf16 reject_nonfinite=1");
  for (size_t i = 0; i < COUNT_OF(f16); ++i) {
    expect_error(mv_table_add(half, &f16[i], 1, MV_F16, NULL), MV_ENONFINITE, "");
    expect_error(mv_table_set(brain, &bf16[i], 2, MV_RAW, NULL), MV_ENONFINITE, "");
  }
  const uint16_t largest_f16 = 0x7bff, largest_bf16 = 0x7f7f;
  expect_ok(mv_table_add(half, &largest_f16, 1, MV_F16, NULL));
  expect_ok(mv_table_add(brain, &largest_bf16, 1, MV_BF16, NULL));
  /* Integers are always finite. */
  const int64_t bits_of_nan = INT64_C(0x7ff8000000000000);
  expect_ok(mv_table_add(create_table("size=1 dtype=i64 reject_nonfinite=1"), &bits_of_nan, 1, MV_I64, NULL));
}

static void stripes_of_every_width_keep_every_value(void** state) {
  (void)state;
  enum { kMany = 1100003 }; /* two stripes of the narrowest dtype, the last one odd */
  static uint8_t bytes[kMany], got[kMany];
  static uint16_t halves[kMany], got_halves[kMany];
  const mv_table u8 = create_table("size=1100003 dtype=u8"), f16 = create_table("size=1100003 dtype=f16");
  for (int i = 0; i < kMany; ++i) {
    bytes[i] = (uint8_t)(i * 7);
    halves[i] = (uint16_t)(i % 0x7c00); /* every positive finite number */
  }
  expect_ok(mv_table_add(u8, bytes, kMany, MV_U8, NULL));
  expect_ok(mv_table_add(u8, bytes, kMany, MV_U8, NULL));
  expect_ok(mv_table_get(u8, got, kMany, MV_U8, NULL));
  for (int i = 0; i < kMany; ++i) assert_true(got[i] == (uint8_t)(2 * bytes[i]));
  expect_ok(mv_table_set(f16, halves, kMany, MV_F16, NULL));
  expect_ok(mv_table_get(f16, got_halves, kMany, MV_F16, NULL));
  assert_memory_equal(got_halves, halves, sizeof(halves));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_ALONE(what_goes_in_comes_out),
      TEST_ALONE(initial_values_are_of_the_dtype),
      TEST_ALONE(other_dtypes_are_refused),
      TEST_ALONE(integers_wrap_around),
      TEST_ALONE(halves_are_summed_wide_and_rounded_to_even),
      TEST_ALONE(halves_that_are_not_finite_are_seen),
      TEST_ALONE(stripes_of_every_width_keep_every_value),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
