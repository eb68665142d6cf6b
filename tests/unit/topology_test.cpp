// engine/collective: executes the schedules of all ranks with symbols.

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/collective/topology.hpp"
#include "symbolic_run.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::collective;

constexpr int32_t kLargest = 17;
constexpr uint64_t kCounts[] = {0, 1, 5, 17, 40};

using Of = std::function<Schedule(int32_t rank)>;

SymbolicRun run(int32_t size, uint64_t count, const Of& schedule) {
  std::vector<Schedule> all;
  for (int32_t rank = 0; rank < size; ++rank) all.push_back(schedule(rank));
  SymbolicRun ranks(std::move(all), count);
  assert_true(ranks.run());
  return ranks;
}

void assert_everybodys_once(const SymbolicRun& ranks, int expression) {
  for (const int times : ranks.expressions.leaves(expression)) assert_int_equal(times, 1);
}

void assert_allreduce(int32_t size, uint64_t count, const Of& schedule) {
  const SymbolicRun ranks = run(size, count, schedule);
  for (const std::vector<int>& values : ranks.values) assert_true(values == ranks.values[0]);  // the same order of operations: equal bits
  for (const int value : ranks.values[0]) assert_everybodys_once(ranks, value);
}

template <typename Check>
void for_sizes_and_counts(Check check) {
  for (int32_t size = 1; size <= kLargest; ++size)
    for (const uint64_t count : kCounts) check(size, count);
}

void slices_follow_each_other_and_differ_by_one(void**) {
  for (uint64_t parts = 1; parts <= 9; ++parts)
    for (uint64_t count = 0; count <= 40; ++count) {
      uint64_t next = 0;
      for (uint64_t part = 0; part < parts; ++part) {
        const Range range = slice(count, parts, part);
        assert_int_equal(range.first, next);
        assert_in_range(range.count, count / parts, count / parts + 1);
        next += range.count;
      }
      assert_int_equal(next, count);
    }
  const Range last = slice(UINT64_MAX, 3, 2);
  assert_true(last.first + last.count == UINT64_MAX);
}

void a_tree_of_any_arity_root_and_segment_reduces_to_all(void**) {
  for_sizes_and_counts([](int32_t size, uint64_t count) {
    for (const int32_t arity : {1, 2, 3, kLargest})
      for (const uint64_t segment : {0U, 1U, 7U})
        for (const int32_t root : {0, size - 1, size / 2}) {
          const Tree tree{arity, root, segment};
          assert_allreduce(size, count, [&](int32_t rank) { return tree_allreduce(rank, size, count, tree); });
        }
  });
}

void a_tree_reduces_to_its_root_and_tells_its_roots_value(void**) {
  for_sizes_and_counts([](int32_t size, uint64_t count) {
    for (int32_t root = 0; root < size; ++root) {
      const Tree tree{2, root, 6};
      const SymbolicRun up = run(size, count, [&](int32_t rank) { return tree_reduce(rank, size, count, tree); });
      for (const int value : up.values[static_cast<size_t>(root)]) assert_everybodys_once(up, value);
      const SymbolicRun down = run(size, count, [&](int32_t rank) { return tree_broadcast(rank, size, count, tree); });
      for (const auto& values : down.values)
        for (const int value : values) assert_int_equal(value, root);
    }
  });
}

void levels_of_a_tree_work_side_by_side(void**) {
  const Tree chain{1, 0, 1};  // rank 1 of 3 forwards segment i while it receives segment i + 1
  const Schedule schedule = tree_reduce(1, 3, 4, chain);
  assert_int_equal(schedule.size(), 5);
  for (size_t i = 1; i < 4; ++i) {
    assert_int_equal(schedule[i].to, 0);
    assert_int_equal(schedule[i].from, 2);
    assert_int_equal(schedule[i].send.first + 1, schedule[i].receive.first);
  }
}

void doubling_ring_and_rabenseifner_reduce_to_all(void**) {
  for_sizes_and_counts([](int32_t size, uint64_t count) {
    for (const Algorithm algorithm : {Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kRabenseifner}) {
      assert_allreduce(size, count, [&](int32_t rank) { return allreduce(algorithm, rank, size, count); });
    }
  });
}

