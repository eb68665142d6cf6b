#pragma once
// A copy with non-temporal stores. A kernel as in kernels.hpp.

#include <cstddef>

namespace mv::math {

/// dst[i] = src[i], with stores that bypass the caches: for memory that another core has read and will read again. A
/// normal store to a cache line that another core holds must invalidate it there first, line by line. That takes
/// several times as long as the way through memory. `dst` is aligned to 64; the ranges do not overlap. Later stores
/// become visible after the copy.
void stream_bytes(std::byte* dst, const std::byte* src, size_t bytes) noexcept;

}  // namespace mv::math
