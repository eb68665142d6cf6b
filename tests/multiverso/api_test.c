/* The 17 functions, called as by a C program written for the original. A cluster of one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <multiverso/c_api.h>

enum { kSize = 1000, kRows = 11, kCols = 10 };

static void start_with(const char *argument) {
  char name[] = "", text[64];
  char *argv[2] = {name, text}; /* no NULL at the end; bindings pass argv like this */
  int argc = 2;
  strncpy(text, argument, sizeof(text) - 1);
  text[sizeof(text) - 1] = '\0';
  MV_Init(&argc, argv);
  assert_int_equal(argc, 1);
}
static int start_async(void **state) {
  (void)state;
  MV_Init(NULL, NULL);
  return 0;
}
static int start_sync(void **state) {
  (void)state;
  start_with("-sync=true");
  return 0;
}
static int start_sgd(void **state) {
  (void)state;
  start_with("-updater_type=sgd");
  return 0;
}
static int end(void **state) {
  (void)state;
  MV_ShutDown();
  return 0;
}

static void alone_it_is_worker_and_server_0_of_1(void **state) {
  (void)state;
  MV_Barrier();
  assert_int_equal(MV_NumWorkers(), 1);
  assert_int_equal(MV_WorkerId(), 0);
  assert_int_equal(MV_ServerId(), 0);
}

static void arrays_begin_with_zeros_and_add_up(void **state) {
  (void)state;
  TableHandler table = NULL;
  float delta[kSize], values[kSize];
  MV_NewArrayTable(kSize, &table);
  assert_non_null(table);
  MV_GetArrayTable(table, values, kSize);
  for (int i = 0; i < kSize; ++i) assert_true(values[i] == 0);
  for (int round = 1; round <= 10; ++round) {
    for (int i = 0; i < kSize; ++i) delta[i] = (float)(i + 1);
    MV_AddAsyncArrayTable(table, delta, kSize);
    memset(delta, 0, sizeof(delta)); /* it has been copied */
    for (int i = 0; i < kSize; ++i) delta[i] = (float)(i + 1);
    MV_AddArrayTable(table, delta, kSize);
    MV_Barrier();
    MV_GetArrayTable(table, values, kSize);
    for (int i = 0; i < kSize; ++i) assert_true(values[i] == (float)((i + 1) * 2 * round));
  }
}

static void matrices_add_up_whole_and_by_rows(void **state) {
  (void)state;
  int some[] = {10, 0, 5, 1};
  const int count = (int)(sizeof(some) / sizeof(some[0]));
  float all[kRows * kCols], part[4 * kCols], values[kRows * kCols];
  for (int i = 0; i < kRows * kCols; ++i) all[i] = (float)i;
  for (int row = 0; row < count; ++row) memcpy(part + row * kCols, all + some[row] * kCols, sizeof(float) * kCols);
  TableHandler table = NULL;
  MV_NewMatrixTable(kRows, kCols, &table);
  MV_AddMatrixTableAll(table, all, kRows * kCols);
  MV_AddAsyncMatrixTableAll(table, all, kRows * kCols);
  MV_AddMatrixTableByRows(table, part, count * kCols, some, count);
  MV_AddAsyncMatrixTableByRows(table, part, count * kCols, some, count);
  MV_Barrier();
  MV_GetMatrixTableAll(table, values, kRows * kCols);
  for (int row = 0; row < kRows; ++row) {
    const float times = row == 0 || row == 1 || row == 5 || row == 10 ? 4 : 2;
    for (int i = row * kCols; i < (row + 1) * kCols; ++i) assert_true(values[i] == times * all[i]);
  }
  MV_GetMatrixTableByRows(table, part, count * kCols, some, count);
  for (int i = 0; i < count * kCols; ++i) {
    assert_true(part[i] == 4 * all[some[i / kCols] * kCols + i % kCols]);
  }
  MV_GetMatrixTableByRows(table, part, 0, some, 0);
}

static void the_sgd_updater_subtracts(void **state) {
  (void)state;
  TableHandler table = NULL;
  float values[2] = {1, -2};
  MV_NewArrayTable(2, &table);
  MV_AddArrayTable(table, values, 2);
  MV_GetArrayTable(table, values, 2);
  assert_true(values[0] == -1 && values[1] == 2);
}

/** MV_Init removes from argv the arguments that Multiverso or this library knows; the program's own arguments stay, in order. */
static void known_arguments_are_taken(void **state) {
  (void)state;
  char program[] = "train", own[] = "-depth=3", sync[] = "-sync=false", file[] = "data.txt";
  char threads[] = "-omp_threads=4", updater[] = "-updater_type=default", average[] = "-ma=false";
  char role[] = "-ps_role=default", last[] = "--verbose";
  char *argv[] = {program, own, sync, file, threads, updater, average, role, last};
  int argc = (int)(sizeof(argv) / sizeof(argv[0]));
  MV_Init(&argc, argv);
  assert_int_equal(argc, 4);
  assert_ptr_equal(argv[0], program);
  assert_ptr_equal(argv[1], own);
  assert_ptr_equal(argv[2], file);
  assert_ptr_equal(argv[3], last);
  MV_ShutDown();
  argc = 0;
  MV_Init(&argc, argv); /* the first Python binding passed no arguments at all */
  assert_int_equal(argc, 0);
  assert_int_equal(MV_NumWorkers(), 1);
  MV_ShutDown();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(alone_it_is_worker_and_server_0_of_1, start_async, end),
      cmocka_unit_test_setup_teardown(arrays_begin_with_zeros_and_add_up, start_async, end),
      cmocka_unit_test_setup_teardown(arrays_begin_with_zeros_and_add_up, start_sync, end),
      cmocka_unit_test_setup_teardown(matrices_add_up_whole_and_by_rows, start_async, end),
      cmocka_unit_test_setup_teardown(matrices_add_up_whole_and_by_rows, start_sync, end),
      cmocka_unit_test_setup_teardown(the_sgd_updater_subtracts, start_sgd, end),
      cmocka_unit_test(known_arguments_are_taken),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