void the_halves_of_a_ring_are_operations_themselves(void**) {
  for_sizes_and_counts([](int32_t size, uint64_t count) {
    const SymbolicRun scattered = run(size, count, [&](int32_t rank) { return ring_reduce_scatter(rank, size, count); });
    const SymbolicRun gathered = run(size, count, [&](int32_t rank) { return ring_allgather(rank, size, count); });
    for (int32_t part = 0; part < size; ++part) {
      const Range own = slice(count, static_cast<uint64_t>(size), static_cast<uint64_t>(part));
      for (uint64_t i = own.first; i < own.first + own.count; ++i) {
        assert_everybodys_once(scattered, scattered.values[static_cast<size_t>(part)][i]);
        for (const auto& values : gathered.values) assert_int_equal(values[i], part);
      }
    }
  });
}

void a_star_gathers_to_its_root_and_scatters_from_it(void**) {
  for (int32_t size = 1; size <= kLargest; ++size)
    for (const uint64_t each : {0U, 1U, 5U})
      for (int32_t root = 0; root < size; ++root) {
        const uint64_t count = each * static_cast<uint64_t>(size);
        const SymbolicRun gathered = run(size, count, [&](int32_t rank) { return star_gather(rank, size, each, root); });
        const SymbolicRun scattered = run(size, count, [&](int32_t rank) { return star_scatter(rank, size, each, root); });
        for (uint64_t i = 0; i < count; ++i) {
          const auto owner = static_cast<size_t>(i / each);
          assert_int_equal(gathered.values[static_cast<size_t>(root)][i], owner);
          assert_int_equal(scattered.values[owner][i], root);
        }
      }
}

/// Each rank sends to each other one once, in `size - 1` steps in which every rank sends and receives.
void an_alltoall_exchanges_every_pair_once(void**) {
  for (int32_t size = 1; size <= kLargest; ++size) {
    const auto of = [&](int32_t from, int32_t to) { return static_cast<uint64_t>((from * 3 + to) % 4); };
    std::vector<Schedule> schedules;
    for (int32_t rank = 0; rank < size; ++rank) {
      std::vector<uint64_t> sends, receives;
      for (int32_t peer = 0; peer < size; ++peer) {
        sends.push_back(of(rank, peer));
        receives.push_back(of(peer, rank));
      }
      schedules.push_back(pairwise_alltoall(rank, size, sends, receives));
      assert_int_equal(schedules.back().size(), size - 1);
    }
    for (int32_t rank = 0; rank < size; ++rank)
      for (size_t s = 0; s < schedules[static_cast<size_t>(rank)].size(); ++s) {
        const Step& step = schedules[static_cast<size_t>(rank)][s];
        const Step& theirs = schedules[static_cast<size_t>(step.to)][s];
        assert_int_equal(theirs.from, rank);
        assert_true(theirs.receive == step.send);
        assert_true(step.send.first == first_of_pair(rank, step.to, size) && step.send.count == of(rank, step.to));
      }
  }
  const auto largest = static_cast<int32_t>(kMostRanksOfPairs);
  assert_true(first_of_pair(largest - 1, largest - 1, largest) + ((uint64_t{1} << kPairBits) - 1) == UINT64_MAX);
}

void hosts_in_any_order_reduce_to_all(void**) {
  const std::vector<std::vector<int32_t>> layouts = {
      {7}, {1, 1}, {1, 2}, {0, 0, 0, 1, 1, 1}, {3, 1, 3, 1, 2, 3, 2, 2, 1}, {5, 5, 5, 5, 5, 4}, {0, 1, 2, 3, 4, 5, 6}};
  for (const auto& hosts : layouts)
    for (const uint64_t count : kCounts)
      for (const Algorithm across : {Algorithm::kTree, Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kRabenseifner}) {
        const auto size = static_cast<int32_t>(hosts.size());
        assert_allreduce(size, count, [&](int32_t rank) { return hierarchical_allreduce(rank, hosts, count, across); });
      }
}

