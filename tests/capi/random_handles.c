/* Threads make random calls on random handles, which other threads close meanwhile. Whatever the calls return, nothing crashes, hangs or
 * makes a sanitizer report.
 * random_handles [--seed N] [--calls N] [--threads N] [--without NAME,NAME...] [--only NAME,NAME...]
 * NAME is a group of calls (node, pair, table, request, tensor, fork, store, group, strategy, gossip, checkpoint) or one call. Each
 * thread's calls are a function of seed and thread; the interleaving of the threads is not. */
#define _GNU_SOURCE
#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <glob.h>
#include <polyverso/polyverso.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kThreads = 16, kPlaces = 12, kOwn = 8, kFloats = 64, kBuffers = 1 << 14, kPairs = 3, kStuckSeconds = 120 };
enum kind { NODE, TABLE, REQUEST, STORE, GROUP, CUSTOM, STRATEGY, GOSSIP, KINDS };

/* Short, so that waits without a partner end soon. */
#define SETTINGS "timeout_ms=200 gate_timeout_ms=200 init_timeout_ms=2000 log_level=off "

static int64_t places[KINDS][kPlaces];
static struct {
  int64_t node[2], group[2];
} pairs[kPairs];
/* Buffers of asynchronous calls: one is reused long after its call's deadline. */
static float buffers[kBuffers][kFloats];
static unsigned next_buffer;
static const float ones[kFloats] = {1, 1, 1, 1, 1, 1, 1, 1};
static char folder[64];

struct thread {
  pthread_t id;
  int number;
  uint64_t random;
  unsigned long calls, done;
  const char* now;
  int64_t tensors[kOwn]; /* written by this thread only: two concurrent writers would be the caller's fault */
  unsigned long results[64][32]; /* by call and status */
};
static struct thread threads[kThreads];

/* ------------------------------------------------------------------ random choices */

