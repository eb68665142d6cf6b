/* What becomes of an error where the caller has no way to be told. Internal to libmultiverso. */
#ifndef POLYVERSO_MULTIVERSO_FAILURE_H
#define POLYVERSO_MULTIVERSO_FAILURE_H

#include <stdbool.h>

#include <polyverso/polyverso.h>

/** Whether the call went well. If not: writes mv_last_error(), and aborts unless the environment says to carry on. */
bool succeeded(const char *function, mv_status status);

/** The same for what this library finds by itself; returns false, where it returns. */
bool refused(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
