// core/math/reduction: every instruction set of this machine gives the bits of the plain loop, at any length and position.

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "halves.hpp"
#include "math/reduction.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::math::Reduction;

constexpr size_t kLongest = 150;
constexpr size_t kMostSources = 5;
constexpr Reduction kAll[] = {Reduction::kSum, Reduction::kProd, Reduction::kMin, Reduction::kMax, Reduction::kAverage};

template <typename T>
T merged(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kProd:
      return static_cast<T>(static_cast<std::common_type_t<T, uint64_t>>(a) * static_cast<std::common_type_t<T, uint64_t>>(b));
    case Reduction::kMin:
      return b < a || b != b ? b : a;
    case Reduction::kMax:
      return a < b || b != b ? b : a;
    default:
      return static_cast<T>(static_cast<std::common_type_t<T, uint64_t>>(a) + static_cast<std::common_type_t<T, uint64_t>>(b));
  }
}
template <>
float merged(Reduction reduction, float a, float b) {
  if (reduction == Reduction::kProd) return a * b;
  if (reduction == Reduction::kMin) return b < a || b != b ? b : a;
  if (reduction == Reduction::kMax) return a < b || b != b ? b : a;
  return a + b;
}
template <>
double merged(Reduction reduction, double a, double b) {
  if (reduction == Reduction::kProd) return a * b;
  if (reduction == Reduction::kMin) return b < a || b != b ? b : a;
  if (reduction == Reduction::kMax) return a < b || b != b ? b : a;
  return a + b;
}

template <typename T>
T number(std::mt19937_64& random) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(static_cast<double>(random() % 20001) / 1000 - 10);
  return static_cast<T>(random());
}

/// Arrays that begin one byte after an aligned address.
template <typename T>
std::vector<std::vector<std::byte>> sources_of(const std::vector<std::vector<T>>& values) {
  std::vector<std::vector<std::byte>> out;
  for (const auto& each : values) {
    out.emplace_back(1 + each.size() * sizeof(T));
    if (!each.empty()) std::memcpy(out.back().data() + 1, each.data(), each.size() * sizeof(T));
  }
  return out;
}

/// The result of ranks that pass their values on, one by one.
template <typename T>
bool is_as_step_by_step(Reduction reduction, mv_dtype dtype, const std::vector<std::vector<T>>& values, const std::byte* merged_bytes) {
  std::vector<T> sum = values[0];
  std::byte* const at = reinterpret_cast<std::byte*>(sum.data());
  for (size_t rank = 1; rank < values.size(); ++rank)
    mv::math::reduce_bytes(reduction, dtype, at, reinterpret_cast<const std::byte*>(values[rank].data()), sum.size(), mv::math::Operand::kFirst);
  if (reduction == Reduction::kAverage) mv::math::divide_bytes(dtype, at, sum.size(), 3);
  return sum.empty() || std::memcmp(at, merged_bytes, sum.size() * sizeof(T)) == 0;
}

template <typename T>
void check(mv_dtype dtype) {
  std::mt19937_64 random(7);
  for (const Reduction reduction : kAll) {
    if (reduction == Reduction::kAverage && !std::is_floating_point_v<T>) continue;
    for (size_t count = 0; count < kLongest; count += 1 + count / 5) {
      for (size_t ranks = 1; ranks <= kMostSources; ++ranks) {
        std::vector<std::vector<T>> values(ranks, std::vector<T>(count));
        for (auto& each : values)
          for (T& value : each) value = number<T>(random);
        std::vector<T> expected = values[0];
        for (size_t i = 0; i < count; ++i) {
          for (size_t rank = 1; rank < ranks; ++rank) expected[i] = merged(reduction, expected[i], values[rank][i]);
          if (reduction == Reduction::kAverage) expected[i] = static_cast<T>(expected[i] / static_cast<T>(3));
        }
        auto memory = sources_of(values);
        std::vector<const std::byte*> places;
        for (const auto& each : memory) places.push_back(each.data() + 1);
        std::byte* const dst = memory[ranks / 2].data() + 1;  // in place
        mv::math::merge_bytes(reduction, dtype, dst, places, count, 3);
        assert_memory_equal(dst, expected.data(), count * sizeof(T));
        assert_true(is_as_step_by_step(reduction, dtype, values, dst));
      }
    }
  }
}

template <typename Check>
void on_every_target(const Check& check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

void every_reduction_is_the_plain_loops(void**) {
  on_every_target([] {
    check<float>(MV_F32);
    check<double>(MV_F64);
    check<int32_t>(MV_I32);
    check<int64_t>(MV_I64);
    check<uint8_t>(MV_U8);
    check<int8_t>(MV_I8);
  });
}

void halves_are_rounded_once(void**) {
  on_every_target([] {
    // 2048 + 1 + 1: in f16, each step would round back to 2048.
    const std::vector<float> numbers[] = {{2048.0f, 1.0f}, {1.0f, 2.0f}, {1.0f, 3.0f}};
    std::vector<std::vector<uint16_t>> halves;
    std::vector<const std::byte*> places;
    for (const auto& each : numbers) {
      halves.emplace_back(2);
      narrow(MV_F16, halves.back(), each);
    }
    for (const auto& each : halves) places.push_back(std::as_bytes(std::span(each)).data());
    std::vector<uint16_t> sum(2);
    std::vector<float> wide(2);
    mv::math::merge_bytes(Reduction::kSum, MV_F16, std::as_writable_bytes(std::span(sum)).data(), places, 2);
    widen(MV_F16, wide, sum);
    assert_true(wide[0] == 2050.0f && wide[1] == 6.0f);
    mv::math::merge_bytes(Reduction::kAverage, MV_F16, std::as_writable_bytes(std::span(sum)).data(), places, 2, 2);
    widen(MV_F16, wide, sum);
    assert_true(wide[0] == 1025.0f && wide[1] == 3.0f);
  });
}

void a_nan_of_any_rank_stays(void**) {
  on_every_target([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (size_t where = 0; where < 3; ++where) {
      std::vector<std::vector<float>> values(3, std::vector<float>(17, 1.0f));
      for (float& value : values[where]) value = nan;
      std::vector<const std::byte*> places;
      for (const auto& each : values) places.push_back(std::as_bytes(std::span(each)).data());
      for (const Reduction reduction : kAll) {
        std::vector<float> out(17);
        mv::math::merge_bytes(reduction, MV_F32, std::as_writable_bytes(std::span(out)).data(), places, 17);
        for (const float value : out) assert_true(std::isnan(value));
      }
    }
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_reduction_is_the_plain_loops),
      cmocka_unit_test(halves_are_rounded_once),
      cmocka_unit_test(a_nan_of_any_rank_stays),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
