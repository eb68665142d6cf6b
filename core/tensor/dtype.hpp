#pragma once
// Element types: their sizes and their names.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace mv::tensor {

/// Bytes of one element: MV_RAW counts bytes, so 1; 0 for a number that is no mv_dtype.
constexpr size_t dtype_bytes(mv_dtype dtype) {
  switch (dtype) {
    case MV_RAW:
      return 1;
    case MV_F32:
      return 4;
    case MV_F64:
      return 8;
    case MV_I64:
      return 8;
    default:
      return 0;
  }
}

/// Whether a table may have it.
constexpr bool is_table_dtype(mv_dtype dtype) { return dtype == MV_F32 || dtype == MV_F64; }

/// The name that texts and messages use: "f32".
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
    default:
      return "unknown";
  }
}

/// "f32", or what NumPy, Torch and C call it: "float32", "float". Nothing for any other text, nor for substrings of these.
constexpr std::optional<mv_dtype> parse_dtype(std::string_view text) {
  if (text == "raw" || text == "bytes") return MV_RAW;
  if (text == "f32" || text == "float32" || text == "float") return MV_F32;
  if (text == "f64" || text == "float64" || text == "double") return MV_F64;
  if (text == "i64" || text == "int64") return MV_I64;
  return std::nullopt;
}

}  // namespace mv::tensor
