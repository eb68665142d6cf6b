// engine/collective/cost: compares the model with schedules executed on a simulated network, and checks its choices.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "engine/collective/cost.hpp"
#include "timed_run.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::collective;
using mv::base::TransportKind;

constexpr TransportCost kTransport{20e-6, 1e-9};
constexpr double kGamma = 0.2e-9;
constexpr uint64_t kSizes[] = {64, 64 << 10, 16 << 20};

void assert_near(double simulated, double modelled, double tolerance) {
  if (std::fabs(simulated - modelled) > tolerance * modelled) {
    print_message("simulated %g s, modelled %g s\n", simulated, modelled);
    fail();
  }
}

void exchanges_take_as_long_as_the_model_says_up_to_1024_ranks(void**) {
  for (const int32_t ranks : {2, 4, 16, 128, 1024})
    for (const uint64_t bytes : kSizes)
      for (const Algorithm algorithm : {Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kRabenseifner}) {
        assert_near(timed_allreduce(algorithm, bytes, ranks, kTransport, kGamma), cost_of(algorithm, bytes, ranks, kTransport, kGamma), 0.02);
      }
}

/// In the model every rank waits for folded ones; the few that need not wait are early.
void sizes_that_are_folded_take_no_longer_than_the_model_says(void**) {
  for (const int32_t ranks : {3, 5, 7, 12, 100, 1000})
    for (const uint64_t bytes : kSizes) {
      for (const Algorithm algorithm : {Algorithm::kRecursiveDoubling, Algorithm::kRabenseifner}) {
        const double simulated = timed_allreduce(algorithm, bytes, ranks, kTransport, kGamma);
        const double modelled = cost_of(algorithm, bytes, ranks, kTransport, kGamma);
        assert_true(simulated <= 1.02 * modelled);
        assert_true(simulated >= 0.6 * modelled);
      }
      assert_near(timed_allreduce(Algorithm::kRing, bytes, ranks, kTransport, kGamma),
                  cost_of(Algorithm::kRing, bytes, ranks, kTransport, kGamma), 0.02);
    }
}

void trees_take_no_longer_than_the_model_says(void**) {
  for (const int32_t ranks : {2, 3, 8, 31, 100, 1024})
    for (const uint64_t bytes : kSizes)
      for (const int32_t arity : {1, 2, 4})
        for (const uint64_t segment : {uint64_t{0}, uint64_t{64} << 10}) {
          const Tree tree{arity, 0, segment};
          const double simulated = timed_allreduce(Algorithm::kTree, bytes, ranks, kTransport, kGamma, tree);
          const double modelled = cost_of(Algorithm::kTree, bytes, ranks, kTransport, kGamma, tree);
          assert_true(simulated > 0);
          assert_true(simulated <= 1.1 * modelled);
          assert_true(simulated >= 0.4 * modelled);
        }
}

Layout one_host(int32_t ranks) { return {std::vector<int32_t>(static_cast<size_t>(ranks), 3), TransportKind::kShm, TransportKind::kTcp}; }

void small_values_take_few_steps_and_large_values_few_bytes(void**) {
  const Costs costs;
  for (const int32_t ranks : {4, 8, 64}) {
    assert_true(choose_allreduce(64, one_host(ranks), costs).algorithm == Algorithm::kRecursiveDoubling);
    const Algorithm large = choose_allreduce(256 << 20, one_host(ranks), costs).algorithm;
    assert_true(large == Algorithm::kRing || large == Algorithm::kRabenseifner);
  }
  assert_true(choose_allreduce(256 << 20, one_host(7), costs).algorithm == Algorithm::kRing);  // folding would double the bytes
  assert_true(choose_allreduce(1 << 20, one_host(1), costs).seconds == 0);
}

/// Four hosts of eight ranks; the network is slow compared with shared memory.
Layout four_hosts() {
  Layout layout;
  for (int32_t rank = 0; rank < 32; ++rank) layout.hosts.push_back(rank / 8);
  return layout;
}

void hosts_of_many_ranks_meet_by_their_leaders(void**) {
  Costs costs;
  costs.transports[static_cast<size_t>(TransportKind::kTcp)] = {50e-6, 10e-9};
  assert_true(choose_allreduce(1024, four_hosts(), costs).by_host);
  costs.transports[static_cast<size_t>(TransportKind::kTcp)] = costs.of(TransportKind::kShm);
  assert_false(choose_allreduce(64 << 20, four_hosts(), costs).by_host);
}

/// By the defaults: shared memory, and a network of 10 Gbit/s. Slower networks gain more.
void large_values_cross_the_network_once_for_each_host(void**) {
  for (const int32_t each : {2, 4, 8}) {
    Layout two_hosts;
    for (int32_t rank = 0; rank < 2 * each; ++rank) two_hosts.hosts.push_back(rank / each);
    for (const uint64_t bytes : {uint64_t{4} << 20, uint64_t{64} << 20}) {
      const Choice choice = choose_allreduce(bytes, two_hosts, Costs());
      assert_true(choice.by_host && choice.is_split);
    }
    two_hosts.hosts.push_back(1);
    assert_false(choose_allreduce(64 << 20, two_hosts, Costs()).is_split);
  }
  Costs costs;
  costs.transports[static_cast<size_t>(TransportKind::kTcp)].beta = 8e-9;
  assert_true(choose_allreduce(64 << 20, four_hosts(), costs).is_split);
}

