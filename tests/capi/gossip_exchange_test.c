/* Gossip's symmetric exchanges, compression, NoLoCo's steps and statistics, between nodes of one process: over TCP and through shared
 * memory. */
#include <math.h>
#include <unistd.h>

#include "gossip_nodes.h"

enum { kCount = 300000 }; /* three chunks of doubles */

static const char* const kTransports[] = {"transport: tcp", "transport: auto"};

static void fill(double* model, size_t count, double value) {
  for (size_t i = 0; i < count; ++i) model[i] = value + (double)(i % 64) / 64;
}

/** Both publish, exchange, and average. */
static void exchange(const swarm* two) {
  publish_model(two, 0);
  publish_model(two, 1);
  begin_fetch(two->nodes[0]);
  begin_fetch(two->nodes[1]);
  for (int i = 0; i < 2; ++i)
    if (!average_model(two, i)) fail_msg("node %d has got nothing", i);
}

/** Runs twice, to cover messages and mapped memory. Training during the exchange is kept. */
static void both_average_the_same_two_versions(void** state) {
  (void)state;
  char settings[256];
  for (size_t transport = 0; transport < COUNT_OF(kTransports); ++transport) {
    snprintf(settings, sizeof settings, "exchange: symmetric\nconstant: {value: 0.25}\ntimeout_ms: 20000\n%s", kTransports[transport]);
    swarm two;
    open_swarm(&two, 2, kCount, settings);
    for (int turn = 0; turn < 3; ++turn) {
      fill(two.models[0], kCount, 1);
      fill(two.models[1], kCount, 9);
      publish_model(&two, 0);
      publish_model(&two, 1);
      begin_fetch(two.nodes[0]);
      begin_fetch(two.nodes[1]);
      two.models[0][7] += 100;
      two.models[1][kCount - 1] -= 50;
      const double a = two.models[0][7], b = two.models[1][7], c = two.models[0][kCount - 1], d = two.models[1][kCount - 1];
      assert_true(average_model(&two, 0) && average_model(&two, 1));
      assert_true(two.models[0][0] == 3 && two.models[1][0] == 7);
      assert_true(two.models[0][7] == a + 2 && two.models[1][7] == b - 2);
      assert_true(two.models[0][kCount - 1] == c + 2 && two.models[1][kCount - 1] == d - 2);
      assert_true(fabs(figure_of(two.nodes[0], NULL, "disagreement") - 8) < 1e-9);
      assert_true(fabs(figure_of(two.nodes[1], "\"peers\":", "disagreement") - 8) < 1e-9);
    }
    for (int i = 0; i < 2; ++i) {
      assert_true(figure_of(two.nodes[i], NULL, "valid") == 3);
      assert_true(figure_of(two.nodes[i], NULL, "half") == 0 && figure_of(two.nodes[i], NULL, "unsettled") == 0);
    }
    close_swarm(&two);
  }
}

/** Losses and clocks give weights with which both sides reach one model. */
static void losses_weigh_the_same_on_both_sides(void** state) {
  (void)state;
  swarm two;
  open_swarm(&two, 2, 4, "exchange: symmetric\ninterpolation: loss\ntimeout_ms: 20000");
  fill(two.models[0], 4, 0);
  fill(two.models[1], 4, 4);
  for (int i = 0; i < 2; ++i) {
    expect_ok(mv_gossip_add(two.nodes[i], two.models[i], 4, MV_F64));
    expect_ok(mv_gossip_publish(two.nodes[i], i == 0 ? 3 : 1));
  }
  begin_fetch(two.nodes[0]);
  begin_fetch(two.nodes[1]);
  const mv_gossip_fetched one = end_fetch(two.nodes[0], 17), other = end_fetch(two.nodes[1], 18); /* later losses do not count */
  assert_true(one.factor == 0.75 && other.factor == 0.25);
  expect_ok(mv_gossip_average(two.nodes[0], two.models[0], 4, MV_F64));
  expect_ok(mv_gossip_average(two.nodes[1], two.models[1], 4, MV_F64));
  assert_true(two.models[0][0] == 3 && two.models[1][0] == 3);
  close_swarm(&two);
}

