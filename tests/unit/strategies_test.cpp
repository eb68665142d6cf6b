// core/api/distlearn: training strategies that reduce communication. The ranks are threads.

#include <atomic>
#include <cmath>
#include <functional>
#include <string_view>
#include <vector>

#include "api/distlearn/async_ea.hpp"
#include "api/distlearn/compressor.hpp"
#include "api/distlearn/local_sgd.hpp"
#include "thread_group.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using distlearn::AsyncEa;
using distlearn::Compressor;
using distlearn::Gradients;
using distlearn::LocalSettings;
using distlearn::LocalSgd;

constexpr base::Nanos kPatience = std::chrono::seconds(60);

void expect_ok(const base::Status& status, std::atomic<int>& failures) {
  if (status.ok()) return;
  print_message("%s\n", status.text().c_str());
  ++failures;
}

/// Workers minimize x^2 / 2 in turn, each with an elastic term towards the centre; returns their final distance from 0, starting at 1.
enum class Order { kSamePoint, kGradientFirst };
double minimized(api::Node& node, size_t workers, double eta, double alpha, Order order) {
  static int number = 0;
  api::TableSpec spec;
  spec.name = fmt::format("centre-{}", ++number);
  spec.dtype = MV_F64;
  spec.rows = 1;
  double start = 1;
  const auto table = node.create_table(spec, {&start, 1, MV_F64});
  assert_true(table.ok());
  assert_true(AsyncEa::check(table.value()->info().value(), 1, alpha).ok());
  std::vector<std::unique_ptr<AsyncEa>> held;
  for (size_t worker = 0; worker < workers; ++worker) held.push_back(std::make_unique<AsyncEa>(node, table.value(), spec, 1, alpha));
  std::vector<double> x(workers, 1);
  for (int round = 0; round < 600; ++round)
    for (size_t worker = 0; worker < workers; ++worker) {
      const double gradient = x[worker];
      if (order == Order::kGradientFirst) x[worker] -= eta * gradient;
      assert_true(held[worker]->average({{reinterpret_cast<std::byte*>(&x[worker]), 1, MV_F64}}, kPatience).ok());
      if (order == Order::kSamePoint) x[worker] -= eta * gradient;
    }
  double farthest = 0;
  for (const double value : x) farthest = std::max(farthest, std::fabs(value));
  return farthest;
}

void asynchronous_averaging_is_stable_where_it_should_be(void**) {
  ThreadGroups all(1);
  const auto most = [](double eta) { return (4 - 2 * eta) / (4 - eta); };
  for (const double eta : {0.1, 0.5, 1.0, 1.5, 1.9}) {
    for (const size_t workers : {1U, 2U, 4U, 8U})
      for (const double part : {0.1, 0.5, 0.95}) assert_true(minimized(*all.node, workers, eta, part * most(eta), Order::kSamePoint) < 1);
    assert_true(minimized(*all.node, 1, eta, 1.1 * most(eta), Order::kSamePoint) > 50);
  }
  assert_true(minimized(*all.node, 1, 2.1, 0.01, Order::kSamePoint) > 50);
}

void asynchronous_averaging_after_the_gradient_is_stable_where_it_should_be(void**) {
  ThreadGroups all(1);
  // Where the determinant of the step gives the tighter bound, beyond eta = 4 - 2 sqrt(2), the bound is eta / (2 (eta - 1)).
  const auto most = [](double eta) {
    const double trace = (4 - 2 * eta) / (4 - 3 * eta);
    return eta > 1 ? std::min(trace, eta / (2 * (eta - 1))) : trace;
  };
  assert_true(std::fabs(most(1.1) - (4 - 2.2) / (4 - 3.3)) < 1e-12);
  for (const double eta : {0.1, 0.5, 1.0, 1.1, 1.2}) {
    for (const double part : {0.1, 0.5, 0.95}) assert_true(minimized(*all.node, 1, eta, part * most(eta), Order::kGradientFirst) < 1);
    assert_true(minimized(*all.node, 1, eta, 1.1 * most(eta), Order::kGradientFirst) > 50);
  }
}

