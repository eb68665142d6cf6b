// core/codec: the sent values and the residual add up to the input, on every instruction set.

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::codec::CodecRef;

/// Every codec, with parameters of all kinds.
constexpr const char* kCodecs[] = {"2bit",
                                   "2bit threshold=0.125",
                                   "1bit",
                                   "1bit threshold=0 scale=0.25",
                                   "1bit threshold=-0.5",
                                   "fp16",
                                   "bf16",
                                   "int8",
                                   "int8 block=16",
                                   "topk",
                                   "topk ratio=0.3",
                                   "topk k=5"};
constexpr size_t kCounts[] = {1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 100, 255, 256, 257, 1000, 4099};

CodecRef codec_of(std::string_view text) {
  const auto spec = mv::codec::parse(text);
  if (!spec.ok()) fail_msg("%s", spec.status().text().c_str());
  return mv::codec::make(spec.value());
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

/// Multiples of 2^-7, so that all sums of the tests are exact.
std::vector<float> coarse(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 513) - 256) / 128;
  return values;
}

std::vector<float> fine(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 20) - 16);
  return values;
}

std::vector<std::byte> encode(const CodecRef& codec, const std::vector<float>& gradient, std::vector<float>* residual) {
  // One more byte at each end: codecs must not write there, and must not need alignment.
  std::vector<std::byte> memory(codec->encoded_bytes(gradient.size()) + 2, std::byte{0x5a});
  codec->encode(gradient.data(), residual->data(), gradient.size(), memory.data() + 1);
  assert_true(memory.front() == std::byte{0x5a} && memory.back() == std::byte{0x5a});
  return {memory.begin() + 1, memory.end() - 1};
}

void sent_values_and_residual_add_up_to_the_input(void**) {
  on_every_target([] {
    for (const char* text : kCodecs) {
      const CodecRef codec = codec_of(text);
      for (const size_t count : kCounts) {
        std::vector<float> residual(count), sent(count), given(count);
        for (uint32_t step = 0; step < 12; ++step) {
          const auto gradient = coarse(count, step * 1000 + static_cast<uint32_t>(count));
          const auto encoded = encode(codec, gradient, &residual);
          assert_true(codec->check(encoded, count).ok());
          codec->decode_add(encoded.data(), sent.data(), count);
          for (size_t i = 0; i < count; ++i) given[i] += gradient[i];
        }
        const bool is_exact = std::string_view(text).find("int8") == std::string_view::npos;
        for (size_t i = 0; i < count; ++i) {
          const float all = sent[i] + residual[i];
          if (is_exact ? all != given[i] : std::abs(all - given[i]) > 1e-4f)
            fail_msg("%s, %zu values, value %zu: sent %g and kept %g of %g", text, count, i, sent[i], residual[i], given[i]);
        }
      }
    }
  });
}

void uneven_numbers_keep_their_sum_to_their_rounding(void**) {
  for (const char* text : kCodecs) {
    const CodecRef codec = codec_of(text);
    const size_t count = 777;
    std::vector<float> residual(count);
    std::vector<double> sent(count), given(count), size(count, 1);
    for (uint32_t step = 0; step < 30; ++step) {
      const auto gradient = fine(count, step);
      const auto encoded = encode(codec, gradient, &residual);
      std::vector<float> decoded(count, 9);
      codec->decode(encoded.data(), decoded.data(), count);
      for (size_t i = 0; i < count; ++i) {
        sent[i] += decoded[i];
        given[i] += gradient[i];
        size[i] += std::abs(gradient[i]) + std::abs(decoded[i]);
      }
    }
    for (size_t i = 0; i < count; ++i)
      if (std::abs(sent[i] + residual[i] - given[i]) > 3e-7 * size[i])
        fail_msg("%s, value %zu: sent %g and kept %g of %g", text, i, sent[i], residual[i], given[i]);
  }
}

void decoding_and_adding_agree(void**) {
  for (const char* text : kCodecs) {
    const CodecRef codec = codec_of(text);
    for (const size_t count : kCounts) {
      std::vector<float> residual(count), decoded(count, 7), sum = coarse(count, 5), both = sum;
      const auto encoded = encode(codec, coarse(count, 3), &residual);
      codec->decode(encoded.data(), decoded.data(), count);
      codec->decode_add(encoded.data(), sum.data(), count);
      for (size_t i = 0; i < count; ++i) both[i] += decoded[i];
      assert_memory_equal(sum.data(), both.data(), count * sizeof(float));
    }
  }
}

/// MXNet's 2bit, value by value.
std::vector<std::byte> slow_two_bit(const std::vector<float>& gradient, std::vector<float>* residual, float threshold) {
  std::vector<std::byte> out((gradient.size() + 15) / 16 * 4);
  for (size_t i = 0; i < gradient.size(); ++i) {
    float& left = (*residual)[i];
    left += gradient[i];
    unsigned code = 0;
    if (left >= threshold) {
      code = 3;
      left -= threshold;
    } else if (left <= -threshold) {
      code = 2;
      left += threshold;
    }
    out[i / 4] |= static_cast<std::byte>(code << (6 - 2 * (i % 4)));
  }
  return out;
}

