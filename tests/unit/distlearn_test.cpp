// core/api/distlearn: compares AllReduceSGD and AllReduceEA with closed forms. The ranks are threads.

#include <atomic>
#include <cmath>
#include <vector>

#include "api/distlearn/all_reduce_ea.hpp"
#include "api/distlearn/all_reduce_sgd.hpp"
#include "thread_group.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using distlearn::AllReduceEa;
using distlearn::AllReduceSgd;

constexpr base::Nanos kPatience = std::chrono::seconds(60);

/// cmocka's assertions work only in the main thread, so ranks count failures and the main thread checks them.
void expect_ok(const base::Status& status, std::atomic<int>& failures) {
  if (status.ok()) return;
  print_message("%s\n", status.text().c_str());
  ++failures;
}

void gradients_are_divided_by_those_that_contribute(void**) {
  ThreadGroups all(3);
  std::atomic<int> failures{0};
  std::vector<std::vector<uint64_t>> contributors(3);
  std::vector<std::vector<double>> results(3);
  all.run([&](size_t rank) {
    AllReduceSgd sgd(*all.node, all.groups[rank]);
    Model<double> parameters{{{double(rank), 1}}};
    for (size_t step = 0; step < 2 + rank; ++step) {  // 2, 3 and 4 steps
      Model<double> gradients{{{double(rank + 1)}, {10.0 * double(rank + 1), 1}}};
      uint64_t n = 0;
      expect_ok(sgd.sum(gradients.arrays(), AllReduceSgd::Sum::kNormalized, &n, kPatience), failures);
      contributors[rank].push_back(n);
      results[rank].push_back(gradients.values[1][0]);
    }
    expect_ok(sgd.synchronize(parameters.arrays(), kPatience), failures);
    results[rank].push_back(parameters.values[0][0]);
  });
  assert_int_equal(failures, 0);
  const std::vector<uint64_t> expected = {3, 3, 2, 1};
  for (size_t step = 0; step < 4; ++step) assert_int_equal(contributors[2][step], expected[step]);
  assert_true(results[0][0] == 20 && results[0][1] == 20);  // (10 + 20 + 30) / 3
  assert_true(results[1][2] == 25 && results[2][3] == 30);
  for (const auto& of_rank : results) assert_true(of_rank.back() == 2);  // rank 2's parameters: it made the most steps
}

void sums_are_not_divided_and_a_tie_goes_to_the_lowest(void**) {
  ThreadGroups all(4);
  std::atomic<int> failures{0};
  std::vector<float> sums(4), winners(4);
  all.run([&](size_t rank) {
    AllReduceSgd sgd(*all.node, all.groups[rank]);
    Model<float> model{{{float(rank)}}};
    for (size_t step = 0; step < (rank == 0 ? 1U : 2U); ++step) {
      Model<float> gradients{{{1}}};
      expect_ok(sgd.sum(gradients.arrays(), AllReduceSgd::Sum::kPlain, nullptr, kPatience), failures);
      sums[rank] = gradients.values[0][0];
    }
    expect_ok(sgd.synchronize(model.arrays(), kPatience), failures);
    winners[rank] = model.values[0][0];
  });
  assert_int_equal(failures, 0);
  assert_true(sums[0] == 4 && sums[1] == 3);
  for (const float winner : winners) assert_true(winner == 1);  // ranks 1 to 3 made two steps each
}

void a_rank_without_a_step_ends_as_the_others_do(void**) {
  ThreadGroups all(3);
  std::atomic<int> failures{0};
  std::vector<std::vector<float>> seen(3);
  all.run([&](size_t rank) {
    AllReduceSgd sgd(*all.node, all.groups[rank]);
    Model<float> model{{{float(rank) + 5}}};
    expect_ok(sgd.synchronize(model.arrays(), kPatience), failures);  // no rank has stepped: rank 0's
    seen[rank].push_back(model.values[0][0]);
    model.values[0][0] = float(rank);
    for (size_t step = 0; step < rank; ++step) {  // rank 0 makes none
      Model<float> gradients{{{1}}};
      expect_ok(sgd.sum(gradients.arrays(), AllReduceSgd::Sum::kNormalized, nullptr, kPatience), failures);
    }
    expect_ok(sgd.synchronize(model.arrays(), kPatience), failures);
    seen[rank].push_back(model.values[0][0]);
    model.values[0][0] = float(rank) - 7;
    expect_ok(sgd.synchronize(model.arrays(), kPatience), failures);  // the counters were reset
    seen[rank].push_back(model.values[0][0]);
  });
  assert_int_equal(failures, 0);
  for (const auto& of_rank : seen) assert_true(of_rank == (std::vector<float>{5, 2, -7}));
}

