#pragma once
// A shard as it was at one moment, for checkpoints.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace mv::shard {

/// Some rows with all that belongs to them. Values and states are of the storage dtype (tensor::storage_dtype).
struct Rows {
  uint64_t first = 0;               ///< dense: the first one, in the table's numbering, `count` follow
  uint64_t count = 0;
  std::vector<int64_t> ids;         ///< keyed: which; else empty
  std::span<const std::byte> values;
  std::vector<std::span<const std::byte>> states;  ///< each of them as long as values
};

/// Reads are done by one thread, not the loop's, while others change the shard: what they are about to change and was not read
/// yet they set aside first (copy on write, stripe by stripe). Destroying it ends that.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  /// Rows in all, exactly; state arrays of each.
  virtual uint64_t rows() const = 0;
  virtual size_t states() const = 0;
  /// The next rows, about a stripe's worth, valid until the next call; count 0 at the end. Dense ones come in order.
  virtual Rows next() = 0;
};

/// Rows to be put into a shard.
using Restored = Rows;

}  // namespace mv::shard
