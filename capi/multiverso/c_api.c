/* Implements each of Multiverso's functions with polyverso.h. */

#include <multiverso/c_api.h>

#include <stdint.h>
#include <stdlib.h>

#include <polyverso/polyverso.h>

#include "failure.h"
#include "flags.h"

_Static_assert(sizeof(TableHandler) >= sizeof(mv_table), "a pointer holds a table's handle");

/* A signal ends a wait with MV_EINTR. Callers of the original do not know interrupted calls: their runtimes handle
 * signals after the call has returned. Therefore a call that was withdrawn is repeated, and one that continues is
 * waited for. */
static bool is_to_be_repeated(mv_status status, mv_request request) { return status == MV_EINTR && request == 0; }
static mv_status waited(mv_status status, mv_request request) {
  while (status == MV_EINTR) status = mv_request_wait(request, 0);
  return status;
}

/* ------------------------------------------------------------ the cluster */

void MV_Init(int *argc, char *argv[]) {
  const bool given = argc != NULL && argv != NULL;
  if (given && !take_flags(argc, argv)) return;
  mv_status status;
  do status = given ? mv_init_args(argc, argv) : mv_init(NULL);
  while (is_to_be_repeated(status, 0));
  succeeded("MV_Init", status);
}

void MV_ShutDown(void) {
  mv_status status;
  do status = mv_shutdown(0);
  while (is_to_be_repeated(status, 0));
  succeeded("MV_ShutDown", status);
}

void MV_Barrier(void) {
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.request = &request;
  mv_status status;
  do status = mv_barrier(0, &options);
  while (is_to_be_repeated(status, request));
  succeeded("MV_Barrier", waited(status, request));
}

/** The result of an mv_... function that returns a number, or -1. */
static int number_of(const char *function, mv_status (*question)(mv_node, int64_t *)) {
  int64_t number = -1;
  return succeeded(function, question(0, &number)) ? (int)number : -1;
}
int MV_NumWorkers(void) { return number_of("MV_NumWorkers", mv_num_workers); }
int MV_WorkerId(void) { return number_of("MV_WorkerId", mv_worker_id); }
int MV_ServerId(void) { return number_of("MV_ServerId", mv_server_id); }

/* --------------------------------------------------------------- creation */

static void create(const char *function, int kind, int rows, int cols, TableHandler *out) {
  if (out == NULL) {
    refused(function, "the pointer for the handle is NULL");
    return;
  }
  *out = NULL;
  if (rows < 1 || cols < 1) {
    refused(function, "%d rows x %d columns: both must be at least 1", rows, cols);
    return;
  }
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.kind = kind;
  spec.rows = (uint64_t)rows;
  spec.cols = (uint64_t)cols;
  spec.updater = chosen_updater();
  mv_table table = 0;
  mv_status status;
  do status = mv_table_create(0, &spec, NULL, 0, MV_F32, &table);
  while (is_to_be_repeated(status, 0));
  if (succeeded(function, status)) *out = (TableHandler)(intptr_t)table;
}
void MV_NewArrayTable(int size, TableHandler *out) { create("MV_NewArrayTable", MV_ARRAY, size, 1, out); }
void MV_NewMatrixTable(int num_row, int num_col, TableHandler *out) {
  create("MV_NewMatrixTable", MV_MATRIX, num_row, num_col, out);
}

/* ------------------------------------------------------------------ values */

enum motion { kGet, kAdd, kForget };

/** One transfer between `data` and a table, or some rows of it. */
typedef struct transfer {
  const char *function;
  enum motion motion;
  TableHandler handler;
  float *data;
  int size;
  const int *row_ids;
  int row_ids_n; /* -1: all rows */
} transfer;

