#pragma once
// Codecs, which know floats, for values of any floating dtype.
//
// Residuals are of the storage dtype: f32, and f64 for f64, so that nothing of it is lost for good either.

#include <polyverso/polyverso.h>

#include "codec/codec.hpp"

namespace mv::codec {

/// As Codec::encode(): `gradient` of dtype, `residual` of its storage dtype.
void encode_values(const Codec& codec, mv_dtype dtype, const std::byte* gradient, std::byte* residual, size_t count,
                   std::byte* out);
/// values[i] = what was sent, rounded to dtype.
void decode_values(const Codec& codec, mv_dtype dtype, const std::byte* encoded, std::byte* values, size_t count);
/// stored[i] += what was sent; `stored` of dtype's storage dtype.
void decode_add_values(const Codec& codec, mv_dtype dtype, const std::byte* encoded, std::byte* stored, size_t count);

}  // namespace mv::codec
