/* One member of soak.py's clusters, in C: see member.py. */
#include <polyverso/polyverso.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTables = 8, kKeys = 3, kModel = 1000, kLater = 4096 };
enum { kSkip = 1 };

static struct table {
  char name[32];
  mv_table table;
  long size, width;
  int has_keys;
} tables[kTables];
static int table_count;
static struct {
  char number[16];
  mv_request request;
} later[kLater];
static int later_count;
static struct {
  kv_store store;
  long size, width;
} store;
static mv_group group;
static mv_gossip gossip;
static float model[kModel];
static int has_node;
static FILE* out;
static const char* number; /* of the command */
static char result[4096]; /* of the command */
static const char* const kNames[kKeys] = {"a", "b", "c"};

static void tell(const char* format, ...) {
  char line[8192];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  for (char* at = line; *at != 0; ++at)
    if (*at == '\n') *at = ' ';
  fprintf(out, "%s\n", line);
  fflush(out);
}
static void tell_error(const char* of, const char* word, mv_status status) {
  tell("%s %s %s %s", of, word, mv_status_name(status), mv_last_error());
}

static float* floats(long count, float value) {
  float* const values = malloc(sizeof(float) * (size_t)(count + 1));
  for (long i = 0; i < count; ++i) values[i] = value;
  return values;
}
static void extremes(const float* values, long count, long width, char* at) {
  for (long w = 0; w < width; ++w) {
    float least = values[w], most = values[w];
    for (long i = w; i < count; i += width) {
      if (values[i] < least) least = values[i];
      if (values[i] > most) most = values[i];
    }
    at += sprintf(at, "%s%g %g", w > 0 ? " " : "", (double)least, (double)most);
  }
}
static struct table* find_table(const char* name) {
  for (int i = 0; i < table_count; ++i)
    if (strcmp(tables[i].name, name) == 0) return &tables[i];
  return NULL;
}

static mv_status call_init(char** a) {
  int64_t id = 0;
  (void)a;
  mv_status status = mv_init(NULL);
  has_node = status == MV_OK;
  if (status == MV_OK) status = mv_worker_id(0, &id);
  snprintf(result, sizeof result, "%d", (int)id);
  return status;
}
static mv_status call_shutdown(char** a) {
  (void)a;
  return has_node ? mv_shutdown(0) : kSkip;
}

