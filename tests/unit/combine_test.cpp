// core/shard/combine: repeated rows of an add are summed once.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "halves.hpp"
#include "shard/combine.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::shard;

Spec spec_of(mv_dtype dtype, uint64_t cols) {
  return {.name = "t", .kind = MV_KEYVALUE, .dtype = dtype, .rows = 0, .cols = cols};
}

template <typename T>
const std::byte* bytes(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

template <typename T>
void sums_like_a_map(mv_dtype dtype, size_t cols, size_t count, size_t distinct) {
  std::mt19937_64 random(count * 31 + cols);
  std::vector<int64_t> pool(distinct), rows(count), order;
  for (int64_t& id : pool) id = static_cast<int64_t>(random());
  pool[0] = std::numeric_limits<int64_t>::min();
  if (distinct > 2) pool[1] = -1, pool[2] = 0;
  for (int64_t& id : rows) id = pool[random() % distinct];
  std::vector<T> values(count * cols);
  for (T& value : values) value = static_cast<T>(static_cast<int32_t>(random()));
  std::map<int64_t, std::vector<T>> sums;
  for (size_t i = 0; i < count; ++i) {
    auto [at, is_new] = sums.try_emplace(rows[i]);
    if (is_new) order.push_back(rows[i]);
    if (is_new) at->second.assign(&values[i * cols], &values[i * cols] + cols);
    if (!is_new)
      for (size_t c = 0; c < cols; ++c) at->second[c] = static_cast<T>(at->second[c] + values[i * cols + c]);
  }
  Combined out;
  const bool repeats = combine(spec_of(dtype, cols), rows, bytes(values), &out);
  assert_true(repeats == (order.size() < count));
  if (!repeats) return;
  assert_true(out.rows == order);
  assert_int_equal(out.values.size(), order.size() * cols * sizeof(T));
  for (size_t i = 0; i < order.size(); ++i)
    assert_memory_equal(out.values.data() + i * cols * sizeof(T), sums[order[i]].data(), cols * sizeof(T));
}

void repeated_rows_are_summed_in_the_order_of_their_first_appearance(void**) {
  for (const size_t cols : {1, 3, 50}) {
    for (const auto& [count, distinct] :
         {std::pair<size_t, size_t>{1, 1}, {2, 1}, {100, 7}, {1000, 990}, {5000, 100000}}) {
      sums_like_a_map<float>(MV_F32, cols, count, distinct);
      sums_like_a_map<double>(MV_F64, cols, count, distinct);
      sums_like_a_map<uint32_t>(MV_I32, cols, count, distinct);
      sums_like_a_map<uint64_t>(MV_I64, cols, count, distinct);
      sums_like_a_map<uint8_t>(MV_U8, cols, count, distinct);
      sums_like_a_map<int8_t>(MV_I8, cols, count, distinct);
    }
  }
}

void increasing_rows_and_distinct_ones_stay_as_they_are(void**) {
  std::vector<int64_t> rows(10'000);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i * 3) - 500;
  const std::vector<float> values(rows.size(), 1);
  Combined out;
  assert_false(combine(spec_of(MV_F32, 1), rows, bytes(values), &out));
  std::ranges::reverse(rows);
  assert_false(combine(spec_of(MV_F32, 1), rows, bytes(values), &out));
  assert_false(combine(spec_of(MV_F32, 1), {}, nullptr, &out));
  assert_true(out.rows.empty() && out.values.empty());
  for (const size_t at : {1, 17, 9'999}) {  // one repeat, at any position
    auto repeating = rows;
    repeating[at] = repeating[at - 1];
    assert_true(combine(spec_of(MV_F32, 1), repeating, bytes(values), &out));
    assert_int_equal(out.rows.size(), rows.size() - 1);
  }
}

void halves_are_summed_as_floats_and_rounded_once(void**) {
  // 2048 + 1 is not representable in f16: summed one by one in f16, the ones would be lost.
  std::vector<float> floats(9, 1);
  floats[0] = 2048;
  std::vector<uint16_t> halves(floats.size());
  narrow(MV_F16, halves, floats);
  Combined out;
  assert_true(combine(spec_of(MV_F16, 1), std::vector<int64_t>(floats.size(), 42), bytes(halves), &out));
  uint16_t sum;
  assert_int_equal(out.values.size(), sizeof(sum));
  std::memcpy(&sum, out.values.data(), sizeof(sum));
  float value;
  widen(MV_F16, {&value, 1}, {&sum, 1});
  assert_true(value == 2056);
}

void minus_zero_stays(void**) {
  const std::vector<double> values = {-0.0, 1, 2};
  Combined out;
  assert_true(combine(spec_of(MV_F64, 1), std::vector<int64_t>{5, 6, 6}, bytes(values), &out));
  const double expected[] = {-0.0, 3};
  assert_memory_equal(out.values.data(), expected, sizeof(expected));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(repeated_rows_are_summed_in_the_order_of_their_first_appearance),
      cmocka_unit_test(increasing_rows_and_distinct_ones_stay_as_they_are),
      cmocka_unit_test(halves_are_summed_as_floats_and_rounded_once),
      cmocka_unit_test(minus_zero_stays),
  };
  return cmocka_run_group_tests_name("table/combine", tests, nullptr, nullptr);
}
