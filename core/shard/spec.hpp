#pragma once
// The description of a table, and its partition over servers.

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

/// An updater and its parameters: what an add does. See updater/.
struct UpdaterSpec {
  std::string name = "add";
  std::vector<double> parameters;  ///< in the order of the updater's parameter list
  bool operator==(const UpdaterSpec&) const = default;
};

/// Internal table flag: stripes, and therefore messages, are short, so that requests of higher priority wait for less.
inline constexpr uint32_t kSliced = UINT32_C(1) << 31;
/// Internal table flag: a key of a store, with row-sparse values. A table only uses it to tell the key from a dense
/// one.
inline constexpr uint32_t kRowSparse = UINT32_C(1) << 30;
/// Internal table flag: a key of a store. The tables of one store share the part of their names up to the first slash.
inline constexpr uint32_t kStoreKey = UINT32_C(1) << 29;
/// The place of a table that is in the host's memory; others are in that of a device of each server, by its number.
inline constexpr int32_t kHost = -1;
inline constexpr uint32_t kLibraryFlags = kSliced | kRowSparse | kStoreKey;

/// The consistency mode of a table: how workers' calls wait for each other.
enum class Consistency { kAsync, kSync, kStale, kMerge };
/// Whether the calls of all workers form rounds: adds to merging tables, adds and gets in sync mode.
inline bool counts_calls(Consistency consistency) { return consistency == Consistency::kMerge || consistency == Consistency::kSync; }

struct Spec {
  std::string name;
  int32_t kind = MV_ARRAY;
  mv_dtype dtype = MV_F32;
  uint64_t rows = 0;  ///< the elements of an array are rows of one column; key-value: 0
  uint64_t cols = 1;
  uint32_t flags = 0;
  UpdaterSpec updater = {};
  int64_t staleness = MV_UNSET;
  double initial = 0, initial_range = 0;  ///< keyed tables: the value of rows that are not stored
  uint64_t seed = 0;
  uint64_t capacity = 0;
  uint32_t home = 0;  ///< dense: 0: spread over all servers; n: all rows are on server (n - 1) modulo servers
  int32_t device = kHost;  ///< dense: the device whose memory holds each server's part

  uint64_t elements() const { return rows * cols; }
  uint64_t element_bytes() const { return tensor::dtype_bytes(dtype); }
  uint64_t row_bytes() const { return cols * element_bytes(); }
  uint64_t bytes() const { return rows * row_bytes(); }
  /// Sparse and key-value tables: they store only changed rows, by id.
  bool is_keyed() const { return kind == MV_SPARSE || kind == MV_KEYVALUE; }
  /// Whether the table has this row. In a key-value table any number is a key.
  bool has_row(int64_t row) const { return kind == MV_KEYVALUE || (row >= 0 && static_cast<uint64_t>(row) < rows); }
  bool is_on_device() const { return device != kHost; }
  bool rejects_nonfinite() const { return (flags & MV_REJECT_NONFINITE) != 0; }
  /// Whether back-ups keep the table in a cluster with replicas.
  bool has_backups() const { return (flags & MV_NO_BACKUPS) == 0; }
  bool merges() const { return (flags & MV_MERGE) != 0; }
  /// The prefix that the names of all keys of this store share; empty for a table that is no key of a store.
  std::string_view store() const {
    return (flags & kStoreKey) != 0 ? std::string_view(name).substr(0, name.find('/') + 1) : std::string_view();
  }
  bool is_sliced() const { return (flags & kSliced) != 0; }
  Consistency consistency(bool node_is_sync, size_t workers) const;
  /// Equal except for the name.
  bool same_shape(const Spec& other) const;
  /// Like same_shape(), but the updater's parameters can differ.
  bool same_but_for_parameters(const Spec& other) const;
  /// "a 10 x 64 matrix of f32", for messages. Names all settings that differ from the defaults.
  std::string describe() const;
  /// describe() without the settings at the end that are the other's too.
  std::string describe_unlike(const Spec& other) const;
};
/// The objects of a table share one Spec, because there can be very many tables.
using SpecRef = std::shared_ptr<const Spec>;

/// Rows first .. first + count - 1.
struct Range {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t end() const { return first + count; }
};

/// The rows that server `index` of `servers` owns. They are contiguous and in the order of the servers; sizes differ by
/// at most one.
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

/// The server that holds all of a table with a home.
inline uint64_t home_of(const Spec& spec, uint64_t servers) { return (spec.home - 1) % servers; }
/// part_of() for this table.
inline Range part_of(const Spec& spec, uint64_t servers, uint64_t index) {
  if (spec.home == 0) return part_of(spec.rows, servers, index);
  const uint64_t home = home_of(spec, servers);
  return {index <= home ? 0 : spec.rows, index == home ? spec.rows : 0};
}

/// The maximal size of a small key: a key of a store that is on one server. One message can carry calls for many of
/// them.
inline constexpr uint64_t kSmallKey = 16 << 10;
inline bool is_small_key(const Spec& spec) { return !spec.store().empty() && spec.home != 0 && spec.bytes() <= kSmallKey; }

/// The server that holds this row or key. The table must have it.
inline size_t server_of(const Spec& spec, size_t servers, int64_t row) {
  const auto number = static_cast<uint64_t>(row);
  if (spec.kind == MV_KEYVALUE) return static_cast<size_t>((base::mix(number) & UINT32_MAX) * servers >> 32);
  if (spec.kind == MV_SPARSE) return static_cast<size_t>(number % servers);
  return static_cast<size_t>(spec.home != 0 ? home_of(spec, servers) : owner_of(spec.rows, servers, number));
}
/// A row's id minus first_row() is its number on the server. 0 for keyed tables, which use ids unchanged.
inline int64_t first_row(const Spec& spec, size_t servers, size_t server) {
  return spec.is_keyed() ? 0 : static_cast<int64_t>(part_of(spec, servers, server).first);
}
/// Whether a server holds, or can come to hold, a part of the table.
inline bool has_part(const Spec& spec, size_t servers, size_t server) {
  return spec.is_keyed() || part_of(spec, servers, server).count > 0;
}

/// Bytes of a stripe: the unit of locking, of a message's payload and of atomicity. The stripes of a sliced table are
/// about as large as the slices of MXNet's p3.
inline constexpr uint64_t kStripeBytes = 1 << 20, kSliceBytes = 128 << 10;
inline uint64_t stripe_bytes(const Spec& spec) { return spec.is_sliced() ? kSliceBytes : kStripeBytes; }
/// Elements of a stripe: whole rows if at least one fits, otherwise a part of a row.
inline uint64_t stripe_elements(const Spec& spec) {
  const uint64_t whole_rows = stripe_bytes(spec) / spec.row_bytes();
  return whole_rows > 0 ? whole_rows * spec.cols : stripe_bytes(spec) / spec.element_bytes();
}

}  // namespace mv::shard
