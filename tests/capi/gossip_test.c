/* Gossip: the guarantees of gossip.h, between nodes of one process. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gossip_nodes.h"

enum { kNodes = 4, kCount = 700000 }; /* several chunks */

static float* filled(float value) {
  float* values = malloc(kCount * sizeof *values);
  for (size_t i = 0; i < kCount; ++i) values[i] = value;
  return values;
}

static void publish(mv_gossip gossip, const float* values, double loss) {
  expect_ok(mv_gossip_add(gossip, values, kCount, MV_F32));
  expect_ok(mv_gossip_publish(gossip, loss));
}

static void expect_all(const float* values, float value) {
  for (size_t i = 0; i < kCount; ++i)
    if (values[i] != value) fail_msg("element %zu is %g, not %g", i, (double)values[i], (double)value);
}

/** The example of dpwa's documentation with two nodes, step by step; three times, to cover messages and mapped memory. */
static void two_nodes_average(void** state) {
  (void)state;
  mv_gossip a = open_with("a", "interpolation: clock\ntimeout_ms: 20000"), b = open_with("b", "interpolation: clock");
  introduce(a, b, "b");
  introduce(b, a, "a");
  float *own = filled(1), *other = filled(4);
  publish(b, other, 0.5);
  double clock = 0;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kCount; ++i) own[i] = 1;
    publish(a, own, 0.25);
    clock += 1;
    const mv_gossip_fetched fetched = fetch(a, 0.25);
    expect_got(&fetched, "b");
    assert_true(fetched.peer_clock == 1 && fetched.peer_loss == 0.5 && fetched.bytes == kCount * sizeof *own);
    const double factor = 1 / (clock + 1);
    assert_true(fabs(fetched.factor - factor) < 1e-15);
    expect_ok(mv_gossip_average(a, own, kCount, MV_F32));
    expect_all(own, (float)factor * 4 + (float)(1 - factor) * 1);
    expect_error(mv_gossip_average(a, own, kCount, MV_F32), MV_ESTATE, "all 1 fetched arrays have already been taken");
    clock = factor * 1 + (1 - factor) * clock;
  }
  expect_ok(mv_gossip_close(a));
  expect_ok(mv_gossip_close(b));
  expect_error(mv_gossip_close(b), MV_EHANDLE, "closed gossip node handle");
  free(own);
  free(other);
}

static void arrays_and_bytes(void** state) {
  (void)state;
  mv_gossip a = open_with("a", "constant: {value: 0.25}\ntimeout_ms: 20000"), b = open_with("b", "");
  introduce(a, b, "b");
  double w[3] = {0, 4, 8}, w_b[3] = {4, 4, 4};
  int64_t count = 10, count_b = 30;
  expect_ok(mv_gossip_add(b, w_b, 3, MV_F64));
  expect_ok(mv_gossip_add(b, &count_b, 1, MV_I64));
  expect_ok(mv_gossip_publish(b, 1));
  expect_ok(mv_gossip_add(a, w, 3, MV_F64));
  expect_ok(mv_gossip_add(a, &count, 1, MV_I64));
  expect_ok(mv_gossip_publish(a, 1));
  mv_gossip_fetched fetched = fetch(a, 1);
  expect_got(&fetched, "b");
  expect_error(mv_gossip_average(a, w, 2, MV_F64), MV_ESHAPE, "f64 x 3");
  expect_ok(mv_gossip_average(a, w, 3, MV_F64));
  expect_ok(mv_gossip_average(a, &count, 1, MV_I64));
  assert_true(w[0] == 1 && w[1] == 4 && w[2] == 7 && count == 15);

  /* bytes of any length, like dpwa's payloads */
  char text[16] = "";
  expect_ok(mv_gossip_add(b, "a longer one", 12, MV_RAW));
  expect_ok(mv_gossip_publish(b, 1));
  expect_ok(mv_gossip_add(a, "short", 5, MV_RAW));
  expect_ok(mv_gossip_publish(a, 1));
  fetched = fetch(a, 1);
  expect_got(&fetched, "b");
  assert_int_equal(fetched.bytes, 12);
  expect_error(mv_gossip_average(a, text, 12, MV_RAW), MV_EDTYPE, "plain bytes");
  expect_ok(mv_gossip_read(a, text, fetched.bytes, MV_RAW));
  assert_string_equal(text, "a longer one");
  expect_ok(mv_gossip_close(a));
  expect_ok(mv_gossip_close(b));
}

