#pragma once
// What a table is, and how it is split over servers.

#include <polyverso/polyverso.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace mv::table {

struct Spec {
  std::string name;
  int32_t kind = MV_ARRAY;
  mv_dtype dtype = MV_F32;
  uint64_t rows = 0;  ///< an array's elements are rows of one column
  uint64_t cols = 1;
  uint32_t flags = 0;

  uint64_t elements() const { return rows * cols; }
  uint64_t row_bytes() const { return cols * element_bytes(); }
  uint64_t bytes() const { return rows * row_bytes(); }
  uint64_t element_bytes() const { return dtype == MV_F32 ? 4 : 8; }
  bool rejects_nonfinite() const { return (flags & MV_REJECT_NONFINITE) != 0; }
  /// All but the name.
  bool same_shape(const Spec& other) const {
    return kind == other.kind && dtype == other.dtype && rows == other.rows && cols == other.cols && flags == other.flags;
  }
  /// "a 10 x 64 matrix of f32" for messages.
  std::string describe() const;
};

/// Rows first .. first + count - 1.
struct Range {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t end() const { return first + count; }
};

/// The rows that server `index` of `servers` owns: contiguous, sizes differ by at most one, in the order of the servers.
inline Range part_of(uint64_t rows, uint64_t servers, uint64_t index) {
  const uint64_t each = rows / servers, extra = rows % servers;
  return {index * each + std::min(index, extra), each + (index < extra ? 1 : 0)};
}
/// The server that owns `row`.
inline uint64_t owner_of(uint64_t rows, uint64_t servers, uint64_t row) {
  const uint64_t each = rows / servers, extra = rows % servers;
  const uint64_t long_end = extra * (each + 1);
  return row < long_end ? row / (each + 1) : extra + (row - long_end) / each;
}

/// Bytes of a stripe, the unit of locking, of a message's payload and of atomicity.
inline constexpr uint64_t kStripeBytes = 1 << 20;
/// Rows in a stripe where whole rows fit, else elements of a row that is cut into several: see stripe_elements().
inline uint64_t stripe_elements(const Spec& spec) {
  const uint64_t whole_rows = kStripeBytes / spec.row_bytes();
  return whole_rows > 0 ? whole_rows * spec.cols : kStripeBytes / spec.element_bytes();
}

}  // namespace mv::table
