#pragma once
// Element types: their sizes and their names.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <optional>
#include <string_view>

#include "math/elements.hpp"

namespace mv::tensor {

/// Bytes of one element: 1 for MV_RAW, which counts bytes; 0 for an invalid mv_dtype.
constexpr size_t dtype_bytes(mv_dtype dtype) {
  switch (dtype) {
    case MV_RAW:
    case MV_U8:
    case MV_I8:
      return 1;
    case MV_F16:
    case MV_BF16:
      return 2;
    case MV_F32:
    case MV_I32:
      return 4;
    case MV_F64:
    case MV_I64:
      return 8;
    default:
      return 0;
  }
}

/// Whether a table or a tensor may have this dtype.
constexpr bool is_table_dtype(mv_dtype dtype) { return dtype != MV_RAW && dtype_bytes(dtype) > 0; }

using math::is_floating;

/// The dtype in which values of this dtype are computed and stored on servers: f32 for halves.
constexpr mv_dtype storage_dtype(mv_dtype dtype) { return math::is_half(dtype) ? MV_F32 : dtype; }

/// The name in texts and messages: "f32".
constexpr std::string_view dtype_name(mv_dtype dtype) {
  switch (dtype) {
    case MV_RAW:
      return "raw";
    case MV_F32:
      return "f32";
    case MV_F64:
      return "f64";
    case MV_I64:
      return "i64";
    case MV_I32:
      return "i32";
    case MV_U8:
      return "u8";
    case MV_F16:
      return "f16";
    case MV_BF16:
      return "bf16";
    case MV_I8:
      return "i8";
    default:
      return "unknown";
  }
}

/// Parses "f32" or the name in NumPy, Torch or C: "float32", "float". Empty for any other text, also for substrings.
constexpr std::optional<mv_dtype> parse_dtype(std::string_view text) {
  if (text == "raw" || text == "bytes") return MV_RAW;
  if (text == "f32" || text == "float32" || text == "float") return MV_F32;
  if (text == "f64" || text == "float64" || text == "double") return MV_F64;
  if (text == "i64" || text == "int64") return MV_I64;
  if (text == "i32" || text == "int32" || text == "int") return MV_I32;
  if (text == "u8" || text == "uint8" || text == "byte") return MV_U8;
  if (text == "i8" || text == "int8" || text == "char") return MV_I8;
  if (text == "f16" || text == "float16" || text == "half") return MV_F16;
  if (text == "bf16" || text == "bfloat16") return MV_BF16;
  return std::nullopt;
}

}  // namespace mv::tensor