static mv_status call_table(char** a) {
  const int merge = strcmp(a[2], "merge") == 0, sync = strcmp(a[2], "sync") == 0, stale = strcmp(a[2], "stale") == 0;
  const int has_keys = strcmp(a[1], "array") != 0;
  struct table made = {{0}, 0, atol(a[3]), atol(a[4]), has_keys};
  char spec[200];
  if (!has_node) return kSkip;
  snprintf(made.name, sizeof made.name, "%s", a[0]);
  if (has_keys)
    snprintf(spec, sizeof spec, "name=%s kind=keyvalue cols=1%s", a[0], merge ? " merge=1" : sync ? " staleness=0" : stale ? " staleness=2" : "");
  else
    snprintf(spec, sizeof spec, "name=%s size=%ld%s", a[0], made.size, merge ? " merge=1" : sync ? " staleness=0" : stale ? " staleness=2" : "");
  const mv_status status = mv_table_create_text(0, spec, NULL, 0, MV_F32, &made.table);
  if (status == MV_OK) tables[table_count++] = made;
  return status;
}
static mv_status call_add(char** a) {
  const struct table* const table = find_table(a[0]);
  const long worker = atol(a[1]);
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  mv_request request = 0;
  mv_status status;
  if (table == NULL) return kSkip;
  if (strcmp(a[2], "async") == 0) {
    options.flags = MV_ASYNC;
    options.request = &request;
  }
  if (table->has_keys) {
    const long count = (table->size - worker + table->width - 1) / table->width;
    int64_t* const keys = malloc(sizeof(int64_t) * (size_t)(count + 1));
    float* const values = floats(count, 1);
    for (long i = 0; i < count; ++i) keys[i] = worker + i * table->width;
    status = mv_table_add_rows(table->table, keys, (uint64_t)count, values, (uint64_t)count, MV_F32, &options);
    free(keys);
    free(values);
  } else {
    float* const values = floats(table->size, 0);
    for (long i = worker; i < table->size; i += table->width) values[i] = 1;
    status = mv_table_add(table->table, values, (uint64_t)table->size, MV_F32, &options);
    free(values);
  }
  if (status == MV_OK && request != 0) {
    snprintf(later[later_count].number, sizeof later[later_count].number, "%s", number);
    later[later_count++].request = request;
  }
  return status;
}
static mv_status call_wait(char** a) {
  (void)a;
  for (int i = 0; i < later_count; ++i) {
    const mv_status status = mv_request_wait(later[i].request, 0);
    if (status == MV_OK)
      tell("%s ok", later[i].number);
    else
      tell_error(later[i].number, "error", status);
  }
  later_count = 0;
  return MV_OK;
}
typedef mv_status (*read_all)(mv_table, void*, uint64_t, mv_dtype, const mv_call_options*);
typedef mv_status (*read_some)(mv_table, const int64_t*, uint64_t, void*, uint64_t, mv_dtype, const mv_call_options*);
static mv_status read_table(const char* name, read_all all, read_some some) {
  const struct table* const table = find_table(name);
  mv_status status;
  if (table == NULL) return kSkip;
  float* const values = floats(table->size, 77);
  if (table->has_keys) {
    int64_t* const keys = malloc(sizeof(int64_t) * (size_t)table->size);
    for (long i = 0; i < table->size; ++i) keys[i] = i;
    status = some(table->table, keys, (uint64_t)table->size, values, (uint64_t)table->size, MV_F32, NULL);
    free(keys);
  } else {
    status = all(table->table, values, (uint64_t)table->size, MV_F32, NULL);
  }
  extremes(values, table->size, table->width, result);
  free(values);
  return status;
}
static mv_status call_get(char** a) { return read_table(a[0], mv_table_get, mv_table_get_rows); }
static mv_status call_look(char** a) { return read_table(a[0], mv_table_peek, mv_table_peek_rows); }
static mv_status call_peek(char** a) {
  const struct table* const table = find_table(a[0]);
  const int64_t row = atol(a[1]);
  float value = 77;
  if (table == NULL) return kSkip;
  const mv_status status = mv_table_peek_rows(table->table, &row, 1, &value, 1, MV_F32, NULL);
  snprintf(result, sizeof result, "%g", (double)value);
  return status;
}
static mv_status call_barrier(char** a) {
  (void)a;
  return has_node ? mv_barrier(0, NULL) : kSkip;
}
static mv_status call_clock(char** a) {
  const struct table* const table = find_table(a[0]);
  return table == NULL ? kSkip : mv_table_clock(table->table);
}
static mv_status call_status(char** a) {
  static char text[1 << 16];
  uint64_t length = 0;
  (void)a;
  if (!has_node) return kSkip;
  const mv_status status = mv_status_text(0, 0, text, sizeof text, &length);
  snprintf(result, sizeof result, "%d", (int)length);
  return status;
}

static mv_status on_tensors(mv_status (*call)(kv_store, const kv_keys*, const kv_values*), const mv_tensor* tensors, kv_store of) {
  kv_keys keys = KV_KEYS_INIT;
  kv_values values = KV_VALUES_INIT;
  keys.count = values.count = kKeys;
  keys.names = kNames;
  values.tensors = tensors;
  return call(of, &keys, &values);
}
static mv_status push_all(kv_store of, const kv_keys* keys, const kv_values* values) { return kv_push(of, keys, values, NULL); }
static mv_status pull_all(kv_store of, const kv_keys* keys, const kv_values* values) { return kv_pull(of, keys, values, NULL); }