static void unusable_snapshots_are_refused_and_reported(void** state) {
  (void)state;
  mv_gossip a = open_with("a", "secret: one\ntimeout_ms: 2000"), shapes = open_with("shapes", "secret: one"),
            stranger = open_with("stranger", "secret: two");
  float *own = filled(1), value = 5;
  int32_t started = 0;
  mv_gossip_fetched fetched = MV_GOSSIP_FETCHED_INIT;
  expect_error(mv_gossip_fetch_start(a, &started), MV_ESTATE, "publish first");
  publish(a, own, 1);
  fetched = fetch(a, 1);
  assert_false(fetched.got);
  assert_string_equal(fetched.why, "this node has no peers");

  introduce(a, shapes, "shapes");
  fetched = fetch(a, 1);
  assert_false(fetched.got);
  assert_non_null(strstr(fetched.why, "has published nothing yet"));
  expect_ok(mv_gossip_add(shapes, &value, 1, MV_F32));
  expect_ok(mv_gossip_publish(shapes, 1));
  for (int i = 0; i < 2; ++i) { /* by messages, and by mapped memory */
    fetched = fetch(a, 1);
    assert_false(fetched.got);
    assert_non_null(strstr(
        fetched.why,
        "the snapshot of \"shapes\" was rejected: it has 1 array (f32 x 1), but this node has 1 array (f32 x 700000)"));
  }
  expect_ok(mv_gossip_remove_peer(a, "shapes"));
  expect_error(mv_gossip_remove_peer(a, "shapes"), MV_ENOTFOUND, "no peer \"shapes\"");

  introduce(a, stranger, "stranger");
  publish(stranger, own, 1);
  fetched = fetch(a, 1);
  assert_false(fetched.got);
  char text[4096];
  uint64_t length;
  expect_ok(mv_gossip_state_text(a, 0, text, sizeof text, &length));
  assert_non_null(strstr(text, "stranger"));
  assert_non_null(strstr(text, "secret"));

  own[kCount - 1] = NAN;
  expect_error(mv_gossip_add(a, own, kCount, MV_F32), MV_ENONFINITE, "array 0 holds NaN");
  expect_error(mv_gossip_publish(a, 1), MV_ESTATE, "nothing was added");
  own[kCount - 1] = 1;
  expect_ok(mv_gossip_add(a, own, kCount, MV_F32));
  expect_error(mv_gossip_publish(a, NAN), MV_ENONFINITE, "the loss");
  expect_error(mv_gossip_fetch_wait(a, INFINITY, &fetched), MV_ENONFINITE, "the loss");
  expect_error(mv_gossip_publish(a, 1), MV_ESTATE, "nothing was added");
  publish(a, own, 1);
  expect_ok(mv_gossip_close(a));
  expect_ok(mv_gossip_close(shapes));
  expect_ok(mv_gossip_close(stranger));
  free(own);
}

static void wrong_arguments_are_statuses(void** state) {
  (void)state;
  mv_gossip a = 0;
  expect_error(mv_gossip_open(NULL, "a", &a), MV_EINVAL, "config is NULL");
  expect_error(mv_gossip_open("/no/such/file.yaml", "a", &a), MV_ENOTFOUND, "/no/such/file.yaml");
  expect_error(mv_gossip_open_text("timeout_ms: soon", "a", &a), MV_EINVAL, "config:1: timeout_ms: \"soon\"");
  expect_error(mv_gossip_open_text("nodes: [{name: a, host: 127.0.0.1, port: 0}]", "z", &a), MV_ENOTFOUND,
               "no node is called \"z\"; the nodes are a");
  expect_error(mv_gossip_publish(12345, 1), MV_EHANDLE, "12345");
  a = open_with("a", "fetch_probability: 0");
  char taken[256];
  snprintf(taken, sizeof taken, "nodes: [{name: a, host: 127.0.0.1, port: %d}]", port_of(a));
  mv_gossip again = 0;
  expect_error(mv_gossip_open_text(taken, "a", &again), MV_EADDRINUSE, "127.0.0.1");
  expect_error(mv_gossip_add(a, NULL, 1, MV_F32), MV_EINVAL, "data is NULL");
  expect_error(mv_gossip_add(a, taken, 1, 77), MV_EDTYPE, "77");
  expect_error(mv_gossip_add_peer(a, "b", "127.0.0.1", 0), MV_EINVAL, "port 0");
  expect_error(mv_gossip_add_peer(a, "a", "127.0.0.1", 1), MV_EDISAGREE, "\"a\"");
  float value = 1;
  expect_ok(mv_gossip_add(a, &value, 1, MV_F32));
  expect_ok(mv_gossip_publish(a, 1));
  int32_t started = 1;
  expect_ok(mv_gossip_fetch_start(a, &started));
  assert_int_equal(started, 0); /* fetch_probability: 0 */
  mv_gossip_fetched fetched = MV_GOSSIP_FETCHED_INIT;
  expect_ok(mv_gossip_fetch_wait(a, 1, &fetched));
  assert_int_equal(fetched.got, 0);
  expect_error(mv_gossip_average(a, &value, 1, MV_F32), MV_ESTATE, "nothing was fetched");
  expect_ok(mv_gossip_close(a));
}

