// engine/gossip's pure parts, compared with closed forms: the factor, the choice of a peer, topologies and pairings.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/gossip/factor.hpp"
#include "engine/gossip/scores.hpp"
#include "engine/gossip/topology.hpp"
#include "math/average.hpp"
#include "math/copy.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::gossip;

void assert_near(double value, double expected, double tolerance) {
  if (!(std::abs(value - expected) <= tolerance)) print_error("%.17g is not within %g of %.17g\n", value, tolerance, expected);
  assert_true(std::abs(value - expected) <= tolerance);
}

double factor_of(const Interpolation& how, Progress own, Progress peer) {
  const auto got = factor(how, own, peer);
  assert_true(got.ok());
  return got.value();
}

// ------------------------------------------------------------ factors

void methods_weigh_as_dpwa_does(void**) {
  const Progress own{30, 1}, peer{10, 3};
  assert_near(factor_of({Method::kConstant, 0.25}, own, peer), 0.25, 0);
  assert_near(factor_of({Method::kClock}, own, peer), 0.25, 0);
  assert_near(factor_of({Method::kLoss}, own, peer), 0.25, 0);
  assert_near(factor_of({Method::kLoss, 0.5, LossWeighting::kPeer}, own, peer), 0.75, 0);
}

void nothing_by_nothing_is_one_half_and_everything_is_clamped(void**) {
  assert_near(factor_of({Method::kClock}, {0, 1}, {0, 1}), 0.5, 0);
  assert_near(factor_of({Method::kLoss}, {1, 0}, {1, 0}), 0.5, 0);
  assert_near(factor_of({Method::kLoss}, {1, -1}, {1, 3}), 0, 0);
  assert_near(factor_of({Method::kLoss}, {1, 3}, {1, -1}), 1, 0);
  assert_near(factor_of({Method::kLoss}, {1, 3}, {1, -3}), 1, 0);  // 3/0
  const double huge = std::numeric_limits<double>::max();
  assert_near(factor_of({Method::kLoss}, {1, huge}, {1, huge}), 0.5, 0);
  assert_near(factor_of({Method::kLoss}, {1, huge}, {1, huge / 2}), 2.0 / 3, 1e-15);
}

void good_models_diverge_below_the_threshold(void**) {
  Interpolation how{Method::kConstant, 0.5, LossWeighting::kOwn, 0.2};
  assert_near(factor_of(how, {1, 0.05}, {1, 9}), 0.125, 1e-15);
  assert_near(factor_of(how, {1, 0.2}, {1, 9}), 0.5, 0);
  assert_near(factor_of(how, {1, -1}, {1, 9}), 0, 0);
  how.divergence_threshold = 0;
  assert_near(factor_of(how, {1, 1e-9}, {1, 9}), 0.5, 0);
}

void a_loss_that_is_no_number_is_refused(void**) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    assert_int_equal(factor({}, {1, bad}, {1, 1}).status().code(), MV_ENONFINITE);
    assert_int_equal(factor({}, {1, 1}, {1, bad}).status().code(), MV_ENONFINITE);
    assert_int_equal(factor({}, {1, 1}, {bad, 1}).status().code(), MV_ENONFINITE);
  }
  assert_near(mixed_clock(0.25, 8, 16), 10, 0);
}

// ------------------------------------------------------------ the choice of a peer

void a_peer_with_a_deficit_is_picked_as_often_as_computed(void**) {
  // Two dice with 991 faces: the worse peer must throw more than d higher, or exactly d higher and win the tie.
  Rng rng(2026);
  constexpr int kThrows = 200'000;
  for (const double deficit : {0.0, 100.0, 300.0, 700.0, 990.0}) {
    const std::vector<double> scores{Score::kMost - deficit, Score::kMost};
    int picked = 0;
    for (int i = 0; i < kThrows; ++i) picked += choose(scores, rng) == 0;
    const double expected = std::pow(991 - deficit, 2) / (2 * 991.0 * 991.0);
    const double deviation = std::sqrt(expected * (1 - expected) / kThrows);
    assert_near(static_cast<double>(picked) / kThrows, expected, 5 * deviation + 1e-5);
  }
}

void equals_are_picked_equally_often(void**) {
  Rng rng(7);
  const std::vector<double> scores(5, 500);
  std::vector<int> picked(scores.size());
  constexpr int kThrows = 100'000;
  for (int i = 0; i < kThrows; ++i) ++picked[choose(scores, rng)];
  for (const int count : picked) assert_near(count, kThrows / 5.0, 5 * std::sqrt(kThrows * 0.2 * 0.8));
}