static uint64_t draw(struct thread* t) {
  uint64_t z = (t->random += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}
static unsigned below(struct thread* t, unsigned end) { return (unsigned)(draw(t) % end); }
static int one_in(struct thread* t, unsigned n) { return below(t, n) == 0; }
static const char* text_of(struct thread* t, const char* const* texts, unsigned count) { return texts[below(t, count)]; }
#define TEXT_OF(t, texts) text_of(t, texts, sizeof(texts) / sizeof((texts)[0]))

static int64_t load(int64_t* place) { return __atomic_load_n(place, __ATOMIC_RELAXED); }
static int64_t swap(int64_t* place, int64_t handle) { return __atomic_exchange_n(place, handle, __ATOMIC_RELAXED); }

/* A handle of this kind, rarely of another kind or none at all. It may be closed already. */
static int64_t pick(struct thread* t, enum kind kind) {
  if (one_in(t, 60)) return one_in(t, 4) ? (int64_t)(draw(t) >> 11) : load(&places[below(t, KINDS)][below(t, kPlaces)]);
  if (kind == NODE && one_in(t, 3)) return one_in(t, 3) ? load(&pairs[below(t, kPairs)].node[below(t, 2)]) : 0;
  if (kind == GROUP && one_in(t, 3)) return load(&pairs[below(t, kPairs)].group[below(t, 2)]);
  int64_t handle = 0;
  for (int tries = 0; handle == 0 && tries < 4; ++tries) handle = load(&places[kind][below(t, kPlaces)]);
  return handle;
}
/* A handle to close, which other threads may still pick now and then. */
static int64_t take(struct thread* t, enum kind kind) {
  int64_t* const place = &places[kind][below(t, kPlaces)];
  return one_in(t, 4) ? pick(t, kind) : swap(place, 0);
}
static int64_t own(struct thread* t) { return t->tensors[below(t, kOwn)]; }

static float* buffer(void) { return buffers[__atomic_fetch_add(&next_buffer, 1, __ATOMIC_RELAXED) % kBuffers]; }

static int cancels = 1;
static void drop_request(mv_request request) {
  if (mv_request_release(request) != MV_EPENDING) return;
  cancels ? mv_request_cancel(request) : mv_request_wait(request, 1000);
}
static void close_of(enum kind kind, int64_t handle) {
  switch (kind) {
    case NODE: if (handle != 0) mv_shutdown(handle); break;
    case TABLE: mv_table_close(handle); break;
    case REQUEST: drop_request(handle); break;
    case STORE: kv_free(handle); break;
    case GROUP: mv_group_close(handle); break;
    case CUSTOM: mv_custom_end(handle, NULL); break;
    case STRATEGY:
      if (mv_sgd_close(handle) != MV_OK && mv_ea_close(handle) != MV_OK && mv_async_ea_close(handle) != MV_OK &&
          mv_local_sgd_close(handle) != MV_OK)
        mv_compressed_close(handle);
      break;
    case GOSSIP: mv_gossip_close(handle); break;
    case KINDS: break;
  }
}

/* Puts a new handle into the slot of another one, and closes that one. */
static mv_status put(struct thread* t, enum kind kind, mv_status status, const int64_t* result) {
  const int64_t handle = *result;
  if (status != MV_OK || handle == 0) return status;
  const int64_t old = swap(&places[kind][below(t, kPlaces)], handle);
  if (old != 0) close_of(kind, old);
  return status;
}

/* How a call waits. An asynchronous call puts its request where other threads find it. */
struct how {
  mv_call_options options;
  mv_request request;
};
static mv_call_options* how_of(struct thread* t, struct how* how) {
  const mv_call_options initial = MV_CALL_OPTIONS_INIT;
  how->options = initial;
  how->request = 0;
  how->options.timeout_ms = 1 + below(t, 20);
  if (one_in(t, 4)) return &how->options;
  how->options.request = &how->request;
  if (!one_in(t, 4)) how->options.flags = MV_ASYNC;
  if (one_in(t, 12)) how->options.flags = MV_FORGET;
  return &how->options;
}
static mv_status hold(struct thread* t, struct how* how, mv_status status) {
  if (how->request != 0) put(t, REQUEST, MV_OK, &how->request);
  return status;
}

/* ------------------------------------------------------------------ nodes */

static mv_status init(struct thread* t) {
  (void)t;
  return mv_init_text(SETTINGS);
}
static mv_status shut_down(struct thread* t) {
  (void)t;
  return mv_shutdown(0);
}
static mv_status open_node(struct thread* t) {
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  mv_node node = 0;
  options.text = SETTINGS;
  options.sync = (int32_t)below(t, 2);
  const mv_status status = mv_node_open(&options, &node);
  return put(t, NODE, status, &node);
}
static mv_status close_node(struct thread* t) {
  int64_t* const place = &places[NODE][below(t, kPlaces)];
  const int64_t node = one_in(t, 4) ? load(place) : swap(place, 0);
  return node == 0 ? MV_OK : mv_shutdown(node);
}
static mv_status look_at_node(struct thread* t) {
  const mv_node node = pick(t, NODE);
  int64_t number = 0;
  int32_t flag = 0;
  uint64_t length = 0;
  char text[256];
  switch (below(t, 9)) {
    case 0: return mv_rank(node, &number);
    case 1: return mv_size(node, &number);
    case 2: return mv_worker_id(node, &number);
    case 3: return mv_num_servers(node, &number);
    case 4: return mv_is_sync(node, &flag);
    case 5: return mv_event_fd(node, &flag);
    case 6: return mv_metrics_text(node, text, sizeof text, &length);
    case 7: return mv_table_list(node, text, sizeof text, &length);
    default: return mv_trace_text(node, text, sizeof text, &length);
  }
}
static mv_status status_of_node(struct thread* t) {
  char text[256];
  uint64_t length = 0;
  return mv_status_text(pick(t, NODE), below(t, 2) ? MV_JSON : 0, text, sizeof text, &length);
}
static mv_status barrier(struct thread* t) {
  struct how how;
  how_of(t, &how);
  return hold(t, &how, mv_barrier(pick(t, NODE), &how.options));
}

/* ------------------------------------------------------------------ two nodes of this process */

struct half {
  int64_t nodes[2], node, group;
  char cluster[64];
  int rank, sync;
};
static void* join_pair(void* argument) {
  struct half* self = argument;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.text = SETTINGS;
  options.transport = "inproc";
  options.nodes = 2;
  options.rank = self->rank;
  options.sync = self->sync;
  options.master = self->cluster;
  if (mv_node_open(&options, &self->node) == MV_OK) mv_group_open(self->node, NULL, 0, &self->group);
  return NULL;
}
static void* leave_pair(void* argument) {
  const struct half* self = argument;
  if (self->group != 0) mv_group_close(self->group);
  if (self->node != 0) mv_shutdown(self->node);
  return NULL;
}
/* A node's shutdown waits for its peers. */
static void both(void* (*work)(void*), struct half halves[2]) {
  pthread_t other;
  if (pthread_create(&other, NULL, work, &halves[1]) != 0) abort();
  work(&halves[0]);
  pthread_join(other, NULL);
}
/* For threads that drop a pair: with halves of different pairs, each node would wait for a peer that is never shut down. */
static pthread_mutex_t whole_pairs = PTHREAD_MUTEX_INITIALIZER;
static void drop_pair(int64_t nodes[2], int64_t groups[2]) {
  struct half halves[2];
  memset(halves, 0, sizeof halves);
  for (int i = 0; i < 2; ++i) {
    halves[i].node = nodes[i];
    halves[i].group = groups[i];
  }
  both(leave_pair, halves);
}
static mv_status open_pair(struct thread* t) {
  static unsigned clusters;
  struct half halves[2];
  const unsigned number = __atomic_add_fetch(&clusters, 1, __ATOMIC_RELAXED);
  const int sync = (int)below(t, 2);
  const unsigned at = below(t, kPairs);
  memset(halves, 0, sizeof halves);
  for (int i = 0; i < 2; ++i) {
    halves[i].rank = i;
    halves[i].sync = sync;
    snprintf(halves[i].cluster, sizeof halves[i].cluster, "pair-%u", number);
  }
  both(join_pair, halves);
  int64_t nodes[2], groups[2];
  pthread_mutex_lock(&whole_pairs);
  for (int i = 0; i < 2; ++i) {
    nodes[i] = swap(&pairs[at].node[i], halves[i].node);
    groups[i] = swap(&pairs[at].group[i], halves[i].group);
  }
  pthread_mutex_unlock(&whole_pairs);
  drop_pair(nodes, groups);
  return MV_OK;
}
static mv_status close_pair(struct thread* t) {
  const unsigned at = below(t, kPairs);
  int64_t nodes[2], groups[2];
  pthread_mutex_lock(&whole_pairs);
  for (int i = 0; i < 2; ++i) {
    nodes[i] = load(&pairs[at].node[i]);
    groups[i] = load(&pairs[at].group[i]);
  }
  pthread_mutex_unlock(&whole_pairs);
  drop_pair(nodes, groups);
  return MV_OK;
}
/* Both ranks' parts of one operation. */
static mv_status reduce_pair(struct thread* t) {
  const unsigned at = below(t, kPairs);
  mv_request requests[2] = {0, 0};
  mv_status status = MV_OK;
  const uint64_t count = 1 + below(t, kFloats);
  const int32_t reduction = (int32_t)(1 + below(t, 5));
  for (int i = 0; i < 2; ++i) {
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    float* const values = buffer();
    options.flags = MV_ASYNC;
    options.timeout_ms = 50;
    options.request = &requests[i];
    status = mv_allreduce(load(&pairs[at].group[i]), NULL, values, count, MV_F32, reduction, &options);
  }
  for (int i = 0; i < 2; ++i) {
    if (requests[i] == 0) continue;
    if (one_in(t, 4))
      put(t, REQUEST, MV_OK, &requests[i]);
    else if ((status = mv_request_wait(requests[i], 0)) == MV_ETIMEOUT)
      drop_request(requests[i]);
  }
  return status;
}

/* ------------------------------------------------------------------ tables */

static const char* const kSpecs[] = {
    "name=a size=64",
    "name=l size=64",
    "name=m size=64",
    "name=b kind=matrix rows=8 cols=8",
    "name=c kind=sparse rows=1000 cols=4",
    "name=d kind=keyvalue cols=2",
    "name=e size=64 staleness=0",
    "name=f size=64 staleness=1",
    "name=g size=64 merge=1",
    "name=h size=64 updater=\"adagrad rate=0.1\"",
    "name=i kind=keyvalue cols=1 capacity=10",
    "name=j size=64 reject_nonfinite=1",
    "name=k size=16384",
    "size=8",
};
static mv_status create_table(struct thread* t) {
  mv_table table = 0;
  const mv_status status = mv_table_create_text(pick(t, NODE), TEXT_OF(t, kSpecs), NULL, 0, MV_F32, &table);
  return put(t, TABLE, status, &table);
}
static mv_status open_table(struct thread* t) {
  const char name[2] = {(char)('a' + below(t, 13)), 0};
  mv_table table = 0;
  const mv_status status = mv_table_open(pick(t, NODE), name, &table);
  return put(t, TABLE, status, &table);
}
static mv_status close_table(struct thread* t) { return mv_table_close(take(t, TABLE)); }
static mv_status destroy_table(struct thread* t) { return mv_table_destroy(take(t, TABLE)); }
static mv_status use_table(struct thread* t) {
  static const uint64_t kCounts[] = {64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 8, 32, 0};
  const mv_table table = pick(t, TABLE);
  const uint64_t count = kCounts[below(t, 13)];
  const int64_t rows[2] = {(int64_t)below(t, 8), one_in(t, 20) ? -1 : (int64_t)below(t, 1000)};
  const uint64_t row_count = 1 + below(t, 2);
  static const uint64_t kWidths[] = {1, 2, 4, 8};
  const uint64_t some = row_count * kWidths[below(t, 4)];
  struct how how;
  mv_call_options* const options = how_of(t, &how);
  switch (below(t, 12)) {
    case 0:
    case 1:
    case 2: return hold(t, &how, mv_table_add(table, ones, count, MV_F32, options));
    case 3:
    case 4: return hold(t, &how, mv_table_add_rows(table, rows, row_count, ones, some, MV_F32, options));
    case 5:
    case 6: return hold(t, &how, mv_table_get(table, buffer(), count, MV_F32, options));
    case 7: return hold(t, &how, mv_table_get_rows(table, rows, row_count, buffer(), some, MV_F32, options));
    case 8: return hold(t, &how, mv_table_peek(table, buffer(), count, MV_F32, options));
    case 9: return hold(t, &how, mv_table_set(table, ones, count, MV_F32, options));
    case 10: return hold(t, &how, mv_table_set_rows(table, rows, row_count, ones, some, MV_F32, options));
    default: return hold(t, &how, mv_table_erase_rows(table, rows, row_count, options));
  }
}
static mv_status tell_table(struct thread* t) {
  static const char* const kUpdaters[] = {"add", "assign", "sgd rate=0.1", "momentum rate=0.1", "adagrad", "mx.adam", "none of these"};
  const mv_table table = pick(t, TABLE);
  mv_table_info info = MV_TABLE_INFO_INIT;
  int64_t ids[8], next = 0;
  uint64_t found = 0;
  struct how how;
  how_of(t, &how);
  switch (below(t, 4)) {
    case 0: return mv_table_describe(table, &info);
    case 1: return mv_table_clock(table);
    case 2: return mv_table_scan(table, 0, ids, 8, NULL, 0, MV_F32, &next, &found);
    default: return hold(t, &how, mv_table_set_updater(table, TEXT_OF(t, kUpdaters), &how.options));
  }
}

/* ------------------------------------------------------------------ requests */

static mv_status settle(struct thread* t) {
  const mv_request request = take(t, REQUEST);
  int32_t done = 0;
  mv_status status = MV_OK;
  switch (below(t, 5)) {
    case 0: status = mv_request_wait(request, 1 + below(t, 5)); break;
    case 1: status = mv_request_test(request, &done); break;
    case 2: status = mv_request_error(request); break;
    default: status = mv_request_release(request);
  }
  if (request != 0 && mv_request_error(request) != MV_EHANDLE) put(t, REQUEST, MV_OK, &request);
  return status;
}
static mv_status cancel(struct thread* t) { return mv_request_cancel(take(t, REQUEST)); }
static mv_status poll_node(struct thread* t) {
  mv_request finished[4];
  uint64_t count = 0;
  return mv_poll(pick(t, NODE), finished, below(t, 5), &count, below(t, 3));
}

/* ------------------------------------------------------------------ tensors */

static mv_status keep(struct thread* t, mv_status status, const mv_tensor* result) {
  const mv_tensor made = *result;
  if (status != MV_OK || made == 0) return status;
  mv_tensor* const place = &t->tensors[below(t, kOwn)];
  const mv_tensor old = swap(place, made);
  if (old != 0) mv_tensor_free(old);
  return status;
}
static mv_status make_tensor(struct thread* t) {
  const int64_t shapes[][2] = {{8, 8}, {64, 1}, {4, 4}, {0, 3}, {300, 100}, {-1, 2}};
  const int64_t* const shape = shapes[below(t, 6)];
  mv_tensor made = 0;
  const mv_dtype dtype = (mv_dtype)(1 + below(t, 9));
  if (one_in(t, 3)) return keep(t, mv_tensor_from(ones, 64, MV_F32, shape, 2, &made), &made);
  return keep(t, mv_tensor_create(one_in(t, 2) ? MV_F32 : dtype, shape, 2, &made), &made);
}
static mv_status use_tensor(struct thread* t) {
  const mv_tensor a = own(t), b = own(t);
  mv_tensor made = 0;
  double value = 0;
  int64_t integer = 0;
  int32_t flag = 0;
  uint64_t length = 0;
  const int64_t shape[2] = {(int64_t)below(t, 9), 8}, rows[2] = {0, 3};
  char text[200];
  switch (below(t, 18)) {
    case 0: return keep(t, mv_tensor_binary((int32_t)(1 + below(t, 12)), a, b, 0, &made), &made);
    case 1: return keep(t, mv_tensor_unary((int32_t)(1 + below(t, 6)), a, 0, &made), &made);
    case 2: return keep(t, mv_tensor_scalar((int32_t)(1 + below(t, 8)), a, 2, 0, 0, &made), &made);
    case 3: return keep(t, mv_tensor_reshape(a, shape, 2, &made), &made);
    case 4: return keep(t, mv_tensor_slice(a, below(t, 3), below(t, 9), &made), &made);
    case 5: return keep(t, mv_tensor_row(a, below(t, 9), &made), &made);
    case 6: return keep(t, mv_tensor_take(a, rows, 2, &made), &made);
    case 7: return keep(t, mv_tensor_transpose(a, &made), &made);
    case 8: return keep(t, mv_tensor_to_sparse(a, &made), &made);
    case 9: return keep(t, mv_tensor_to_dense(a, &made), &made);
    case 10: return keep(t, mv_tensor_reduce((int32_t)(1 + below(t, 8)), a, (int64_t)below(t, 3) - 1, &made), &made);
    case 11: return keep(t, mv_tensor_cast(a, (mv_dtype)below(t, 10), &made), &made);
    case 12: return keep(t, mv_tensor_matmul(a, b, (int32_t)below(t, 4), 0, &made), &made);
    case 13: return mv_tensor_fill(a, 1);
    case 14: return mv_tensor_axpy(2, a, b);
    case 15: return mv_tensor_get(a, rows, 2, &value, &integer);
    case 16: return mv_tensor_close(a, b, 0, 0, &flag);
    default: return mv_tensor_text(a, text, sizeof text, &length);
  }
}
/* Describes or closes any thread's tensor. */
static mv_status meddle_with_tensor(struct thread* t) {
  const mv_tensor tensor = load(&threads[below(t, kThreads)].tensors[below(t, kOwn)]);
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  return one_in(t, 3) ? mv_tensor_free(tensor) : mv_tensor_describe(tensor, &info);
}

/* A child computes with this thread's tensors, whatever the other threads are doing at the fork. */
static mv_status fork_child(struct thread* t) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return use_tensor(t); /* another thread may hold a lock of malloc() at the fork */
#endif
  const pid_t child = fork();
  if (child < 0) return MV_OK;
  if (child == 0) {
    int64_t rank = 0;
    alarm(kStuckSeconds / 2);
    for (int i = 0; i < 30; ++i) one_in(t, 4) ? make_tensor(t) : use_tensor(t);
    if (mv_rank(0, &rank) != MV_EFORK) _exit(3);
    if (one_in(t, 4) && (mv_init_text(SETTINGS) != MV_OK || mv_shutdown(0) != MV_OK)) _exit(4);
    _exit(0);
  }
  int status = -1;
  while (waitpid(child, &status, 0) != child) {
  }
  if (status == 0) return MV_OK;
  fprintf(stderr, "a forked child ended with %#x\n", (unsigned)status);
  abort();
}