/** Publishes constant vectors as fast as it can, until told to stop. */
typedef struct {
  mv_gossip gossip;
  int stop; /* accessed atomically by both threads */
} busy;
static void* publish_on_and_on(void* given) {
  busy* self = given;
  float* values = malloc(kCount * sizeof *values);
  for (int version = 0; !__atomic_load_n(&self->stop, __ATOMIC_ACQUIRE); ++version) {
    for (size_t i = 0; i < kCount; ++i) values[i] = (float)version;
    if (mv_gossip_add(self->gossip, values, kCount, MV_F32) != MV_OK || mv_gossip_publish(self->gossip, 1) != MV_OK) abort();
  }
  free(values);
  return NULL;
}

static void snapshots_are_never_torn(void** state) {
  (void)state;
  busy publisher = {open_with("b", ""), 0};
  mv_gossip a = open_with("a", "timeout_ms: 20000");
  introduce(a, publisher.gossip, "b");
  float *own = filled(1), *got = filled(0);
  publish(publisher.gossip, own, 1);
  publish(a, own, 1);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, publish_on_and_on, &publisher), 0);
  int whole = 0;
  for (int i = 0; i < 40; ++i) {
    const mv_gossip_fetched fetched = fetch(a, 1);
    if (!fetched.got) continue; /* the version may be overtaken again and again; the fetch then reports that */
    ++whole;
    expect_ok(mv_gossip_read(a, got, kCount, MV_F32));
    expect_all(got, got[0]);
  }
  __atomic_store_n(&publisher.stop, 1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  const mv_gossip_fetched last = fetch(a, 1);
  expect_got(&last, "b");
  print_message("%d of 40 fetches got a whole snapshot\n", whole);
  expect_ok(mv_gossip_close(a));
  expect_ok(mv_gossip_close(publisher.gossip));
  free(own);
  free(got);
}

static void figures_are_structs(void** state) {
  (void)state;
  mv_gossip a = open_with("a", ""), b = open_with("b", "");
  introduce(a, b, "b");
  expect_ok(mv_gossip_add_peer(a, "c", "127.0.0.1", 1));
  const float model = 1;
  expect_error(mv_gossip_set_clock(b, -1), MV_EINVAL, "the clock -1");
  expect_error(mv_gossip_set_clock(b, NAN), MV_EINVAL, "the clock nan");
  expect_ok(mv_gossip_set_clock(b, 9));
  const mv_gossip nodes[] = {a, b};
  for (int i = 0; i < 2; ++i) {
    expect_ok(mv_gossip_add(nodes[i], &model, 1, MV_F32));
    expect_ok(mv_gossip_publish(nodes[i], 0.5));
  }
  const mv_gossip_fetched fetched = fetch(a, 0.25);
  expect_got(&fetched, "b");
  mv_gossip_info about = MV_GOSSIP_INFO_INIT;
  expect_ok(mv_gossip_state(a, &about));
  assert_true(about.clock == 5.5 && about.loss == 0.25 && about.factor == 0.5 && about.updates == 1 && about.averaged == 1 && about.peers == 2);
  assert_string_equal(about.name, "a");
  assert_string_equal(about.last_fetch, "b");
  mv_gossip_peer peers[3] = {MV_GOSSIP_PEER_INIT, MV_GOSSIP_PEER_INIT, MV_GOSSIP_PEER_INIT};
  uint64_t count = 0;
  expect_ok(mv_gossip_peers(a, NULL, 0, &count));
  assert_int_equal(count, 2);
  expect_ok(mv_gossip_peers(a, peers, 3, &count));
  assert_int_equal(count, 2);
  assert_string_equal(peers[0].name, "b");
  assert_true(peers[0].fetched == 1 && peers[0].clock == 10 && peers[0].loss == 0.5 && peers[0].connected && peers[0].transport[0] != 0);
  assert_string_equal(peers[1].address, "127.0.0.1:1");
  assert_true(peers[2].name[0] == 0);
  expect_error(mv_gossip_state(a, NULL), MV_EINVAL, "state is NULL");
  expect_error(mv_gossip_peers(a, NULL, 1, &count), MV_EINVAL, "peers is NULL");
  expect_error(mv_gossip_peers(a, peers, 1, NULL), MV_EINVAL, "count is NULL");
  peers[0].size = 0;
  expect_error(mv_gossip_peers(a, peers, 2, &count), MV_EINVAL, "_INIT");
  expect_ok(mv_gossip_close(a));
  expect_ok(mv_gossip_close(b));
}