void a_centre_meets_several_arrays_every_tau_steps(void**) {
  ThreadGroups all(1);
  api::TableSpec spec;
  spec.name = "centre";
  spec.rows = 3;
  const std::vector<float> start = {0, 0, 0};
  const auto table = all.node->create_table(spec, {start.data(), 3, MV_F32});
  assert_true(table.ok());
  AsyncEa ea(*all.node, table.value(), spec, 2, 0.25);
  Model<float> model{{{4}, {8, 16}}};
  assert_true(ea.average(model.arrays(), kPatience).ok());
  assert_true(model.values[0][0] == 4);
  assert_true(ea.average(model.arrays(), kPatience).ok());
  assert_true(model.values[0][0] == 3 && model.values[1][0] == 6 && model.values[1][1] == 12);
  assert_true(ea.read(model.arrays(), kPatience).ok());
  assert_true(model.values[0][0] == 1 && model.values[1][0] == 2 && model.values[1][1] == 4);
  assert_true(ea.meter.payload_bytes == 12 && ea.meter.dense_bytes == 24);
  Model<float> other{{{1, 2}}};
  assert_int_equal(ea.average(other.arrays(), kPatience).code(), MV_ESHAPE);
  Model<double> wider{{{1, 2, 3}}};
  assert_int_equal(ea.average(wider.arrays(), kPatience).code(), MV_EDTYPE);
}

/// Three ranks with changing parameters and `steps` steps each; their final parameters, and rank 0's traffic counter.
struct Walk {
  std::vector<std::vector<double>> ends;
  distlearn::Meter meter;
};
Walk walk(const LocalSettings& settings, const std::vector<size_t>& steps, bool synchronize) {
  ThreadGroups all(steps.size());
  std::atomic<int> failures{0};
  Walk result;
  result.ends.resize(steps.size());
  std::vector<std::unique_ptr<LocalSgd>> locals(steps.size());  // until all are done: overlapped operations may be under way to the end
  all.run([&](size_t rank) {
    locals[rank] = std::make_unique<LocalSgd>(*all.node, all.groups[rank], settings);
    LocalSgd& local = *locals[rank];
    Model<double> model{{{1, 2, 3}, {4, 5, 6, 7, 8}}};
    expect_ok(local.synchronize(model.arrays(), kPatience), failures);
    for (size_t step = 0; step < steps[rank]; ++step) {
      for (auto& array : model.values)
        for (double& value : array) value += 0.1 * double(rank + 1) + 0.01 * double(step);
      expect_ok(local.step(model.arrays(), kPatience), failures);
    }
    if (synchronize) expect_ok(local.synchronize(model.arrays(), kPatience), failures);
    for (const auto& array : model.values) result.ends[rank].insert(result.ends[rank].end(), array.begin(), array.end());
    if (rank == 0) result.meter = local.peers().meter;
  });
  assert_int_equal(failures, 0);
  return result;
}

void without_momentum_parameters_are_averaged(void**) {
  const Walk walked = walk({.inner_steps = 4, .outer_rate = 1}, {8, 8, 8}, false);
  const double moved = 0.1 * 2 * 8 + 0.01 * 28;  // all on average, in eight steps
  for (const auto& end : walked.ends)
    for (size_t i = 0; i < 8; ++i) assert_true(std::fabs(end[i] - (double(i) + 1 + moved)) < 1e-12);
  assert_int_equal(walked.meter.dense_bytes, 8 * 8 * sizeof(double));
}

