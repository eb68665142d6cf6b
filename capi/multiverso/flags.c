#include "flags.h"

#include <stddef.h>
#include <string.h>

#include "failure.h"

static const char *updater = NULL;

const char *chosen_updater(void) { return updater; }

/** The value of "-name=value" or "--name=value"; NULL for any other argument. */
static const char *value_of(const char *argument, const char *name) {
  if (argument[0] != '-') return NULL;
  argument += argument[1] == '-' ? 2 : 1;
  const size_t length = strlen(name);
  return strncmp(argument, name, length) == 0 && argument[length] == '=' ? argument + length + 1 : NULL;
}

/* These changed Multiverso's speed, or nothing: they are accepted and ignored. */
static const char *const kWithoutMeaning[] = {"omp_threads", "allocator_type", "allocator_alignment"};

/* These changed the result of a script, or its cluster. Ignoring them silently would give a wrong result. */
static const struct {
  const char *name, *instead;
} kNotOffered[] = {
    {"machine_file", "start the processes with `polyverso run`, or set POLYVERSO_MASTER, _NODES and _RANK for each"},
    {"backup_worker_ratio", "mv_table_spec.staleness lets fast workers go ahead of slow ones"},
};

/** The updater that -updater_type= names; false if it is not supported. Multiverso's other updaters took their
 *  parameters with each add, which these functions never passed. */
static bool choose_updater(const char *name) {
  if (strcmp(name, "default") == 0 || name[0] == '\0') {
    updater = NULL;
  } else if (strcmp(name, "sgd") == 0) {
    updater = "sgd rate=1"; /* Multiverso's subtracts the values: the caller applied the rate */
  } else {
    return refused("MV_Init",
                   "-updater_type=%s is not supported, only default and sgd: mv_table_create() of polyverso.h takes "
                   "an updater with its parameters",
                   name);
  }
  return true;
}

/** Whether an argument is consumed here; *fine becomes false if it is not supported. */
static bool is_taken(const char *argument, bool *fine) {
  const char *value = value_of(argument, "updater_type");
  if (value != NULL) {
    *fine = *fine && choose_updater(value);
    return true;
  }
  value = value_of(argument, "ma");
  if (value != NULL && strcmp(value, "false") != 0) {
    *fine = refused("MV_Init", "%s: model averaging without tables is not offered", argument);
  }
  for (size_t i = 0; i < sizeof(kNotOffered) / sizeof(kNotOffered[0]); ++i) {
    if (value_of(argument, kNotOffered[i].name) == NULL) continue;
    *fine = refused("MV_Init", "%s is not offered: %s", argument, kNotOffered[i].instead);
  }
  for (size_t i = 0; i < sizeof(kWithoutMeaning) / sizeof(kWithoutMeaning[0]); ++i) {
    if (value_of(argument, kWithoutMeaning[i]) != NULL) return true;
  }
  return value != NULL;
}

bool take_flags(int *argc, char **argv) {
  bool fine = true;
  for (int i = 1; i < *argc; ++i) {
    if (argv[i] != NULL) (void)is_taken(argv[i], &fine);
  }
  if (!fine) return false;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    if (argv[i] == NULL || !is_taken(argv[i], &fine)) argv[kept++] = argv[i];
  }
  if (kept < *argc) argv[kept] = NULL; /* argv need not end with NULL: nothing may be written beyond the original
                                          arguments */
  if (*argc > 1) *argc = kept;
  return true;
}
