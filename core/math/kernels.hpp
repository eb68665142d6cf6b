#pragma once
// The arithmetic that tables need. Every kernel picks the best instruction set of the machine at run time and gives the
// same bits on all of them: no fused multiply-add, no reassociation. (Where two NaNs meet, the result is a NaN, but
// which of the two payloads survives is the compiler's choice.) Integers wrap around.
//
// Pointers need no alignment: values are used where a message left them. Ranges of one call do not overlap, except that
// they may be the same range.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace mv::math {

/// dst[i] += src[i], for the size of src, which dst has too. One pass.
void add(std::span<float> dst, std::span<const float> src) noexcept;
void add(std::span<double> dst, std::span<const double> src) noexcept;

/// False if any value is NaN or infinite. Raises no floating-point exception flags.
bool all_finite(std::span<const float> values) noexcept;
bool all_finite(std::span<const double> values) noexcept;

// The same for memory whose dtype is known at run time only: any but MV_RAW. Counts are in elements. What is stored are
// floats where the dtype is of halves (MV_F16, MV_BF16), else the dtype itself: "stored" below says so. Halves are
// widened on the way in, and rounded to nearest, ties to even, on the way out, in the same pass.

/// stored[i] += src[i]
void add_bytes(mv_dtype dtype, std::byte* stored, const std::byte* src, size_t count) noexcept;
/// stored[i] = src[i], and out[i] = stored[i].
void store_bytes(mv_dtype dtype, std::byte* stored, const std::byte* src, size_t count) noexcept;
void load_bytes(mv_dtype dtype, const std::byte* stored, std::byte* out, size_t count) noexcept;
/// True for all integers.
bool all_finite_bytes(mv_dtype dtype, const std::byte* values, size_t count) noexcept;

/// rows[0] < rows[1] < …: nothing repeats.
bool strictly_increasing(std::span<const int64_t> rows) noexcept;

// Rows of a table of `cols` columns. Ids are in range: the caller has checked them. They come in any order and may
// repeat; they are worked off in their order, one after the other, so that repeats add up (add) or the last one stays
// (set). Rows further on are prefetched. With `places`, the row of rows[i] is not the i-th of values or out, but the
// one at places[i].

/// stored[rows[i]] += values[i]
void add_rows(mv_dtype dtype, std::byte* stored, size_t cols, const int64_t* rows, size_t row_count,
              const std::byte* values, const uint32_t* places = nullptr) noexcept;
/// stored[rows[i]] = values[i]
void set_rows(mv_dtype dtype, std::byte* stored, size_t cols, const int64_t* rows, size_t row_count,
              const std::byte* values, const uint32_t* places = nullptr) noexcept;
/// out[i] = stored[rows[i]]
void gather_rows(mv_dtype dtype, const std::byte* stored, size_t cols, const int64_t* rows, size_t row_count,
                 std::byte* out, const uint32_t* places = nullptr) noexcept;

}  // namespace mv::math
