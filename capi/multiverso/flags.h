/* The arguments of Multiverso's own that polyverso.h does not know. Internal to libmultiverso. */
#ifndef POLYVERSO_MULTIVERSO_FLAGS_H
#define POLYVERSO_MULTIVERSO_FLAGS_H

#include <stdbool.h>

/** Takes Multiverso's arguments out of argv and lowers *argc. False where one asks for what is not offered: then argv
 *  is as it was, and the error has been told. */
bool take_flags(int *argc, char **argv);

/** The updater of new tables, as mv_table_spec takes it; NULL = add. */
const char *chosen_updater(void);

#endif