void payload_falls_by_the_inner_steps(void**) {
  for (const int64_t inner : {1, 2, 4, 8})
    for (const int64_t fragments : {1, 2}) {
      if (fragments > inner) continue;
      const Walk walked = walk({.inner_steps = inner, .fragments = fragments}, {16, 16}, false);
      const uint64_t at_start = 8 * sizeof(double) + sizeof(int64_t);  // synchronize()
      assert_int_equal((walked.meter.payload_bytes - at_start) * static_cast<uint64_t>(inner), walked.meter.dense_bytes);
    }
}

void the_outer_step_is_nesterovs(void**) {
  const LocalSettings settings{.inner_steps = 2, .outer_rate = 0.7, .outer_momentum = 0.9};
  const Walk walked = walk(settings, {6, 6, 6}, false);
  double outer = 1, velocity = 0;
  for (int round = 0; round < 3; ++round) {
    const double moved = -(0.1 * 2 * 2 + 0.01 * (4 * round + 1));
    velocity = 0.9 * velocity + moved;
    outer -= 0.7 * (moved + 0.9 * velocity);
  }
  for (const auto& end : walked.ends) assert_true(std::fabs(end[0] - outer) < 1e-12);
}

void fragments_are_exchanged_while_training_goes_on(void**) {
  const LocalSettings settings{.inner_steps = 4, .fragments = 2, .overlap = 1, .mixing = 0.25};
  const Walk walked = walk(settings, {4, 4}, false);
  // Elements 0 to 3 are exchanged after step 2, and mixed with the result of step 3; elements 4 to 7 are sent after step 4, and have not
  // arrived.
  const auto moved = [](size_t rank, size_t from, size_t to) {
    double sum = 0;
    for (size_t step = from; step < to; ++step) sum += 0.1 * double(rank + 1) + 0.01 * double(step);
    return sum;
  };
  for (size_t rank = 0; rank < 2; ++rank)
    for (size_t i = 0; i < 8; ++i) {
      const double start = double(i) + 1;
      const double agreed = start + (moved(0, 0, 2) + moved(1, 0, 2)) / 2;
      const double mixed = 0.25 * (start + moved(rank, 0, 3)) + 0.75 * agreed + moved(rank, 3, 4);
      assert_true(std::fabs(walked.ends[rank][i] - (i < 4 ? mixed : start + moved(rank, 0, 4))) < 1e-12);
    }
}

void a_rank_that_ends_early_takes_part_until_all_have_the_same_bits(void**) {
  const LocalSettings cases[] = {{.inner_steps = 3, .outer_rate = 0.7, .outer_momentum = 0.9},
                                 {.inner_steps = 4, .fragments = 2},
                                 {.inner_steps = 6, .outer_rate = 0.5, .fragments = 3, .overlap = 1, .mixing = 0.5}};
  for (const LocalSettings& settings : cases)
    for (const std::vector<size_t>& steps : {std::vector<size_t>{7, 12, 3}, {0, 5, 9}, {0, 0, 0}, {6, 6, 6}}) {
      const Walk walked = walk(settings, steps, true);
      for (const auto& end : walked.ends) assert_true(end == walked.ends[0]);
      for (const double value : walked.ends[0]) assert_true(std::isfinite(value));
    }
}

void settings_that_make_no_sense_are_refused(void**) {
  const LocalSettings wrong[] = {{.inner_steps = 0},
                                 {.inner_steps = 2, .fragments = 3},
                                 {.inner_steps = 4, .fragments = 2, .overlap = 2},
                                 {.outer_rate = NAN},
                                 {.outer_momentum = 1.5},
                                 {.mixing = -1}};
  for (const LocalSettings& settings : wrong) assert_int_equal(LocalSgd::check(settings).code(), MV_EINVAL);
}