/* Makes tensors of the values, one for each key; frees them with `values` NULL. */
static mv_status tensors_of(const float* values, long size, mv_tensor tensors[kKeys]) {
  const int64_t shape[1] = {size};
  mv_status status = MV_OK;
  for (int i = 0; i < kKeys; ++i) {
    const mv_status one = values == NULL ? mv_tensor_free(tensors[i]) : mv_tensor_from(values, (uint64_t)size, MV_F32, shape, 1, &tensors[i]);
    if (status == MV_OK) status = one;
  }
  return status;
}
static mv_status call_store(char** a) {
  const long size = atol(a[1]);
  kv_store made = 0;
  mv_tensor tensors[kKeys];
  int64_t rank = 0;
  if (!has_node) return kSkip;
  mv_status status = kv_create(0, a[0], &made);
  if (status != MV_OK) return status;
  float* const zeros = floats(size, 0);
  status = tensors_of(zeros, size, tensors);
  if (status == MV_OK) status = on_tensors(kv_init, tensors, made);
  if (status == MV_OK) status = kv_rank(made, &rank);
  if (status == MV_OK && rank == 0) status = kv_set_optimizer(made, "sgd rate=1");
  if (status == MV_OK && strncmp(a[0], "dist", 4) == 0) status = kv_barrier(made, NULL);
  free(zeros);
  if (status != MV_OK) return status;
  tensors_of(NULL, 0, tensors);
  store.store = made;
  store.size = size;
  store.width = atol(a[2]);
  return MV_OK;
}
static mv_status call_push(char** a) {
  mv_tensor tensors[kKeys];
  if (store.store == 0) return kSkip;
  float* const values = floats(store.size, 0);
  for (long i = atol(a[0]); i < store.size; i += store.width) values[i] = -1;
  tensors_of(values, store.size, tensors);
  const mv_status status = on_tensors(push_all, tensors, store.store);
  if (status == MV_OK) tensors_of(NULL, 0, tensors);
  free(values);
  return status;
}
static mv_status call_pull(char** a) {
  mv_tensor tensors[kKeys];
  (void)a;
  if (store.store == 0) return kSkip;
  float* const values = floats(store.size * kKeys, 77);
  tensors_of(values, store.size, tensors);
  const mv_status status = on_tensors(pull_all, tensors, store.store);
  if (status == MV_OK) {
    for (int i = 0; i < kKeys; ++i) {
      void* data = NULL;
      uint64_t count = 0;
      mv_dtype dtype = MV_F32;
      if (mv_tensor_data(tensors[i], &data, &count, &dtype) == MV_OK) memcpy(values + i * store.size, data, sizeof(float) * count);
    }
    extremes(values, store.size * kKeys, store.width, result);
    tensors_of(NULL, 0, tensors);
  }
  free(values);
  return status;
}

static mv_status call_group(char** a) {
  (void)a;
  return has_node ? mv_group_open(0, NULL, 0, &group) : kSkip;
}
static mv_status size_of_group(int64_t* ranks) {
  mv_group_info info = MV_GROUP_INFO_INIT;
  const mv_status status = mv_group_describe(group, &info);
  *ranks = info.ranks;
  return status;
}
static mv_status call_reduce(char** a) {
  const long count = atol(a[0]);
  int64_t ranks = 0;
  if (group == 0) return kSkip;
  float* const values = floats(count, 1);
  mv_status status = mv_allreduce(group, NULL, values, (uint64_t)count, MV_F32, MV_REDUCE_SUM, NULL);
  if (status == MV_OK) status = size_of_group(&ranks);
  extremes(values, count, 1, result + sprintf(result, "%d ", (int)ranks));
  free(values);
  return status;
}
static mv_status call_shrink(char** a) {
  mv_group survivors = 0;
  int64_t ranks = 0;
  (void)a;
  if (group == 0) return kSkip;
  mv_status status = mv_group_shrink(group, NULL, &survivors);
  if (status != MV_OK) return status;
  mv_group_close(group);
  group = survivors;
  status = size_of_group(&ranks);
  snprintf(result, sizeof result, "%d", (int)ranks);
  return status;
}
static mv_status call_elastic(char** a) {
  float values[300];
  const mv_array array = {values, 300, MV_F32, 0};
  int64_t id = 0;
  mv_strategy strategy = 0;
  if (group == 0) return kSkip;
  mv_status status = mv_worker_id(0, &id);
  for (int i = 0; i < 300; ++i) values[i] = (float)id;
  if (status == MV_OK) status = mv_ea_open(group, 2, 0.1, &strategy);
  for (long i = atol(a[0]); i > 0 && status == MV_OK; --i) status = mv_ea_average(strategy, &array, 1, NULL);
  if (status == MV_OK) status = mv_ea_synchronize_center(strategy, &array, 1, NULL);
  if (status == MV_OK) status = mv_ea_read_center(strategy, &array, 1);
  if (status == MV_OK) status = mv_ea_close(strategy);
  extremes(values, 300, 1, result);
  return status;
}

