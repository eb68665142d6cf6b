/* One process of a cluster whose N-th allocation fails while it works: allocation_worker SCENARIO VICTIM N. It tells in one line what became
 * of it, for allocations_test.py to judge. Only the process of rank VICTIM is hit. */
#include <polyverso/group.h>
#include <polyverso/gossip.h>
#include <polyverso/kvstore.h>
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocation.h"

enum { kCount = 300, kRounds = 4, kMost = 4096 };

/* What is told. `acked` and `unknown` count this process's adds; `value` is what the table holds of all processes' in the end. */
static int64_t rank, size;
static uint64_t acked, unknown;
static double value = -1;
static int sums; /* the table's value is the number of adds */
static char trouble[600];
static mv_status worst = MV_OK;
static int goes_on = 1; /* the node can be used */

static float data[kMost];

static void wrong(const char* what) {
  if (trouble[0] == '\0') snprintf(trouble, sizeof trouble, "%s: %s", what, mv_last_error());
}

/** True where the call did what it says. Without memory it is tried once more, as nothing has changed. */
static int attempt(mv_status status, const char* what) {
  if (status == MV_OK) return 1;
  if (worst == MV_OK) {
    worst = status;
    fprintf(stderr, "rank %d: %s: %s: %s\n", (int)rank, what, mv_status_name(status), mv_last_error());
  }
  int64_t ignored;
  if (status != MV_ENOMEM || mv_rank(0, &ignored) != MV_OK) goes_on = 0;
  return 0;
}
#define TRY(call)                                                \
  do {                                                           \
    if (goes_on && !attempt((call), #call) && goes_on) attempt((call), #call); \
  } while (0)

static void fill(float with) {
  for (int i = 0; i < kMost; ++i) data[i] = with;
}

/* ------------------------------------------------------------ tables */

static mv_table table;
static const char* table_spec;

static void make_table(void) {
  if (mv_table_create_text(0, table_spec, NULL, 0, MV_F32, &table) != MV_OK) wrong("create"), _exit(3);
}
static int add(mv_status status) {
  int64_t ignored;
  if (status == MV_OK) return ++acked, 1;
  /* Without memory nothing has changed, unless the node has broken down. */
  if (status != MV_ENOMEM || mv_rank(0, &ignored) != MV_OK) ++unknown;
  return attempt(status, "add");
}
static void table_work(void) {
  for (int round = 0; round < kRounds && goes_on; ++round) {
    fill(1);
    if (!add(mv_table_add(table, data, kCount, MV_F32, NULL)) && goes_on) add(mv_table_add(table, data, kCount, MV_F32, NULL));
    TRY(mv_table_get(table, data, kCount, MV_F32, NULL));
    mv_request request = 0;
    mv_call_options later = MV_CALL_OPTIONS_INIT;
    later.flags = MV_ASYNC;
    later.request = &request;
    fill(1);
    if (!goes_on) break;
    const mv_status started = mv_table_add(table, data, kCount, MV_F32, &later);
    if (started != MV_OK ? add(started) : add(mv_request_wait(request, 30000))) continue;
    if (goes_on) add(mv_table_add(table, data, kCount, MV_F32, NULL));
  }
}
static void table_end(void) {
  TRY(mv_barrier(0, NULL));
  TRY(mv_table_get(table, data, kCount, MV_F32, NULL));
  if (!goes_on) return;
  value = data[0];
  for (int i = 1; i < kCount; ++i)
    if (data[i] != data[0] && sums) wrong("elements differ");
}

static void keyed_work(void) {
  const int64_t rows[] = {3, 70000, 3, 999999};
  for (int round = 0; round < kRounds && goes_on; ++round) {
    fill(1);
    if (!add(mv_table_add_rows(table, rows, 4, data, 4 * 5, MV_F32, NULL)) && goes_on) add(mv_table_add_rows(table, rows, 4, data, 4 * 5, MV_F32, NULL));
    TRY(mv_table_get_rows(table, rows, 4, data, 4 * 5, MV_F32, NULL));
  }
}
static void keyed_end(void) {
  const int64_t rows[] = {70000, 3, 999999};
  TRY(mv_barrier(0, NULL));
  TRY(mv_table_get_rows(table, rows, 3, data, 3 * 5, MV_F32, NULL));
  if (!goes_on) return;
  value = data[0];
  if (data[5] != 2 * value || data[10] != value) wrong("rows differ");
}

/* ------------------------------------------------------------ groups */

static mv_group group;

static void make_group(void) {
  if (mv_group_open(0, NULL, 0, &group) != MV_OK) wrong("group"), _exit(3);
}
/* No operation is tried again: the others are told that the group is broken. */
static void group_work(void) {
  for (int round = 0; round < 2 * kRounds && goes_on; ++round) {
    const uint64_t count = round % 4 == 3 ? kMost : 100;
    fill(1);
    mv_status status;
    if (round % 2 == 1) {
      mv_request request = 0;
      mv_call_options later = MV_CALL_OPTIONS_INIT;
      later.flags = MV_ASYNC;
      later.request = &request;
      status = mv_allreduce(group, NULL, data, count, MV_F32, MV_REDUCE_SUM, &later);
      if (status == MV_OK) status = mv_request_wait(request, 30000);
    } else {
      status = mv_allreduce(group, NULL, data, count, MV_F32, MV_REDUCE_SUM, NULL);
    }
    if (!attempt(status, "allreduce")) return;
    for (uint64_t i = 0; i < count; ++i)
      if (data[i] != (float)size) return wrong("a wrong sum");
  }
}

/* ------------------------------------------------------------ stores */

static kv_store store;
static mv_tensor tensors[3];
static const int64_t numbers[] = {1, 2, 3};
static const char* store_type;

static void make_store(void) {
  const int64_t shape[] = {kCount};
  kv_keys keys = KV_KEYS_INIT;
  keys.count = 3;
  keys.numbers = numbers;
  kv_values values = KV_VALUES_INIT;
  values.count = 3;
  values.tensors = tensors;
  int failed = 0;
  for (int i = 0; i < 3; ++i) failed |= mv_tensor_create(MV_F32, shape, 1, &tensors[i]) || mv_tensor_fill(tensors[i], 0);
  failed |= kv_create(0, store_type, &store) || kv_init(store, &keys, &values) || kv_set_optimizer(store, "mx.adam learning_rate=0.1");
  if (failed) wrong("store"), _exit(3);
}
static void store_work(void) {
  kv_keys keys = KV_KEYS_INIT;
  keys.count = 3;
  keys.numbers = numbers;
  kv_values values = KV_VALUES_INIT;
  values.count = 3;
  values.tensors = tensors;
  for (int round = 0; round < kRounds && goes_on; ++round) {
    for (int i = 0; i < 3; ++i) TRY(mv_tensor_fill(tensors[i], 1));
    TRY(kv_push(store, &keys, &values, NULL));
    TRY(kv_pull(store, &keys, &values, NULL));
  }
}

/* ------------------------------------------------------------ others */

static char folder[200];

static void checkpoint_work(void) {
  table_work();
  TRY(mv_checkpoint_save(0, folder, 2, NULL));
  TRY(mv_checkpoint_load(0, folder, NULL));
}
static void status_work(void) {
  static char text[65536];
  uint64_t length = 0;
  for (int i = 0; i < 2; ++i) {
    TRY(mv_status_text(0, (uint32_t)(i == 0 ? 0 : MV_JSON), text, sizeof text, &length));
    TRY(mv_metrics_text(0, text, sizeof text, &length));
    TRY(mv_doctor_text(0, 0, text, sizeof text, &length));
  }
}
static void nothing(void) {}

static mv_gossip gossips[2];
static void gossip_make(void) {
  for (int i = 0; i < 2; ++i) {
    char config[200], name[] = "a";
    name[0] = (char)('a' + i);
    snprintf(config, sizeof config, "nodes: [{name: %s, host: 127.0.0.1, port: 0}]\n", name);
    if (mv_gossip_open_text(config, name, &gossips[i]) != MV_OK) wrong("gossip"), _exit(3);
  }
  static char text[65536];
  uint64_t length = 0;
  if (mv_gossip_state_text(gossips[1], MV_JSON, text, sizeof text, &length) != MV_OK) wrong("state"), _exit(3);
  const char* const address = strstr(text, "\"address\":\"127.0.0.1:");
  if (address == NULL || mv_gossip_add_peer(gossips[0], "b", "127.0.0.1", atoi(address + 21)) != MV_OK) wrong("peer"), _exit(3);
}
static void gossip_work(void) {
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 2; ++i) {
      fill((float)(i + 1));
      goes_on = 1;
      attempt(mv_gossip_add(gossips[i], data, kCount, MV_F32), "add");
      attempt(mv_gossip_publish(gossips[i], 0.5), "publish");
    }
    int32_t started = 0;
    mv_gossip_fetched fetched = MV_GOSSIP_FETCHED_INIT;
    attempt(mv_gossip_fetch_start(gossips[0], &started), "fetch");
    if (started) attempt(mv_gossip_fetch_wait(gossips[0], 0.5, &fetched), "wait");
    fill(1);
    if (fetched.got && attempt(mv_gossip_average(gossips[0], data, kCount, MV_F32), "average") && (data[0] < 1 || data[0] > 2)) wrong("a wrong average");
  }
  goes_on = 1;
}

