#pragma once
// Copies, also with stores that bypass the caches. Kernels as in kernels.hpp.

#include <polyverso/polyverso.h>

#include <cstddef>

namespace mv::math {

/// dst[i] = src[i], with stores that bypass the caches: for memory that another core has read and will read again. A
/// normal store to a cache line that another core holds must invalidate it there first, line by line. That takes
/// several times as long as the way through memory. `dst` is aligned to 64; the ranges do not overlap. Later stores
/// become visible after the copy.
void stream_bytes(std::byte* dst, const std::byte* src, size_t bytes) noexcept;

/// The kind of stores. Bypassing the caches is faster if they would evict the data before it is read.
enum class Copied { kByCaches, kPastCaches };

/// dst[i] = src[i] for elements of any dtype, including MV_RAW, of `element_bytes` each. False if any value is NaN or
/// infinite; everything is copied nevertheless. The ranges do not overlap.
bool copy_finite_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, size_t element_bytes, Copied how) noexcept;

}  // namespace mv::math
