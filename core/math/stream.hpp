#pragma once
// Copies past the caches. A kernel as in kernels.hpp.

#include <cstddef>

namespace mv::math {

/// dst[i] = src[i], past the caches: for memory that another processor has read and will read again. Writing to a line that another one has
/// in its cache waits for it to give that up, line by line, which takes several times as long as the way through memory does. `dst` lies on
/// a multiple of 64; the ranges do not overlap. What is stored afterwards is seen after it.
void stream_bytes(std::byte* dst, const std::byte* src, size_t bytes) noexcept;

}  // namespace mv::math