/* ------------------------------------------------------------------ stores */

static mv_status create_store(struct thread* t) {
  static const char* const kTypes[] = {"local", "device", "dist_async", "dist_sync", "dist_async", "nothing"};
  kv_store store = 0;
  const mv_status status = kv_create(pick(t, NODE), TEXT_OF(t, kTypes), &store);
  return put(t, STORE, status, &store);
}
static mv_status close_store(struct thread* t) { return kv_free(take(t, STORE)); }
static mv_status use_store(struct thread* t) {
  static const char* const kOptimizers[] = {"mx.sgd learning_rate=0.1", "mx.adam", "mx.lamb", "nothing"};
  static const char* const kCodecs[] = {"2bit threshold=0.5", "fp16", "none", "nothing"};
  const kv_store store = pick(t, STORE);
  const int64_t numbers[2] = {(int64_t)below(t, 4), (int64_t)below(t, 4)};
  const mv_tensor tensors[2] = {own(t), own(t)};
  kv_keys keys = KV_KEYS_INIT;
  kv_values values = KV_VALUES_INIT;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  int64_t number = 0;
  uint64_t length = 0;
  char text[64];
  keys.count = values.count = 1 + below(t, 2);
  keys.numbers = numbers;
  values.tensors = tensors;
  options.timeout_ms = 1 + below(t, 20);
  switch (below(t, 14)) {
    case 0: return kv_type(store, text, sizeof text, &length);
    case 1: return kv_rank(store, &number);
    case 2:
    case 3: return kv_init(store, &keys, &values);
    case 4:
    case 5:
    case 6: return kv_push(store, &keys, &values, &options);
    case 7:
    case 8: return kv_pull(store, &keys, &values, &options);
    case 9: return kv_pushpull(store, &keys, &values, &values, &options);
    case 10: return kv_set_optimizer(store, TEXT_OF(t, kOptimizers));
    case 11: return kv_set_gradient_compression(store, TEXT_OF(t, kCodecs));
    case 12: return kv_barrier(store, &options);
    default: return kv_set_reject_nonfinite(store, (int32_t)below(t, 2));
  }
}