void scores_stay_in_their_range_and_recover(void**) {
  using namespace std::chrono_literals;
  Score score;
  assert_near(score.at(5s), Score::kMost, 0);
  for (int i = 0; i < 20; ++i) score.failed(5s);
  assert_near(score.at(5s), Score::kLeast, 0);
  score.succeeded(5s);
  assert_near(score.at(5s), 20, 0);
  assert_near(score.at(8s), 20 + 3 * Score::kRecoveryPerSecond, 1e-9);
  assert_near(score.at(5s + 1h), Score::kMost, 0);
  score.failed(5s);
  score.restart(5s);
  assert_near(score.at(5s), Score::kMost, 0);
}

void the_same_seed_chooses_the_same(void**) {
  Rng one(42, "w1"), again(42, "w1"), other(42, "w2");
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t thrown = one.next();
    assert_true(thrown == again.next());
    equal += thrown == other.next();
  }
  assert_int_equal(equal, 0);
}

// ------------------------------------------------------------ averaging in whole clusters

/// One synchronous round: every node averages with the others' values from before the round.
std::vector<double> pulled(const std::vector<double>& before, const std::vector<size_t>& from) {
  std::vector<double> after = before;
  for (size_t i = 0; i < before.size(); ++i) after[i] = mixed_clock(0.5, before[i], before[from[i]]);  // f*b + (1-f)*a
  return after;
}

double mean(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }
double spread(const std::vector<double>& x, double round) {
  double sum = 0;
  for (const double value : x) sum += (value - round) * (value - round);
  return sum;
}

std::vector<double> some_values(size_t count, Rng& rng) {
  std::vector<double> values(count);
  for (double& value : values) value = rng.fraction() * 2 - 1;
  return values;
}

void random_pulls_shrink_the_variance_as_computed(void**) {
  constexpr int kRounds = 40'000;
  for (const size_t n : {4u, 8u, 16u}) {
    Rng rng(n);
    const auto d = static_cast<double>(n);
    double round_new = 0, round_old = 0, square_new = 0, square_old = 0;
    for (int r = 0; r < kRounds; ++r) {
      const auto before = some_values(n, rng);
      std::vector<size_t> from(n);
      for (size_t i = 0; i < n; ++i) {
        const auto peers = neighbours(Topology::kRandom, i, n, 0).first;
        from[i] = peers[rng.below(peers.size())];
      }
      const auto after = pulled(before, from);
      const double whole = spread(before, mean(before));
      const double fresh = spread(after, mean(after)) / whole, old = spread(after, mean(before)) / whole;
      round_new += fresh, square_new += fresh * fresh, round_old += old, square_old += old * old;
    }
    const auto check = [&](double sum, double squares, double expected) {
      const double average = sum / kRounds, error = std::sqrt((squares / kRounds - average * average) / kRounds);
      assert_near(average, expected, 5 * error);
    };
    check(round_new, square_new, (d - 2) * (2 * d - 3) / (4 * (d - 1) * (d - 1)));
    check(round_old, square_old, (d - 2) / (2 * (d - 1)));
  }
}

void one_pair_a_round_shrinks_it_by_one_part_in_n_minus_one(void**) {
  constexpr int kRounds = 40'000;
  for (const size_t n : {4u, 8u, 16u}) {
    Rng rng(100 + n);
    double sum = 0, squares = 0;
    for (int r = 0; r < kRounds; ++r) {
      auto values = some_values(n, rng);
      const double whole = spread(values, mean(values)), before = mean(values);
      const size_t a = rng.below(n), b = (a + 1 + rng.below(n - 1)) % n;
      values[a] = values[b] = mixed_clock(0.5, values[a], values[b]);
      assert_near(mean(values), before, 1e-15);
      const double ratio = spread(values, before) / whole;
      sum += ratio, squares += ratio * ratio;
    }
    const double average = sum / kRounds, error = std::sqrt((squares / kRounds - average * average) / kRounds);
    assert_near(average, 1 - 1 / static_cast<double>(n - 1), 5 * error);
  }
}

