#pragma once
// Codecs whose values share words of 32 bits: whole words by a kernel, the values of a partial last one beside zeros.

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

/// kernel(gradient, residual, words, out)
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

/// kernel(encoded, values, words); what it adds to, if it does, it finds in `values`.
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