void two_bits_are_mxnets(void**) {
  on_every_target([] {
    for (const float threshold : {0.5f, 0.1f, 3.0f}) {
      const CodecRef codec = codec_of("2bit threshold=" + std::to_string(threshold));
      for (const size_t count : kCounts) {
        std::vector<float> residual(count), slow_residual(count);
        for (uint32_t step = 0; step < 8; ++step) {
          auto gradient = fine(count, step);
          for (size_t i = step; i < count; i += 5) gradient[i] = i % 2 == 0 ? threshold : -threshold;  // at the threshold
          const auto expected = slow_two_bit(gradient, &slow_residual, threshold);
          assert_true(encode(codec, gradient, &residual) == expected);
          assert_memory_equal(residual.data(), slow_residual.data(), count * sizeof(float));
        }
      }
    }
  });
}

void known_vectors(void**) {
  // 11 10 00 11 in the first byte, 10 00 00 11 in the second; 0.49 is below the threshold.
  const std::vector<float> gradient = {0.5f, -0.5f, 0.25f, 1.0f, -2.0f, 0, 0, 0.5f, 0.49f};
  std::vector<float> residual(gradient.size());
  const auto two = encode(codec_of("2bit"), gradient, &residual);
  const std::vector<std::byte> expected = {std::byte{0b11100011}, std::byte{0b10000011}, std::byte{0}, std::byte{0}};
  assert_true(two == expected);
  const float left[] = {0, 0, 0.25f, 0.5f, -1.5f, 0, 0, 0, 0.49f};
  assert_memory_equal(residual.data(), left, sizeof left);

  std::vector<float> values(9);
  const std::byte nothing_and_all[] = {std::byte{0b01110010}, std::byte{0}, std::byte{0x80}, std::byte{0xff}};
  codec_of("2bit threshold=2")->decode(nothing_and_all, values.data(), 9);  // the code 01 is unused and means zero
  const float decoded[] = {0, 2, 0, -2, 0, 0, 0, 0, -2};
  assert_memory_equal(values.data(), decoded, sizeof decoded);

  std::fill(residual.begin(), residual.end(), 0.0f);
  const auto one = encode(codec_of("1bit"), gradient, &residual);  // 0.5 is not above the threshold
  const std::vector<std::byte> bits = {std::byte{0b00010000}, std::byte{0}, std::byte{0}, std::byte{0}};
  assert_true(one == bits);
  assert_true(residual[0] == 1.5f && residual[3] == 0.0f && residual[4] == -1.0f);

  const std::vector<float> some = {1, -3, 2, 3, 0, -2};
  std::vector<float> kept(some.size());
  const auto top = encode(codec_of("topk k=3"), some, &kept);  // of 2 and -2, the first
  uint32_t places[3];
  float sizes[3];
  std::memcpy(places, top.data(), sizeof places);
  std::memcpy(sizes, top.data() + sizeof places, sizeof sizes);
  assert_true(places[0] == 1 && places[1] == 2 && places[2] == 3);
  assert_true(sizes[0] == -3 && sizes[1] == 2 && sizes[2] == 3);
  const float rest[] = {1, 0, 0, 0, 0, -2};
  assert_memory_equal(kept.data(), rest, sizeof rest);
}

/// Of any number of values, for which topk selects in different ways; many are equal, and NaN is greater than all.
void the_greatest_are_sent(void**) {
  std::mt19937 random(7);
  for (const size_t count : {1, 2, 7, 100, 16'383, 16'384, 16'385, 40'000})
    for (const size_t k : {size_t{1}, count / 3 + 1, count}) {
      std::vector<float> values(count), kept(count);
      for (float& value : values) value = static_cast<float>(random() % 9) - 4;
      if (count > 50) values[count / 2] = std::numeric_limits<float>::quiet_NaN();
      const auto magnitude = [&](size_t i) { return std::isnan(values[i]) ? std::numeric_limits<float>::infinity() : std::abs(values[i]); };
      std::vector<uint32_t> expected(count), places(k);
      for (size_t i = 0; i < count; ++i) expected[i] = static_cast<uint32_t>(i);
      std::ranges::stable_sort(expected, [&](size_t a, size_t b) { return magnitude(a) > magnitude(b); });
      expected.resize(k);
      std::ranges::sort(expected);
      const auto sent = encode(codec_of("topk k=" + std::to_string(k)), values, &kept);
      assert_int_equal(sent.size(), k * (sizeof(uint32_t) + sizeof(float)));
      std::memcpy(places.data(), sent.data(), k * sizeof(uint32_t));
      assert_true(places == expected);
    }
}

