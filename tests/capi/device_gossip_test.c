/* Gossip with arrays in the memory of devices, which are emulated: the results of the host, bit by bit. The emulation ends a host that
 * accesses a device's memory. */
#include <math.h>

#include "gossip_nodes.h"

enum { kCount = 30000 };

/** The address of a tensor's elements, wherever they are. */
static void* at(mv_tensor tensor) {
  uint64_t address = 0;
  expect_ok(mv_tensor_address(tensor, &address));
  return (void*)(uintptr_t)address;
}

/** Random numbers, the same for a seed in all places. */
static mv_tensor numbers(int32_t device, mv_dtype dtype, uint64_t count, int64_t seed) {
  const int64_t shape[] = {(int64_t)count};
  mv_tensor made = 0;
  expect_ok(mv_tensor_create_on(device, dtype, shape, 1, &made));
  expect_ok(mv_tensor_uniform(made, seed, 1, 100));
  return made;
}

/** Both tensors hold the same bytes. */
static void expect_same(mv_tensor some, mv_tensor other, size_t bytes) {
  mv_tensor here[2];
  expect_ok(mv_tensor_to(some, MV_HOST, &here[0]));
  expect_ok(mv_tensor_to(other, MV_HOST, &here[1]));
  assert_memory_equal(at(here[0]), at(here[1]), bytes);
  for (int i = 0; i < 2; ++i) expect_ok(mv_tensor_free(here[i]));
}

/** Two nodes that know each other, each with a model of a tensor and of a single number, in one place. */
struct pair {
  mv_dtype dtype;
  mv_gossip nodes[2];
  mv_tensor models[2], single[2];
};

static struct pair open_pair(int32_t device, mv_dtype dtype, const char* settings) {
  struct pair made = {.dtype = dtype};
  for (int i = 0; i < 2; ++i) {
    made.nodes[i] = open_with(i == 0 ? "one" : "two", settings);
    made.models[i] = numbers(device, dtype, kCount, i + 1);
    made.single[i] = numbers(device, dtype, 1, i + 7);
  }
  introduce(made.nodes[0], made.nodes[1], "two");
  introduce(made.nodes[1], made.nodes[0], "one");
  return made;
}

static void close_pair(struct pair* pair) {
  for (int i = 0; i < 2; ++i) {
    expect_ok(mv_gossip_close(pair->nodes[i]));
    expect_ok(mv_tensor_free(pair->models[i]));
    expect_ok(mv_tensor_free(pair->single[i]));
  }
}

static void step(struct pair* pair) {
  const int64_t shape[] = {3, kCount / 3};
  mv_gossip_fetched fetched[2];
  for (int i = 0; i < 2; ++i) {
    expect_ok(mv_gossip_add_shaped(pair->nodes[i], at(pair->models[i]), kCount, pair->dtype, shape, 2));
    expect_ok(mv_gossip_add(pair->nodes[i], at(pair->single[i]), 1, pair->dtype));
    expect_ok(mv_gossip_publish(pair->nodes[i], 1));
  }
  for (int i = 0; i < 2; ++i) begin_fetch(pair->nodes[i]);
  for (int i = 0; i < 2; ++i) fetched[i] = end_fetch(pair->nodes[i], 1);
  for (int i = 0; i < 2; ++i) {
    expect_got(&fetched[i], i == 0 ? "two" : "one");
    expect_ok(mv_gossip_average(pair->nodes[i], at(pair->models[i]), kCount, pair->dtype));
    expect_ok(mv_gossip_average(pair->nodes[i], at(pair->single[i]), 1, pair->dtype));
  }
}

static void compare(mv_dtype dtype, size_t element, const char* settings) {
  struct pair here = open_pair(MV_HOST, dtype, settings), there = open_pair(1, dtype, settings);
  for (int round = 0; round < 2; ++round) {
    step(&here);
    step(&there);
    for (int i = 0; i < 2; ++i) {
      expect_same(here.models[i], there.models[i], kCount * element);
      expect_same(here.single[i], there.single[i], element);
      const double disagreement = figure_of(here.nodes[i], NULL, "disagreement"); /* a sum, whose order is the device's own */
      assert_true(disagreement > 0 && fabs(disagreement - figure_of(there.nodes[i], NULL, "disagreement")) < 1e-6 * disagreement);
    }
  }
  close_pair(&here);
  close_pair(&there);
}

static void averages_have_the_bits_of_the_host(void** state) {
  (void)state;
  static const struct {
    mv_dtype dtype;
    size_t element;
  } dtypes[] = {{MV_F32, 4}, {MV_F64, 8}, {MV_F16, 2}, {MV_BF16, 2}, {MV_I32, 4}, {MV_U8, 1}};
  for (size_t i = 0; i < COUNT_OF(dtypes); ++i) compare(dtypes[i].dtype, dtypes[i].element, "timeout_ms: 20000\nconstant: {value: 0.3}\n");
  compare(MV_F32, 4, "timeout_ms: 20000\nexchange: symmetric\nconstant: {value: 0.3}\ncompression: int8\n");
  compare(MV_F64, 8, "timeout_ms: 20000\nexchange: symmetric\ntransport: tcp\n");
  compare(MV_F32, 4, "timeout_ms: 20000\ninterpolation: noloco\n");
  compare(MV_F64, 8, "timeout_ms: 20000\ninterpolation: noloco\n");
}

