// core/math: every instruction set that this machine has gives the bits of the plain loop, at any length and alignment.

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "math/kernels.hpp"

namespace {

constexpr size_t kLongest = 300;

/// Runs `check` once for each instruction set, and names the one that fails.
template <typename Check>
void on_every_target(const Check& check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    print_message("    %s\n", hwy::TargetName(target));
    check();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

template <typename T>
constexpr mv_dtype kDtype = sizeof(T) == 4 ? MV_F32 : MV_F64;

/// Memory that begins `shift` bytes after a multiple of 64, with guards around it.
template <typename T>
class Shifted {
 public:
  Shifted(size_t count, size_t shift) : memory_(64 + shift + count * sizeof(T) + 64, std::byte{0x5a}), count_(count) {
    const auto base = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = memory_.data() + ((64 - base % 64) % 64) + shift;
  }
  std::byte* bytes() { return start_; }
  void fill(const std::vector<T>& values) { std::ranges::copy(std::as_bytes(std::span(values)), start_); }
  bool holds(const std::vector<T>& values) const {
    return std::ranges::equal(std::as_bytes(std::span(values)), std::span(start_, count_ * sizeof(T)));
  }
  bool guard_is_whole() const { return start_[count_ * sizeof(T)] == std::byte{0x5a}; }

 private:
  std::vector<std::byte> memory_;
  size_t count_;
  std::byte* start_;
};

/// Values of all sizes, among them zeros of both signs, denormals and the largest, so that sums overflow.
template <typename T>
std::vector<T> varied(size_t count, uint32_t seed) {
  const T special[] = {T(0),
                       -T(0),
                       std::numeric_limits<T>::denorm_min(),
                       std::numeric_limits<T>::min(),
                       std::numeric_limits<T>::max(),
                       -std::numeric_limits<T>::max()};
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    const uint32_t pick = random() % 16;
    value = pick < std::size(special) ? special[pick] : std::ldexp(T(int32_t(random())), int(random() % 80) - 60);
  }
  return values;
}

template <typename T>
void add_equals_the_plain_loop() {
  for (size_t count = 0; count <= kLongest; ++count) {
    const auto left = varied<T>(count, 1 + uint32_t(count)), right = varied<T>(count, 1000 + uint32_t(count));
    std::vector<T> sum(count);
    for (size_t i = 0; i < count; ++i) sum[i] = left[i] + right[i];
    for (const size_t shift : {0, 1, 4, 8, 12, 20, 61}) {
      Shifted<T> dst(count, shift), src(count, (shift * 7) % 64);
      dst.fill(left);
      src.fill(right);
      mv::math::add_bytes(kDtype<T>, dst.bytes(), src.bytes(), count);
      assert_true(dst.holds(sum));
      assert_true(src.holds(right));
      assert_true(dst.guard_is_whole());
    }
  }
}

void add_is_bit_equal_to_the_plain_loop(void**) {
  on_every_target([] {
    add_equals_the_plain_loop<float>();
    add_equals_the_plain_loop<double>();
  });
}

void add_of_a_range_to_itself_doubles_it(void**) {
  on_every_target([] {
    std::vector<float> values = varied<float>(257, 3), twice = values;
    for (float& value : twice) value += value;
    mv::math::add(values, values);
    assert_memory_equal(values.data(), twice.data(), twice.size() * sizeof(float));
  });
}

void add_carries_nan_and_infinity(void**) {
  on_every_target([] {
    for (size_t at = 0; at < 130; ++at) {
      std::vector<double> sum(130, 1.0), addend(130, 1.0);
      addend[at] = std::numeric_limits<double>::quiet_NaN();
      mv::math::add(sum, addend);
      for (size_t i = 0; i < sum.size(); ++i) assert_true(i == at ? std::isnan(sum[i]) : sum[i] == 2.0);
    }
  });
}

template <typename T>
void finite_finds_every_place() {
  const T bad[] = {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                   std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::signaling_NaN()};
  for (size_t count = 0; count <= kLongest; count += count < 70 ? 1 : 23) {
    auto values = varied<T>(count, uint32_t(count));
    Shifted<T> memory(count, count % 64);
    memory.fill(values);
    assert_true(mv::math::all_finite_bytes(kDtype<T>, memory.bytes(), count));
    for (size_t at = 0; at < count; ++at) {
      const T kept = values[at];
      values[at] = bad[at % std::size(bad)];
      memory.fill(values);
      assert_false(mv::math::all_finite_bytes(kDtype<T>, memory.bytes(), count));
      assert_true(mv::math::all_finite_bytes(kDtype<T>, memory.bytes(), at));
      values[at] = kept;
    }
  }
}

void one_nan_or_infinity_anywhere_is_found(void**) {
  on_every_target([] {
    finite_finds_every_place<float>();
    finite_finds_every_place<double>();
  });
}

template <typename T>
void rows_equal_the_plain_loop(size_t cols) {
  constexpr size_t kRows = 37, kIds = 90;
  std::mt19937 random(uint32_t{5} + uint32_t(cols));
  std::vector<int64_t> ids(kIds);
  for (int64_t& id : ids) id = random() % kRows;
  const auto values = varied<T>(kIds * cols, 6);
  auto table = varied<T>(kRows * cols, 7), added = table, assigned = table;
  for (size_t i = 0; i < kIds; ++i) {
    for (size_t c = 0; c < cols; ++c) {
      added[size_t(ids[i]) * cols + c] += values[i * cols + c];
      assigned[size_t(ids[i]) * cols + c] = values[i * cols + c];
    }
  }
  Shifted<T> memory(table.size(), 4), source(values.size(), 12), out(kIds * cols, 1);
  source.fill(values);
  memory.fill(table);
  mv::math::add_rows(kDtype<T>, memory.bytes(), cols, ids.data(), kIds, source.bytes());
  assert_true(memory.holds(added));
  memory.fill(table);
  mv::math::set_rows(kDtype<T>, memory.bytes(), cols, ids.data(), kIds, source.bytes());
  assert_true(memory.holds(assigned));
  mv::math::gather_rows(kDtype<T>, memory.bytes(), cols, ids.data(), kIds, out.bytes());
  for (size_t i = 0; i < kIds; ++i) {
    assert_memory_equal(out.bytes() + i * cols * sizeof(T), assigned.data() + size_t(ids[i]) * cols, cols * sizeof(T));
  }
  assert_true(memory.guard_is_whole() && out.guard_is_whole());
}

void rows_are_worked_off_in_their_order_and_repeats_add_up(void**) {
  on_every_target([] {
    for (const size_t cols : {1, 2, 3, 7, 8, 16, 33, 100}) {
      rows_equal_the_plain_loop<float>(cols);
      rows_equal_the_plain_loop<double>(cols);
    }
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(add_is_bit_equal_to_the_plain_loop),
      cmocka_unit_test(add_of_a_range_to_itself_doubles_it),
      cmocka_unit_test(add_carries_nan_and_infinity),
      cmocka_unit_test(one_nan_or_infinity_anywhere_is_found),
      cmocka_unit_test(rows_are_worked_off_in_their_order_and_repeats_add_up),
  };
  return cmocka_run_group_tests_name("math/kernels", tests, nullptr, nullptr);
}
