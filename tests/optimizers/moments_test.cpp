// core/shard/updater/optimizer/sgld.cpp: checks moments of w += sqrt(lr) N - lr / 2 (rescale_grad g + wd w), N normal.

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "shard/updater/updater.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::shard;

constexpr size_t kCount = 1 << 20;

template <typename T>
std::vector<T> stepped(const char* text, T value, T gradient, uint64_t stream, size_t count = kCount,
                       uint64_t first = 0) {
  const auto updater = make_updater(parse_updater(text).value(), sizeof(T) == 4 ? MV_F32 : MV_F64);
  std::vector<T> values(count, value);
  const std::vector<T> added(count, gradient);
  const Step step = updater->step({.count = 1, .latest = 1, .stream = stream}, {});
  updater->apply({.count = count,
                  .values = reinterpret_cast<std::byte*>(values.data()),
                  .added = reinterpret_cast<const std::byte*>(added.data()),
                  .step = &step,
                  .first = first});
  return values;
}

/// The mean of f(x).
template <typename F>
double mean(const std::vector<float>& values, const F& f) {
  double sum = 0;
  for (const float value : values) sum += f(static_cast<double>(value));
  return sum / static_cast<double>(values.size());
}

void expect_near(double got, double expected, double within) {
  if (std::abs(got - expected) > within) fail_msg("%.6g is not within %.6g of %.6g", got, within, expected);
}

void the_noise_is_normal(void**) {
  const auto noise = stepped<float>("mx.sgld learning_rate=1 seed=3", 0, 0, 1);
  const double deviation =
      1 / std::sqrt(static_cast<double>(kCount));  // the standard error of a mean; 5 of them are allowed
  expect_near(mean(noise, [](double x) { return x; }), 0, 5 * deviation);
  expect_near(mean(noise, [](double x) { return x * x; }), 1, 5 * std::sqrt(2.0) * deviation);
  expect_near(mean(noise, [](double x) { return x * x * x; }), 0, 5 * std::sqrt(15.0) * deviation);
  expect_near(mean(noise, [](double x) { return x * x * x * x; }), 3, 5 * std::sqrt(96.0) * deviation);
  for (const double bound : {0.25, 1.0, 2.0, 3.0}) {  // the distribution itself
    const double below = 0.5 * std::erfc(-bound / std::sqrt(2.0));
    const double spread = 5 * std::sqrt(below * (1 - below)) * deviation;
    expect_near(mean(noise, [&](double x) { return x <= bound ? 1.0 : 0.0; }), below, spread);
    expect_near(mean(noise, [&](double x) { return x >= -bound ? 1.0 : 0.0; }), below, spread);
  }
  for (const size_t apart : {1, 16, 32, 1024}) {  // neighbours, and the numbers of one pair, are independent
    double product = 0;
    for (size_t i = 0; i + apart < kCount; ++i)
      product += static_cast<double>(noise[i]) * static_cast<double>(noise[i + apart]);
    expect_near(product / static_cast<double>(kCount), 0, 5 * deviation);
  }
}

void drift_and_deviation_follow_the_rate(void**) {
  const auto values = stepped<float>("mx.sgld learning_rate=0.04 wd=0.5 rescale_grad=2 clip_gradient=3", 4, 10, 1);
  const double drifted = 4 - 0.02 * (3 + 0.5 * 4);
  const double centre = mean(values, [](double x) { return x; });
  expect_near(centre, drifted, 5 * 0.2 / 1024);
  expect_near(mean(values, [&](double x) { return (x - centre) * (x - centre); }), 0.04,
              5 * 0.04 * std::sqrt(2.0) / 1024);
}

void seeds_and_updates_draw_other_numbers(void**) {
  const auto one = stepped<float>("mx.sgld learning_rate=1 seed=3", 0, 0, 1);
  assert_true(one == stepped<float>("mx.sgld learning_rate=1 seed=3", 0, 0, 1));
  for (const auto& [text, stream] :
       {std::pair("mx.sgld learning_rate=1 seed=4", 1), std::pair("mx.sgld learning_rate=1 seed=3", 2)}) {
    const auto other = stepped<float>(text, 0, 0, static_cast<uint64_t>(stream));
    double product = 0;
    for (size_t i = 0; i < kCount; ++i) product += static_cast<double>(one[i]) * static_cast<double>(other[i]);
    expect_near(product / static_cast<double>(kCount), 0, 5.0 / 1024);
  }
}

void an_elements_noise_depends_on_its_number_only(void**) {
  const auto whole = stepped<float>("mx.sgld learning_rate=1", 0, 0, 1, 1000);
  const auto wide = stepped<double>("mx.sgld learning_rate=1", 0, 0, 1, 1000);
  for (size_t i = 0; i < 1000; ++i) assert_true(static_cast<double>(whole[i]) == wide[i]);
  for (const size_t first : {1, 16, 31, 33, 700}) {
    const auto part = stepped<float>("mx.sgld learning_rate=1", 0, 0, 1, 200, first);
    assert_true(std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(first)));
  }
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    assert_true(stepped<float>("mx.sgld learning_rate=1", 0, 0, 1, 1000) == whole);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_noise_is_normal),
      cmocka_unit_test(drift_and_deviation_follow_the_rate),
      cmocka_unit_test(seeds_and_updates_draw_other_numbers),
      cmocka_unit_test(an_elements_noise_depends_on_its_number_only),
  };
  return cmocka_run_group_tests_name("optimizers/moments", tests, nullptr, nullptr);
}
