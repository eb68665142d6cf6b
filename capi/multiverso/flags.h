/* The arguments of Multiverso that polyverso.h does not know. Internal to libmultiverso. */
#ifndef POLYVERSO_MULTIVERSO_FLAGS_H
#define POLYVERSO_MULTIVERSO_FLAGS_H

#include <stdbool.h>

/** Removes Multiverso's arguments from argv and lowers *argc. False if one requests an unsupported feature: argv is
 *  then unchanged, and the error has been reported. */
bool take_flags(int *argc, char **argv);

/** The updater of new tables, as mv_table_spec takes it; NULL = add. */
const char *chosen_updater(void);

#endif