/* ------------------------------------------------------------------ groups and strategies */

static mv_status open_group(struct thread* t) {
  mv_group group = 0;
  const int64_t workers[2] = {0, (int64_t)below(t, 3)};
  const mv_node node = pick(t, NODE);
  const mv_status status = one_in(t, 4) ? mv_group_open_host(node, &group) : mv_group_open(node, workers, below(t, 3), &group);
  return put(t, GROUP, status, &group);
}
static mv_status close_group(struct thread* t) { return mv_group_close(take(t, GROUP)); }
static mv_status use_group(struct thread* t) {
  const mv_group group = pick(t, GROUP);
  struct how how;
  mv_call_options* const options = how_of(t, &how);
  const uint64_t count = 1 + below(t, kFloats / 2), counts[2] = {count, count};
  const int32_t reduction = (int32_t)(1 + below(t, 6));
  float* const out = buffer();
  mv_array arrays[2] = {{out, count / 2, MV_F32, 0}, {out + count / 2, count - count / 2, MV_F32, 0}};
  mv_drained next = MV_DRAINED_INIT;
  mv_group_info info = MV_GROUP_INFO_INIT;
  mv_group survivors = 0;
  mv_custom custom = 0;
  int64_t members[4];
  uint64_t contributors = 0;
  options->flags &= ~(uint32_t)MV_FORGET;
  switch (below(t, 20)) {
    case 13: return hold(t, &how, mv_gather(group, ones, out, count, MV_F32, (int64_t)below(t, 2), options));
    case 14: return hold(t, &how, mv_scatter(group, ones, out, count, MV_F32, (int64_t)below(t, 2), options));
    case 15: return hold(t, &how, mv_alltoall(group, ones, out, count, MV_F32, options));
    case 16: return hold(t, &how, mv_alltoall_counts(group, ones, counts, out, counts, MV_F32, options));
    case 17: return hold(t, &how, mv_send(group, ones, count, MV_F32, (int64_t)below(t, 2), 0, options));
    case 18: return hold(t, &how, mv_recv(group, out, count, MV_F32, (int64_t)below(t, 3) - 1, 0, NULL, options));
    case 0:
    case 1: return hold(t, &how, mv_allreduce(group, NULL, out, count, MV_F32, reduction, options));
    case 2: return hold(t, &how, mv_allreduce_many(group, NULL, arrays, 2, reduction, 0, NULL, options));
    case 3: return hold(t, &how, mv_reduce(group, ones, out, count, MV_F32, reduction, (int64_t)below(t, 3) - 1, options));
    case 4: return hold(t, &how, mv_broadcast(group, out, count, MV_F32, (int64_t)below(t, 3), options));
    case 5: return hold(t, &how, mv_allgather(group, ones, count / 2, out, MV_F32, options));
    case 6: return hold(t, &how, mv_reduce_scatter(group, ones, out, count / 2, MV_F32, reduction, options));
    case 7: return hold(t, &how, mv_group_barrier(group, options));
    case 8: return mv_group_describe(group, &info);
    case 9: return mv_group_members(group, members, 4, &contributors);
    case 10:
      options->flags = 0;
      return put(t, GROUP, mv_group_shrink(group, options, &survivors), &survivors);
    case 19:
      options->flags = 0;
      return put(t, GROUP, mv_group_grow(group, "random", 0, options, &survivors), &survivors);
    case 11: return mv_allreduce_drain(group, arrays, 2, &next, options);
    case 12: return mv_allreduce_zeros(group, options);
    default: return put(t, CUSTOM, mv_custom_begin(group, arrays, 2, 0, options, &custom), &custom);
  }
}
static mv_status use_custom(struct thread* t) {
  const mv_custom custom = pick(t, CUSTOM);
  mv_array theirs[2];
  int32_t more = 0;
  uint64_t contributors = 0;
  switch (below(t, 3)) {
    case 0: return mv_custom_next(custom, theirs, &more);
    case 1: return mv_custom_done(custom, MV_OK);
    default: return mv_custom_end(custom, &contributors);
  }
}
static mv_status open_strategy(struct thread* t) {
  mv_strategy strategy = 0;
  const mv_group group = pick(t, GROUP);
  mv_status status = MV_OK;
  switch (below(t, 5)) {
    case 0: status = mv_sgd_open(group, &strategy); break;
    case 1: status = mv_ea_open(group, 1, 0.2, &strategy); break;
    case 2: status = mv_async_ea_open(pick(t, TABLE), 1, 0.2, &strategy); break;
    case 3: status = mv_local_sgd_open(group, "", &strategy); break;
    default: status = mv_compressed_open(group, "2bit", &strategy); break;
  }
  return put(t, STRATEGY, status, &strategy);
}
static mv_status close_strategy(struct thread* t) {
  close_of(STRATEGY, take(t, STRATEGY));
  return MV_OK;
}
static mv_status use_strategy(struct thread* t) {
  const mv_strategy strategy = pick(t, STRATEGY);
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  mv_array arrays[1] = {{buffer(), kFloats, MV_F32, 0}};
  uint64_t numbers[4];
  options.timeout_ms = 1 + below(t, 20);
  switch (below(t, 8)) {
    case 0: return mv_sgd_sum_and_normalize(strategy, arrays, 1, numbers, &options);
    case 1: return mv_sgd_synchronize(strategy, arrays, 1, &options);
    case 2: return mv_ea_average(strategy, arrays, 1, &options);
    case 3: return mv_async_ea_average(strategy, arrays, 1, &options);
    case 4: return mv_local_sgd_step(strategy, arrays, 1, &options);
    case 5: return mv_compressed_average(strategy, arrays, 1, NULL, 0, numbers, &options);
    case 6: return mv_strategy_cancel(strategy);
    default: return mv_strategy_meter(strategy, &numbers[0], &numbers[1], &numbers[2], &numbers[3]);
  }
}