static void compressed_exchanges_conserve_the_mean_and_are_metered(void** state) {
  (void)state;
  static const struct { const char* name; double bytes_of_chunk[3]; double step; } kCodes[] = {
      {"none", {1 << 20, 1 << 20, kCount * 8.0 - (2 << 20)}, 0},
      {"fp16", {131072 * 2, 131072 * 2, (kCount - 262144) * 2}, 1e-2},
      {"bf16", {131072 * 2, 131072 * 2, (kCount - 262144) * 2}, 1e-1},
      {"int8", {131072 + 512 * 4, 131072 + 512 * 4, (kCount - 262144) + 148 * 4}, 1e-1},
      {"int8 block=64", {131072 + 2048 * 4, 131072 + 2048 * 4, (kCount - 262144) + 592 * 4}, 1e-1},
  };
  for (size_t code = 0; code < COUNT_OF(kCodes); ++code) {
    char settings[256];
    snprintf(settings, sizeof settings, "exchange: symmetric\ncompression: %s\ntimeout_ms: 20000\ntransport: tcp", kCodes[code].name);
    swarm two;
    open_swarm(&two, 2, kCount, settings);
    for (int turn = 1; turn <= 2; ++turn) {
      for (size_t i = 0; i < kCount; ++i) {
        two.models[0][i] = sin((double)i);
        two.models[1][i] = 8 * cos((double)i);
      }
      exchange(&two);
      for (size_t i = 0; i < kCount; ++i) {
        const double sum = sin((double)i) + 8 * cos((double)i);
        if (fabs(two.models[0][i] + two.models[1][i] - sum) > 1e-14 || fabs(two.models[0][i] - sum / 2) > kCodes[code].step + 1e-15)
          fail_msg("%s, element %zu: %.17g and %.17g, of %.17g in all", kCodes[code].name, i, two.models[0][i], two.models[1][i], sum);
      }
      double formula = 0;
      for (int chunk = 0; chunk < 3; ++chunk) formula += turn * kCodes[code].bytes_of_chunk[chunk];
      for (int i = 0; i < 2; ++i) {
        assert_true(figure_of(two.nodes[i], NULL, "fetched_bytes") == formula);
        /* a late chunk is requested again, and served twice */
        assert_true(figure_of(two.nodes[i], NULL, "served_bytes") >= formula && figure_of(two.nodes[i], NULL, "served_versions") >= turn);
      }
    }
    close_swarm(&two);
  }
}

/** Floats are compressed, other types are sent unchanged; within a machine nothing is compressed. */
static void arrays_of_all_kinds_are_pulled_compressed(void** state) {
  (void)state;
  const float floats[5] = {1, 2, 3, 4, 1000};
  const int64_t count = 1000000007;
  const uint16_t halves[3] = {0x3c00, 0x4000, 0x4200};
  for (size_t transport = 0; transport < COUNT_OF(kTransports); ++transport) {
    char settings[256];
    snprintf(settings, sizeof settings, "compression: int8\nconstant: {value: 1}\ntimeout_ms: 20000\n%s", kTransports[transport]);
    mv_gossip a = open_with("a", settings), b = open_with("b", settings);
    introduce(a, b, "b");
    for (int i = 0; i < 2; ++i) {
      const mv_gossip to = i == 0 ? a : b;
      expect_ok(mv_gossip_add(to, floats, 5, MV_F32));
      expect_ok(mv_gossip_add(to, &count, 1, MV_I64));
      expect_ok(mv_gossip_add(to, halves, 3, MV_F16));
      expect_ok(mv_gossip_publish(to, 1));
    }
    for (int turn = 0; turn < 2; ++turn) {
      float got[5] = {0};
      int64_t got_count = 0;
      uint16_t got_halves[3] = {0};
      const mv_gossip_fetched fetched = fetch(a, 1);
      expect_got(&fetched, "b");
      expect_ok(mv_gossip_read(a, got, 5, MV_F32));
      expect_ok(mv_gossip_read(a, &got_count, 1, MV_I64));
      expect_ok(mv_gossip_read(a, got_halves, 3, MV_F16));
      assert_true(got_count == count && got[4] == 1000);
      assert_true(fabsf(got[0] - 1) <= 4 && fabsf(got[3] - 4) <= 4); /* half of 1000/127 */
    }
    if (transport == 0) assert_true(figure_of(a, NULL, "fetched_bytes") == 2 * ((4 + 5) + 8 + (4 + 3)));
    expect_ok(mv_gossip_close(a));
    expect_ok(mv_gossip_close(b));
  }
}

