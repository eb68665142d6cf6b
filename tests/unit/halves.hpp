#pragma once
// Conversions of whole vectors between halves and floats.

#include <span>

#include "math/convert.hpp"

inline void widen(mv_dtype dtype, std::span<float> to, std::span<const uint16_t> from) {
  mv::math::widen_bytes(dtype, std::as_writable_bytes(to).data(), std::as_bytes(from).data(), from.size());
}
inline void narrow(mv_dtype dtype, std::span<uint16_t> to, std::span<const float> from) {
  mv::math::narrow_bytes(dtype, std::as_writable_bytes(to).data(), std::as_bytes(from).data(), from.size());
}