/* ------------------------------------------------------------------ gossip and checkpoints */

static mv_status open_gossip(struct thread* t) {
  static const char* const kConfigs[] = {
      "nodes: [{name: a, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20",
      "nodes: [{name: a, host: 127.0.0.1, port: 0}, {name: b, host: 127.0.0.1, port: 9}]\ntimeout_ms: 20",
      "nodes: [{name: a, host: 127.0.0.1, port: 0}]\ninterpolation: noloco\ntimeout_ms: 20",
      "nodes: nobody",
  };
  mv_gossip gossip = 0;
  const mv_status status = mv_gossip_open_text(TEXT_OF(t, kConfigs), "a", &gossip);
  return put(t, GOSSIP, status, &gossip);
}
static mv_status close_gossip(struct thread* t) { return mv_gossip_close(take(t, GOSSIP)); }
static mv_status use_gossip(struct thread* t) {
  const mv_gossip gossip = pick(t, GOSSIP);
  mv_gossip_fetched fetched = MV_GOSSIP_FETCHED_INIT;
  mv_gossip_info info = MV_GOSSIP_INFO_INIT;
  int32_t started = 0;
  uint64_t length = 0;
  char text[64];
  switch (below(t, 12)) {
    case 0:
    case 1: return mv_gossip_add(gossip, ones, kFloats, MV_F32);
    case 2:
    case 3: return mv_gossip_publish(gossip, 1);
    case 4: return mv_gossip_fetch_start(gossip, &started);
    case 5: return mv_gossip_fetch_wait(gossip, 1, &fetched);
    case 6: return mv_gossip_average(gossip, buffer(), kFloats, MV_F32);
    case 7: return mv_gossip_read(gossip, buffer(), kFloats, MV_F32);
    case 8: return mv_gossip_state(gossip, &info);
    case 9: return mv_gossip_state_text(gossip, 0, text, sizeof text, &length);
    case 10: return mv_gossip_add_peer(gossip, "c", "127.0.0.1", 9);
    default: return one_in(t, 2) ? mv_gossip_remove_peer(gossip, "c") : mv_gossip_set_clock(gossip, 1);
  }
}
static mv_status save(struct thread* t) {
  struct how how;
  mv_call_options* const options = how_of(t, &how);
  options->flags &= ~(uint32_t)MV_FORGET;
  return hold(t, &how, mv_checkpoint_save(pick(t, NODE), folder, 1, options));
}
static mv_status restore(struct thread* t) {
  struct how how;
  mv_call_options* const options = how_of(t, &how);
  options->flags &= ~(uint32_t)MV_FORGET;
  return hold(t, &how, mv_checkpoint_load(pick(t, NODE), folder, options));
}
static mv_status inspect(struct thread* t) {
  char text[200];
  uint64_t length = 0;
  (void)t;
  return mv_checkpoint_inspect(folder, text, sizeof text, &length);
}

