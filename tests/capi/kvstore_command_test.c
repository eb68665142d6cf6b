/* Commands to servers: each server's controller executes each command once, on the thread that set it, in its sender's order. */
#include <poll.h>

#include "stores.h"

enum { kNodes = 3, kCommands = 40 };

/** The commands that the controllers of one node have received. */
struct server {
  pthread_t thread;
  int count;
  int64_t heads[kNodes * kCommands + 1]; /* one more, which fails */
  char body[64];
  mv_status outcome;
};

static mv_status control(void* user, int64_t head, const char* body) {
  struct server* server = user;
  assert_true(pthread_equal(server->thread, pthread_self()));
  server->heads[server->count++] = head;
  snprintf(server->body, sizeof(server->body), "%s", body);
  expect_ok(mv_callback_error("no more space")); /* discarded if this command ends well */
  return server->outcome;
}

static kv_store dist_store(mv_node node) {
  kv_store kv = 0;
  expect_ok(kv_create(node, "dist_async", &kv));
  return kv;
}

/* ------------------------------------------------------------------ every node is worker and server */

static void command_each_other(struct member* self) {
  struct server server = {.thread = pthread_self()};
  expect_ok(kv_set_controller(self->node, control, &server));
  const kv_store kv = dist_store(self->node);
  expect_ok(kv_barrier(kv, NULL));
  for (int i = 0; i < kCommands; ++i) {
    char body[32];
    snprintf(body, sizeof(body), "%d of %d", i, self->index);
    expect_ok(kv_send_command(kv, self->index * 1000 + i, body, NULL)); /* executes the others' commands meanwhile */
  }
  int32_t fd = -1;
  uint64_t count = 0;
  expect_ok(mv_event_fd(self->node, &fd));
  while (server.count < kNodes * kCommands) {
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 60000), 1);
    expect_ok(mv_poll(self->node, NULL, 0, &count, 0));
  }
  int next[kNodes] = {0};
  for (int i = 0; i < server.count; ++i) { /* each once, in its sender's order */
    const int64_t from = server.heads[i] / 1000;
    assert_int_equal(server.heads[i] % 1000, next[from]++);
  }
  expect_ok(kv_barrier(kv, NULL));
  if (self->index == 1) server.outcome = MV_ENONFINITE;
  expect_ok(kv_barrier(kv, NULL));
  if (self->index == 0) {
    expect_error(kv_send_command(kv, 7, "", NULL), MV_ENONFINITE, "the controller failed: no more space");
    assert_non_null(strstr(mv_last_error(), "rank 1"));
    expect_ok(mv_barrier(self->node, NULL));
  } else {
    while (server.count == kNodes * kCommands) expect_ok(mv_poll(self->node, NULL, 0, &count, 60000));
    assert_string_equal(server.body, "");
    expect_ok(mv_barrier(self->node, NULL));
  }
  expect_ok(kv_free(kv));
}
static void each_is_executed_once_on_every_server(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, command_each_other);
}

static void meet_deaf_servers(struct member* self) {
  struct server server = {.thread = pthread_self()};
  const kv_store kv = dist_store(self->node);
  if (self->index == 1) expect_ok(kv_set_controller(self->node, control, &server));
  expect_ok(kv_barrier(kv, NULL));
  if (self->index == 0) {
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.timeout_ms = 50;
    expect_error(kv_send_command(kv, 1, "x", &options), MV_ESTATE, "no controller"); /* this process's own server */
    struct server own = {.thread = pthread_self()};
    expect_ok(kv_set_controller(self->node, control, &own));
    expect_error(kv_send_command(kv, 2, "y", &options), MV_ETIMEOUT, "rank 1"); /* its thread waits in a barrier */
    assert_int_equal(own.count, 1);
    expect_ok(kv_set_controller(self->node, NULL, NULL));
    expect_error(kv_send_command(kv, 1, NULL, NULL), MV_EINVAL, "NULL");
    options.flags = MV_FORGET;
    expect_error(kv_send_command(kv, 1, "", &options), MV_EINVAL, "MV_FORGET");
  }
  expect_ok(kv_barrier(kv, NULL));
  uint64_t count = 0;
  expect_ok(mv_poll(self->node, NULL, 0, &count, 0));
  assert_int_equal(server.count, 0); /* withdrawn commands are not executed later */
  expect_ok(kv_free(kv));
}
static void a_server_that_does_not_listen_is_named(void** state) {
  (void)state;
  run_nodes(2, NULL, meet_deaf_servers);
}

/* ------------------------------------------------------------------ a server-only process */

static void* serve(void* argument) {
  struct member* self = argument;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.transport = "inproc";
  options.nodes = self->nodes;
  options.rank = self->index;
  options.master = self->cluster;
  options.role = self->index == 0 ? MV_ROLE_SERVER : MV_ROLE_WORKER;
  expect_ok(mv_node_open(&options, &self->node));
  self->body(self);
  expect_ok(mv_shutdown(self->node));
  return NULL;
}

