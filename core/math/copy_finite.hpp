#pragma once
// Copies that look at what they copy. A kernel as in kernels.hpp.

#include <polyverso/polyverso.h>

#include <cstddef>

namespace mv::math {

/// Where a copy goes. Past the caches is faster where they would not keep it anyway until somebody reads it.
enum class Copied { kByCaches, kPastCaches };

/// dst[i] = src[i] for elements of any dtype, MV_RAW among them, each of `element_bytes`. False if any value is NaN or infinite;
/// everything is copied all the same. The ranges do not overlap.
bool copy_finite_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, size_t element_bytes, Copied how) noexcept;

}  // namespace mv::math