/* ------------------------------------------------------------------ the run */

static struct {
  const char *group, *name;
  unsigned weight;
  mv_status (*call)(struct thread* t);
} calls[] = {
    {"node", "init", 4, init},
    {"node", "shut_down", 3, shut_down},
    {"node", "open_node", 4, open_node},
    {"node", "close_node", 2, close_node},
    {"node", "look_at_node", 200, look_at_node},
    {"node", "status_of_node", 1, status_of_node},
    {"node", "barrier", 100, barrier},
    {"pair", "open_pair", 2, open_pair},
    {"pair", "close_pair", 1, close_pair},
    {"pair", "reduce_pair", 100, reduce_pair},
    {"table", "create_table", 60, create_table},
    {"table", "open_table", 60, open_table},
    {"table", "close_table", 20, close_table},
    {"table", "destroy_table", 15, destroy_table},
    {"table", "use_table", 2000, use_table},
    {"table", "tell_table", 300, tell_table},
    {"request", "settle", 650, settle},
    {"request", "cancel", 150, cancel},
    {"request", "poll_node", 100, poll_node},
    {"tensor", "make_tensor", 200, make_tensor},
    {"tensor", "use_tensor", 1500, use_tensor},
    {"tensor", "meddle_with_tensor", 300, meddle_with_tensor},
    {"fork", "fork_child", 2, fork_child},
    {"store", "create_store", 20, create_store},
    {"store", "close_store", 10, close_store},
    {"store", "use_store", 400, use_store},
    {"group", "open_group", 20, open_group},
    {"group", "close_group", 10, close_group},
    {"group", "use_group", 400, use_group},
    {"group", "use_custom", 50, use_custom},
    {"strategy", "open_strategy", 30, open_strategy},
    {"strategy", "close_strategy", 20, close_strategy},
    {"strategy", "use_strategy", 150, use_strategy},
    {"gossip", "open_gossip", 3, open_gossip},
    {"gossip", "close_gossip", 2, close_gossip},
    {"gossip", "use_gossip", 300, use_gossip},
    {"checkpoint", "save", 3, save},
    {"checkpoint", "restore", 3, restore},
    {"checkpoint", "inspect", 2, inspect},
};
enum { kCalls = sizeof calls / sizeof calls[0] };
static unsigned total;