/** NoLoCo's slow models go where the models are: here to another place in each round, and to the host for lack of memory. */
static void slow_models_follow_the_models(void** state) {
  (void)state;
  const char* const settings = "timeout_ms: 20000\ninterpolation: noloco\n";
  struct pair here = open_pair(MV_HOST, MV_F32, settings), there = open_pair(0, MV_F32, settings);
  const int32_t places[] = {0, 1, MV_HOST, 0, 0, 0};
  for (size_t round = 0; round < COUNT_OF(places); ++round) {
    for (int i = 0; i < 2; ++i) {
      mv_tensor moved = 0;
      expect_ok(mv_tensor_to(there.models[i], places[round], &moved));
      expect_ok(mv_tensor_free(there.models[i]));
      there.models[i] = moved;
    }
    if (round == 4) {
      mv_device_info info = MV_DEVICE_INFO_INIT;
      expect_ok(mv_device_describe(0, &info));
      char memory[64];
      snprintf(memory, sizeof memory, "guard=1,memory=%llu", (unsigned long long)(info.memory - info.unused + kCount * 4 - 1));
      setenv("POLYVERSO_EMULATION", memory, 1);
    }
    step(&here);
    step(&there);
    setenv("POLYVERSO_EMULATION", "guard=1", 1);
    for (int i = 0; i < 2; ++i) expect_same(here.models[i], there.models[i], kCount * 4);
  }
  close_pair(&here);
  close_pair(&there);
}

static void a_peers_arrays_are_read_to_devices(void** state) {
  (void)state;
  const mv_gossip own = open_with("own", "timeout_ms: 20000"), peer = open_with("peer", "timeout_ms: 20000");
  introduce(own, peer, "peer");
  const mv_tensor values = numbers(0, MV_F32, kCount, 1), copy = numbers(1, MV_F32, kCount, 2), rest = numbers(MV_HOST, MV_F32, kCount, 3);
  const mv_gossip nodes[] = {own, peer};
  for (int i = 0; i < 2; ++i) {
    expect_ok(mv_gossip_add(nodes[i], at(values), kCount, MV_F32));
    expect_ok(mv_gossip_add(nodes[i], at(values), kCount, MV_F32));
    expect_ok(mv_gossip_publish(nodes[i], 1));
  }
  const mv_gossip_fetched fetched = fetch(own, 1);
  expect_got(&fetched, "peer");
  expect_error(mv_gossip_read(own, at(copy), kCount - 1, MV_F32), MV_ESHAPE, "was fetched as array 0");
  expect_ok(mv_gossip_read(own, at(copy), kCount, MV_F32));
  expect_ok(mv_gossip_read(own, at(rest), kCount, MV_F32)); /* the peer's array was on a device */
  expect_same(copy, values, kCount * 4);
  expect_same(rest, values, kCount * 4);
  expect_error(mv_gossip_read(own, at(copy), kCount, MV_F32), MV_ESTATE, "already been taken");
  for (int i = 0; i < 2; ++i) expect_ok(mv_gossip_close(nodes[i]));
  const mv_tensor all[] = {values, copy, rest};
  for (int i = 0; i < 3; ++i) expect_ok(mv_tensor_free(all[i]));
}

static void what_is_refused_on_the_host_is_refused_on_devices(void** state) {
  (void)state;
  const mv_gossip node = open_with("node", "");
  const mv_tensor values = numbers(0, MV_F32, 3, 1);
  expect_error(mv_gossip_add(node, at(values), 3, 99), MV_EDTYPE, "99 is not a dtype");
  expect_error(mv_gossip_add(node, at(values), UINT64_MAX / 2, MV_F32), MV_EINVAL, "do not fit into a snapshot");
  expect_error(mv_gossip_average(node, at(values), 3, MV_F32), MV_ESTATE, "nothing was fetched");
  expect_ok(mv_gossip_add(node, at(values), 0, MV_F32));
  const int64_t last[] = {2};
  expect_ok(mv_tensor_set(values, last, 1, NAN));
  expect_error(mv_gossip_add(node, at(values), 3, MV_F32), MV_ENONFINITE, "array 1 holds NaN");
  expect_error(mv_gossip_publish(node, 1), MV_ESTATE, "nothing was added"); /* what was added before is dropped */
  expect_ok(mv_tensor_free(values));
  expect_ok(mv_gossip_close(node));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(averages_have_the_bits_of_the_host),
      cmocka_unit_test(slow_models_follow_the_models),
      cmocka_unit_test(a_peers_arrays_are_read_to_devices),
      cmocka_unit_test(what_is_refused_on_the_host_is_refused_on_devices),
  };
  setenv("POLYVERSO_DEVICE_PLUGIN", EMULATION, 0);
  setenv("POLYVERSO_EMULATION", "guard=1", 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
