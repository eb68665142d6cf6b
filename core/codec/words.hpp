#pragma once
// Helpers for codecs that pack values into 32-bit words. A kernel processes whole words; a partial last word is padded
// with zeros.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace mv::codec {

inline constexpr size_t kWordBytes = sizeof(uint32_t);

template <size_t kValues>
constexpr size_t words_of(size_t count) {
  return count / kValues + (count % kValues != 0 ? 1 : 0);
}

/// Calls kernel(gradient, residual, words, out).
template <size_t kValues, typename Kernel>
void encode_words(const float* gradient, float* residual, size_t count, std::byte* out, const Kernel& kernel) {
  const size_t whole = count / kValues, done = whole * kValues, rest = count - done;
  kernel(gradient, residual, whole, out);
  if (rest == 0) return;
  std::array<float, kValues> last{}, left{};
  std::copy_n(gradient + done, rest, last.begin());
  std::copy_n(residual + done, rest, left.begin());
  kernel(last.data(), left.data(), 1, out + whole * kWordBytes);
  std::copy_n(left.begin(), rest, residual + done);
}

/// Calls kernel(encoded, values, words). `values` has the old values, for a kernel that adds.
template <size_t kValues, typename Kernel>
void decode_words(const std::byte* encoded, float* values, size_t count, const Kernel& kernel) {
  const size_t whole = count / kValues, done = whole * kValues, rest = count - done;
  kernel(encoded, values, whole);
  if (rest == 0) return;
  std::array<float, kValues> last{};
  std::copy_n(values + done, rest, last.begin());
  kernel(encoded + whole * kWordBytes, last.data(), 1);
  std::copy_n(last.begin(), rest, values + done);
}

}  // namespace mv::codec
