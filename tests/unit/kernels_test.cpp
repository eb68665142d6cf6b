// core/math: every instruction set of this machine gives the bits of the plain loop, at any length and alignment.

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "math/convert.hpp"
#include "math/kernels.hpp"
#include "math/sum.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

constexpr size_t kLongest = 300;

/// Runs `check` once for each instruction set, and names the failing one.
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

/// Integers are unsigned here, because unsigned overflow is defined: the bits equal those of the signed types.
template <typename T>
constexpr mv_dtype kDtype = std::is_floating_point_v<T> ? (sizeof(T) == 4 ? MV_F32 : MV_F64)
                            : sizeof(T) == 1            ? MV_U8
                            : sizeof(T) == 4            ? MV_I32
                                                        : MV_I64;

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

/// Values of all magnitudes, including zeros of both signs, subnormals and the largest, so that sums overflow.
template <typename T>
std::vector<T> varied(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  if constexpr (std::is_integral_v<T>) {
    for (T& value : values) value = static_cast<T>(uint64_t{random()} << 32 | random());
    return values;
  }
  const T special[] = {T(0),
                       static_cast<T>(-T(0)),
                       std::numeric_limits<T>::denorm_min(),
                       std::numeric_limits<T>::min(),
                       std::numeric_limits<T>::max(),
                       static_cast<T>(-std::numeric_limits<T>::max())};
  for (T& value : values) {
    const uint32_t pick = random() % 16;
    value = pick < std::size(special) ? special[pick]
                                      : static_cast<T>(std::ldexp(T(int32_t(random())), int(random() % 80) - 60));
  }
  return values;
}

template <typename T>
void add_equals_the_plain_loop() {
  for (size_t count = 0; count <= kLongest; ++count) {
    const auto left = varied<T>(count, 1 + uint32_t(count)), right = varied<T>(count, 1000 + uint32_t(count));
    std::vector<T> sum(count);
    for (size_t i = 0; i < count; ++i) sum[i] = static_cast<T>(left[i] + right[i]);
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
    add_equals_the_plain_loop<uint32_t>();
    add_equals_the_plain_loop<uint64_t>();
    add_equals_the_plain_loop<uint8_t>();
  });
}

template <typename T>
void sums(std::mt19937& random) {
  for (size_t count = 0; count < kLongest; count += 1 + random() % 9) {
    const size_t how_many = 1 + random() % 5;
    std::vector<Shifted<T>> sources;
    std::vector<const std::byte*> from;
    sources.reserve(how_many);
    std::vector<T> expected;
    for (size_t s = 0; s < how_many; ++s) {
      const std::vector<T> values = varied<T>(count, static_cast<uint32_t>(random()));
      sources.emplace_back(count, random() % 64).fill(values);
      from.push_back(sources.back().bytes());
      if (s == 0) expected = values;
      for (size_t i = 0; s > 0 && i < count; ++i) expected[i] = static_cast<T>(expected[i] + values[i]);
    }
    Shifted<T> sum(count, random() % 64);
    mv::math::sum_bytes(kDtype<T>, sum.bytes(), from, count);
    assert_true(sum.holds(expected) && sum.guard_is_whole());
  }
}

void sums_are_bit_equal_to_the_plain_loop(void**) {
  on_every_target([] {
    std::mt19937 random(4);
    sums<float>(random);
    sums<double>(random);
    sums<uint32_t>(random);
    sums<uint64_t>(random);
    sums<uint8_t>(random);
  });
}

void add_of_a_range_to_itself_doubles_it(void**) {
  on_every_target([] {
    std::vector<float> values = varied<float>(257, 3), twice = values;
    for (float& value : twice) value += value;
    auto* const bytes = reinterpret_cast<std::byte*>(values.data());
    mv::math::add_bytes(MV_F32, bytes, bytes, values.size());
    assert_memory_equal(values.data(), twice.data(), twice.size() * sizeof(float));
  });
}

