// Untrusted encoded gradients: any input is decoded into its place, or refused. The input is a codec as text, a newline, a number of values
// in two bytes, and the encoded values.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "codec/codec.hpp"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float one, float other) { return one == other || (one != one && other != other); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\n');
  uint16_t count = 0;
  if (end == std::string_view::npos || size - end - 1 < sizeof count) return 0;
  const auto spec = mv::codec::parse(input.substr(0, end));
  if (!spec.ok()) {
    check(!spec.status().text().empty());
    return 0;
  }
  check(mv::codec::check(spec.value()).ok());
  check(mv::codec::parse(mv::codec::to_text(spec.value())).value() == spec.value());
  if (spec.value().is_none()) return 0;
  const mv::codec::CodecRef codec = mv::codec::make(spec.value());
  std::memcpy(&count, data + end + 1, sizeof count);
  const std::byte* const begin = reinterpret_cast<const std::byte*>(data) + end + 1 + sizeof count;
  const std::vector<std::byte> encoded(begin, reinterpret_cast<const std::byte*>(data) + size);
  if (!codec->check(encoded, count).ok()) return 0;
  check(encoded.size() == codec->encoded_bytes(count));
  std::vector<float> values(count, 1), sum(count);
  codec->decode(encoded.data(), values.data(), count);
  codec->decode_add(encoded.data(), sum.data(), count);
  check(same(values, sum));
  return 0;
}