/// Gradients of `rows` rows and `cols` columns, and an array that is not a matrix.
struct Compressed {
  std::vector<std::vector<float>> averages, residuals;  ///< by rank
  std::vector<uint64_t> contributors;
  distlearn::Meter meter;
};
using Value = std::function<float(size_t rank, size_t i)>;
Compressed compress(const char* text, size_t ranks, uint64_t rows, uint64_t cols, int steps, const Value& value) {
  ThreadGroups all(ranks);
  std::atomic<int> failures{0};
  Compressed result;
  result.averages.resize(ranks);
  result.residuals.resize(ranks);
  result.contributors.resize(ranks);
  all.run([&](size_t rank) {
    auto made = Compressor::make(*all.node, all.groups[rank], text);
    expect_ok(made.ok() ? base::Status() : made.status(), failures);
    std::vector<float> matrix(rows * cols), vector(3);
    const Gradients gradients{{{reinterpret_cast<std::byte*>(matrix.data()), matrix.size(), MV_F32},
                               {reinterpret_cast<std::byte*>(vector.data()), vector.size(), MV_F32}},
                              {rows, 0}};
    for (int step = 0; step < steps; ++step) {
      for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = value(rank, i);
      for (size_t i = 0; i < vector.size(); ++i) vector[i] = value(rank, matrix.size() + i);
      expect_ok(made.value()->average(gradients, &result.contributors[rank], kPatience), failures);
    }
    result.averages[rank] = matrix;
    result.averages[rank].insert(result.averages[rank].end(), vector.begin(), vector.end());
    result.residuals[rank] = made.value()->residual();
    expect_ok(made.value()->finish(gradients, kPatience), failures);
    if (rank == 0) result.meter = made.value()->peers().meter;
  });
  assert_int_equal(failures, 0);
  for (const auto& average : result.averages) assert_true(average == result.averages[0]);  // the same bits
  for (const uint64_t contributors : result.contributors) assert_int_equal(contributors, ranks);
  return result;
}

double mean(const Value& value, size_t ranks, size_t i) {
  double sum = 0;
  for (size_t rank = 0; rank < ranks; ++rank) sum += double(value(rank, i));
  return sum / double(ranks);
}

void powersgd_recovers_a_mean_of_its_rank(void**) {
  constexpr uint64_t kRows = 20, kCols = 16;
  // Each rank's matrix has full rank, but only its common part of rank two remains in the mean of the two ranks.
  const auto rough = [](size_t i) { return float((i * 2654435761U >> 7) % 1000) / 500 - 1; };
  const Value value = [&](size_t rank, size_t i) {
    if (i >= kRows * kCols) return float(i);
    const auto row = double(i / kCols), col = double(i % kCols);
    const auto common = float(std::sin(row) * (col + 1) + std::cos(2 * row) * std::sin(3 * col));
    return common + (rank == 0 ? rough(i) : -rough(i));
  };
  for (const char* text : {"powersgd rank=2", "powersgd rank=3"}) {
    const Compressed got = compress(text, 2, kRows, kCols, 1, value);
    for (size_t i = 0; i < kRows * kCols + 3; ++i) assert_true(std::fabs(got.averages[0][i] - mean(value, 2, i)) < 1e-3);
  }
}

void powersgd_survives_less_rank_than_it_has(void**) {
  const Value one = [](size_t, size_t i) { return i < 20 * 16 ? float(i / 16) + 1 : 0; };  // rank one
  const Value zero = [](size_t, size_t) { return 0.0F; };
  for (const Value& value : {one, zero})
    for (int steps = 1; steps <= 3; ++steps) {
      const Compressed got = compress("powersgd rank=4", 2, 20, 16, steps, value);
      for (size_t i = 0; i < 20 * 16; ++i) assert_true(std::fabs(got.averages[0][i] - value(0, i)) < 1e-3);
    }
}

void the_sent_part_and_the_residual_add_up_to_the_gradient(void**) {
  const Value value = [](size_t rank, size_t i) { return float((i * 37 + rank * 11) % 64) - 31; };
  for (const char* text : {"powersgd rank=1", "topk ratio=0.05", "int8", "2bit threshold=4"}) {
    const Compressed got = compress(text, 2, 20, 16, 1, value);
    for (size_t i = 0; i < 20 * 16; ++i) {
      const double left = (double(got.residuals[0][i]) + double(got.residuals[1][i])) / 2;
      assert_true(std::fabs(double(got.averages[0][i]) + left - mean(value, 2, i)) < 1e-3);
    }
  }
}

