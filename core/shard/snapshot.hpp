#pragma once
// A shard as it was at one moment, for checkpoints and for copies in other processes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace mv::shard {

/// The number of the worker that reads or changes. Updaters that keep backups keep one for each worker.
using Worker = int64_t;
inline constexpr Worker kNoWorker = -1;

/// What a snapshot contains.
enum class Scope {
  kSaved,  ///< values and states: checkpoints
  kAll,    ///< also the values that each worker last got, if the updater keeps them: copies
};

/// What is given of some rows.
enum class Content : uint8_t {
  kValues,  ///< values and states
  kGot,     ///< `values` are those that `worker` last got, in the form of Block::backup. Zeros: it has not got them
  kAbsent,  ///< only ids: rows that `worker` got before there were such rows, in the order of these gets; keyed only
};

/// Some rows with their values and states, which have the storage dtype (tensor::storage_dtype).
struct Rows {
  uint64_t first = 0;               ///< dense: the first of `count` rows, in the table's numbering
  uint64_t count = 0;
  std::vector<int64_t> ids;         ///< keyed: the ids of the rows; dense: empty
  std::span<const std::byte> values;
  std::vector<std::span<const std::byte>> states;  ///< each as long as values
  Content content = Content::kValues;
  Worker worker = kNoWorker;
};

/// A shard as it was at one moment, by copy-on-write. One thread, not the loop's, reads the snapshot while other
/// threads change the shard. Before a change, they copy the unread part of the shard that it affects; with Scope::kAll,
/// before a get of a worker, too. Destroying the snapshot ends this.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  /// The exact number of all rows, and the state arrays of each.
  virtual uint64_t rows() const = 0;
  virtual size_t states() const = 0;
  /// The next rows, about as many as a stripe has, valid until the next call. At the end, count is 0. Dense rows come
  /// in order. What workers got follows the values of the same rows.
  virtual Rows next() = 0;
};

/// Rows to put into a shard.
using Restored = Rows;

}  // namespace mv::shard