void others_values_in_between_do_not_disturb_a_draining_rank(void**) {
  ThreadGroups all(2);
  std::atomic<int> failures{0};
  double loss = 0, parameter = 0;
  all.run([&](size_t rank) {
    AllReduceEa ea(*all.node, all.groups[rank], 1, 0.25);
    Model<double> model{{{double(rank), 1}}};
    expect_ok(ea.average(model.arrays(), kPatience), failures);
    if (rank == 1) {
      distlearn::Peers peers(*all.node, all.groups[rank]);
      const auto sum_loss = [&] {
        loss = 3;
        return peers.allreduce({{reinterpret_cast<std::byte*>(&loss), 1, MV_F64}}, math::Reduction::kSum);
      };
      expect_ok(peers.carry_out("loss", {sum_loss}, kPatience), failures);
      expect_ok(ea.average(model.arrays(), kPatience), failures);
    }
    expect_ok(ea.synchronize_parameters(model.arrays(), kPatience), failures);
    if (rank == 0) parameter = model.values[0][1];
  });
  assert_int_equal(failures, 0);
  assert_true(loss == 3);
  assert_true(parameter == 1);
}

/// The algorithm of the original documentation, without groups: each rank's own number of steps, then rounds of draining until all ranks
/// are done.
struct Elastic {
  std::vector<double> p;
  double center = 0, alpha;
  /// One round in which all ranks take part.
  void round() {
    double sum = 0;
    for (double& each : p) {
      const double d = alpha * (each - center);
      each -= d;
      sum += d;
    }
    center += sum;
  }
  /// The last round; its sum is not added.
  void last_round() {
    for (double& each : p) each -= alpha * (each - center);
  }
};

void elastic_averaging_is_the_closed_form_with_uneven_endings(void**) {
  constexpr size_t kRanks = 3;
  const std::vector<size_t> steps = {4, 9, 6};
  constexpr int64_t kTau = 2;
  ThreadGroups all(kRanks);
  std::atomic<int> failures{0};
  std::vector<double> parameters(kRanks), centers(kRanks), finally(kRanks);
  const auto train = [](size_t rank, size_t step) { return 0.5 + 0.25 * double(rank) - 0.125 * double(step); };
  all.run([&](size_t rank) {
    AllReduceEa ea(*all.node, all.groups[rank], kTau, 0.25);
    Model<double> model{{{1}, {}}};
    for (size_t step = 0; step < steps[rank]; ++step) {
      if (step > 0) model.values[0][0] += train(rank, step);
      expect_ok(ea.average(model.arrays(), kPatience), failures);
    }
    expect_ok(ea.synchronize_center(model.arrays(), kPatience), failures);
    parameters[rank] = model.values[0][0];
    centers[rank] = *reinterpret_cast<const double*>(ea.center()[0].data);
    expect_ok(ea.synchronize_parameters(model.arrays(), kPatience), failures);
    finally[rank] = model.values[0][0];
  });
  assert_int_equal(failures, 0);

  Elastic expected{{1, 1, 1}, 1, 0.25};
  for (size_t round = 1; round <= 4; ++round) {  // rank 1 averages in its steps 2, 4, 6, 8; rank 0 in two of those, rank 2 in three
    for (size_t rank = 0; rank < kRanks; ++rank)
      for (const size_t step : {2 * round - 2, 2 * round - 1})
        if (step > 0 && step < steps[rank]) expected.p[rank] += train(rank, step);
    expected.round();
  }
  expected.p[1] += train(1, 8);  // after its last average
  expected.last_round();
  for (size_t rank = 0; rank < kRanks; ++rank) {
    assert_true(std::fabs(parameters[rank] - expected.p[rank]) < 1e-12);
    assert_true(centers[rank] == centers[0]);
    assert_true(std::fabs(centers[rank] - expected.center) < 1e-12);
  }
  expected.last_round();  // the last round of synchronize_parameters()
  for (const double value : finally) assert_true(std::fabs(value - expected.p[0]) < 1e-12);
}

