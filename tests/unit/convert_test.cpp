// core/math/convert: every half-precision value of both kinds and the floats between them, on every instruction set of this machine.

#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "halves.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

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

std::vector<uint16_t> all_halves() {
  std::vector<uint16_t> halves(1 << 16);
  for (uint32_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  return halves;
}

/// The value of a binary16, from the definition.
double meaning_of_f16(uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -size : size;
}

void every_f16_has_its_ieee_value(void**) {
  const auto halves = all_halves();
  on_every_target([&] {
    std::vector<float> floats(halves.size());
    widen(MV_F16, floats, halves);
    for (size_t i = 0; i < halves.size(); ++i) {
      if ((halves[i] & 0x7c00) != 0x7c00) {
        assert_true(floats[i] == meaning_of_f16(halves[i]));
        assert_true(std::signbit(floats[i]) == ((halves[i] & 0x8000) != 0));
        continue;
      }
      const uint32_t quiet = (halves[i] & 0x3ff) != 0 ? 0x400000u : 0;
      const uint32_t bits =
          uint32_t{halves[i] & 0x8000u} << 16 | 0x7f800000u | uint32_t{halves[i] & 0x3ffu} << 13 | quiet;
      assert_int_equal(std::bit_cast<uint32_t>(floats[i]), bits);
    }
  });
}

void halves_come_back_as_they_were(void**) {
  const auto halves = all_halves();
  on_every_target([&] {
    std::vector<float> floats(halves.size());
    std::vector<uint16_t> back(halves.size());
    widen(MV_F16, floats, halves);
    narrow(MV_F16, back, floats);
    for (size_t i = 0; i < halves.size(); ++i) {
      const bool is_nan = (halves[i] & 0x7fff) > 0x7c00;
      assert_int_equal(back[i], is_nan ? halves[i] | 0x200 : halves[i]);
    }
    widen(MV_BF16, floats, halves);
    narrow(MV_BF16, back, floats);
    for (size_t i = 0; i < halves.size(); ++i) {
      const bool is_nan = (halves[i] & 0x7fff) > 0x7f80;
      assert_int_equal(back[i], is_nan ? halves[i] | 0x40 : halves[i]);
      if (!is_nan) assert_int_equal(std::bit_cast<uint32_t>(floats[i]), uint32_t{halves[i]} << 16);
    }
  });
}

/// Of the floats between two neighbours, those below the midpoint round down, those above it round up, and the midpoint rounds to even.
void check_rounding(mv_dtype dtype, uint16_t last_finite, const std::vector<float>& values) {
  std::vector<float> asked;
  std::vector<uint16_t> expected;
  for (uint16_t half = 0; half < last_finite; ++half) {
    const float low = values[half], high = values[half + 1u];
    const float middle = static_cast<float>((double{low} + double{high}) / 2);
    const auto even = static_cast<uint16_t>((half & 1) != 0 ? half + 1 : half);
    for (const float sign : {1.0f, -1.0f}) {
      const uint16_t bit = sign < 0 ? 0x8000 : 0;
      asked.insert(asked.end(), {sign * std::nextafter(middle, 0.0f), sign * middle,
                                 sign * std::nextafter(middle, std::numeric_limits<float>::infinity())});
      expected.insert(expected.end(), {static_cast<uint16_t>(half | bit), static_cast<uint16_t>(even | bit),
                                       static_cast<uint16_t>((half + 1) | bit)});
    }
  }
  std::vector<uint16_t> got(asked.size());
  narrow(dtype, got, asked);
  assert_memory_equal(got.data(), expected.data(), got.size() * sizeof(uint16_t));
}

void narrowing_rounds_to_nearest_even(void**) {
  const auto halves = all_halves();
  on_every_target([&] {
    std::vector<float> values(halves.size());
    widen(MV_F16, values, halves);
    values[0x7c00] = 65536;  // the value of infinity if the exponents continued
    check_rounding(MV_F16, 0x7c00, values);
    // bf16's subnormals are f32's, and a float can represent their midpoints.
    widen(MV_BF16, values, halves);
    check_rounding(MV_BF16, 0x7f7f, values);
  });
}

void overflow_gives_infinity_and_nan_stays_quiet(void**) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> asked = {65519.996f,
                                    65520,
                                    1e30f,
                                    infinity,
                                    -infinity,
                                    std::bit_cast<float>(0x7f800001u),
                                    std::bit_cast<float>(0xffffffffu),
                                    1e-8f,
                                    -1e-30f,
                                    1e-45f,
                                    3.4e38f,
                                    3.39e38f};
  const std::vector<uint16_t> f16 = {0x7bff, 0x7c00, 0x7c00, 0x7c00, 0xfc00, 0x7e00,
                                     0xffff, 0,      0x8000, 0,      0x7c00, 0x7c00};
  const std::vector<uint16_t> bf16 = {0x4780, 0x4780, 0x714a, 0x7f80, 0xff80, 0x7fc0,
                                      0xffff, 0x322c, 0x8da2, 0,      0x7f80, 0x7f7f};
  on_every_target([&] {
    std::vector<uint16_t> got(asked.size());
    narrow(MV_F16, got, asked);
    assert_memory_equal(got.data(), f16.data(), got.size() * sizeof(uint16_t));
    narrow(MV_BF16, got, asked);
    assert_memory_equal(got.data(), bf16.data(), got.size() * sizeof(uint16_t));
  });
}

void any_length_and_alignment_will_do(void**) {
  on_every_target([] {
    for (size_t count = 0; count < 70; ++count) {
      std::vector<std::byte> in(count * 4 + 1), out(count * 2 + 2, std::byte{0x5a}),
          back(count * 4 + 2, std::byte{0x5a});
      for (size_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(i) * 0.25f - 3;
        std::memcpy(&in[1 + i * 4], &value, 4);
      }
      for (const mv_dtype dtype : {MV_F16, MV_BF16}) {
        mv::math::narrow_bytes(dtype, out.data() + 1, in.data() + 1, count);
        mv::math::widen_bytes(dtype, back.data() + 1, out.data() + 1, count);
        assert_memory_equal(back.data() + 1, in.data() + 1, count * 4);
        assert_true(out[0] == std::byte{0x5a} && out[count * 2 + 1] == std::byte{0x5a});
        assert_true(back[0] == std::byte{0x5a} && back[count * 4 + 1] == std::byte{0x5a});
      }
    }
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_f16_has_its_ieee_value),     cmocka_unit_test(halves_come_back_as_they_were),
      cmocka_unit_test(narrowing_rounds_to_nearest_even), cmocka_unit_test(overflow_gives_infinity_and_nan_stays_quiet),
      cmocka_unit_test(any_length_and_alignment_will_do),
  };
  return cmocka_run_group_tests_name("math/convert", tests, nullptr, nullptr);
}