void a_split_takes_as_long_as_the_model_says(void**) {
  constexpr uint64_t kBytes = 32 << 20;
  const Layout layout = four_hosts();
  Costs costs;
  costs.transports[static_cast<size_t>(TransportKind::kTcp)] = {50e-6, 8e-9};
  const auto transport = [&](int32_t from, int32_t to) {
    if (from / 8 == to / 8) return costs.of(TransportKind::kShm);
    TransportCost between = costs.of(TransportKind::kTcp);
    between.beta *= 8;  // the ranks of a host share its connection
    return between;
  };
  std::vector<Schedule> schedules;
  const Choice choice = choose_allreduce(kBytes, layout, costs);
  assert_true(choice.is_split);
  for (int32_t rank = 0; rank < 32; ++rank) schedules.push_back(split_allreduce(rank, layout.hosts, kBytes, choice.algorithm));
  const double seconds = TimedRun(std::move(schedules), transport, costs.gamma).run();
  assert_true(seconds > 0.95 * choice.seconds && seconds < 1.05 * choice.seconds);
}

void the_choice_is_the_cheapest_when_carried_out(void**) {
  for (const int32_t ranks : {4, 6, 16, 64})
    for (const uint64_t bytes : {uint64_t{64}, uint64_t{8} << 10, uint64_t{1} << 20, uint64_t{32} << 20}) {
      Costs costs;
      costs.transports[static_cast<size_t>(TransportKind::kShm)] = kTransport;
      costs.gamma = kGamma;
      const double chosen = timed_allreduce(choose_allreduce(bytes, one_host(ranks), costs).algorithm, bytes, ranks, kTransport, kGamma);
      for (const Algorithm other : {Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kRabenseifner, Algorithm::kTree}) {
        assert_true(chosen <= 1.1 * timed_allreduce(other, bytes, ranks, kTransport, kGamma));
      }
    }
}

/// What is chosen for 1 KiB, among ranks of one host, of as many hosts, and of hosts with eight each.
void small_values_take_a_logarithmic_number_of_messages_from_each_rank(void**) {
  for (const int32_t on_a_host : {1, 8, 1024})
    for (const int32_t ranks : {2, 3, 4, 7, 8, 16, 31, 32, 64, 100, 128, 256, 1000, 1024}) {
      Layout layout;
      for (int32_t rank = 0; rank < ranks; ++rank) layout.hosts.push_back(rank / on_a_host);
      const Choice choice = choose_allreduce(1024, layout, {});
      std::vector<Schedule> schedules;
      for (int32_t rank = 0; rank < ranks; ++rank)
        schedules.push_back(choice.by_host ? hierarchical_allreduce(rank, layout.hosts, 1024, choice.algorithm) : allreduce(choice.algorithm, rank, ranks, 1024));
      int64_t most = 0;
      for (const Schedule& schedule : schedules)
        most = std::max<int64_t>(most, std::ranges::count_if(schedule, [](const Step& step) { return step.to != Step::kNone; }));
      const TransportCost message{1, 0};  // the time is the number of messages on the critical path
      const double path = TimedRun(std::move(schedules), [&](int32_t, int32_t) { return message; }, 0).run();
      const int64_t log = std::bit_width(static_cast<uint32_t>(ranks - 1));
      if (std::getenv("SHOW") != nullptr)  // for docs/transports.md
        print_message("%d ranks, %d on a host: %d messages, %g in a row\n", ranks, on_a_host, static_cast<int>(most), path);
      assert_true(most <= log + 1);
      assert_true(path > 0 && path <= static_cast<double>(2 * log + 1));
    }
}

void large_values_go_down_a_tree_in_segments(void**) {
  const Costs costs;
  assert_int_equal(choose_tree(64, one_host(16), costs).segment, 0);
  const Tree tree = choose_tree(64 << 20, one_host(16), costs);
  assert_true(tree.segment > 0);
  assert_true(cost_of_broadcast(64 << 20, 16, costs.of(TransportKind::kShm), tree) < cost_of_broadcast(64 << 20, 16, costs.of(TransportKind::kShm)));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(exchanges_take_as_long_as_the_model_says_up_to_1024_ranks),
      cmocka_unit_test(sizes_that_are_folded_take_no_longer_than_the_model_says),
      cmocka_unit_test(trees_take_no_longer_than_the_model_says),
      cmocka_unit_test(small_values_take_few_steps_and_large_values_few_bytes),
      cmocka_unit_test(hosts_of_many_ranks_meet_by_their_leaders),
      cmocka_unit_test(large_values_cross_the_network_once_for_each_host),
      cmocka_unit_test(a_split_takes_as_long_as_the_model_says),
      cmocka_unit_test(the_choice_is_the_cheapest_when_carried_out),
      cmocka_unit_test(small_values_take_a_logarithmic_number_of_messages_from_each_rank),
      cmocka_unit_test(large_values_go_down_a_tree_in_segments),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