static void a_mismatched_peer_is_refused(void** state) {
  (void)state;
  double value = 1;
  mv_gossip a = open_with("a", "exchange: symmetric\ntimeout_ms: 3000"), pulls = open_with("pulls", "timeout_ms: 3000"),
            codes = open_with("codes", "exchange: symmetric\ncompression: fp16"), strange = open_with("strange", "exchange: symmetric");
  const mv_gossip all[] = {a, pulls, codes, strange};
  for (size_t i = 0; i < COUNT_OF(all); ++i) {
    expect_ok(mv_gossip_add(all[i], &value, 1, MV_F64));
    expect_ok(mv_gossip_publish(all[i], 1));
    if (i == 1 || i == 2) introduce(all[i], a, "a");
  }
  static const struct { int node; const char *name, *why; } kCases[] = {{1, "pulls", "\"pulls\" has `exchange: pull`"},
                                                                       {2, "codes", "\"codes\" has `compression: fp16`, this node none"},
                                                                       {3, "strange", "\"strange\" does not have this node among its peers"}};
  for (size_t i = 0; i < COUNT_OF(kCases); ++i) {
    introduce(a, all[kCases[i].node], kCases[i].name);
    const mv_gossip_fetched fetched = fetch(a, 1);
    assert_false(fetched.got);
    if (strstr(fetched.why, kCases[i].why) == NULL) fail_msg("%s", fetched.why);
    expect_ok(mv_gossip_remove_peer(a, kCases[i].name));
  }
  for (size_t i = 0; i < COUNT_OF(all); ++i) expect_ok(mv_gossip_close(all[i]));
}

/** A partner that never begins, or is in another exchange, costs no more than the time-out, and no exchange is done by half. */
static void a_partner_that_is_not_there_costs_no_more_than_the_time_out(void** state) {
  (void)state;
  swarm three;
  open_swarm(&three, 3, 4, "exchange: symmetric\ntimeout_ms: 600");
  for (int i = 0; i < 3; ++i) fill(three.models[i], 4, i);
  for (int i = 0; i < 3; ++i) publish_model(&three, i);
  begin_fetch(three.nodes[0]); /* and the others do not */
  const mv_gossip_fetched alone = end_fetch(three.nodes[0], 1);
  assert_false(alone.got);
  if (strstr(alone.why, "began no exchange of its own") == NULL) fail_msg("%s", alone.why);
  for (int turn = 0; turn < 10; ++turn) {
    const int got = round_of(&three);
    assert_true(got == 0 || got == 2); /* one node is left over */
  }
  double sum = 0;
  for (int i = 0; i < 3; ++i) sum += three.models[i][0];
  assert_true(fabs(sum - 3) < 1e-14);
  /* A partner that has left is detected at once, or after a third of the time-out. */
  expect_ok(mv_gossip_close(three.nodes[2]));
  for (int turn = 0; turn < 5; ++turn) {
    publish_model(&three, 0);
    publish_model(&three, 1);
    begin_fetch(three.nodes[0]);
    begin_fetch(three.nodes[1]);
    assert_int_equal(average_model(&three, 0), average_model(&three, 1));
  }
  assert_true(fabs(three.models[0][0] - three.models[1][0]) < 1e-3);
  three.count = 2;
  free(three.models[2]);
  close_swarm(&three);
}

/* ------------------------------------------------------------ NoLoCo */

enum { kSmall = 5 };

typedef struct {
  double slow[kSmall], momentum[kSmall], model[kSmall];
} reference;

/** The paper's formula for a group of one or two, in the paper's order of operations. */
static void reference_step(reference** group, int n, double alpha, double beta, double gamma) {
  for (int e = 0; e < kSmall; ++e) {
    double mean_delta = 0, mean_slow = 0;
    for (int i = 0; i < n; ++i) {
      mean_delta += (group[i]->model[e] - group[i]->slow[e]) / n;
      mean_slow += group[i]->slow[e] / n;
    }
    for (int i = 0; i < n; ++i) {
      reference* one = group[i];
      one->momentum[e] = alpha * one->momentum[e] + beta * mean_delta - gamma * (one->slow[e] - mean_slow);
      one->slow[e] += one->momentum[e];
      one->model[e] = one->slow[e];
    }
  }
}

/** Gradient descent on (x - target)^2 / 2, a few steps. */
static void descend(double* model, double target) {
  for (int step = 0; step < 3; ++step)
    for (int e = 0; e < kSmall; ++e) model[e] -= 0.2 * (model[e] - target - e);
}

