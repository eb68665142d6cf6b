// The arrays of an operation as one value: its elements are reduced, written and read in any order, out of place and in place.

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "engine/collective/value.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::collective::Range;
using mv::collective::Value;
namespace math = mv::math;

/// A value, and its expected content.
class Twins {
 public:
  Twins(std::vector<size_t> counts, bool in_place) {
    for (const size_t count : counts) {
      in_.emplace_back(count);
      out_.emplace_back(count, -1.0);
      for (double& each : in_.back()) each = expected_.emplace_back(static_cast<double>(expected_.size() % 1000));
      if (in_place) out_.back() = in_.back();
    }
    for (size_t i = 0; i < counts.size(); ++i)
      value_.add({bytes(out_[i]), counts[i], MV_F64}, math::Reduction::kSum, in_place ? nullptr : bytes(in_[i]));
  }

  uint64_t count() const { return expected_.size(); }
  Value& value() { return value_; }

  void reduce(const Range& range, double with) {
    const std::vector<double> theirs(range.count, with);
    value_.reduce(range, reinterpret_cast<const std::byte*>(theirs.data()), math::Operand::kFirst);
    for (uint64_t i = 0; i < range.count; ++i) expected_[range.first + i] += with;
  }
  void write(const Range& range, double number, bool straight) {
    const std::vector<double> theirs(range.count, number);
    const auto* from = reinterpret_cast<const std::byte*>(theirs.data());
    const auto memory = value_.contiguous(range);
    if (straight && !memory.empty()) {
      std::memcpy(memory.data(), from, memory.size());
      value_.written(range);
    } else {
      value_.scatter(range, from);
    }
    for (uint64_t i = 0; i < range.count; ++i) expected_[range.first + i] = number;
  }
  bool is_right(const Range& range) {
    std::vector<double> found(range.count);
    const auto memory = value_.present(range);
    if (memory.empty()) value_.gather(range, reinterpret_cast<std::byte*>(found.data()));
    else std::memcpy(found.data(), memory.data(), memory.size());
    return std::equal(found.begin(), found.end(), expected_.begin() + static_cast<ptrdiff_t>(range.first));
  }
  bool is_whole() {
    value_.bring();
    size_t at = 0;
    for (const auto& array : out_)
      for (const double each : array)
        if (each != expected_[at++]) return false;
    return true;
  }
  bool inputs_are_as_they_were() const {
    size_t at = 0;
    for (const auto& array : in_)
      for (const double each : array)
        if (each != static_cast<double>(at++ % 1000)) return false;
    return true;
  }

 private:
  static std::byte* bytes(std::vector<double>& array) { return reinterpret_cast<std::byte*>(array.data()); }
  std::vector<std::vector<double>> in_, out_;
  std::vector<double> expected_;
  Value value_;
};

void any_order_gives_the_same(void**) {
  std::mt19937 random(5);
  for (int turn = 0; turn < 40; ++turn) {
    Twins twins({80'000, 3, 0, 65'536, 700, 100'000}, turn % 4 == 0);
    for (int step = 0; step < 60; ++step) {
      const uint64_t first = random() % twins.count();
      const Range left = {first, 1 + random() % (twins.count() - first)};
      const Range range = {first, random() % 2 == 0 ? twins.value().chunk(left) : left.count};
      const auto number = static_cast<double>(random() % 100);
      switch (random() % 4) {
        case 0: twins.reduce(range, number); break;
        case 1: twins.write(range, number, random() % 2 == 0); break;
        default: assert_true(twins.is_right(range));
      }
    }
    assert_true(twins.is_whole());
    assert_true(twins.inputs_are_as_they_were());
  }
}

void large_floats_stay_where_they_are(void**) {
  std::vector<float> in(150'000, 1), out(150'000, 0);
  Value value;
  value.add({reinterpret_cast<std::byte*>(out.data()), out.size(), MV_F32}, math::Reduction::kSum, reinterpret_cast<const std::byte*>(in.data()));
  assert_ptr_equal(value.present({10, 100}).data(), in.data() + 10);
  const std::vector<float> theirs(50, 2);
  value.reduce({10, 50}, reinterpret_cast<const std::byte*>(theirs.data()), math::Operand::kSecond);
  assert_ptr_equal(value.present({10, 50}).data(), out.data() + 10);
  assert_true(out[10] == 3 && out[59] == 3 && out[60] == 0 && in[10] == 1);
  assert_ptr_equal(value.present({59, 2}).data(), out.data() + 59);  // part of both arrays: copied together
  assert_true(out[60] == 1 && out[61] == 0);
}

/// A message's payload is a large array's elements where they are. A few elements that follow it go along, so the number of
/// contributors takes no message of its own, and no message has only a few elements.
void few_elements_go_along(void**) {
  constexpr uint64_t kLarge = 64 << 8, kChunk = 128 << 10;  // floats: 64 KiB, 512 KiB
  std::vector<float> values(4 * kChunk);
  std::vector<int64_t> numbers(3);
  const auto value_of = [&](uint64_t count, uint64_t behind) {
    Value value;
    value.add({reinterpret_cast<std::byte*>(values.data()), count, MV_F32}, math::Reduction::kSum);
    value.add({reinterpret_cast<std::byte*>(numbers.data()), behind, MV_I64}, math::Reduction::kSum);
    return value;
  };
  const auto chunk_and_head = [](const Value& value, const Range& range) {
    const uint64_t chunk = value.chunk(range);
    return std::pair(chunk, value.head({range.first, chunk}).count);
  };
  using Counts = std::pair<uint64_t, uint64_t>;
  assert_true(chunk_and_head(value_of(kLarge, 1), {0, kLarge + 1}) == Counts(kLarge + 1, kLarge));
  assert_true(chunk_and_head(value_of(kLarge, 3), {0, kLarge + 3}) == Counts(kLarge, kLarge));        // 24 bytes are too many
  assert_true(chunk_and_head(value_of(kLarge, 3), {0, kLarge + 2}) == Counts(kLarge + 2, kLarge));
  assert_true(chunk_and_head(value_of(kLarge - 1, 1), {0, kLarge}) == Counts(kLarge, kLarge));        // gathered: all is payload
  assert_true(chunk_and_head(value_of(kChunk + 1, 1), {0, kChunk + 2}) == Counts(kChunk + 2, kChunk + 1));
  assert_true(chunk_and_head(value_of(2 * kChunk, 1), {0, 2 * kChunk + 1}) == Counts(kChunk, kChunk));
  assert_true(chunk_and_head(value_of(2 * kChunk, 1), {kChunk, kChunk + 1}) == Counts(kChunk + 1, kChunk));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(any_order_gives_the_same), cmocka_unit_test(large_floats_stay_where_they_are),
                              cmocka_unit_test(few_elements_go_along)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