void the_center_is_stable_up_to_two_by_ranks_plus_one(void**) {
  constexpr size_t kRanks = 4;
  for (const double alpha : {0.39, 0.41}) {  // 2 / 5 = 0.4
    ThreadGroups all(kRanks);
    std::atomic<int> failures{0};
    std::vector<double> distances(kRanks);
    all.run([&](size_t rank) {
      AllReduceEa ea(*all.node, all.groups[rank], 1, alpha);
      Model<double> model{{{0}}};
      expect_ok(ea.average(model.arrays(), kPatience), failures);
      model.values[0][0] = 1;
      for (int step = 0; step < 400; ++step) expect_ok(ea.average(model.arrays(), kPatience), failures);
      distances[rank] = std::fabs(model.values[0][0] - *reinterpret_cast<const double*>(ea.center()[0].data));
    });
    assert_int_equal(failures, 0);
    for (const double distance : distances) assert_true(alpha < 0.4 ? distance < 1e-3 : distance > 1e2);
  }
}

void values_that_cannot_be_averaged_are_reported(void**) {
  ThreadGroups all(1);
  assert_int_equal(AllReduceEa::check(0, 0.5).code(), MV_EINVAL);
  assert_int_equal(AllReduceEa::check(1, -1).code(), MV_EINVAL);
  assert_int_equal(AllReduceEa::check(1, NAN).code(), MV_EINVAL);
  AllReduceEa ea(*all.node, all.groups[0], 1, 0.5);
  int32_t integer = 0;
  assert_int_equal(ea.average({{reinterpret_cast<std::byte*>(&integer), 1, MV_I32}}, kPatience).code(), MV_EDTYPE);
  assert_int_equal(ea.average({{nullptr, 1, MV_F32}}, kPatience).code(), MV_EINVAL);
  Model<float> model{{{1, 2}}}, other{{{1, 2, 3}}};
  assert_true(ea.average(model.arrays(), kPatience).ok());
  assert_int_equal(ea.average(other.arrays(), kPatience).code(), MV_ESHAPE);
  AllReduceSgd sgd(*all.node, all.groups[0]);
  assert_int_equal(sgd.sum({{nullptr, 3, MV_F32}}, AllReduceSgd::Sum::kPlain, nullptr, kPatience).code(), MV_EINVAL);
}

void halves_are_averaged_as_floats(void**) {
  ThreadGroups all(2);
  std::atomic<int> failures{0};
  std::vector<uint16_t> result(2);
  all.run([&](size_t rank) {
    AllReduceEa ea(*all.node, all.groups[rank], 1, 0.5);
    uint16_t half = 0x3c00;  // 1
    const std::vector<collective::Array> arrays = {{reinterpret_cast<std::byte*>(&half), 1, MV_F16}};
    expect_ok(ea.average(arrays, kPatience), failures);
    half = rank == 0 ? 0x4000 : 0x4200;  // 2 and 3: differences 0.5 and 1, the centre becomes 2.5
    expect_ok(ea.average(arrays, kPatience), failures);
    expect_ok(ea.synchronize_center(arrays, kPatience), failures);
    result[rank] = half;
    if (*reinterpret_cast<const float*>(ea.center()[0].data) != 2.5F) ++failures;
  });
  assert_int_equal(failures, 0);
  assert_int_equal(result[0], 0x4000);  // 1.5, then halfway to 2.5
  assert_int_equal(result[1], 0x4080);  // 2, then 2.25
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_divided_by_those_that_contribute),
      cmocka_unit_test(sums_are_not_divided_and_a_tie_goes_to_the_lowest),
      cmocka_unit_test(a_rank_without_a_step_ends_as_the_others_do),
      cmocka_unit_test(others_values_in_between_do_not_disturb_a_draining_rank),
      cmocka_unit_test(elastic_averaging_is_the_closed_form_with_uneven_endings),
      cmocka_unit_test(the_center_is_stable_up_to_two_by_ranks_plus_one),
      cmocka_unit_test(values_that_cannot_be_averaged_are_reported),
      cmocka_unit_test(halves_are_averaged_as_floats),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
