/* One of many workers. The first argument: "meet" ends after a barrier and an all-reduce of 1 KiB, "add" after an add to a table
 * and its sum, "orphan" after the death of rank 0. Prints what has taken how long, and what this process holds then. */
#include <polyverso/polyverso.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kRounds = 20, kValues = 256 };

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void must(mv_status status, const char *doing) {
  if (status == MV_OK) return;
  printf("%s: %s: %s\n", doing, mv_status_name(status), mv_last_error());
  exit(1);
}

static int count_descriptors(void) {
  int count = 0;
  DIR *const folder = opendir("/proc/self/fd");
  if (folder == NULL) return -1;
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count - 3;
}

/* This process's share of the memory that it uses, in KiB. */
static long memory(void) {
  char line[256];
  long kib = -1;
  FILE *const rollup = fopen("/proc/self/smaps_rollup", "r");
  if (rollup == NULL) return -1;
  while (fgets(line, sizeof line, rollup) != NULL)
    if (sscanf(line, "Pss: %ld", &kib) == 1) break;
  fclose(rollup);
  return kib;
}

static void meet(int64_t rank) {
  static float values[kValues];
  mv_group group = 0;
  double from = now();
  for (int i = 0; i < kRounds; ++i) must(mv_barrier(0, NULL), "barrier");
  const double barrier = (now() - from) / kRounds;
  must(mv_group_open(0, NULL, 0, &group), "group");
  for (int i = 0; i < kRounds + 5; ++i) {
    if (i == 5) from = now();
    must(mv_allreduce(group, NULL, values, kValues, MV_F32, MV_REDUCE_SUM, NULL), "allreduce");
  }
  if (rank == 0) printf("barrier_us=%.0f allreduce_us=%.0f\n", barrier * 1e6, (now() - from) / kRounds * 1e6);
  if (rank == 1) printf("descriptors_in_group=%d\n", count_descriptors());
  must(mv_group_close(group), "close");
}

static void add(int64_t rank) {
  float ones[kValues], sums[kValues] = {0};
  for (int i = 0; i < kValues; ++i) ones[i] = 1;
  int64_t workers = 0;
  mv_table table = 0;
  must(mv_num_workers(0, &workers), "workers");
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.rows = kValues;
  must(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), "table");
  must(mv_table_add(table, ones, kValues, MV_F32, NULL), "add");
  must(mv_barrier(0, NULL), "barrier");
  must(mv_table_get(table, sums, kValues, MV_F32, NULL), "get");
  for (int i = 0; i < kValues; ++i)
    if (sums[i] != (float)workers) printf("wrong: rank %d got %g\n", (int)rank, (double)sums[i]);
}

int main(int count, char **arguments) {
  const char *const what = count > 1 ? arguments[1] : "";
  const char *const since = getenv("STARTED");
  int64_t rank = 0, size = 0;
  must(mv_init(NULL), "init");
  must(mv_rank(0, &rank), "rank");
  must(mv_size(0, &size), "size");
  must(mv_barrier(0, NULL), "barrier");
  const double met = now();
  if (rank == 0 || rank == size - 1)
    printf("rank=%d started_s=%.2f descriptors=%d memory_kib=%ld\n", (int)rank, since != NULL ? met - atof(since) : 0, count_descriptors(), memory());
  fflush(stdout);
  must(mv_barrier(0, NULL), "barrier");  /* all have looked */
  if (strcmp(what, "meet") == 0) meet(rank);
  if (strcmp(what, "add") == 0) add(rank);
  if (strcmp(what, "orphan") == 0) {
    if (rank == 0) kill(getpid(), SIGKILL);
    usleep((useconds_t)((rank * 7919) % 1000 * 1000));  /* some leave before they know, some after */
  }
  must(mv_shutdown(0), "shutdown");
  printf("ended\n");
  return 0;
}
