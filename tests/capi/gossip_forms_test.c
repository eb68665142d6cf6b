/* Compares gossip with its closed forms, over TCP between nodes of one process; tests/sim/gossip/closed_forms.cpp does the same on the
 * simulator's network. Random numbers have fixed seeds; means of random rounds may differ from the form by five standard errors. */
#include <math.h>

#include "gossip_nodes.h"

enum { kElements = 16 };

static double sum_of(const swarm* all, size_t e) {
  double sum = 0;
  for (int i = 0; i < all->count; ++i) sum += all->models[i][e];
  return sum;
}

/** Sum of squares around these means; NULL: around the current means. */
static double spread_of(const swarm* all, const double* means) {
  double spread = 0;
  for (size_t e = 0; e < kElements; ++e) {
    const double mean = means != NULL ? means[e] : sum_of(all, e) / all->count;
    for (int i = 0; i < all->count; ++i) spread += pow(all->models[i][e] - mean, 2);
  }
  return spread;
}

static uint64_t random_state = 1;
static double roll(void) { /* -1 to 1 */
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)(random_state >> 11) * 0x1p-52 - 1;
}

static void shake(const swarm* all, double* means) {
  for (int i = 0; i < all->count; ++i)
    for (size_t e = 0; e < kElements; ++e) all->models[i][e] = roll();
  for (size_t e = 0; e < kElements; ++e) means[e] = sum_of(all, e) / all->count;
}

typedef struct {
  double sum, squares;
  int count;
} samples;
static void note(samples* all, double value) {
  all->sum += value;
  all->squares += value * value;
  ++all->count;
}
static void expect_mean(const samples* all, double expected, const char* what, int nodes) {
  const double mean = all->sum / all->count, error = sqrt(fmax(all->squares / all->count - mean * mean, 0) / all->count);
  print_message("%d nodes, %s: %.4f +- %.4f, expected %.4f\n", nodes, what, mean, error, expected);
  if (fabs(mean - expected) > 5 * error + 1e-12) fail_msg("%d nodes, %s: %g, not %g (standard error %g)", nodes, what, mean, expected, error);
}

static void expect_means(const swarm* all, const double* means) {
  for (size_t e = 0; e < kElements; ++e)
    if (fabs(sum_of(all, e) / all->count - means[e]) > 4e-15) fail_msg("the mean has moved by %g", sum_of(all, e) / all->count - means[e]);
}

static void pulls_shrink_the_variance_as_computed(void** state) {
  (void)state;
  for (int n = 4; n <= 16; n *= 2) {
    swarm all;
    open_swarm(&all, n, kElements, "seed: 42\ntransport: tcp\ntimeout_ms: 60000");
    samples round_new = {0, 0, 0}, round_old = {0, 0, 0};
    double means[kElements];
    for (int r = 0; r < 800 / n; ++r) {
      shake(&all, means);
      const double whole = spread_of(&all, NULL);
      assert_int_equal(round_of(&all), n);
      note(&round_new, spread_of(&all, NULL) / whole);
      note(&round_old, spread_of(&all, means) / whole);
    }
    expect_mean(&round_new, (n - 2.0) * (2 * n - 3) / (4.0 * (n - 1) * (n - 1)), "a pull each, round the new mean", n);
    expect_mean(&round_old, (n - 2.0) / (2.0 * (n - 1)), "a pull each, round the old mean", n);
    close_swarm(&all);
  }
}

/** The node that received the proposal. */
static int proposed_to(const swarm* all) {
  char text[32768];
  for (int tries = 0; tries < 20000; ++tries) {
    for (int i = 0; i < all->count; ++i) {
      state_of(all->nodes[i], text, sizeof text);
      if (strstr(text, "\"waiting\":true") != NULL) return i;
    }
    sleep_ms(1);
  }
  fail_msg("a proposal has reached nobody");
  return -1;
}

static void one_pair_shrinks_it_by_one_part_in_n_minus_one(void** state) {
  (void)state;
  for (int n = 4; n <= 16; n *= 2) {
    swarm all;
    open_swarm(&all, n, kElements, "exchange: symmetric\nseed: 43\ntransport: tcp\ntimeout_ms: 60000");
    samples ratio = {0, 0, 0};
    double means[kElements];
    for (int r = 0; r < 100; ++r) {
      shake(&all, means);
      const double whole = spread_of(&all, means);
      const int first = (int)((roll() + 1) / 2 * n) % n;
      publish_model(&all, first);
      begin_fetch(all.nodes[first]);
      const int other = proposed_to(&all);
      publish_model(&all, other);
      begin_fetch(all.nodes[other]);
      assert_true(average_model(&all, first) && average_model(&all, other));
      expect_means(&all, means);
      note(&ratio, spread_of(&all, means) / whole);
    }
    expect_mean(&ratio, 1 - 1 / (n - 1.0), "one pair", n);
    close_swarm(&all);
  }
}

