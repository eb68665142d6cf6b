#pragma once
// Codecs for values of any floating dtype; the codecs themselves only take f32.
//
// Residuals have the storage dtype: f32, or f64 for f64, so no part of an f64 is lost for good either.

#include <polyverso/polyverso.h>

#include "codec/codec.hpp"

namespace mv::codec {

/// Like Codec::encode(); `gradient` has the dtype, `residual` its storage dtype.
void encode_values(const Codec& codec, mv_dtype dtype, const std::byte* gradient, std::byte* residual, size_t count,
                   std::byte* out);
/// values[i] = the sent value, rounded to dtype.
void decode_values(const Codec& codec, mv_dtype dtype, const std::byte* encoded, std::byte* values, size_t count);
/// stored[i] += the sent value; `stored` has the storage dtype of dtype.
void decode_add_values(const Codec& codec, mv_dtype dtype, const std::byte* encoded, std::byte* stored, size_t count);

}  // namespace mv::codec
