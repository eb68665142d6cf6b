/* One process of a cluster with failures: allocation_worker SCENARIO VICTIM N FOLDER [early]. It prints its outcome in one line, which
 * clusters.py checks. Failures are injected only into the process of rank VICTIM: during its work, or, with `early`, from before
 * mv_init() on. */
#include <polyverso/group.h>
#include <polyverso/gossip.h>
#include <polyverso/kvstore.h>
#include <polyverso/polyverso.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"

enum { kCount = 300, kRounds = 4, kMost = 4096 };

/* The reported outcome. `acked` and `unknown` count this process's adds; `value` is the table's value at the end, with all processes'
 * adds. */
static int64_t rank, size;
static uint64_t acked, unknown;
static double value = -1;
static int sums; /* the table's value is the number of adds */
static char trouble[600];
static mv_status worst = MV_OK;
static int goes_on = 1; /* the node is still usable */

static float data[kMost];

static void wrong(const char* what) {
  if (trouble[0] == '\0') snprintf(trouble, sizeof trouble, "%s: %s", what, mv_last_error());
}

/* A call that failed for lack of memory, or that a signal interrupted, is repeated. */
static int may_be_tried_again(mv_status status) {
  int64_t ignored;
  return (status == MV_ENOMEM || status == MV_EINTR) && mv_rank(0, &ignored) == MV_OK;
}

