#pragma once
// A copy that checks its values for NaN and infinity. A kernel as in kernels.hpp.

#include <polyverso/polyverso.h>

#include <cstddef>

namespace mv::math {

/// The kind of stores. Bypassing the caches is faster if they would evict the data before it is read.
enum class Copied { kByCaches, kPastCaches };

/// dst[i] = src[i] for elements of any dtype, including MV_RAW, of `element_bytes` each. False if any value is NaN or
/// infinite; everything is copied nevertheless. The ranges do not overlap.
bool copy_finite_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, size_t element_bytes, Copied how) noexcept;

}  // namespace mv::math