void even_hosts_in_any_order_reduce_to_all_by_shares(void**) {
  const std::vector<std::vector<int32_t>> layouts = {{7}, {1, 1}, {1, 2}, {0, 0, 0, 1, 1, 1}, {3, 1, 3, 1, 2, 3, 2, 2, 1}, {0, 1, 1, 0}, {0, 1, 2, 3, 4}};
  for (const auto& hosts : layouts)
    for (const uint64_t count : kCounts)
      for (const Algorithm across : {Algorithm::kTree, Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kRabenseifner}) {
        assert_true(are_even(hosts));
        assert_allreduce(static_cast<int32_t>(hosts.size()), count, [&](int32_t rank) { return split_allreduce(rank, hosts, count, across); });
      }
  assert_false(are_even({5, 5, 4}));
}

void between_hosts_travels_only_what_leaders_exchange(void**) {
  const std::vector<int32_t> hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  for (int32_t rank = 0; rank < 8; ++rank)
    for (const Step& step : hierarchical_allreduce(rank, hosts, 100, Algorithm::kRing)) {
      const bool crosses = step.to != Step::kNone && hosts[static_cast<size_t>(step.to)] != hosts[static_cast<size_t>(rank)];
      if (crosses) assert_true(rank == 0 || rank == 4);
    }
}

/// Each value, once each way, whatever the number of ranks on the hosts.
void between_two_even_hosts_travels_each_value_once(void**) {
  constexpr uint64_t kCount = 1000;
  for (int32_t each = 1; each <= 8; ++each) {
    std::vector<int32_t> hosts;
    for (int32_t rank = 0; rank < 2 * each; ++rank) hosts.push_back(rank / each);
    for (const Algorithm across : {Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kRabenseifner}) {
      uint64_t crossing[2] = {0, 0};
      for (int32_t rank = 0; rank < 2 * each; ++rank)
        for (const Step& step : split_allreduce(rank, hosts, kCount, across))
          if (step.to != Step::kNone && hosts[static_cast<size_t>(step.to)] != rank / each) crossing[rank / each] += step.send.count;
      assert_int_equal(crossing[0], kCount);
      assert_int_equal(crossing[1], kCount);
    }
  }
}

void a_ring_sends_the_least_there_is(void**) {
  constexpr uint64_t kCount = 100000;
  for (int32_t size = 2; size <= kLargest; ++size) {
    const double least = 2.0 * (size - 1) / size * kCount;
    for (int32_t rank = 0; rank < size; ++rank) {
      uint64_t sent = 0;
      for (const Step& step : ring_allreduce(rank, size, kCount)) sent += step.send.count;
      assert_true(std::fabs(static_cast<double>(sent) - least) <= 0.03 * least);
    }
  }
}

void steps_are_as_few_as_promised(void**) {
  for (int32_t size = 2; size <= 1024; size *= 2) {
    const auto levels = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(size)) - 1);
    for (const int32_t rank : {0, size / 2, size - 1}) {
      assert_int_equal(recursive_doubling_allreduce(rank, size, 10).size(), levels);
      assert_int_equal(rabenseifner_allreduce(rank, size, 10).size(), 2 * levels);
      assert_int_equal(ring_allreduce(rank, size, 10).size(), 2 * static_cast<size_t>(size - 1));
      uint64_t sent = 0;
      for (const Step& step : rabenseifner_allreduce(rank, size, 1 << 20)) sent += step.send.count;
      assert_int_equal(sent, 2 * ((1 << 20) - (1 << 20) / size));
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(slices_follow_each_other_and_differ_by_one),
      cmocka_unit_test(a_tree_of_any_arity_root_and_segment_reduces_to_all),
      cmocka_unit_test(a_tree_reduces_to_its_root_and_tells_its_roots_value),
      cmocka_unit_test(levels_of_a_tree_work_side_by_side),
      cmocka_unit_test(doubling_ring_and_rabenseifner_reduce_to_all),
      cmocka_unit_test(the_halves_of_a_ring_are_operations_themselves),
      cmocka_unit_test(a_star_gathers_to_its_root_and_scatters_from_it),
      cmocka_unit_test(an_alltoall_exchanges_every_pair_once),
      cmocka_unit_test(hosts_in_any_order_reduce_to_all),
      cmocka_unit_test(even_hosts_in_any_order_reduce_to_all_by_shares),
      cmocka_unit_test(between_hosts_travels_only_what_leaders_exchange),
      cmocka_unit_test(between_two_even_hosts_travels_each_value_once),
      cmocka_unit_test(a_ring_sends_the_least_there_is),
      cmocka_unit_test(steps_are_as_few_as_promised),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
