#pragma once
// What a table is, and how it is split over servers.

#include <polyverso/polyverso.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mix.hpp"
#include "tensor/dtype.hpp"

namespace mv::shard {

/// What an add does, with all of its parameters; see updater/.
struct UpdaterSpec {
  std::string name = "add";
  std::vector<double> parameters;  ///< in the order of the updater's own list
  bool operator==(const UpdaterSpec&) const = default;
};

/// A flag of tables that the library makes for itself: stripes, and with them messages, are so short that what is more urgent soon finds
/// its way between them.
inline constexpr uint32_t kSliced = UINT32_C(1) << 31;
/// Another one: a key of a store whose values are row-sparse. To a table it only tells it from a dense one.
inline constexpr uint32_t kRowSparse = UINT32_C(1) << 30;
/// And another: a key of a store, whose tables' names begin alike up to the first slash.
inline constexpr uint32_t kStoreKey = UINT32_C(1) << 29;
inline constexpr uint32_t kLibraryFlags = kSliced | kRowSparse | kStoreKey;

/// How the workers' calls on a table wait for each other.
enum class Consistency { kAsync, kSync, kStale, kMerge };

struct Spec {
  std::string name;
  int32_t kind = MV_ARRAY;
  mv_dtype dtype = MV_F32;
  uint64_t rows = 0;  ///< an array's elements are rows of one column; key-value: 0
  uint64_t cols = 1;
  uint32_t flags = 0;
  UpdaterSpec updater = {};
  int64_t staleness = MV_UNSET;
  double initial = 0, initial_range = 0;  ///< keyed tables: the value of what is not stored
  uint64_t seed = 0;
  uint64_t capacity = 0;
  uint32_t home = 0;  ///< dense: 0: spread over all servers; n: all of it lies on server (n - 1) modulo servers

  uint64_t elements() const { return rows * cols; }
  uint64_t element_bytes() const { return tensor::dtype_bytes(dtype); }
  uint64_t row_bytes() const { return cols * element_bytes(); }
  uint64_t bytes() const { return rows * row_bytes(); }
  /// Only what was changed is stored, by its id: sparse and key-value tables.
  bool is_keyed() const { return kind == MV_SPARSE || kind == MV_KEYVALUE; }
  /// Whether there is such a row; any number is a key.
  bool has_row(int64_t row) const { return kind == MV_KEYVALUE || (row >= 0 && static_cast<uint64_t>(row) < rows); }
  bool rejects_nonfinite() const { return (flags & MV_REJECT_NONFINITE) != 0; }
  bool merges() const { return (flags & MV_MERGE) != 0; }
  /// What the names of all keys of its store begin with; empty for a table that is none.
  std::string_view store() const {
    return (flags & kStoreKey) != 0 ? std::string_view(name).substr(0, name.find('/') + 1) : std::string_view();
  }
  bool is_sliced() const { return (flags & kSliced) != 0; }
  Consistency consistency(bool node_is_sync, size_t workers) const;
  /// All but the name.
  bool same_shape(const Spec& other) const;
  /// The same, except that the updater's parameters may differ.
  bool same_but_for_parameters(const Spec& other) const;
  /// "a 10 x 64 matrix of f32" for messages, with what is not as usual.
  std::string describe() const;
};
/// One description of a table for all that is about it: there are very many tables.
using SpecRef = std::shared_ptr<const Spec>;

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

/// The server of a table that lies on one; only of those with a home.
inline uint64_t home_of(const Spec& spec, uint64_t servers) { return (spec.home - 1) % servers; }
/// The same, of this table.
inline Range part_of(const Spec& spec, uint64_t servers, uint64_t index) {
  if (spec.home == 0) return part_of(spec.rows, servers, index);
  const uint64_t home = home_of(spec, servers);
  return {index <= home ? 0 : spec.rows, index == home ? spec.rows : 0};
}

/// A key of a store that lies whole on one server and is at most this large. One message holds the calls of many of them.
inline constexpr uint64_t kSmallKey = 16 << 10;
inline bool is_small_key(const Spec& spec) { return !spec.store().empty() && spec.home != 0 && spec.bytes() <= kSmallKey; }

/// The server that holds this row or key, which the table has.
inline size_t server_of(const Spec& spec, size_t servers, int64_t row) {
  const auto number = static_cast<uint64_t>(row);
  if (spec.kind == MV_KEYVALUE) return static_cast<size_t>((base::mix(number) & UINT32_MAX) * servers >> 32);
  if (spec.kind == MV_SPARSE) return static_cast<size_t>(number % servers);
  return static_cast<size_t>(spec.home != 0 ? home_of(spec, servers) : owner_of(spec.rows, servers, number));
}
/// What subtracting makes the server's own number of one of its rows; 0 where ids go as they are.
inline int64_t first_row(const Spec& spec, size_t servers, size_t server) {
  return spec.is_keyed() ? 0 : static_cast<int64_t>(part_of(spec, servers, server).first);
}
/// Whether a server holds, or may come to hold, anything of the table.
inline bool has_part(const Spec& spec, size_t servers, size_t server) {
  return spec.is_keyed() || part_of(spec, servers, server).count > 0;
}

/// Bytes of a stripe, the unit of locking, of a message's payload and of atomicity; of a sliced table's, about what MXNet's p3 sends at a time.
inline constexpr uint64_t kStripeBytes = 1 << 20, kSliceBytes = 128 << 10;
inline uint64_t stripe_bytes(const Spec& spec) { return spec.is_sliced() ? kSliceBytes : kStripeBytes; }
/// Rows in a stripe where whole rows fit, else elements of a row that is cut into several: see stripe_elements().
inline uint64_t stripe_elements(const Spec& spec) {
  const uint64_t whole_rows = stripe_bytes(spec) / spec.row_bytes();
  return whole_rows > 0 ? whole_rows * spec.cols : stripe_bytes(spec) / spec.element_bytes();
}

}  // namespace mv::shard