static void* work(void* argument) {
  struct thread* t = argument;
  while (t->done < t->calls) {
    unsigned at = below(t, total), i = 0;
    while (at >= calls[i].weight) at -= calls[i++].weight;
    __atomic_store_n(&t->now, calls[i].name, __ATOMIC_RELAXED);
    const mv_status status = calls[i].call(t);
    if (status > 0 || status < -26 || status == MV_EINTERNAL) {
      fprintf(stderr, "%s gave %d: %s\n", calls[i].name, status, mv_last_error());
      abort();
    }
    ++t->results[i][-status];
    __atomic_store_n(&t->done, t->done + 1, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&t->now, "the end", __ATOMIC_RELAXED);
  return NULL;
}

static void show_stack(int signal) {
  void* frames[64];
  (void)signal;
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  if (write(STDERR_FILENO, "----\n", 5) != 5) _exit(3);
}
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void show_crash(int number) {
  signal(number, SIG_DFL);
  show_stack(number);
  raise(number);
}
#endif
/* One thread after the other. */
static void show_all_stacks(void) {
  DIR* tasks = opendir("/proc/self/task");
  const struct dirent* task;
  while (tasks != NULL && (task = readdir(tasks)) != NULL) {
    const long id = atol(task->d_name);
    if (id == 0) continue;
    fprintf(stderr, "thread %ld:\n", id);
    syscall(SYS_tgkill, getpid(), (pid_t)id, SIGUSR2);
    usleep(100000);
  }
  if (tasks != NULL) closedir(tasks);
}

static int ended;
/* A thread that has made no call for kStuckSeconds hangs. */
static void* watch(void* argument) {
  const unsigned count = *(unsigned*)argument;
  unsigned long seen[kThreads] = {0};
  unsigned still[kThreads] = {0};
  while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
    sleep(1);
    for (unsigned i = 0; i < count; ++i) {
      const unsigned long done = __atomic_load_n(&threads[i].done, __ATOMIC_RELAXED);
      still[i] = done == seen[i] && done < threads[i].calls ? still[i] + 1 : 0;
      seen[i] = done;
      if (still[i] < kStuckSeconds) continue;
      fprintf(stderr, "random_handles: thread %u has been in %s for %d s, after %lu calls\n", i,
              __atomic_load_n(&threads[i].now, __ATOMIC_RELAXED), kStuckSeconds, done);
      show_all_stacks();
      abort();
    }
  }
  return NULL;
}

