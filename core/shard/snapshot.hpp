#pragma once
// A shard as it was at one moment, for checkpoints.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace mv::shard {

/// Some rows with their values and states, which have the storage dtype (tensor::storage_dtype).
struct Rows {
  uint64_t first = 0;               ///< dense: the first of `count` rows, in the table's numbering
  uint64_t count = 0;
  std::vector<int64_t> ids;         ///< keyed: the ids of the rows; dense: empty
  std::span<const std::byte> values;
  std::vector<std::span<const std::byte>> states;  ///< each as long as values
};

/// A shard as it was at one moment, by copy-on-write. One thread, not the loop's, reads the snapshot while other
/// threads change the shard. Before a change, they copy the unread part of the shard that it affects. Destroying the
/// snapshot ends this.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  /// The exact number of all rows, and the state arrays of each.
  virtual uint64_t rows() const = 0;
  virtual size_t states() const = 0;
  /// The next rows, about as many as a stripe has, valid until the next call. At the end, count is 0. Dense rows come
  /// in order.
  virtual Rows next() = 0;
};

/// Rows to put into a shard.
using Restored = Rows;

}  // namespace mv::shard