void add_carries_nan_and_infinity(void**) {
  on_every_target([] {
    for (size_t at = 0; at < 130; ++at) {
      std::vector<double> sum(130, 1.0), addend(130, 1.0);
      addend[at] = std::numeric_limits<double>::quiet_NaN();
      mv::math::add_bytes(MV_F64, reinterpret_cast<std::byte*>(sum.data()), reinterpret_cast<const std::byte*>(addend.data()), sum.size());
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
      T& sum = added[size_t(ids[i]) * cols + c];
      sum = static_cast<T>(sum + values[i * cols + c]);
      assigned[size_t(ids[i]) * cols + c] = values[i * cols + c];
    }
  }
  Shifted<T> memory(table.size(), 4), source(values.size(), 12), out(kIds * cols, 1);
  source.fill(values);
  memory.fill(table);
  mv::math::add_rows(kDtype<T>, memory.bytes(), cols, {ids.data(), kIds}, source.bytes());
  assert_true(memory.holds(added));
  memory.fill(table);
  mv::math::set_rows(kDtype<T>, memory.bytes(), cols, {ids.data(), kIds}, source.bytes());
  assert_true(memory.holds(assigned));
  mv::math::gather_rows(kDtype<T>, memory.bytes(), cols, {ids.data(), kIds}, out.bytes());
  for (size_t i = 0; i < kIds; ++i) {
    assert_memory_equal(out.bytes() + i * cols * sizeof(T), assigned.data() + size_t(ids[i]) * cols, cols * sizeof(T));
  }
  // The same with the values in another order.
  std::vector<uint32_t> places(kIds);
  for (size_t i = 0; i < kIds; ++i) places[i] = uint32_t(kIds - 1 - i);
  std::vector<T> turned(values.size());
  for (size_t i = 0; i < kIds; ++i) std::copy_n(&values[i * cols], cols, &turned[places[i] * cols]);
  source.fill(turned);
  memory.fill(table);
  mv::math::add_rows(kDtype<T>, memory.bytes(), cols, {ids.data(), kIds, places.data()}, source.bytes());
  assert_true(memory.holds(added));
  mv::math::set_rows(kDtype<T>, memory.bytes(), cols, {ids.data(), kIds, places.data()}, source.bytes());
  for (size_t row = 0; row < kRows; ++row) {
    const bool is_set = std::ranges::find(ids, int64_t(row)) != ids.end();
    const auto& expected = is_set ? assigned : added;
    assert_memory_equal(memory.bytes() + row * cols * sizeof(T), &expected[row * cols], cols * sizeof(T));
  }
  mv::math::gather_rows(kDtype<T>, memory.bytes(), cols, {ids.data(), kIds, places.data()}, out.bytes());
  for (size_t i = 0; i < kIds; ++i)
    assert_memory_equal(out.bytes() + places[i] * cols * sizeof(T), &assigned[size_t(ids[i]) * cols], cols * sizeof(T));
  assert_true(memory.guard_is_whole() && out.guard_is_whole());
}

void rows_are_worked_off_in_their_order_and_repeats_add_up(void**) {
  on_every_target([] {
    for (const size_t cols : {1, 2, 3, 7, 8, 16, 33, 100, 600}) {
      rows_equal_the_plain_loop<float>(cols);
      rows_equal_the_plain_loop<double>(cols);
      rows_equal_the_plain_loop<uint32_t>(cols);
      rows_equal_the_plain_loop<uint64_t>(cols);
      rows_equal_the_plain_loop<uint8_t>(cols);
    }
  });
}

// ---- f16 and bf16 stored as floats

std::vector<uint16_t> some_halves(mv_dtype dtype, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> floats(count);
  for (float& value : floats) value = std::ldexp(float(int32_t(random())), -int(random() % 50));
  std::vector<uint16_t> halves(count);
  mv::math::narrow_bytes(dtype, reinterpret_cast<std::byte*>(halves.data()),
                         reinterpret_cast<const std::byte*>(floats.data()), count);
  return halves;
}

std::vector<float> as_floats(mv_dtype dtype, const std::vector<uint16_t>& halves) {
  std::vector<float> floats(halves.size());
  mv::math::widen_bytes(dtype, reinterpret_cast<std::byte*>(floats.data()),
                        reinterpret_cast<const std::byte*>(halves.data()), halves.size());
  return floats;
}

void halves_are_added_to_floats(void**) {
  on_every_target([] {
    for (const mv_dtype dtype : {MV_F16, MV_BF16}) {
      for (size_t count = 0; count <= 150; ++count) {
        const auto halves = some_halves(dtype, count, uint32_t(count));
        const auto floats = as_floats(dtype, halves);
        auto sums = varied<float>(count, 4);
        Shifted<float> stored(count, 4 * (count % 5));
        Shifted<uint16_t> source(count, count % 7);
        stored.fill(sums);
        source.fill(halves);
        mv::math::add_bytes(dtype, stored.bytes(), source.bytes(), count);
        for (size_t i = 0; i < count; ++i) sums[i] += floats[i];
        assert_true(stored.holds(sums) && stored.guard_is_whole());
        mv::math::store_bytes(dtype, stored.bytes(), source.bytes(), count);
        assert_true(stored.holds(floats));
        Shifted<uint16_t> back(count, 3);
        mv::math::load_bytes(dtype, stored.bytes(), back.bytes(), count);
        assert_true(back.holds(halves) && back.guard_is_whole());
      }
    }
  });
}

void rows_of_halves_are_rows_of_floats(void**) {
  on_every_target([] {
    constexpr size_t kRows = 9, kCols = 21;
    for (const mv_dtype dtype : {MV_F16, MV_BF16}) {
      const std::vector<int64_t> ids = {4, 8, 4, 0};
      const auto halves = some_halves(dtype, ids.size() * kCols, 3);
      const auto floats = as_floats(dtype, halves);
      std::vector<float> stored(kRows * kCols), added(kRows * kCols);
      for (size_t i = 0; i < floats.size(); ++i) added[size_t(ids[i / kCols]) * kCols + i % kCols] += floats[i];
      auto* const memory = reinterpret_cast<std::byte*>(stored.data());
      const auto* const source = reinterpret_cast<const std::byte*>(halves.data());
      mv::math::add_rows(dtype, memory, kCols, {ids.data(), ids.size()}, source);
      assert_memory_equal(stored.data(), added.data(), stored.size() * sizeof(float));
      mv::math::set_rows(dtype, memory, kCols, {ids.data(), ids.size()}, source);
      std::vector<uint16_t> got(halves.size());
      mv::math::gather_rows(dtype, memory, kCols, {ids.data(), ids.size()}, reinterpret_cast<std::byte*>(got.data()));
      assert_memory_equal(&got[kCols], &halves[kCols], 3 * kCols * sizeof(uint16_t));
      assert_memory_equal(&got[0], &halves[2 * kCols], kCols * sizeof(uint16_t));  // the last one counts
    }
  });
}

void non_finite_halves_are_found(void**) {
  on_every_target([] {
    for (size_t count = 1; count < 200; ++count) {
      std::vector<uint16_t> halves(count, 0x7bff);
      const auto finite = [&](mv_dtype dtype) {
        return mv::math::all_finite_bytes(dtype, reinterpret_cast<const std::byte*>(halves.data()), count);
      };
      assert_true(finite(MV_F16) && finite(MV_BF16));
      halves[count * 7 % count] = count % 2 == 0 ? 0xfc00 : 0x7c01;
      assert_true(!finite(MV_F16) && finite(MV_BF16));
      halves[count * 5 % count] = count % 2 == 0 ? 0xff80 : 0x7fc0;
      assert_true(!finite(MV_BF16));
      assert_true(mv::math::all_finite_bytes(MV_U8, reinterpret_cast<const std::byte*>(halves.data()), count));
    }
  });
}

void increasing_ids_are_recognised(void**) {
  on_every_target([] {
    std::vector<int64_t> ids = {std::numeric_limits<int64_t>::min(), -5, -1, 0, 1, 2, 3};
    while (ids.size() < 100) ids.push_back(ids.back() + int64_t(ids.size()) * 1'000'000'007);
    ids.push_back(std::numeric_limits<int64_t>::max());
    for (size_t count = 0; count <= ids.size(); ++count) {
      assert_true(mv::math::strictly_increasing(std::span(ids).first(count)));
      for (size_t at = 1; at < count; ++at) {
        auto broken = ids;
        broken[at] = broken[at - 1];
        assert_false(mv::math::strictly_increasing(std::span(broken).first(count)));
      }
    }
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(add_is_bit_equal_to_the_plain_loop),
      cmocka_unit_test(add_of_a_range_to_itself_doubles_it),
      cmocka_unit_test(add_carries_nan_and_infinity),
      cmocka_unit_test(sums_are_bit_equal_to_the_plain_loop),
      cmocka_unit_test(one_nan_or_infinity_anywhere_is_found),
      cmocka_unit_test(rows_are_worked_off_in_their_order_and_repeats_add_up),
      cmocka_unit_test(halves_are_added_to_floats),
      cmocka_unit_test(rows_of_halves_are_rows_of_floats),
      cmocka_unit_test(non_finite_halves_are_found),
      cmocka_unit_test(increasing_ids_are_recognised),
  };
  return cmocka_run_group_tests_name("math/kernels", tests, nullptr, nullptr);
}