static int names(const char* list, unsigned i) {
  for (const char* at = list; at != NULL && *at != 0;) {
    const size_t length = strcspn(at, ",");
    if ((strlen(calls[i].name) == length && strncmp(at, calls[i].name, length) == 0) ||
        (strlen(calls[i].group) == length && strncmp(at, calls[i].group, length) == 0))
      return 1;
    at += length + (at[length] == ',');
  }
  return 0;
}

static void close_everything(void) {
  for (int p = 0; p < kPairs; ++p) drop_pair(pairs[p].node, pairs[p].group);
  for (int kind = KINDS; kind-- > 0;)
    for (int p = 0; p < kPlaces; ++p)
      if (places[kind][p] != 0) close_of((enum kind)kind, places[kind][p]);
  for (int i = 0; i < kThreads; ++i)
    for (int p = 0; p < kOwn; ++p) mv_tensor_free(threads[i].tensors[p]);
  mv_status status = MV_OK;
  int64_t rank = 0;
  while (mv_rank(0, &rank) == MV_OK) status = mv_shutdown(0);
  (void)status;
}

/* ------------------------------------------------------------------ the folder for checkpoints, locked during the life of the process */

static int remove_all(const char* path) {
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", path);
  return system(command);
}
static int make_folder(void) {
  for (int tries = 0; tries < 100; ++tries) {
    snprintf(folder, sizeof folder, "/tmp/random-handles-XXXXXX");
    if (mkdtemp(folder) == NULL) return 0;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && access(folder, F_OK) == 0) return 1;
    if (fd >= 0) close(fd); /* another process saw it unlocked, and removes it */
  }
  return 0;
}
/* Removes folders of processes that failed or were killed. */
static void remove_unlocked(void) {
  glob_t found;
  if (glob("/tmp/random-handles-*", 0, NULL, &found) != 0) return;
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    const int fd = open(found.gl_pathv[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) remove_all(found.gl_pathv[i]);
    if (fd >= 0) close(fd);
  }
  globfree(&found);
}

int main(int argc, char** argv) {
  unsigned long seed = 1, wanted = 100000;
  unsigned count = 4;
  const char *without = NULL, *only = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--seed") == 0) seed = strtoul(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--calls") == 0) wanted = strtoul(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--threads") == 0) count = (unsigned)strtoul(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--without") == 0) without = argv[i + 1];
    if (strcmp(argv[i], "--only") == 0) only = argv[i + 1];
  }
  if (count < 1 || count > kThreads) return 2;
  for (unsigned i = 0; i < kCalls; ++i) {
    if (names(without, i) || (only != NULL && !names(only, i))) calls[i].weight = 0;
    total += calls[i].weight;
    if (calls[i].call == cancel) cancels = calls[i].weight > 0;
  }
  if (total == 0) return 2;
  fprintf(stderr, "random_handles --seed %lu --calls %lu --threads %u\n", seed, wanted, count);
  remove_unlocked();
  if (!make_folder()) return 2;
  signal(SIGUSR2, show_stack);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  for (size_t i = 0; i < 4; ++i) signal((const int[]){SIGSEGV, SIGBUS, SIGFPE, SIGABRT}[i], show_crash);
#endif
  for (unsigned i = 0; i < count; ++i) threads[i].calls = wanted / count;
  pthread_t watcher;
  if (pthread_create(&watcher, NULL, watch, &count) != 0) return 2;
  for (unsigned i = 0; i < count; ++i) {
    threads[i].number = (int)i;
    threads[i].random = seed * 1000003 + i;
    if (pthread_create(&threads[i].id, NULL, work, &threads[i]) != 0) return 2;
  }
  for (unsigned i = 0; i < count; ++i) pthread_join(threads[i].id, NULL);
  alarm(kStuckSeconds);
  close_everything();
  __atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
  pthread_join(watcher, NULL);
  for (unsigned call = 0; call < kCalls; ++call) {
    if (calls[call].weight == 0) continue;
    printf("%-20s", calls[call].name);
    for (int status = 0; status < 32; ++status) {
      unsigned long times = 0;
      for (unsigned i = 0; i < count; ++i) times += threads[i].results[call][status];
      if (times > 0) printf(" %s %lu", mv_status_name(-status) + 3, times);
    }
    printf("\n");
  }
  return remove_all(folder) == 0 ? 0 : 2;
}
