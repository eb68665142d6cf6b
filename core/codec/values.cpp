#include "codec/values.hpp"

#include "math/kernels.hpp"
#include "tensor/cast.hpp"

namespace mv::codec {

namespace {

float* floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }
std::byte* bytes_of(std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); }

/// The residual also keeps the part of the sum that a float cannot represent.
void encode_doubles(const Codec& codec, const double* gradient, double* residual, size_t count, std::byte* out) {
  std::vector<float> rounded(count), left(count);
  for (size_t i = 0; i < count; ++i) {
    residual[i] += gradient[i];
    rounded[i] = static_cast<float>(residual[i]);
    residual[i] -= static_cast<double>(rounded[i]);
  }
  codec.encode(rounded.data(), left.data(), count, out);
  for (size_t i = 0; i < count; ++i) residual[i] += static_cast<double>(left[i]);
}

}  // namespace

void encode_values(const Codec& codec, mv_dtype dtype, const std::byte* gradient, std::byte* residual, size_t count,
                   std::byte* out) {
  if (dtype == MV_F32) return codec.encode(reinterpret_cast<const float*>(gradient), floats(residual), count, out);
  if (dtype == MV_F64)
    return encode_doubles(codec, reinterpret_cast<const double*>(gradient), reinterpret_cast<double*>(residual), count,
                          out);
  std::vector<float> wide(count);
  tensor::cast_elements(MV_F32, bytes_of(wide), dtype, gradient, count);
  codec.encode(wide.data(), floats(residual), count, out);
}

void decode_values(const Codec& codec, mv_dtype dtype, const std::byte* encoded, std::byte* values, size_t count) {
  if (dtype == MV_F32) return codec.decode(encoded, floats(values), count);
  std::vector<float> wide(count);
  codec.decode(encoded, wide.data(), count);
  tensor::cast_elements(dtype, values, MV_F32, bytes_of(wide), count);
}

void decode_add_values(const Codec& codec, mv_dtype dtype, const std::byte* encoded, std::byte* stored, size_t count) {
  if (dtype != MV_F64) return codec.decode_add(encoded, floats(stored), count);
  std::vector<double> wide(count);
  decode_values(codec, MV_F64, encoded, reinterpret_cast<std::byte*>(wide.data()), count);
  math::add_bytes(MV_F64, stored, reinterpret_cast<const std::byte*>(wide.data()), count);
}

}  // namespace mv::codec