static void noloco_is_its_formula(void** state) {
  (void)state;
  for (size_t transport = 0; transport < COUNT_OF(kTransports); ++transport) {
    char settings[256];
    snprintf(settings, sizeof settings,
             "interpolation: noloco\nnoloco: {alpha: 0.4, beta: 0.6, gamma: 0.9}\ntimeout_ms: 20000\n%s",
             kTransports[transport]);
    swarm two;
    open_swarm(&two, 2, kSmall, settings);
    reference expected[2];
    memset(expected, 0, sizeof expected);
    for (int i = 0; i < 2; ++i)
      for (int e = 0; e < kSmall; ++e) two.models[i][e] = expected[i].model[e] = expected[i].slow[e] = 10 * i + e;
    for (int turn = 0; turn < 60; ++turn) {
      exchange(&two);
      reference_step((reference*[]){&expected[0], &expected[1]}, 2, 0.4, 0.6, 0.9);
      for (int i = 0; i < 2; ++i) {
        for (int e = 0; e < kSmall; ++e)
          if (fabs(two.models[i][e] - expected[i].model[e]) > 1e-12)
            fail_msg("turn %d, node %d: %.17g, not %.17g", turn, i, two.models[i][e], expected[i].model[e]);
        descend(two.models[i], i == 0 ? -1 : 3); /* each has its own data */
        descend(expected[i].model, i == 0 ? -1 : 3);
      }
    }
    exchange(&two);
    for (int i = 0; i < 2; ++i) /* both to the midpoint of the two minima */
      for (int e = 0; e < kSmall; ++e) assert_true(fabs((two.models[0][e] + two.models[1][e]) / 2 - 1 - e) < 1e-6);
    assert_true(fabs(two.models[0][0] - two.models[1][0]) < 1e-6);
    close_swarm(&two);
  }
}

static void noloco_goes_on_alone(void** state) {
  (void)state;
  mv_gossip a = open_with("a", "interpolation: noloco\nnoloco: {alpha: 0.5}");
  reference alone;
  memset(&alone, 0, sizeof alone);
  double model[kSmall] = {1, 2, 3, 4, 5};
  memcpy(alone.model, model, sizeof model);
  memcpy(alone.slow, model, sizeof model);
  int64_t seen = 12;
  for (int turn = 0; turn < 40; ++turn) {
    expect_ok(mv_gossip_add(a, model, kSmall, MV_F64));
    expect_ok(mv_gossip_add(a, &seen, 1, MV_I64));
    expect_ok(mv_gossip_publish(a, 1));
    const mv_gossip_fetched fetched = fetch(a, 1);
    assert_true(fetched.got && fetched.peer[0] == '\0' && fetched.factor == 0);
    assert_string_equal(fetched.why, "this node has no peers");
    expect_ok(mv_gossip_average(a, model, kSmall, MV_F64));
    expect_ok(mv_gossip_average(a, &seen, 1, MV_I64));
    reference_step((reference*[]){&alone}, 1, 0.5, 0.7, 0.7);
    assert_int_equal(seen, 12);
    for (int e = 0; e < kSmall; ++e) assert_true(fabs(model[e] - alone.model[e]) < 1e-12);
    descend(model, 2);
    descend(alone.model, 2);
  }
  for (int e = 0; e < kSmall; ++e) assert_true(fabs(model[e] - 2 - e) < 1e-4);
  const uint16_t half = 0;
  expect_error(mv_gossip_add(a, &half, 1, MV_F16), MV_EDTYPE, "slow models must be f32 or f64");
  expect_error(mv_gossip_add(a, model, 2, MV_F64), MV_ESHAPE, "array 0 was 1 array (f64 x 5) before");
  expect_ok(mv_gossip_close(a));
}

/** Four nodes, paired by the common seed, without training: the slow models converge. */
static void noloco_draws_models_together_and_keeps_their_mean(void** state) {
  (void)state;
  swarm four;
  open_swarm(&four, 4, kSmall, "interpolation: noloco\ntopology: matching\nseed: 5\ntimeout_ms: 20000");
  for (int i = 0; i < 4; ++i) fill(four.models[i], kSmall, i * i);
  for (int turn = 0; turn < 80; ++turn) assert_int_equal(round_of(&four), 4);
  double mean = 0, most = 0;
  for (int i = 0; i < 4; ++i) mean += four.models[i][0] / 4;
  for (int i = 0; i < 4; ++i) most = fmax(most, fabs(four.models[i][0] - mean));
  if (fabs(mean - 3.5) > 1e-13 || most > 1e-6) fail_msg("mean %.17g, %g apart", mean, most);
  close_swarm(&four);
}