void powers_of_two_reach_the_exact_mean(void**) {
  for (const Topology topology : {Topology::kHypercube, Topology::kExponential}) {
    for (size_t n = 2; n <= 1024; n *= 2) {
      std::vector<double> values(n);
      std::iota(values.begin(), values.end(), 0.0);  // sums of few bits: every average is exact
      for (size_t round = 0; (size_t{1} << round) < n; ++round) {
        std::vector<size_t> from(n);
        for (size_t i = 0; i < n; ++i) {
          const auto list = neighbours(topology, i, n, round).first;
          assert_int_equal(list.size(), 1);
          from[i] = list.front();
        }
        values = pulled(values, from);
      }
      for (const double value : values) assert_near(value, (static_cast<double>(n) - 1) / 2, 0);
    }
  }
}

void neighbours_are_others_and_each_once(void**) {
  for (const Topology topology : {Topology::kRandom, Topology::kRing, Topology::kExponential, Topology::kHypercube, Topology::kMatching,
                                  Topology::kTorus}) {
    for (size_t n = 1; n <= 40; ++n) {
      for (size_t self = 0; self < n; ++self) {
        for (uint64_t round = 0; round < 7; ++round) {
          const auto list = neighbours(topology, self, n, round);
          std::set<size_t> seen;
          for (const auto* places : {&list.first, &list.rest})
            for (const size_t place : *places) assert_true(place < n && place != self && seen.insert(place).second);
          const bool left_over = topology == Topology::kMatching && n % 2 == 1;  // of an odd number, one stays unpaired
          assert_true(n == 1 || !list.first.empty() || (left_over && !list.rest.empty()));
        }
      }
    }
  }
  assert_int_equal(neighbours(Topology::kTorus, 0, 16, 0).first.size(), 4);
  assert_int_equal(neighbours(Topology::kRing, 3, 16, 0).first.size(), 2);
  assert_true(check_topology(Topology::kHypercube, 16).ok());
  assert_int_equal(check_topology(Topology::kHypercube, 12).code(), MV_EINVAL);
}

void pairings_are_symmetric_and_all_equally_likely(void**) {
  std::vector<int> partners_of_first(6);
  constexpr uint64_t kRounds = 50'000;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const auto partner = pairs(6, 11, round);
    for (size_t i = 0; i < partner.size(); ++i) assert_true(partner[i] != i && partner[partner[i]] == i);
    ++partners_of_first[partner[0]];
  }
  for (size_t i = 1; i < 6; ++i) assert_near(partners_of_first[i], kRounds / 5.0, 5 * std::sqrt(kRounds * 0.2 * 0.8));
  const auto odd = pairs(7, 11, 3);
  size_t alone = 0;
  for (size_t i = 0; i < odd.size(); ++i) alone += odd[i] == i;
  assert_int_equal(alone, 1);
  assert_true(pairs(7, 11, 3) == odd && pairs(7, 12, 3) != odd);
}

void exchanged_factors_fit_each_other(void**) {
  const auto of = [](const Interpolation& how, Progress own, Progress peer) {
    const auto got = exchanged_factor(how, own, peer);
    assert_true(got.ok());
    return got.value();
  };
  const Progress a{30, 1}, b{10, 3};
  for (const Method method : {Method::kClock, Method::kLoss}) assert_near(of({method}, a, b) + of({method}, b, a), 1, 1e-15);
  assert_near(of({Method::kConstant, 0.3}, a, b), 0.3, 0);
  const Interpolation diverging{Method::kConstant, 0.5, LossWeighting::kOwn, 4};
  assert_near(of(diverging, a, b), 0.125, 1e-15);  // a is better: 1/4 of a half, for both
  assert_near(of(diverging, b, a), 0.125, 1e-15);
  assert_int_equal(exchanged_factor(diverging, a, {1, std::nan("")}).status().code(), MV_ENONFINITE);
}

/// One side's change is the negative of the other's: by definition, and in sum.
template <typename T>
void check_approach(mv_dtype dtype, double factor, std::vector<T> a, std::vector<T> b, double tolerance) {
  const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
  auto base_a = a, base_b = b, trained = a;
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(static_cast<double>(b[i]) - static_cast<double>(a[i]), 2);
  const double apart = mv::math::approach_bytes(dtype, bytes(a), bytes(base_b), bytes(base_a), a.size(), factor);
  assert_near(mv::math::approach_bytes(dtype, bytes(b), bytes(base_a), bytes(base_b), b.size(), factor), apart, 0);
  assert_near(apart, squares, 1e-5 * squares);
  for (T& value : trained) value = static_cast<T>(value + T{1});
  mv::math::approach_bytes(dtype, bytes(trained), bytes(base_b), bytes(base_a), a.size(), factor);
  for (size_t i = 0; i < a.size(); ++i) {
    const auto before = static_cast<double>(base_a[i]), other = static_cast<double>(base_b[i]);
    assert_near(static_cast<double>(a[i]), before + factor * (other - before), tolerance);
    assert_near(static_cast<double>(a[i]) + static_cast<double>(b[i]), before + other, std::is_integral_v<T> ? 0 : 2 * tolerance);
    assert_near(static_cast<double>(trained[i]), static_cast<double>(a[i]) + 1, 2 * tolerance);
  }
}

