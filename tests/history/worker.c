/* A worker of a history: adds 1 to counters and reads them, one blocking call after the other, and writes what it saw.
 *
 *     history_worker SEED SECONDS CALLS_A_SECOND
 *
 * The counters lie in a dense and in a key-value table, on all servers. Each call is a line on standard output once all are made:
 *     a COUNTER BEGIN END      an add of 1
 *     g BEGIN END V0 V1 ...    a get of all counters of one table; COUNTERS values
 * Times are CLOCK_MONOTONIC in nanoseconds, the same for all processes of a machine. Calls that fail end the program with status 1. */
#include <polyverso/polyverso.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kCounters = 12, kMost = 200000 }; /* of each table */

typedef struct call {
  char kind; /* a, A: an add to the dense, the key-value table; g, G: a get */
  uint32_t counter;
  uint64_t begin, end;
  uint64_t seen; /* of a get: the place of its values */
} call;

static call calls[kMost];
static int64_t *seen;
static uint64_t made, gets;

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void must(mv_status status, const char *doing) {
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

static mv_table make(const char *name, int32_t kind) {
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  mv_table table;
  spec.name = name;
  spec.kind = kind;
  spec.rows = kind == MV_KEYVALUE ? 0 : kCounters;
  spec.dtype = MV_I64;
  must(mv_table_create(0, &spec, NULL, 0, MV_I64, &table), "mv_table_create");
  return table;
}

static void add(mv_table table, int is_keyed) {
  call *c = &calls[made++];
  const int64_t one = 1;
  int64_t row;
  c->kind = is_keyed ? 'A' : 'a';
  c->counter = (uint32_t)draw(kCounters);
  row = c->counter;
  c->begin = now();
  must(mv_table_add_rows(table, &row, 1, &one, 1, MV_I64, NULL), "mv_table_add_rows");
  c->end = now();
}

static void get(mv_table table, int is_keyed) {
  call *c = &calls[made++];
  int64_t rows[kCounters];
  for (int64_t i = 0; i < kCounters; ++i) rows[i] = i;
  c->kind = is_keyed ? 'G' : 'g';
  c->seen = gets++;
  c->begin = now();
  must(mv_table_get_rows(table, rows, kCounters, seen + c->seen * kCounters, kCounters, MV_I64, NULL), "mv_table_get_rows");
  c->end = now();
}

static void write_all(void) {
  for (uint64_t i = 0; i < made; ++i) {
    const call *c = &calls[i];
    const int is_add = c->kind == 'a' || c->kind == 'A';
    printf("%c", c->kind);
    if (is_add) printf(" %" PRIu32, c->counter);
    printf(" %" PRIu64 " %" PRIu64, c->begin, c->end);
    for (int k = 0; !is_add && k < kCounters; ++k) printf(" %" PRId64, seen[c->seen * kCounters + (uint64_t)k]);
    printf("\n");
  }
}

int main(int argc, char **argv) {
  mv_table tables[2];
  int64_t worker;
  uint64_t until, pause;
  if (argc != 4) return 2;
  state = strtoull(argv[1], NULL, 10);
  pause = 1000000000u / strtoull(argv[3], NULL, 10);
  seen = malloc((size_t)kMost * kCounters * sizeof *seen);
  if (seen == NULL) return 1;
  must(mv_init(NULL), "mv_init");
  must(mv_worker_id(0, &worker), "mv_worker_id");
  state += (uint64_t)worker << 32;
  tables[0] = make("dense", MV_ARRAY);
  tables[1] = make("keyed", MV_KEYVALUE);
  must(mv_barrier(0, NULL), "mv_barrier");
  fprintf(stderr, "begin\n");
  until = now() + (uint64_t)(atof(argv[2]) * 1e9);
  while (now() < until && made + 2 < kMost) {
    const uint64_t next = now() + pause;
    const int is_keyed = (int)draw(2);
    draw(4) != 0 ? add(tables[is_keyed], is_keyed) : get(tables[is_keyed], is_keyed);
    while (now() < next) nanosleep(&(struct timespec){0, 100000}, NULL);
  }
  must(mv_barrier(0, NULL), "mv_barrier");
  get(tables[0], 0);
  get(tables[1], 1);
  must(mv_shutdown(0), "mv_shutdown");
  write_all();
  return 0;
}
