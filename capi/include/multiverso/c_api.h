/** Multiverso's C interface, implemented by Polyverso: libmultiverso.so, for bindings and programs written for the
 *  original.
 *
 *  New programs should use <polyverso/polyverso.h>, whose functions return errors. These functions return none, as in
 *  the original: on an error they write a line to standard error and abort the process. With
 *  POLYVERSO_MULTIVERSO_ERRORS=continue in the environment they write the line and return: nothing is written through
 *  pointers, except NULL for a new table's handle, and functions that return a number return -1.
 *
 *  Tables hold float32. Sizes count elements and must equal the table's: unlike in the original, a wrong size is an
 *  error. docs/coming-from-multiverso.md lists all differences. */
#ifndef MULTIVERSO_C_API_H
#define MULTIVERSO_C_API_H

#if defined(__GNUC__)
#define MULTIVERSO_API __attribute__((visibility("default")))
#else
#define MULTIVERSO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef void *TableHandler;

/* ------------------------------------------------------------ the cluster */

/** Joins the cluster that the arguments, else the environment, describe; without either the process is a cluster of its
 *  own. Removes the arguments it knows from argv and lowers *argc: Multiverso's -sync=, -ps_role=,
 *  -updater_type=default|sgd, and those of mv_init_args(). Arguments of Multiverso that are not supported, but would
 *  change the result (such as -machine_file=), are errors.
 *  @param argv argv[0] is skipped; need not end with NULL. Both may be NULL */
MULTIVERSO_API void MV_Init(int *argc, char *argv[]);
/** Leaves the cluster, after this worker's adds are in the tables. */
MULTIVERSO_API void MV_ShutDown(void);
/** Waits until all workers have called it and their earlier adds are in the tables. */
MULTIVERSO_API void MV_Barrier(void);
MULTIVERSO_API int MV_NumWorkers(void);
/** From 0; -1 in a process that is only a server. */
MULTIVERSO_API int MV_WorkerId(void);
/** From 0; -1 in a process that is only a worker. */
MULTIVERSO_API int MV_ServerId(void);

/* ----------------------------------------------------------------- tables */

/** Creates a table of zeros. All workers create the same tables in the same order. The table exists when this
 *  returns. */
MULTIVERSO_API void MV_NewArrayTable(int size, TableHandler *out);
MULTIVERSO_API void MV_GetArrayTable(TableHandler handler, float *data, int size);
/** Returns when the servers have added the values. */
MULTIVERSO_API void MV_AddArrayTable(TableHandler handler, float *data, int size);
/** Returns at once; `data` may be reused. An error is reported by the next call on the table, the barrier or the
 *  shutdown. */
MULTIVERSO_API void MV_AddAsyncArrayTable(TableHandler handler, float *data, int size);

MULTIVERSO_API void MV_NewMatrixTable(int num_row, int num_col, TableHandler *out);
MULTIVERSO_API void MV_GetMatrixTableAll(TableHandler handler, float *data, int size);
MULTIVERSO_API void MV_AddMatrixTableAll(TableHandler handler, float *data, int size);
MULTIVERSO_API void MV_AddAsyncMatrixTableAll(TableHandler handler, float *data, int size);
/** @param size    row_ids_n times the table's columns
 *  @param row_ids from 0, in any order; repeated ones add up */
MULTIVERSO_API void MV_GetMatrixTableByRows(TableHandler handler, float *data, int size, int row_ids[], int row_ids_n);
MULTIVERSO_API void MV_AddMatrixTableByRows(TableHandler handler, float *data, int size, int row_ids[], int row_ids_n);
MULTIVERSO_API void MV_AddAsyncMatrixTableByRows(TableHandler handler, float *data, int size, int row_ids[],
                                                 int row_ids_n);

#ifdef __cplusplus
}
#endif
#endif
