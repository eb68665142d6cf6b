/* Tables: creation, description, lookup, listing, closing. */
#include <stdio.h>

#include "expect.h"

static void a_table_says_what_it_is(void** state) {
  (void)state;
  const mv_table table =
      create_table("name=\"my weights\" kind=matrix rows=10 cols=64 dtype=float64 reject_nonfinite=yes");
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(table, &info));
  assert_string_equal(info.name, "my weights");
  assert_int_equal(info.kind, MV_MATRIX);
  assert_int_equal(info.dtype, MV_F64);
  assert_int_equal(info.rows, 10);
  assert_int_equal(info.cols, 64);
  assert_int_equal(info.flags, MV_REJECT_NONFINITE);
  assert_int_equal(info.servers, 1);
  assert_int_equal(info.bytes, 10 * 64 * 8);
  assert_true(info.adds == 0 && info.gets == 0);
  assert_int_equal(info.size, sizeof(info));

  double values[640] = {0};
  expect_ok(mv_table_add(table, values, 640, MV_F64, NULL));
  expect_ok(mv_table_add(table, values, 640, MV_F64, NULL));
  expect_ok(mv_table_get(table, values, 640, MV_F64, NULL));
  expect_ok(mv_table_describe(table, &info));
  assert_int_equal(info.adds, 2);
  assert_int_equal(info.gets, 1);
}

static void structs_and_texts_make_the_same(void** state) {
  (void)state;
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  mv_table one = 0;
  mv_table_info info = MV_TABLE_INFO_INIT;
  spec.name = "s";
  spec.kind = MV_MATRIX;
  spec.rows = 3;
  spec.cols = 2;
  const float initial[6] = {1, 2, 3, 4, 5, 6};
  float got[6] = {0};
  expect_ok(mv_table_create(0, &spec, initial, 6, MV_F32, &one));
  expect_ok(mv_table_get(one, got, 6, MV_F32, NULL));
  assert_memory_equal(got, initial, sizeof(got));
  expect_ok(mv_table_describe(create_table("size=100"), &info));
  assert_true(info.kind == MV_ARRAY && info.rows == 100 && info.cols == 1 && info.dtype == MV_F32 && info.flags == 0);
  assert_int_equal(strncmp(info.name, "table-", 6), 0);
}

static void a_spec_that_can_not_be_is_refused(void** state) {
  (void)state;
  mv_table table = 77;
#define REFUSE(text, status, part) expect_error(mv_table_create_text(0, text, NULL, 0, MV_F32, &table), status, part)
  REFUSE("", MV_EINVAL, "no elements");
  REFUSE("rows=0", MV_EINVAL, "rows=0 in the specification is less than 1");
  REFUSE("rows=10 cols=2", MV_EINVAL, "use kind=matrix");
  REFUSE("size=10 kind=matrix", MV_EDISAGREE,
         "kind=matrix in the specification and size=10 in the specification disagree");
  REFUSE("size=10 rows=11", MV_EDISAGREE, "disagree");
  REFUSE("size=10 dtype=i16", MV_EINVAL, "dtype=i16 in the specification is not one of f32|f64|i64|i32|u8|i8|f16|bf16");
  REFUSE("size=10 colour=red", MV_EINVAL, "known: name, kind (array|matrix|sparse|keyvalue), dtype (f32|f64|");
  REFUSE("size=10 colour=red", MV_EINVAL, "rows, cols, size, reject_nonfinite, updater, staleness, initial");
  REFUSE("size=10 staleness=-2", MV_EINVAL, "staleness=-2");
  REFUSE("size=10 updater=\"adagrad rate\"", MV_EINVAL, "rate");
  REFUSE("size=10 updater=adagard", MV_EINVAL, "adagrad");
  REFUSE("kind=matrix rows=4294967296 cols=4294967296", MV_EINVAL, "size in bytes exceeds 64 bits");
  REFUSE("size=1 name=\"\"", MV_EINVAL, "name is empty");
  REFUSE("size=1 name=\"\xFF\xFE\"", MV_EINVAL, "not UTF-8 at byte 0");
  char text[400];
  snprintf(text, sizeof(text), "size=1 name=%0256d", 0);
  REFUSE(text, MV_EINVAL, "256 bytes; the limit is 255");
  expect_error(mv_table_create_text(0, NULL, NULL, 0, MV_F32, &table), MV_EINVAL, "NULL");
#undef REFUSE
  assert_int_equal(table, 77);
  snprintf(text, sizeof(text), "size=1 name=%0255d", 0);
  expect_ok(mv_table_create_text(0, text, NULL, 0, MV_F32, &table));
}