void models_approach_each_other_and_keep_their_sum(void**) {
  Rng rng(6);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{37}, size_t{9001}}) {
    std::vector<float> a(count), b(count);
    std::vector<double> c(count), d(count);
    std::vector<int64_t> e(count), f(count);
    for (size_t i = 0; i < count; ++i) {
      a[i] = static_cast<float>(rng.fraction()), b[i] = static_cast<float>(rng.fraction());
      c[i] = rng.fraction(), d[i] = rng.fraction();
      e[i] = static_cast<int64_t>(rng.below(1000)), f[i] = static_cast<int64_t>(rng.below(1000));
    }
    for (const double factor : {0.25, 0.5, 1.0}) {
      check_approach(MV_F32, factor, a, b, 3e-7);
      check_approach(MV_F64, factor, c, d, 1e-15);
      check_approach(MV_I64, factor, e, f, 1);
    }
  }
}

void models_at_both_ends_of_the_floats_meet_between(void**) {
  const auto check = [](mv_dtype dtype, auto most) {
    for (const double factor : {0.0, 0.25, 0.5, 1.0}) {
      std::vector mine(9, -most);
      const std::vector base(9, -most), peer(9, most);
      const auto bytes = [](const auto& values) { return reinterpret_cast<const std::byte*>(values.data()); };
      mv::math::approach_bytes(dtype, reinterpret_cast<std::byte*>(mine.data()), bytes(peer), bytes(base), mine.size(), factor);
      for (const auto value : mine) assert_near(static_cast<double>(value / most), 2 * factor - 1, 1e-6);
    }
  };
  check(MV_F32, std::numeric_limits<float>::max());
  check(MV_F64, std::numeric_limits<double>::max());
}

void models_at_both_ends_of_bf16_meet_between(void**) {
  const auto value_of = [](uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); };
  for (const double factor : {0.0, 0.25, 0.5, 1.0}) {
    std::vector<uint16_t> mine(37, 0xff7f);
    const std::vector<uint16_t> base = mine, peer(37, 0x7f7f);
    const auto bytes = [](const auto& values) { return reinterpret_cast<const std::byte*>(values.data()); };
    mv::math::approach_bytes(MV_BF16, reinterpret_cast<std::byte*>(mine.data()), bytes(peer), bytes(base), mine.size(), factor);
    for (const uint16_t half : mine) assert_near(static_cast<double>(value_of(half) / value_of(0x7f7f)), 2 * factor - 1, 1e-2);
  }
}

/// Averages two arrays of one dtype, and compares with the definition in doubles.
template <typename T>
void check_average(mv_dtype dtype, double factor, const std::vector<T>& own, const std::vector<T>& peer, double tolerance) {
  auto mixed = own;
  mv::math::average_bytes(dtype, reinterpret_cast<std::byte*>(mixed.data()), reinterpret_cast<const std::byte*>(peer.data()), own.size(),
                          factor);
  for (size_t i = 0; i < own.size(); ++i)
    assert_near(static_cast<double>(mixed[i]), factor * static_cast<double>(peer[i]) + (1 - factor) * static_cast<double>(own[i]), tolerance);
}