void sizes_are_the_formulas(void**) {
  struct Expected {
    const char* codec;
    size_t count, bytes;
  };
  constexpr Expected kExpected[] = {{"2bit", 1, 4},       {"2bit", 16, 4},       {"2bit", 17, 8},      {"2bit", 1 << 20, 1 << 18},
                                    {"1bit", 32, 4},      {"1bit", 33, 8},       {"fp16", 7, 14},      {"bf16", 7, 14},
                                    {"int8", 256, 260},
                                    {"int8", 257, 265},   {"int8 block=16", 17, 25}, {"topk", 50, 8},  {"topk", 1001, 88},
                                    {"topk k=9", 1000, 72}, {"topk k=9", 4, 32}, {"topk ratio=1", 10, 80}};
  for (const Expected& one : kExpected) assert_int_equal(codec_of(one.codec)->encoded_bytes(one.count), one.bytes);
  for (const char* text : kCodecs) assert_int_equal(codec_of(text)->encoded_bytes(0), 0);
}

/// Values beyond sixteen bits, and values below the resolution of the scale, stay in the residual.
void too_large_and_too_small_values_are_not_lost(void**) {
  std::vector<float> residual(3);
  const auto encoded = encode(codec_of("fp16"), {1e6f, -1e6f, 1e-12f}, &residual);
  std::vector<float> sent(3);
  codec_of("fp16")->decode(encoded.data(), sent.data(), 3);
  assert_true(sent[0] == 65504 && sent[1] == -65504 && sent[2] == 0);
  assert_true(residual[0] == 1e6f - 65504 && residual[2] == 1e-12f);

  std::vector<float> tiny(20);
  const std::vector<float> given(20, std::numeric_limits<float>::denorm_min());
  const auto none = encode(codec_of("int8 block=16"), given, &tiny);
  assert_true(tiny == given);
  assert_true(std::ranges::all_of(none, [](std::byte one) { return one == std::byte{0}; }));
}

void hostile_bytes_are_refused(void**) {
  for (const char* text : kCodecs) {
    const CodecRef codec = codec_of(text);
    const std::vector<std::byte> bytes(codec->encoded_bytes(100) + 1);
    assert_int_equal(codec->check(bytes, 100).code(), MV_EPROTOCOL);
    assert_int_equal(codec->check(std::span(bytes).first(bytes.size() - 2), 100).code(), MV_EPROTOCOL);
    assert_int_equal(codec->check({}, 100).code(), MV_EPROTOCOL);
  }
  const CodecRef top = codec_of("topk k=2");
  const auto says = [&](uint32_t first, uint32_t second) {
    std::vector<std::byte> bytes(16);
    std::memcpy(bytes.data(), &first, 4);
    std::memcpy(bytes.data() + 4, &second, 4);
    return top->check(bytes, 10).ok();
  };
  assert_true(says(0, 9));
  assert_false(says(0, 10));
  assert_false(says(3, 3));
  assert_false(says(4, 3));
  assert_false(says(UINT32_MAX, 1));
}

void text_is_read_and_refused(void**) {
  const auto text_of = [](std::string_view text) { return mv::codec::to_text(mv::codec::parse(text).value()); };
  assert_string_equal(text_of("2bit").c_str(), "2bit threshold=0.5");
  assert_string_equal(text_of("threshold=2 type=2bit").c_str(), "2bit threshold=2");
  assert_string_equal(text_of("none").c_str(), "none");
  assert_string_equal(text_of("topk, ratio=0.5").c_str(), "topk ratio=0.5 k=0");
  const auto refused = [](std::string_view text, std::string_view part) {
    const auto spec = mv::codec::parse(text);
    assert_false(spec.ok());
    if (spec.status().text().find(part) == std::string::npos) fail_msg("%s", spec.status().text().c_str());
  };
  refused("3bit", "none, 2bit, 1bit, fp16, bf16, int8, topk");
  refused("", "2bit");
  refused("2bit size=3", "threshold=0.5");
  refused("2bit threshold=0", "above 0");
  refused("2bit threshold=x", "not a number");
  refused("2bit threshold=nan", "above 0");
  refused("2bit threshold=1 threshold=1", "twice");
  refused("fp16 threshold=1", "it has none");
  refused("int8 block=17.5", "whole number");
  refused("topk ratio=1.5", "at most 1");
  refused("none threshold=1", "none has no parameters");
  mv::codec::Spec spec = mv::codec::parse("2bit").value();
  spec.parameters.push_back(1);
  assert_false(mv::codec::check(spec).ok());
  spec.parameters = {std::numeric_limits<double>::infinity()};
  assert_false(mv::codec::check(spec).ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sent_values_and_residual_add_up_to_the_input),
      cmocka_unit_test(uneven_numbers_keep_their_sum_to_their_rounding),
      cmocka_unit_test(decoding_and_adding_agree),
      cmocka_unit_test(two_bits_are_mxnets),
      cmocka_unit_test(known_vectors),
      cmocka_unit_test(the_greatest_are_sent),
      cmocka_unit_test(sizes_are_the_formulas),
      cmocka_unit_test(too_large_and_too_small_values_are_not_lost),
      cmocka_unit_test(hostile_bytes_are_refused),
      cmocka_unit_test(text_is_read_and_refused),
  };
  return cmocka_run_group_tests_name("codec", tests, nullptr, nullptr);
}