/** True if the call succeeded. */
static int attempt(mv_status status, const char* what) {
  if (status == MV_OK) return 1;
  if (worst == MV_OK) {
    worst = status;
    fprintf(stderr, "rank %d: %s: %s: %s\n", (int)rank, what, mv_status_name(status), mv_last_error());
  }
  if (!may_be_tried_again(status)) goes_on = 0;
  return 0;
}
/* The second attempt has memory; signals may come often. */
#define TRY(call)                                                        \
  do {                                                                   \
    for (int i_ = 0; i_ < 100 && goes_on && !attempt((call), #call); ++i_) \
      ;                                                                  \
  } while (0)
static mv_status wait_for(mv_request request) {
  mv_status status;
  while ((status = mv_request_wait(request, 30000)) == MV_EINTR) /* the request continues */
    if (worst == MV_OK) worst = status;
  return status;
}

/* Prints the outcome, for clusters.py. */
static void tell(mv_status ended, int happened, uint64_t count) {
  for (char* each = trouble; *each != '\0'; ++each)
    if (*each == '"' || *each == '\\' || *each == '\n') *each = '\'';
  printf(
      "{\"rank\": %d, \"fault\": \"%s\", \"absorbed\": %d, \"failed\": %d, \"count\": %llu, \"worst\": \"%s\", "
      "\"ended\": \"%s\", \"acked\": %llu, "
      "\"unknown\": %llu, \"value\": %g, \"sums\": %d, \"trouble\": \"%s\"}\n",
      (int)rank, fault_name(), fault_is_absorbed(), happened, (unsigned long long)count, mv_status_name(worst),
      mv_status_name(ended), (unsigned long long)acked, (unsigned long long)unknown, value, sums, trouble);
  fflush(stdout);
}

/* Set-up failed: the process ends. */
static void give_up(mv_status status, const char* what) {
  worst = status;
  fprintf(stderr, "rank %d: %s: %s: %s\n", (int)rank, what, mv_status_name(status), mv_last_error());
  if (mv_last_error()[0] == '\0') wrong(what);
  const uint64_t count = fault_count();
  tell(MV_OK, fault_happened(), count);
  _exit(3);
}
#define MAKE(call)                                                       \
  do {                                                                   \
    mv_status made_;                                                     \
    while ((made_ = (call)) == MV_EINTR)                                 \
      ;                                                                  \
    if (made_ != MV_OK) give_up(made_, #call);                           \
  } while (0)

/* One line for the driver. */
static void say(const char* word) {
  printf("%s\n", word);
  fflush(stdout);
}

static void fill(float with) {
  for (int i = 0; i < kMost; ++i) data[i] = with;
}

/* ------------------------------------------------------------ tables */

static mv_table table;
static const char* table_spec;

static void make_table(void) {
  MAKE(mv_table_create_text(0, table_spec, NULL, 0, MV_F32, &table));
}
static int add(mv_status status) {
  if (status == MV_OK) return ++acked, 1;
  /* An add that failed for lack of memory has changed nothing, unless the node has broken down. */
  if (status != MV_ENOMEM || !may_be_tried_again(status)) ++unknown;
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
    if (started != MV_OK ? add(started) : add(wait_for(request))) continue;
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

/* Bursts of one-way adds to a row of rank 0. One counts as acknowledged only after a barrier: until then, it may be lost with its process. */
static const int64_t row = 0;
static void one_way_work(void) {
  mv_call_options forget = MV_CALL_OPTIONS_INIT;
  forget.flags = MV_FORGET;
  fill(1);
  for (int round = 0; round < kRounds && goes_on; ++round) {
    uint64_t begun = 0;
    for (int i = 0; i < 200 && goes_on; ++i) begun += (uint64_t)attempt(mv_table_add_rows(table, &row, 1, data, 1, MV_F32, &forget), "add");
    unknown += begun;
    mv_status told = MV_EINTR;
    while (goes_on && told == MV_EINTR) told = mv_barrier(0, NULL);
    if (!goes_on || !attempt(told, "barrier")) continue;
    unknown -= begun;
    acked += begun;
  }
}
static void one_way_end(void) {
  TRY(mv_barrier(0, NULL));
  TRY(mv_table_get_rows(table, &row, 1, data, 1, MV_F32, NULL));
  if (goes_on) value = data[0];
}

static void keyed_work(void) {
  const int64_t rows[] = {3, 70000, 3, 999999};
  for (int round = 0; round < kRounds && goes_on; ++round) {
    fill(1);
    if (!add(mv_table_add_rows(table, rows, 4, data, 4 * 5, MV_F32, NULL)) && goes_on)
      add(mv_table_add_rows(table, rows, 4, data, 4 * 5, MV_F32, NULL));
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

static void nothing(void) {}
static void make_group(void) {
  MAKE(mv_group_open(0, NULL, 0, &group));
}
/* A rank that fails to shrink its group tries again, and so does one that learns of such a failure. */
static int shrinks(mv_group whole, mv_group* shrunk) {
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.timeout_ms = 5000;
  for (int tries = 0; tries < 3 && goes_on; ++tries) {
    const mv_status status = mv_group_shrink(whole, &options, shrunk);
    const int heard = status == MV_EPEERLOST;
    if (attempt(status, "shrink")) return 1;
    if (heard) goes_on = 1;
  }
  return 0;
}
static void regroup_work(void) {
  for (int round = 0; round < 2 && goes_on; ++round) {
    mv_group whole, shrunk;
    mv_group_info info = MV_GROUP_INFO_INIT;
    if (!attempt(mv_group_open(0, NULL, 0, &whole), "open")) return;
    mv_group_barrier(whole, NULL); /* the other rank has it open, too; its shrink may break the group before this call returns */
    if (!shrinks(whole, &shrunk)) return;
    TRY(mv_group_describe(shrunk, &info));
    fill(1);
    if (!goes_on || !attempt(mv_allreduce(shrunk, NULL, data, 100, MV_F32, MV_REDUCE_SUM, NULL), "allreduce")) return;
    if (data[0] != (float)info.ranks || data[99] != (float)info.ranks) wrong("a wrong sum");
    attempt(mv_group_close(shrunk), "close");
    attempt(mv_group_close(whole), "close");
  }
}
/* Operations are not repeated: the other ranks learn that the group is broken. */
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
      if (status == MV_OK) status = wait_for(request);
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

static kv_keys all_keys(void) {
  kv_keys keys = KV_KEYS_INIT;
  keys.count = 3;
  keys.numbers = numbers;
  return keys;
}
static kv_values all_values(void) {
  kv_values values = KV_VALUES_INIT;
  values.count = 3;
  values.tensors = tensors;
  return values;
}
static void make_store(void) {
  const int64_t shape[] = {kCount};
  const kv_keys keys = all_keys();
  const kv_values values = all_values();
  for (int i = 0; i < 3; ++i) {
    MAKE(mv_tensor_create(MV_F32, shape, 1, &tensors[i]));
    MAKE(mv_tensor_fill(tensors[i], 0));
  }
  MAKE(kv_create(0, store_type, &store));
  MAKE(kv_init(store, &keys, &values));
  MAKE(kv_set_optimizer(store, "mx.adam learning_rate=0.1"));
}
static void store_work(void) {
  const kv_keys keys = all_keys();
  const kv_values values = all_values();
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

/* Saving and loading with a codec asks the other worker, in its barrier, for its residuals, and delivers the loaded ones. */
static void make_coded_store(void) {
  make_store();
  MAKE(kv_set_gradient_compression(store, "2bit threshold=0.5"));
}
static void states_work(void) {
  char path[220];
  snprintf(path, sizeof path, "%s.states", folder);
  store_work();
  if (rank == 0) TRY(kv_save_optimizer_states(store, path, 1));
  TRY(kv_barrier(store, NULL));
  if (rank == 0) TRY(kv_load_optimizer_states(store, path));
  TRY(kv_barrier(store, NULL));
}

/* Rank 1 leaves as lost, and rank 0 waits for it. */
static int aborted;
static void abort_work(void) {
  if (rank == 0 && mv_barrier(0, NULL) == MV_OK) wrong("the barrier did not wait for a lost worker");
  if (rank == 1) TRY(mv_abort(0, "it found a mistake in its data"));
  aborted = rank == 1 && goes_on;
}

/* A third worker comes, which the rank without failures starts, works, and leaves again. */
static const char* program;
static int has_failures;
static int64_t active_workers(void) {
  int64_t active = 0;
  TRY(mv_active_workers(0, &active));
  return active;
}
static void elastic_work(void) {
  pid_t newcomer = 0;
  if (!has_failures && (newcomer = fork()) == 0) {
    unsetenv("POLYVERSO_RANK");
    unsetenv("POLYVERSO_LISTEN_FD");
    setenv("POLYVERSO_ROLE", "worker", 1);
    execl(program, program, "newcomer", "-1", "0", folder, (char*)NULL);
    _exit(127);
  }
  int came = 0, over = 0, status;
  for (int i = 0; i < 1000 && goes_on && !over; ++i) {
    const int64_t active = active_workers();
    came |= active == 3;
    over = has_failures ? came && active == 2 : waitpid(newcomer, &status, WNOHANG) == newcomer;
    fill(1);
    add(mv_table_add(table, data, kCount, MV_F32, NULL));
    TRY(mv_table_get(table, data, kCount, MV_F32, NULL));
    usleep(5000);
  }
  if (!has_failures && !over) {
    kill(newcomer, SIGKILL);
    waitpid(newcomer, &status, 0);
    if (goes_on) wrong("the newcomer did not end");
  }
}

/* give_back.py: the only worker uses two tables until its input ends, and servers serve. The second table's updater keeps what it got. */
static mv_table delayed;
static void make_tables(void) {
  make_table();
  MAKE(mv_table_create_text(0, "size=300 name=delayed updater=dcasgd", NULL, 0, MV_F32, &delayed));
}
static void served_work(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN, .revents = 0};
  say("up");
  while (goes_on && poll(&input, 1, 0) == 0) {
    table_work();
    fill(1);
    TRY(mv_table_add(delayed, data, kCount, MV_F32, NULL));
    TRY(mv_table_get(delayed, data, kCount, MV_F32, NULL));
  }
}

/* With `late`, failures begin at SIGUSR1. */
static void* await_signal(void* n) {
  sigset_t some;
  int number;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR1);
  if (sigwait(&some, &number) == 0) fault_arm(*(const uint64_t*)n);
  say("armed");
  return NULL;
}
static int serve(int late, uint64_t n) {
  pthread_t waiter;
  sigset_t some;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &some, NULL);
  if (late && pthread_create(&waiter, NULL, await_signal, &n) != 0) return 2;
  MAKE(mv_init(NULL));
  MAKE(mv_rank(0, &rank));
  if (!late) fault_arm(n);
  mv_status ended;
  while ((ended = mv_shutdown(0)) == MV_EINTR)
    ;
  const uint64_t count = fault_count();
  tell(ended, fault_happened(), count);
  return 0;
}

static mv_gossip gossips[2];
static void gossip_make(void) {
  for (int i = 0; i < 2; ++i) {
    char config[200], name[] = "a";
    name[0] = (char)('a' + i);
    snprintf(config, sizeof config, "nodes: [{name: %s, host: 127.0.0.1, port: 0}]\n", name);
    MAKE(mv_gossip_open_text(config, name, &gossips[i]));
  }
  static char text[65536];
  uint64_t length = 0;
  MAKE(mv_gossip_state_text(gossips[1], MV_JSON, text, sizeof text, &length));
  const char* const address = strstr(text, "\"address\":\"127.0.0.1:");
  if (address == NULL) give_up(MV_EINTERNAL, "address");
  MAKE(mv_gossip_add_peer(gossips[0], "b", "127.0.0.1", atoi(address + 21)));
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
    if (fetched.got && attempt(mv_gossip_average(gossips[0], data, kCount, MV_F32), "average") &&
        (data[0] < 1 || data[0] > 2))
      wrong("a wrong average");
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
    {"one_way", "size=2 name=t", make_table, one_way_work, one_way_end, 1},
    {"keyed", "kind=sparse rows=1000000 cols=5 name=t", make_table, keyed_work, keyed_end, 1},
    {"merge_keyed", "kind=sparse rows=1000000 cols=5 name=t merge=1", make_table, keyed_work, keyed_end, 1},
    {"group", NULL, make_group, group_work, nothing, 0},
    {"regroup", NULL, nothing, regroup_work, nothing, 0},
    {"dist_async", "dist_async", make_store, store_work, nothing, 0},
    {"dist_sync", "dist_sync", make_store, store_work, nothing, 0},
    {"dist_states", "dist_sync", make_coded_store, states_work, nothing, 0},
    {"checkpoint", "size=300 name=t", make_table, checkpoint_work, table_end, 0},
    {"served", "size=300 name=t", make_tables, served_work, table_end, 1},
    {"status", "size=300 name=t", make_table, status_work, table_end, 0},
    {"gossip", NULL, gossip_make, gossip_work, nothing, 0},
    {"abort", NULL, nothing, abort_work, nothing, 0},
    {"elastic", "size=300 name=t", make_table, elastic_work, table_end, 1},
    {"newcomer", "size=300 name=t", make_table, table_work, nothing, 1},
};

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  if (strcmp(argv[1], "serve") == 0) return serve(argc > 5, strtoull(argv[3], NULL, 10));
  const struct scenario* scenario = NULL;
  for (size_t i = 0; i < sizeof kScenarios / sizeof kScenarios[0]; ++i)
    if (strcmp(kScenarios[i].name, argv[1]) == 0) scenario = &kScenarios[i];
  if (scenario == NULL) return 2;
  table_spec = store_type = scenario->spec;
  snprintf(folder, sizeof folder, "%s", argv[4]);
  const uint64_t n = strtoull(argv[3], NULL, 10);
  const char* const place = getenv("POLYVERSO_RANK");
  const int early = argc > 5 && place != NULL && atoll(place) == atoll(argv[2]);
  if (early) fault_arm(n);
  if (place != NULL) rank = atoll(place); /* until mv_init() has set it */
  MAKE(mv_init(NULL));
  MAKE(mv_rank(0, &rank));
  MAKE(mv_size(0, &size));
  sums = scenario->sums;
  program = argv[0];
  has_failures = rank == atoll(argv[2]);
  const int comes_late = strcmp(scenario->name, "newcomer") == 0; /* the others have passed this barrier */
  scenario->make();
  if (!comes_late) TRY(mv_barrier(0, NULL)); /* the other process may have failed already */
  if (argc == 5 && has_failures) fault_arm(n);
  if (goes_on) scenario->work();
  const uint64_t count = fault_count();
  const int happened = fault_happened();
  if (goes_on) scenario->end();
  mv_status ended = MV_OK;
  while (!aborted && (ended = mv_shutdown(0)) == MV_EINTR)
    ;
  tell(ended, happened, count);
  return 0;
}