static void dimensions_that_both_know_are_compared(void** state) {
  (void)state;
  const struct {
    uint64_t own, other; /* dimensions; 0: unknown */
    int64_t own_shape[3], other_shape[3];
    int got;
  } cases[] = {{2, 2, {2, 3}, {3, 2}, 0}, {2, 2, {2, 3}, {2, 3}, 1}, {2, 0, {2, 3}, {0}, 1}, {1, 2, {6}, {2, 3}, 1}, {2, 3, {2, 3}, {2, 3, 1}, 0}};
  float model[6] = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    mv_gossip a = open_with("a", ""), b = open_with("b", "");
    introduce(a, b, "b");
    expect_ok(mv_gossip_add_shaped(a, model, 6, MV_F32, cases[i].own_shape, cases[i].own));
    expect_ok(mv_gossip_add_shaped(b, model, 6, MV_F32, cases[i].other_shape, cases[i].other));
    expect_error(mv_gossip_add_shaped(b, model, 5, MV_F32, cases[0].own_shape, 2), MV_ESHAPE, "5 values given, the shape needs 6");
    expect_error(mv_gossip_add_shaped(b, model, 6, MV_F32, NULL, 2), MV_EINVAL, "shape is NULL");
    expect_ok(mv_gossip_publish(a, 1));
    expect_ok(mv_gossip_publish(b, 1));
    const mv_gossip_fetched fetched = fetch(a, 1);
    assert_int_equal(fetched.got, cases[i].got);
    if (!fetched.got) assert_non_null(strstr(fetched.why, "the dimensions of array 0 differ"));
    expect_ok(mv_gossip_close(a));
    expect_ok(mv_gossip_close(b));
  }
}

/** All nodes are in one list, as in a configuration file. Each averages with some other node, and the values converge. */
static void the_models_of_a_cluster_converge(void** state) {
  (void)state;
  mv_gossip nodes[kNodes];
  const char* names[kNodes] = {"w1", "w2", "w3", "w4"};
  float* values[kNodes];
  for (int i = 0; i < kNodes; ++i) {
    nodes[i] = open_with(names[i], "seed: 7\ntimeout_ms: 20000");
    values[i] = filled((float)i);
    publish(nodes[i], values[i], 1);
  }
  for (int i = 0; i < kNodes; ++i)
    for (int j = 0; j < kNodes; ++j)
      if (i != j) introduce(nodes[i], nodes[j], names[j]);
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < kNodes; ++i) {
      publish(nodes[i], values[i], 1);
      const mv_gossip_fetched fetched = fetch(nodes[i], 1);
      assert_true(fetched.got);
      expect_ok(mv_gossip_average(nodes[i], values[i], kCount, MV_F32));
    }
  }
  for (int i = 0; i < kNodes; ++i) {
    assert_true(fabs((double)(values[i][0] - values[0][0])) < 1e-3);
    assert_true(values[i][0] >= 0 && values[i][0] <= 3);
  }
  for (int i = 0; i < kNodes; ++i) {
    expect_ok(mv_gossip_close(nodes[i]));
    free(values[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_nodes_average),
      cmocka_unit_test(arrays_and_bytes),
      cmocka_unit_test(unusable_snapshots_are_refused_and_reported),
      cmocka_unit_test(wrong_arguments_are_statuses),
      cmocka_unit_test(figures_are_structs),
      cmocka_unit_test(dimensions_that_both_know_are_compared),
      cmocka_unit_test(snapshots_are_never_torn),
      cmocka_unit_test(the_models_of_a_cluster_converge),
  };
  return cmocka_run_group_tests_name("gossip", tests, NULL, NULL);
}