static const struct scenario {
  const char *name, *spec;
  void (*make)(void);
  void (*work)(void);
  void (*end)(void);
  int sums; /* the table's value is the number of adds */
} kScenarios[] = {
    {"async", "size=300 name=t", make_table, table_work, table_end, 1},
    {"sync", "size=300 name=t", make_table, table_work, table_end, 1},
    {"merge", "size=300 name=t merge=1", make_table, table_work, table_end, 1},
    {"dcasgd", "size=300 name=t updater=dcasgd", make_table, table_work, table_end, 0},
    {"keyed", "kind=sparse rows=1000000 cols=5 name=t", make_table, keyed_work, keyed_end, 1},
    {"merge_keyed", "kind=sparse rows=1000000 cols=5 name=t merge=1", make_table, keyed_work, keyed_end, 1},
    {"group", NULL, make_group, group_work, nothing, 0},
    {"dist_async", "dist_async", make_store, store_work, nothing, 0},
    {"dist_sync", "dist_sync", make_store, store_work, nothing, 0},
    {"checkpoint", "size=300 name=t", make_table, checkpoint_work, table_end, 0},
    {"status", "size=300 name=t", make_table, status_work, table_end, 0},
    {"gossip", NULL, gossip_make, gossip_work, nothing, 0},
};

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const struct scenario* scenario = NULL;
  for (size_t i = 0; i < sizeof kScenarios / sizeof kScenarios[0]; ++i)
    if (strcmp(kScenarios[i].name, argv[1]) == 0) scenario = &kScenarios[i];
  if (scenario == NULL) return 2;
  table_spec = store_type = scenario->spec;
  snprintf(folder, sizeof folder, "%s", argv[4]);
  if (mv_init(NULL) != MV_OK || mv_rank(0, &rank) != MV_OK || mv_size(0, &size) != MV_OK) {
    fprintf(stderr, "%s\n", mv_last_error());
    return 3;
  }
  sums = scenario->sums;
  scenario->make();
  attempt(mv_barrier(0, NULL), "barrier"); /* the other process may have failed already */
  const uint64_t n = strtoull(argv[3], NULL, 10);
  if (rank == atoll(argv[2])) allocation_fail_at(n);
  if (goes_on) scenario->work();
  const uint64_t count = allocation_count();
  const int failed = allocation_failed();
  if (goes_on) scenario->end();
  const mv_status ended = mv_shutdown(0);
  printf("{\"rank\": %d, \"failed\": %d, \"count\": %llu, \"worst\": \"%s\", \"ended\": \"%s\", \"acked\": %llu, \"unknown\": %llu, \"value\": %g, "
         "\"sums\": %d, \"trouble\": \"%s\"}\n",
         (int)rank, failed, (unsigned long long)count, mv_status_name(worst), mv_status_name(ended), (unsigned long long)acked,
         (unsigned long long)unknown, value, scenario->sums, trouble);
  return 0;
}