static void run_pair(void (*body)(struct member* self)) {
  static int pairs = 0;
  struct member members[2] = {{.index = 0, .nodes = 2, .body = body}, {.index = 1, .nodes = 2, .body = body}};
  pthread_t threads[2];
  ++pairs;
  for (int i = 0; i < 2; ++i) {
    snprintf(members[i].cluster, sizeof(members[i].cluster), "pair-%d", pairs);
    assert_int_equal(pthread_create(&threads[i], NULL, serve, &members[i]), 0);
  }
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}

static void send_to_a_server(struct member* self) {
  if (self->index == 0) {
    struct server server = {.thread = pthread_self()};
    expect_ok(kv_run_server(self->node, control, &server)); /* earlier commands have waited for it */
    assert_int_equal(server.count, kCommands);
    assert_string_equal(server.body, "last words");
    return;
  }
  const kv_store kv = dist_store(self->node);
  expect_error(kv_run_server(self->node, control, NULL), MV_ESTATE, "worker");
  expect_error(kv_set_controller(self->node, control, NULL), MV_ESTATE, "not a server");
  for (int i = 0; i + 1 < kCommands; ++i) expect_ok(kv_send_command(kv, i, "", NULL));
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = &request;
  expect_ok(kv_send_command(kv, kCommands, "last words", &options));
  expect_ok(mv_request_wait(request, 0));
}
static void it_runs_until_the_workers_have_finished(void** state) {
  (void)state;
  run_pair(send_to_a_server);
}

static void send_to_a_plain_server(struct member* self) {
  if (self->index == 0) return; /* directly into mv_shutdown(), like `polyverso server` */
  const kv_store kv = dist_store(self->node);
  expect_error(kv_send_command(kv, 1, "", NULL), MV_ESTATE, "kv_run_server");
}
static void a_plain_server_refuses(void** state) {
  (void)state;
  run_pair(send_to_a_plain_server);
}

static void execute_manually(struct member* self) {
  if (self->index == 1) {
    const kv_store kv = dist_store(self->node);
    expect_ok(kv_send_command(kv, 5, "five", NULL));
    expect_error(kv_send_command(kv, 6, "six", NULL), MV_EINVAL, "controller");
    return;
  }
  int32_t found = 9;
  int64_t head = 0;
  uint64_t length = 0;
  char body[8];
  expect_error(kv_next_command(self->node, 0, &found, &head, NULL, 0, &length), MV_ESTATE, "KV_CONTROLLER_MANUAL");
  expect_ok(kv_set_controller(self->node, KV_CONTROLLER_MANUAL, NULL));
  expect_error(kv_command_done(self->node, MV_OK), MV_ESTATE, "kv_next_command");
  for (int64_t want = 5; want <= 6; ++want) {
    do {
      expect_ok(kv_next_command(self->node, 60000, &found, &head, body, sizeof(body), &length));
    } while (found == KV_COMMAND_NOT_YET);
    assert_int_equal(found, KV_COMMAND_HERE);
    assert_int_equal(head, want);
    assert_string_equal(body, want == 5 ? "five" : "six");
    expect_ok(kv_next_command(self->node, 0, &found, &head, NULL, 0, &length)); /* the same command */
    assert_int_equal(head, want);
    expect_ok(kv_command_done(self->node, want == 5 ? MV_OK : MV_EINVAL));
  }
  while (found != KV_COMMAND_NEVER) expect_ok(kv_next_command(self->node, 60000, &found, &head, NULL, 0, &length));
}
static void a_language_executes_them_itself(void** state) {
  (void)state;
  run_pair(execute_manually);
}

/* ------------------------------------------------------------------ one process */

static mv_status send_another(void* user, int64_t head, const char* body) {
  (void)body;
  if (head == 1) expect_error(kv_send_command(*(kv_store*)user, 2, "", NULL), MV_EREENTRANT, "callback");
  return MV_OK;
}

static void a_cluster_of_one_commands_itself(void** state) {
  (void)state;
  kv_store kv = dist_store(0), local = 0;
  expect_error(kv_send_command(kv, 1, "", NULL), MV_ESTATE, "kv_set_controller");
  expect_ok(kv_set_controller(0, send_another, &kv));
  expect_ok(kv_send_command(kv, 1, "", NULL));
  expect_ok(kv_set_controller(0, KV_CONTROLLER_MANUAL, NULL));
  expect_error(kv_send_command(kv, 1, "", NULL), MV_EREENTRANT, "MV_ASYNC");
  expect_ok(kv_create(0, "local", &local));
  expect_error(kv_send_command(local, 1, "", NULL), MV_ESTATE, "no servers");
  expect_ok(kv_free(local));
  expect_ok(kv_free(kv));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_is_executed_once_on_every_server), cmocka_unit_test(a_server_that_does_not_listen_is_named),
      cmocka_unit_test(it_runs_until_the_workers_have_finished), cmocka_unit_test(a_plain_server_refuses),
      cmocka_unit_test(a_language_executes_them_itself),         TEST_ALONE(a_cluster_of_one_commands_itself),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