static void a_struct_that_can_not_be_is_refused(void** state) {
  (void)state;
  mv_table table = 0;
  const mv_table_spec good = MV_TABLE_SPEC_INIT;
  mv_table_spec spec = good;
#define REFUSE(status, part) expect_error(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), status, part)
  REFUSE(MV_EINVAL, "no elements");
  spec.rows = 1;
  spec.size = 8;
  REFUSE(MV_EINVAL, "mv_table_spec.size is 8");
  spec.size = sizeof(spec);
  spec.version = 0;
  REFUSE(MV_EINVAL, "version is 0");
  spec.version = MV_STRUCT_VERSION;
  spec.kind = 5;
  REFUSE(MV_EINVAL, "kind is 5");
  spec.kind = MV_ARRAY;
  spec.dtype = MV_RAW;
  REFUSE(MV_EDTYPE, "0");
  spec.dtype = 99;
  REFUSE(MV_EDTYPE, "99");
  spec.dtype = MV_F32;
  spec.flags = 8;
  REFUSE(MV_EINVAL, "mv_table_flag");
  spec.flags = 0;
  spec.reserved = 1;
  REFUSE(MV_EINVAL, "reserved");
  spec.reserved = 0;
  spec.rows = UINT64_MAX;
  REFUSE(MV_EINVAL, "64 bits");
#undef REFUSE
  spec.rows = 2;
  float value[2] = {1, 2};
  expect_error(mv_table_create(0, NULL, NULL, 0, MV_F32, &table), MV_EINVAL, "spec is NULL");
  expect_error(mv_table_create(0, &spec, NULL, 0, MV_F32, NULL), MV_EINVAL, "handle is NULL");
  expect_error(mv_table_create(0, &spec, NULL, 2, MV_F32, &table), MV_EINVAL, "data is NULL");
  expect_error(mv_table_create(0, &spec, value, 1, MV_F32, &table), MV_ESHAPE, "");
  expect_error(mv_table_create(0, &spec, value, 2, MV_F64, &table), MV_EDTYPE, "");
  expect_error(mv_table_create(0, &spec, value, 2, -5, &table), MV_EINVAL, "-5 is not an mv_dtype");
  expect_ok(mv_table_create(0, &spec, value, 2 * sizeof(float), MV_RAW, &table));
}

static void structs_of_the_first_release_are_understood(void** state) {
  (void)state;
  mv_table table = 0;
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.size = offsetof(mv_table_spec, updater);
  spec.rows = 2;
  spec.updater = "not read";
  spec.staleness = -99;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &table));
  mv_table_info info = MV_TABLE_INFO_INIT;
  info.size = offsetof(mv_table_info, updater);
  info.stored = 77;
  expect_ok(mv_table_describe(table, &info));
  assert_true(info.rows == 2 && info.size == offsetof(mv_table_info, updater));
  assert_true(info.stored == 77 && info.updater[0] == '\0'); /* nothing is written beyond the size */
}

static void a_table_says_how_it_is_shared(void** state) {
  (void)state;
  const mv_table table = create_table("kind=matrix rows=3 cols=2 dtype=f64 staleness=2 updater=\"momentum rate=0.5\"");
  const double one[6] = {1, 1, 1, 1, 1, 1};
  expect_ok(mv_table_add(table, one, 6, MV_F64, NULL));
  expect_ok(mv_table_clock(table));
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(table, &info));
  assert_string_equal(info.updater, "momentum rate=0.5 momentum=0.9 dampening=0 nesterov=0 decay=0");
  assert_true(info.staleness == 2 && info.clock == 1 && info.stored == 3);
  assert_true(info.state_bytes >= 6 * sizeof(double));
  assert_true(info.memory_bytes >= info.bytes + info.state_bytes && info.bytes == 6 * sizeof(double));
  expect_ok(mv_table_describe(create_table("size=1"), &info));
  assert_string_equal(info.updater, "add");
  assert_true(info.staleness == MV_UNSET && info.clock == 0 && info.state_bytes == 0);
}

static void initial_values_must_be_finite_where_the_table_says_so(void** state) {
  (void)state;
  mv_table table = 0;
  const float zero = 0, bad = 1 / zero;
  expect_error(mv_table_create_text(0, "size=1 reject_nonfinite=1", &bad, 1, MV_F32, &table), MV_ENONFINITE, "");
  expect_ok(mv_table_create_text(0, "size=1", &bad, 1, MV_F32, &table));
}

