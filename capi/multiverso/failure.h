/* Error handling for functions that return no status. Internal to libmultiverso. */
#ifndef POLYVERSO_MULTIVERSO_FAILURE_H
#define POLYVERSO_MULTIVERSO_FAILURE_H

#include <stdbool.h>

#include <polyverso/polyverso.h>

/** Whether the call succeeded. If not: writes mv_last_error(), and aborts unless the environment says to continue. */
bool succeeded(const char *function, mv_status status);

/** succeeded() for errors that this library itself detects; returns false, if it returns. */
bool refused(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
