#pragma once
// The SIMD kernels for tables. Every kernel selects the best instruction set of the machine at run time, and its
// results are bit-equal on all of them: no fused multiply-add, no reassociation. (An operation on two NaNs gives a NaN,
// but the compiler decides which of the two payloads survives.) Integers wrap around.
//
// Pointers need no alignment: values are used in place in a message. The ranges of one call are disjoint or identical.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace mv::math {

// Memory whose dtype is known only at run time: any except MV_RAW. Counts are in elements. Memory named
// `stored` holds floats if the dtype is a half (MV_F16, MV_BF16), otherwise the dtype itself. Halves are widened when
// stored, and rounded to nearest, ties to even, when loaded, in the same pass.

/// stored[i] += src[i]
void add_bytes(mv_dtype dtype, std::byte* stored, const std::byte* src, size_t count) noexcept;
/// stored[i] = src[i], and out[i] = stored[i].
void store_bytes(mv_dtype dtype, std::byte* stored, const std::byte* src, size_t count) noexcept;
void load_bytes(mv_dtype dtype, const std::byte* stored, std::byte* out, size_t count) noexcept;
/// False if any value is NaN or infinite. Raises no floating-point exception flags.
bool all_finite_bytes(mv_dtype dtype, const std::byte* values, size_t count) noexcept;

/// Whether rows[0] < rows[1] < …, which excludes repeats.
bool strictly_increasing(std::span<const int64_t> rows) noexcept;

/// Chosen rows of a table. The caller has checked that the ids are in range. They come in any order and may repeat.
struct Chosen {
  const int64_t* rows;
  size_t count;
  const uint32_t* places = nullptr;
  /// The row of values, or of out, that belongs to rows[i].
  size_t place(size_t i) const { return places != nullptr ? places[i] : i; }
};

// For a table of `cols` columns. The rows are processed in their order, one after the other: repeats add up (add), or
// the last one wins (set). Rows ahead are prefetched.

/// stored[rows[i]] += values[i]
void add_rows(mv_dtype dtype, std::byte* stored, size_t cols, const Chosen& chosen, const std::byte* values) noexcept;
/// stored[rows[i]] = values[i]
void set_rows(mv_dtype dtype, std::byte* stored, size_t cols, const Chosen& chosen, const std::byte* values) noexcept;
/// out[i] = stored[rows[i]]
void gather_rows(mv_dtype dtype, const std::byte* stored, size_t cols, const Chosen& chosen, std::byte* out) noexcept;

}  // namespace mv::math