/* ------------------------------------------------------------ statistics */

static void statistics_are_reported(void** state) {
  (void)state;
  swarm two;
  open_swarm(&two, 2, 100, "transport: tcp\ntimeout_ms: 20000");
  fill(two.models[0], 100, 0);
  fill(two.models[1], 100, 6);
  publish_model(&two, 0);
  publish_model(&two, 1);
  begin_fetch(two.nodes[0]);
  assert_true(average_model(&two, 0));
  assert_true(fabs(figure_of(two.nodes[0], NULL, "disagreement") - 6) < 1e-12);
  char text[16384];
  uint64_t length = 0;
  expect_ok(mv_gossip_metrics_text(two.nodes[0], text, sizeof text, &length));
  assert_true(length < sizeof text);
  static const char* const kFigures[] = {"polyverso_gossip_clock{node=\"n00\"} 1", "polyverso_gossip_averages_total{node=\"n00\"} 1",
                                         "polyverso_gossip_fetched_bytes_total{node=\"n00\"} 800",
                                         "polyverso_gossip_peer_fetches_total{node=\"n00\",peer=\"n01\",end=\"whole\"} 1",
                                         "polyverso_gossip_peer_disagreement{node=\"n00\",peer=\"n01\"} 6"};
  for (size_t i = 0; i < COUNT_OF(kFigures); ++i)
    if (strstr(text, kFigures[i]) == NULL) fail_msg("no %s in\n%s", kFigures[i], text);
  expect_ok(mv_gossip_metrics_text(two.nodes[1], text, sizeof text, &length));
  assert_non_null(strstr(text, "polyverso_gossip_served_versions_total{node=\"n01\"} 1"));
  expect_error(mv_gossip_metrics_text(two.nodes[1], NULL, 1, &length), MV_EINVAL, "mv_gossip_metrics_text");

  /* from outside, like `polyverso status` */
  char whom[64];
  snprintf(whom, sizeof whom, "master=127.0.0.1:%d", port_of(two.nodes[0]));
  expect_ok(mv_cluster_status_text(whom, 0, text, sizeof text, &length));
  assert_non_null(strstr(text, "n00 at 127.0.0.1:"));
  assert_non_null(strstr(text, "disagreement 6"));
  expect_ok(mv_cluster_status_text(whom, MV_JSON, text, sizeof text, &length));
  assert_non_null(strstr(text, "\"name\":\"n00\""));

  char path[] = "/tmp/gossip_status_XXXXXX", config[256];
  const int file = mkstemp(path);
  assert_true(file >= 0);
  const int bytes = snprintf(config, sizeof config, "nodes: [{name: n00, host: 127.0.0.1, port: %d}, {name: gone, host: 127.0.0.1, port: 1}]",
                             port_of(two.nodes[0]));
  assert_true(write(file, config, (size_t)bytes) == bytes);
  close(file);
  expect_ok(mv_gossip_status_text(path, 0, text, sizeof text, &length));
  assert_true(strncmp(text, "n00 at 127.0.0.1:", 17) == 0);
  assert_non_null(strstr(text, "gone at 127.0.0.1:1: no answer: "));
  expect_ok(mv_gossip_status_text(path, MV_JSON, text, sizeof text, &length));
  assert_non_null(strstr(text, ",\n{\"name\":\"gone\",\"address\":\"127.0.0.1:1\",\"error\":"));
  unlink(path);
  expect_error(mv_gossip_status_text(path, 0, text, sizeof text, &length), MV_ENOTFOUND, path);
  close_swarm(&two);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_average_the_same_two_versions),
      cmocka_unit_test(losses_weigh_the_same_on_both_sides),
      cmocka_unit_test(compressed_exchanges_conserve_the_mean_and_are_metered),
      cmocka_unit_test(arrays_of_all_kinds_are_pulled_compressed),
      cmocka_unit_test(a_mismatched_peer_is_refused),
      cmocka_unit_test(a_partner_that_is_not_there_costs_no_more_than_the_time_out),
      cmocka_unit_test(noloco_is_its_formula),
      cmocka_unit_test(noloco_goes_on_alone),
      cmocka_unit_test(noloco_draws_models_together_and_keeps_their_mean),
      cmocka_unit_test(statistics_are_reported),
  };
  return cmocka_run_group_tests_name("gossip: exchanges", tests, NULL, NULL);
}