/** The ids as polyverso.h takes them, to be freed; NULL after an error, which has been reported. */
static int64_t *widened_ids(const transfer *it) {
  if (it->row_ids == NULL && it->row_ids_n > 0) {
    refused(it->function, "row_ids is NULL, but row_ids_n is %d", it->row_ids_n);
    return NULL;
  }
  int64_t *ids = malloc(((size_t)it->row_ids_n + 1) * sizeof(*ids)); /* never of size 0, for which malloc() may
                                                                        return NULL */
  if (ids == NULL) {
    refused(it->function, "out of memory for %d row ids", it->row_ids_n);
    return NULL;
  }
  for (int i = 0; i < it->row_ids_n; ++i) ids[i] = it->row_ids[i];
  return ids;
}

static mv_status call(const transfer *it, const int64_t *ids, const mv_call_options *options) {
  const mv_table table = (mv_table)(intptr_t)it->handler;
  const uint64_t size = (uint64_t)it->size, count = (uint64_t)it->row_ids_n;
  if (it->motion == kGet) {
    return ids == NULL ? mv_table_get(table, it->data, size, MV_F32, options)
                       : mv_table_get_rows(table, ids, count, it->data, size, MV_F32, options);
  }
  return ids == NULL ? mv_table_add(table, it->data, size, MV_F32, options)
                     : mv_table_add_rows(table, ids, count, it->data, size, MV_F32, options);
}

static void make(const transfer *it, const int64_t *ids) {
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  if (it->motion == kForget) {
    options.flags = MV_FORGET;
  } else {
    options.request = &request;
  }
  mv_status status;
  do status = call(it, ids, &options);
  while (is_to_be_repeated(status, request));
  succeeded(it->function, waited(status, request));
}

static void move_all(const char *function, enum motion motion, TableHandler handler, float *data, int size) {
  const transfer it = {function, motion, handler, data, size, NULL, -1};
  if (size < 0) {
    refused(function, "size is %d", size);
    return;
  }
  make(&it, NULL);
}

static void move_rows(const char *function, enum motion motion, TableHandler handler, float *data, int size,
                      const int *row_ids, int row_ids_n) {
  const transfer it = {function, motion, handler, data, size, row_ids, row_ids_n};
  if (size < 0 || row_ids_n < 0) {
    refused(function, "size is %d, row_ids_n is %d", size, row_ids_n);
    return;
  }
  int64_t *ids = widened_ids(&it);
  if (ids == NULL) return;
  make(&it, ids);
  free(ids);
}

void MV_GetArrayTable(TableHandler handler, float *data, int size) {
  move_all("MV_GetArrayTable", kGet, handler, data, size);
}
void MV_AddArrayTable(TableHandler handler, float *data, int size) {
  move_all("MV_AddArrayTable", kAdd, handler, data, size);
}
void MV_AddAsyncArrayTable(TableHandler handler, float *data, int size) {
  move_all("MV_AddAsyncArrayTable", kForget, handler, data, size);
}

void MV_GetMatrixTableAll(TableHandler handler, float *data, int size) {
  move_all("MV_GetMatrixTableAll", kGet, handler, data, size);
}
void MV_AddMatrixTableAll(TableHandler handler, float *data, int size) {
  move_all("MV_AddMatrixTableAll", kAdd, handler, data, size);
}
void MV_AddAsyncMatrixTableAll(TableHandler handler, float *data, int size) {
  move_all("MV_AddAsyncMatrixTableAll", kForget, handler, data, size);
}

void MV_GetMatrixTableByRows(TableHandler handler, float *data, int size, int row_ids[], int row_ids_n) {
  move_rows("MV_GetMatrixTableByRows", kGet, handler, data, size, row_ids, row_ids_n);
}
void MV_AddMatrixTableByRows(TableHandler handler, float *data, int size, int row_ids[], int row_ids_n) {
  move_rows("MV_AddMatrixTableByRows", kAdd, handler, data, size, row_ids, row_ids_n);
}
void MV_AddAsyncMatrixTableByRows(TableHandler handler, float *data, int size, int row_ids[], int row_ids_n) {
  move_rows("MV_AddAsyncMatrixTableByRows", kForget, handler, data, size, row_ids, row_ids_n);
}
