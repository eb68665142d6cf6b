/* A worker of a history: adds 1 to counters and reads them, one blocking call after the other, and records what it saw.
 *
 *     history_worker FILE SEED CALLS_A_SECOND async|merged|sync [late]
 *
 * The counters lie in a dense and in a key-value table of this consistency, on all servers. In merged tables, worker i adds 2^(20 i) instead of
 * 1. In merged and sync tables, all workers need the same seed: with other calls in another order, each could wait for the other one's next add.
 * The calls are written into FILE, which is mapped, so that they outlive a kill of this process: see `call`. Times are CLOCK_MONOTONIC in
 * nanoseconds, the same for all processes of a machine. The end of standard input ends the calls; worker 0 then reads all counters once more.
 * Calls that fail end the program with status 1. A late worker takes the place of a lost one. */
#include <polyverso/polyverso.h>

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kCounters = 12, kMost = 200000 };
enum { kCatchUp = 50 }; /* adds by which worker 0 completes the rounds of the others' last adds */

typedef struct call {      /* history.py reads this */
  uint32_t kind;           /* a, A: an add of 1 to the dense, the key-value table; g, G: a get of all counters; 0: there are no more calls */
  uint32_t counter;        /* of an add */
  uint64_t begin, end;     /* end is 0 if this process was killed meanwhile */
  int64_t seen[kCounters]; /* by a get */
} call;

static call* calls; /* kMost of them */
static uint64_t made;
static int64_t worker;
static int64_t one = 1; /* what each add adds */

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void must(mv_status status, const char* doing) {
  if (status == MV_OK) return;
  fprintf(stderr, "%s: %s: %s\n", doing, mv_status_name(status), mv_last_error());
  exit(1);
}

static uint64_t state;
static uint64_t draw(uint64_t below) { /* SplitMix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % below;
}

static mv_table make(const char* name, int32_t kind, const char* consistency) {
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  mv_table table;
  spec.name = name;
  spec.kind = kind;
  spec.rows = kind == MV_KEYVALUE ? 0 : kCounters;
  spec.dtype = MV_I64;
  if (strcmp(consistency, "merged") == 0) spec.flags = MV_MERGE;
  if (strcmp(consistency, "sync") == 0) spec.staleness = 0;
  must(mv_table_create(0, &spec, NULL, 0, MV_I64, &table), "mv_table_create");
  return table;
}

static call* begin_call(char kind) {
  call* c = &calls[made++];
  c->counter = (uint32_t)((draw(kCounters) + (uint64_t)worker) % kCounters); /* another one for each worker with this seed */
  c->begin = now();
  c->kind = (uint32_t)kind;
  return c;
}

static void add(mv_table table, int is_keyed) {
  call* c = begin_call(is_keyed ? 'A' : 'a');
  const int64_t row = c->counter;
  must(mv_table_add_rows(table, &row, 1, &one, 1, MV_I64, NULL), "mv_table_add_rows");
  c->end = now();
}

static void get(mv_table table, int is_keyed) {
  call* c = begin_call(is_keyed ? 'G' : 'g');
  int64_t rows[kCounters];
  for (int64_t i = 0; i < kCounters; ++i) rows[i] = i;
  must(mv_table_get_rows(table, rows, kCounters, c->seen, kCounters, MV_I64, NULL), "mv_table_get_rows");
  c->end = now();
}

static call* map_calls(const char* path) {
  void* memory = MAP_FAILED;
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file >= 0 && ftruncate(file, kMost * sizeof(call)) == 0) memory = mmap(NULL, kMost * sizeof(call), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    perror(path);
    exit(1);
  }
  close(file);
  return memory;
}

int main(int argc, char **argv) {
  mv_table tables[2];
  uint64_t pause;
  struct pollfd end_of_input = {.fd = STDIN_FILENO, .events = POLLIN};
  const int is_late = argc == 6 && strcmp(argv[5], "late") == 0;
  const int is_merged = argc > 4 && strcmp(argv[4], "merged") == 0;
  if (argc != 5 && !is_late) return 2;
  calls = map_calls(argv[1]);
  state = strtoull(argv[2], NULL, 10);
  pause = 1000000000u / strtoull(argv[3], NULL, 10);
  must(mv_init(NULL), "mv_init");
  must(mv_worker_id(0, &worker), "mv_worker_id");
  if (is_merged) one = INT64_C(1) << (20 * worker);
  tables[0] = make("dense", MV_ARRAY, argv[4]);
  tables[1] = make("keyed", MV_KEYVALUE, argv[4]);
  if (!is_late) must(mv_barrier(0, NULL), "mv_barrier");
  fprintf(stderr, "begin\n");
  while (made + 2 * kCatchUp + 2 < kMost && poll(&end_of_input, 1, 0) == 0) {
    const uint64_t next = now() + pause;
    const int is_keyed = (int)draw(2);
    draw(4) != 0 ? add(tables[is_keyed], is_keyed) : get(tables[is_keyed], is_keyed);
    while (now() < next) nanosleep(&(struct timespec){0, 100000}, NULL);
  }
  while (poll(&end_of_input, 1, -1) < 0) continue;
  for (int is_keyed = 0; worker == 0 && is_keyed < 2; ++is_keyed) {
    for (int i = 0; is_merged && i < kCatchUp; ++i) add(tables[is_keyed], is_keyed);
    get(tables[is_keyed], is_keyed);
  }
  must(mv_shutdown(0), "mv_shutdown");
  return 0;
}