/** All nodes in pairs drawn from the common seed: (n - 2)/(2 (n - 1)) of the variance remains. */
static void matched_pairs_shrink_it_as_computed(void** state) {
  (void)state;
  for (int n = 4; n <= 16; n *= 2) {
    swarm all;
    open_swarm(&all, n, kElements, "exchange: symmetric\ntopology: matching\nseed: 44\ntransport: tcp\ntimeout_ms: 60000");
    samples ratio = {0, 0, 0};
    double means[kElements];
    for (int r = 0; r < 400 / n; ++r) {
      shake(&all, means);
      const double whole = spread_of(&all, means);
      assert_int_equal(round_of(&all), n);
      expect_means(&all, means);
      note(&ratio, spread_of(&all, means) / whole);
    }
    expect_mean(&ratio, (n - 2.0) / (2.0 * (n - 1)), "matched pairs", n);
    close_swarm(&all);
  }
}

static void powers_of_two_reach_the_exact_mean(void** state) {
  (void)state;
  static const char* const kWays[] = {"topology: hypercube", "topology: one-peer-exponential", "topology: hypercube\nexchange: symmetric"};
  char settings[256];
  for (size_t way = 0; way < COUNT_OF(kWays); ++way) {
    for (int n = 2; n <= 16; n *= 2) {
      swarm all;
      snprintf(settings, sizeof settings, "%s\ntransport: tcp\ntimeout_ms: 60000", kWays[way]);
      open_swarm(&all, n, kElements, settings);
      for (int i = 0; i < n; ++i)
        for (size_t e = 0; e < kElements; ++e) all.models[i][e] = i;
      for (int left = n; left > 1; left /= 2) assert_int_equal(round_of(&all), n);
      for (int i = 0; i < n; ++i)
        for (size_t e = 0; e < kElements; ++e)
          if (all.models[i][e] != (n - 1) / 2.0) fail_msg("%s, %d nodes: node %d is at %g", kWays[way], n, i, all.models[i][e]);
      close_swarm(&all);
    }
  }
}

/** With a rival at full score, a peer with the deficit d is chosen with probability (991 - d)^2 / (2 * 991^2). The first peer of a
 * fetch, if it has nothing to offer, loses 100 points, so d changes from fetch to fetch. The number of choices minus the sum of the
 * probabilities has mean 0, and the variance of as many independent draws. */
static void a_peer_with_a_deficit_is_asked_as_often_as_computed(void** state) {
  (void)state;
  mv_gossip a = open_with("a", "seed: 45\ntransport: tcp\ntimeout_ms: 60000"),
            good = open_with("good", "transport: tcp"), useless = open_with("useless", "transport: tcp");
  introduce(a, good, "good");
  introduce(a, useless, "useless");
  double model[2] = {1, 2};
  expect_ok(mv_gossip_add(a, model, 2, MV_F64));
  expect_ok(mv_gossip_publish(a, 1));
  expect_ok(mv_gossip_add(good, model, 2, MV_F64));
  expect_ok(mv_gossip_publish(good, 1));
  expect_ok(mv_gossip_add(useless, model, 1, MV_F64));
  expect_ok(mv_gossip_publish(useless, 1));
  double expected = 0, variance = 0, asked = 0;
  for (int i = 0; i < 400; ++i) {
    if (i % 10 == 0) { /* a removed and re-added peer begins with a full score */
      expect_ok(mv_gossip_remove_peer(a, "useless"));
      introduce(a, useless, "useless");
    }
    const double deficit = 1000 - figure_of(a, "\"name\":\"useless\"", "score"), chance = pow(991 - deficit, 2) / (2 * 991.0 * 991.0);
    const double failed = figure_of(a, "\"name\":\"useless\"", "failed");
    expected += chance;
    variance += chance * (1 - chance);
    const mv_gossip_fetched fetched = fetch(a, 1);
    expect_got(&fetched, "good");
    asked += figure_of(a, "\"name\":\"useless\"", "failed") - failed;
  }
  print_message("asked %g times, expected %.1f +- %.1f\n", asked, expected, sqrt(variance));
  if (fabs(asked - expected) > 5 * sqrt(variance)) fail_msg("asked %g times, not %g (deviation %g)", asked, expected, sqrt(variance));
  expect_ok(mv_gossip_close(a));
  expect_ok(mv_gossip_close(good));
  expect_ok(mv_gossip_close(useless));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pulls_shrink_the_variance_as_computed),
      cmocka_unit_test(one_pair_shrinks_it_by_one_part_in_n_minus_one),
      cmocka_unit_test(matched_pairs_shrink_it_as_computed),
      cmocka_unit_test(powers_of_two_reach_the_exact_mean),
      cmocka_unit_test(a_peer_with_a_deficit_is_asked_as_often_as_computed),
  };
  return cmocka_run_group_tests_name("gossip: closed forms over TCP", tests, NULL, NULL);
}