void compressed_gradients_are_fewer_bytes(void**) {
  const Value value = [](size_t rank, size_t i) { return float((i * 37 + rank * 11) % 64) - 31; };
  const Compressed int8 = compress("int8", 2, 64, 64, 3, value);
  assert_true(int8.meter.payload_bytes * 3 < int8.meter.dense_bytes);
  const Compressed top = compress("topk ratio=0.01", 2, 64, 64, 3, value);
  assert_true(top.meter.payload_bytes * 20 < top.meter.dense_bytes);
  const Compressed low = compress("powersgd rank=1", 2, 64, 64, 3, value);
  assert_true(low.meter.payload_bytes * 20 < low.meter.dense_bytes);
}

void a_rank_without_gradients_does_not_count(void**) {
  for (const char* text : {"int8", "topk ratio=0.5", "powersgd rank=1"}) {
    ThreadGroups all(3);
    std::atomic<int> failures{0};
    std::vector<std::vector<uint64_t>> contributors(3);
    std::vector<float> last(3);
    all.run([&](size_t rank) {
      auto made = Compressor::make(*all.node, all.groups[rank], text);
      std::vector<float> matrix(8 * 8);
      const Gradients gradients{{{reinterpret_cast<std::byte*>(matrix.data()), matrix.size(), MV_F32}}, {8}};
      for (int epoch = 0; epoch < 2; ++epoch) {
        for (size_t step = 0; step <= 2 * rank; ++step) {
          std::fill(matrix.begin(), matrix.end(), float(rank + 1));
          uint64_t n = 0;
          expect_ok(made.value()->average(gradients, &n, kPatience), failures);
          contributors[rank].push_back(n);
          last[rank] = matrix[0];
        }
        expect_ok(made.value()->finish(gradients, kPatience), failures);
      }
    });
    assert_int_equal(failures, 0);
    assert_true(contributors[2] == (std::vector<uint64_t>{3, 2, 2, 1, 1, 3, 2, 2, 1, 1}));
    if (std::string_view(text) != "topk ratio=0.5") assert_true(std::fabs(last[2] - 3) < 0.1);  // topk sends it only every other time
  }
}

void unknown_ways_to_compress_are_refused(void**) {
  ThreadGroups all(1);
  for (const char* text : {"powersgd rank=0", "powersgd rank=x", "zip", "none", "topk ratio=7"})
    assert_int_equal(Compressor::make(*all.node, all.groups[0], text).status().code(), MV_EINVAL);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(asynchronous_averaging_is_stable_where_it_should_be),
      cmocka_unit_test(asynchronous_averaging_after_the_gradient_is_stable_where_it_should_be),
      cmocka_unit_test(a_centre_meets_several_arrays_every_tau_steps),
      cmocka_unit_test(without_momentum_parameters_are_averaged),
      cmocka_unit_test(payload_falls_by_the_inner_steps),
      cmocka_unit_test(the_outer_step_is_nesterovs),
      cmocka_unit_test(fragments_are_exchanged_while_training_goes_on),
      cmocka_unit_test(a_rank_that_ends_early_takes_part_until_all_have_the_same_bits),
      cmocka_unit_test(settings_that_make_no_sense_are_refused),
      cmocka_unit_test(powersgd_recovers_a_mean_of_its_rank),
      cmocka_unit_test(powersgd_survives_less_rank_than_it_has),
      cmocka_unit_test(the_sent_part_and_the_residual_add_up_to_the_gradient),
      cmocka_unit_test(compressed_gradients_are_fewer_bytes),
      cmocka_unit_test(a_rank_without_gradients_does_not_count),
      cmocka_unit_test(unknown_ways_to_compress_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