void arrays_are_averaged_whatever_their_length(void**) {
  Rng rng(5);
  for (size_t count = 0; count < 70; ++count) {
    std::vector<float> a(count), b(count);
    std::vector<double> c(count), d(count);
    std::vector<int64_t> e(count), f(count);
    for (size_t i = 0; i < count; ++i) {
      a[i] = static_cast<float>(rng.fraction()), b[i] = static_cast<float>(rng.fraction());
      c[i] = rng.fraction(), d[i] = rng.fraction();
      e[i] = static_cast<int64_t>(rng.below(1000)), f[i] = static_cast<int64_t>(rng.below(1000));
    }
    for (const double factor : {0.0, 0.25, 0.5, 1.0}) {
      check_average(MV_F32, factor, a, b, 1e-6);
      check_average(MV_F64, factor, c, d, 1e-15);
      check_average(MV_I64, factor, e, f, 0.5);
    }
  }
  int64_t large = INT64_MAX;
  const int64_t same = INT64_MAX;
  mv::math::average_bytes(MV_I64, reinterpret_cast<std::byte*>(&large), reinterpret_cast<const std::byte*>(&same), 1, 0.3);
  assert_true(large == INT64_MAX);
  check_average<int8_t>(MV_I8, 0.5, {-128, 127, 4}, {-126, -127, 8}, 0.5);
  check_average<uint8_t>(MV_U8, 0.25, {0, 255, 4}, {255, 255, 8}, 0.5);
  uint16_t own = 0x3c00;  // 1 as a binary16
  const uint16_t peer = 0x4200;  // 3
  mv::math::average_bytes(MV_F16, reinterpret_cast<std::byte*>(&own), reinterpret_cast<const std::byte*>(&peer), 1, 0.5);
  assert_int_equal(own, 0x4000);
}

/// At any length and position, with NaN and infinities anywhere.
template <typename T>
void check_copy(mv_dtype dtype, size_t count, size_t shift, T bad) {
  std::vector<T> from(count);
  for (size_t i = 0; i < count; ++i) from[i] = static_cast<T>(i % 100);
  const auto room = std::make_unique<std::byte[]>((count + shift) * sizeof(T) + 64);
  auto* to = room.get() + (64 - reinterpret_cast<uintptr_t>(room.get()) % 64) % 64 + shift * sizeof(T);
  const auto how = count < 300'000 ? mv::math::Copied::kByCaches : mv::math::Copied::kPastCaches;
  const auto copied = [&] { return mv::math::copy_finite_bytes(dtype, to, reinterpret_cast<const std::byte*>(from.data()), count, sizeof(T), how); };
  assert_true(copied());
  assert_memory_equal(to, from.data(), count * sizeof(T));
  for (const size_t place : {size_t{0}, count / 2, count - 1}) {
    const T before = std::exchange(from[place], bad);
    assert_false(copied());
    assert_memory_equal(to, from.data(), count * sizeof(T));
    from[place] = before;
  }
}

void copies_are_complete_and_detect_nan_and_infinity(void**) {
  for (const size_t count : {size_t{1}, size_t{7}, size_t{100'000}, size_t{300'003}, size_t{1'000'001}}) {
    for (const size_t shift : {0, 1}) {
      check_copy<float>(MV_F32, count, shift, std::numeric_limits<float>::infinity());
      check_copy<float>(MV_F32, count, shift, std::numeric_limits<float>::quiet_NaN());
      check_copy<double>(MV_F64, count, shift, -std::numeric_limits<double>::infinity());
      check_copy<uint16_t>(MV_F16, count, shift, 0x7c00);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(methods_weigh_as_dpwa_does),
      cmocka_unit_test(nothing_by_nothing_is_one_half_and_everything_is_clamped),
      cmocka_unit_test(good_models_diverge_below_the_threshold),
      cmocka_unit_test(a_loss_that_is_no_number_is_refused),
      cmocka_unit_test(a_peer_with_a_deficit_is_picked_as_often_as_computed),
      cmocka_unit_test(equals_are_picked_equally_often),
      cmocka_unit_test(scores_stay_in_their_range_and_recover),
      cmocka_unit_test(the_same_seed_chooses_the_same),
      cmocka_unit_test(random_pulls_shrink_the_variance_as_computed),
      cmocka_unit_test(one_pair_a_round_shrinks_it_by_one_part_in_n_minus_one),
      cmocka_unit_test(powers_of_two_reach_the_exact_mean),
      cmocka_unit_test(neighbours_are_others_and_each_once),
      cmocka_unit_test(pairings_are_symmetric_and_all_equally_likely),
      cmocka_unit_test(exchanged_factors_fit_each_other),
      cmocka_unit_test(models_approach_each_other_and_keep_their_sum),
      cmocka_unit_test(models_at_both_ends_of_the_floats_meet_between),
      cmocka_unit_test(models_at_both_ends_of_bf16_meet_between),
      cmocka_unit_test(arrays_are_averaged_whatever_their_length),
      cmocka_unit_test(copies_are_complete_and_detect_nan_and_infinity),
  };
  return cmocka_run_group_tests_name("gossip parts", tests, nullptr, nullptr);
}