static mv_status call_gossip(char** a) {
  char config[200];
  mv_gossip_info info = MV_GOSSIP_INFO_INIT;
  for (int i = 0; i < kModel; ++i) model[i] = strtof(a[1], NULL);
  snprintf(config, sizeof config, "nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 500\n", a[0]);
  mv_status status = mv_gossip_open_text(config, a[0], &gossip);
  if (status == MV_OK) status = mv_gossip_state(gossip, &info);
  snprintf(result, sizeof result, "%s", strrchr(info.address, ':') ? strrchr(info.address, ':') + 1 : "0");
  return status;
}
static mv_status call_peer(char** a) { return gossip == 0 ? kSkip : mv_gossip_add_peer(gossip, a[0], "127.0.0.1", atoi(a[1])); }
static mv_status call_step(char** a) {
  int32_t started = 0;
  mv_gossip_fetched fetched = MV_GOSSIP_FETCHED_INIT;
  (void)a;
  if (gossip == 0) return kSkip;
  mv_status status = mv_gossip_add(gossip, model, kModel, MV_F32);
  if (status == MV_OK) status = mv_gossip_publish(gossip, 1);
  if (status == MV_OK) status = mv_gossip_fetch_start(gossip, &started);
  if (status == MV_OK) status = mv_gossip_fetch_wait(gossip, 1, &fetched);
  if (status == MV_OK && fetched.got) status = mv_gossip_average(gossip, model, kModel, MV_F32);
  float least = model[0], most = model[0];
  for (int i = 1; i < kModel; ++i) {
    if (model[i] < least) least = model[i];
    if (model[i] > most) most = model[i];
  }
  snprintf(result, sizeof result, "%g %.9g %.9g", fetched.got ? fetched.factor : 0, (double)least, (double)most);
  return status;
}

static const struct {
  const char* name;
  mv_status (*call)(char** arguments);
  int is_repeated;
} kCalls[] = {
    {"init", call_init, 0},
    {"table", call_table, 0},
    {"add", call_add, 0},
    {"wait", call_wait, 0},
    {"get", call_get, 1},
    {"look", call_look, 0},
    {"peek", call_peek, 0},
    {"barrier", call_barrier, 1},
    {"clock", call_clock, 0},
    {"status", call_status, 0},
    {"store", call_store, 0},
    {"push", call_push, 0},
    {"pull", call_pull, 1},
    {"group", call_group, 0},
    {"reduce", call_reduce, 0},
    {"shrink", call_shrink, 0},
    {"elastic", call_elastic, 0},
    {"gossip", call_gossip, 0},
    {"peer", call_peer, 0},
    {"step", call_step, 0},
    {"shutdown", call_shutdown, 0},
};

static void obey(char** words) {
  for (size_t i = 0; i < sizeof kCalls / sizeof kCalls[0]; ++i) {
    if (strcmp(kCalls[i].name, words[1]) != 0) continue;
    tell("%s begin", number);
    for (int left = 4; left >= 0; --left) {
      result[0] = 0;
      const mv_status status = kCalls[i].call(words + 2);
      if (status == MV_OK) {
        if (later_count == 0 || strcmp(later[later_count - 1].number, number) != 0) tell("%s ok %s", number, result);
        return;
      }
      if (status == kSkip) {
        tell("%s skip", number);
        return;
      }
      const int again = kCalls[i].is_repeated && left > 0 && status == MV_EPEERLOST;
      tell_error(number, again ? "again" : "error", status);
      if (!again) return;
    }
  }
}

int main(void) {
  const char *const folder = getenv("SOAK"), *const rank = getenv("POLYVERSO_RANK");
  char path[400], line[1000];
  snprintf(path, sizeof path, "%s/out-%s", folder, rank);
  out = fopen(path, "w");
  snprintf(path, sizeof path, "%s/in-%s", folder, rank);
  FILE* const commands = fopen(path, "r");
  if (out == NULL || commands == NULL) return 2;
  tell("0 up");
  while (fgets(line, sizeof line, commands) != NULL) {
    char* words[16] = {0};
    int count = 0;
    for (char* word = strtok(line, " \n"); word != NULL && count < 15; word = strtok(NULL, " \n")) words[count++] = word;
    number = words[0];
    if (count < 2 || strcmp(words[1], "quit") == 0) break;
    obey(words);
  }
  return 0;
}
