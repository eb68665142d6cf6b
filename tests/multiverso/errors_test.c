/* Errors are printed and end the process; with POLYVERSO_MULTIVERSO_ERRORS=continue the call returns. Each case runs in a child process:
 * this process never joins a cluster, so it may fork. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <multiverso/c_api.h>

static char heard[4096];

/** Runs `body` in a child and copies its standard error into `heard`; returns its status, as waitpid() gives it. */
static int run_child(const char *errors, void (*body)(void)) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGABRT, SIG_DFL); /* cmocka handles it */
    dup2(ends[1], STDERR_FILENO);
    if (errors == NULL) {
      unsetenv("POLYVERSO_MULTIVERSO_ERRORS");
    } else {
      setenv("POLYVERSO_MULTIVERSO_ERRORS", errors, 1);
    }
    alarm(60);
    body();
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t got;
  while ((got = read(ends[0], heard + length, sizeof(heard) - 1 - length)) > 0) length += (size_t)got;
  heard[length] = '\0';
  close(ends[0]);
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void expect_abort(const char *errors, void (*body)(void), const char *line) {
  const int status = run_child(errors, body);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || strstr(heard, line) == NULL) {
    print_error("the child ended with %d, not with SIGABRT after ...%s...; it wrote\n%s", status, line, heard);
    fail();
  }
}
static void expect_return(void (*body)(void), const char *line) {
  const int status = run_child("continue", body);
  if (status != 0 || strstr(heard, line) == NULL) {
    print_error("the child ended with %d, not with 0 after ...%s...; it wrote\n%s", status, line, heard);
    fail();
  }
}

static void ask_before_init(void) {
  if (MV_NumWorkers() != -1) _exit(1);
}
static void before_init_every_call_is_an_error(void **state) {
  (void)state;
  expect_abort(NULL, ask_before_init, "multiverso: MV_NumWorkers: MV_ESTATE: mv_num_workers");
  expect_abort("abort", MV_Barrier, "multiverso: MV_Barrier: MV_ESTATE:");
  expect_abort("", MV_Barrier, "aborting; set POLYVERSO_MULTIVERSO_ERRORS=continue to carry on");
  expect_abort("carry on", MV_ShutDown, "POLYVERSO_MULTIVERSO_ERRORS is neither abort nor continue");
  expect_return(ask_before_init, "multiverso: MV_NumWorkers: MV_ESTATE: mv_num_workers");
}

static void add_too_much(void) {
  TableHandler table = NULL;
  float values[4] = {1, 1, 1, 1};
  MV_Init(NULL, NULL);
  MV_NewArrayTable(3, &table);
  MV_AddArrayTable(table, values, 4);
  MV_GetArrayTable(table, values, 3);
  if (values[0] != 0) _exit(1);
  MV_ShutDown();
}
static void a_wrong_size_is_an_error(void **state) {
  (void)state;
  expect_abort(NULL, add_too_much, "multiverso: MV_AddArrayTable: MV_ESHAPE: ");
  expect_return(add_too_much, "4 values given");
}

static void make_every_mistake(void) {
  TableHandler table = &table, matrix = NULL;
  float values[6] = {7, 7, 7, 7, 7, 7};
  int rows[] = {1, 3};
  MV_Init(NULL, NULL);
  MV_NewArrayTable(0, &table);
  if (table != NULL) _exit(1);
  MV_NewArrayTable(3, NULL);
  MV_NewMatrixTable(3, -2, &table);
  MV_NewMatrixTable(3, 2, &matrix);
  MV_GetMatrixTableAll(NULL, values, 6);
  MV_GetMatrixTableAll((TableHandler)(intptr_t)-1, values, 6);
  MV_GetMatrixTableAll(matrix, NULL, 6);
  MV_GetMatrixTableAll(matrix, values, -6);
  MV_GetMatrixTableByRows(matrix, values, 4, rows, 2);
  MV_GetMatrixTableByRows(matrix, values, 4, NULL, 2);
  MV_GetMatrixTableByRows(matrix, values, 4, rows, -2);
  MV_AddAsyncMatrixTableByRows(matrix, values, 3, rows, 1);
  if (values[0] != 7) _exit(2);
  rows[1] = 0;
  MV_GetMatrixTableByRows(matrix, values, 4, rows, 2);
  if (values[0] != 0) _exit(3);
  MV_ShutDown();
}
static void no_argument_crashes(void **state) {
  (void)state;
  expect_return(make_every_mistake, "MV_NewArrayTable: 0 rows x 1 columns");
  assert_non_null(strstr(heard, "MV_NewArrayTable: the pointer for the handle is NULL"));
  assert_non_null(strstr(heard, "MV_NewMatrixTable: 3 rows x -2 columns"));
  assert_non_null(strstr(heard, "MV_GetMatrixTableAll: MV_EHANDLE"));
  assert_non_null(strstr(heard, "MV_GetMatrixTableAll: MV_EINVAL"));
  assert_non_null(strstr(heard, "MV_GetMatrixTableAll: size is -6"));
  assert_non_null(strstr(heard, "MV_GetMatrixTableByRows: MV_ERANGE"));
  assert_non_null(strstr(heard, "row_ids is NULL, but row_ids_n is 2"));
  assert_non_null(strstr(heard, "row_ids_n is -2"));
  assert_non_null(strstr(heard, "MV_AddAsyncMatrixTableByRows: MV_ESHAPE"));
}

static const char *argument;
static void start_with_argument(void) {
  char name[] = "train", text[64];
  snprintf(text, sizeof(text), "%s", argument);
  char *argv[] = {name, text, NULL};
  int argc = 2;
  MV_Init(&argc, argv);
  if (argc != 2 || argv[1] != text) _exit(1);
}
static void errors_that_change_the_result_are_reported(void **state) {
  (void)state;
  static const struct {
    const char *argument, *line;
  } cases[] = {
      {"-machine_file=hosts.txt", "MV_Init: -machine_file=hosts.txt is not offered: start the processes with"},
      {"-updater_type=adagrad", "MV_Init: -updater_type=adagrad is not supported, only default and sgd"},
      {"-backup_worker_ratio=20", "MV_Init: -backup_worker_ratio=20 is not offered"},
      {"-ma=true", "MV_Init: -ma=true: model averaging"},
      {"-sync=perhaps", "MV_Init: MV_EINVAL: mv_init_args: "},
      {"-ps_role=chief", "MV_Init: MV_EINVAL: mv_init_args: "},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    argument = cases[i].argument;
    expect_abort(NULL, start_with_argument, cases[i].line);
    expect_return(start_with_argument, cases[i].line);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(before_init_every_call_is_an_error),
      cmocka_unit_test(a_wrong_size_is_an_error),
      cmocka_unit_test(no_argument_crashes),
      cmocka_unit_test(errors_that_change_the_result_are_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