static void a_name_opens_the_table_again(void** state) {
  (void)state;
  const mv_table first = create_table("name=w size=2");
  mv_table second = 0;
  const float add[2] = {1, 2};
  float got[2] = {0};
  expect_ok(mv_table_open(0, "w", &second));
  assert_true(first != second);
  expect_ok(mv_table_add(first, add, 2, MV_F32, NULL));
  expect_ok(mv_table_close(first));
  expect_error(mv_table_get(first, got, 2, MV_F32, NULL), MV_EHANDLE, "mv_table_get: ");
  expect_error(mv_table_close(first), MV_EHANDLE, "closed table handle");
  expect_ok(mv_table_get(second, got, 2, MV_F32, NULL));
  assert_memory_equal(got, add, sizeof(got));
  expect_error(mv_table_open(0, "nosuch", &second), MV_ENOTFOUND, "nosuch");
  expect_error(mv_table_open(0, NULL, &second), MV_EINVAL, "name is NULL");
  expect_error(mv_table_open(0, "", &second), MV_EINVAL, "empty");
  expect_error(mv_table_open(0, "w", NULL), MV_EINVAL, "NULL");
}

static void creating_it_again_must_agree(void** state) {
  (void)state;
  mv_table again = 0;
  const mv_table table = create_table("name=w size=2");
  expect_error(mv_table_create_text(0, "name=w size=3", NULL, 0, MV_F32, &again), MV_EDISAGREE, "w");
  (void)table;
}

static void destroy_ends_the_table_for_all_handles(void** state) {
  (void)state;
  const mv_table first = create_table("name=w size=2");
  mv_table second = 0;
  float got[2];
  expect_ok(mv_table_open(0, "w", &second));
  expect_ok(mv_table_destroy(first));
  expect_error(mv_table_get(first, got, 2, MV_F32, NULL), MV_EHANDLE, "closed table handle");
  expect_error(mv_table_get(second, got, 2, MV_F32, NULL), MV_ENOTFOUND, "w");
  expect_ok(mv_table_close(second));
  expect_error(mv_table_open(0, "w", &second), MV_ENOTFOUND, "w");
  const mv_table fresh = create_table("name=w size=3"); /* the name is free again */
  float three[3] = {1, 1, 1};
  expect_ok(mv_table_get(fresh, three, 3, MV_F32, NULL));
  assert_true(three[0] == 0);
}

static void the_list_is_json_in_a_buffer_of_any_size(void** state) {
  (void)state;
  char text[256];
  uint64_t length = 77;
  expect_ok(mv_table_list(0, NULL, 0, &length));
  assert_int_equal(length, 2);
  expect_ok(mv_table_list(0, text, sizeof(text), &length));
  assert_string_equal(text, "[]");
  create_table("name=\"a \\\"b\\\"\" size=3");
  expect_ok(mv_table_list(0, text, sizeof(text), &length));
  assert_string_equal(text,
                      "[{\"name\": \"a \\\"b\\\"\", \"kind\": \"array\", \"dtype\": \"f32\", \"rows\": 3, \"cols\": 1, "
                      "\"updater\": \"add\", \"staleness\": -1, \"merge\": false}]");
  assert_int_equal(length, strlen(text));
  char small[4] = {'x', 'x', 'x', 'x'};
  expect_ok(mv_table_list(0, small, 3, &length));
  assert_memory_equal(small, "[{\0x", 4);
  assert_int_equal(length, strlen(text));
  expect_error(mv_table_list(0, NULL, 5, &length), MV_EINVAL, "text is NULL");
  expect_error(mv_table_list(0, text, 5, NULL), MV_EINVAL, "length is NULL");
}

static void info_structs_are_checked(void** state) {
  (void)state;
  const mv_table table = create_table("size=1");
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_error(mv_table_describe(table, NULL), MV_EINVAL, "info is NULL");
  info.size = 0;
  expect_error(mv_table_describe(table, &info), MV_EINVAL, "mv_table_info.size is 0");
  info.size = sizeof(info);
  info.version = 9;
  expect_error(mv_table_describe(table, &info), MV_EINVAL, "version is 9");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_ALONE(a_table_says_what_it_is),
      TEST_ALONE(structs_and_texts_make_the_same),
      TEST_ALONE(a_spec_that_can_not_be_is_refused),
      TEST_ALONE(a_struct_that_can_not_be_is_refused),
      TEST_ALONE(structs_of_the_first_release_are_understood),
      TEST_ALONE(a_table_says_how_it_is_shared),
      TEST_ALONE(initial_values_must_be_finite_where_the_table_says_so),
      TEST_ALONE(a_name_opens_the_table_again),
      TEST_ALONE(creating_it_again_must_agree),
      TEST_ALONE(destroy_ends_the_table_for_all_handles),
      TEST_ALONE(the_list_is_json_in_a_buffer_of_any_size),
      TEST_ALONE(info_structs_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
