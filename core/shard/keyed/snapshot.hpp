#pragma once
// A snapshot of a keyed shard, by copy-on-write of partitions.

#include <map>
#include <memory>
#include <vector>

#include "shard/keyed/keyed.hpp"
#include "shard/snapshot.hpp"

namespace mv::shard {

class KeyedSnapshot final : public Snapshot {
 public:
  /// Registers with the partitions one after the other, under the lock of each.
  KeyedSnapshot(std::shared_ptr<KeyedShard> shard, size_t states, Scope scope);
  ~KeyedSnapshot() override;

  uint64_t rows() const override { return rows_; }
  size_t states() const override { return states_; }
  Rows next() override;

  Scope scope() const { return scope_; }

  /// Copies the unread rows of a partition, under its lock.
  void set_aside(const KeyedShard::Partition& part);

 private:
  /// What a worker last got of some rows, and the rows that it got before they were stored.
  struct Got {
    std::vector<int64_t> ids;
    std::vector<std::byte> values;
    std::vector<int64_t> absent;  ///< with the last rows of a partition
  };
  struct Copied {
    std::vector<int64_t> ids;
    std::vector<std::byte> values;
    std::vector<std::vector<std::byte>> states;
    std::map<Worker, Got> got;
  };
  struct Progress {
    size_t position = 0;  ///< in the partition's index: everything before it was read
    uint32_t slot = 0;    ///< with an order of use, instead: the next record; those that were used before it were read
    bool begun = false, done = false;
    Copied aside;
  };
  /// Copies up to `most` rows from the partition's position on, and advances the position. With an order of use, rows come in it, so that a
  /// shard into which they are put has the same one.
  Copied copy(const KeyedShard::Partition& part, size_t most);
  size_t most_rows(const KeyedShard::Partition& part) const;
  bool read_more();
  Rows next_got();

  const std::shared_ptr<KeyedShard> shard_;
  const size_t states_;
  const Scope scope_;
  uint64_t rows_ = 0;
  std::vector<Progress> progress_;  ///< one for each partition, under its lock
  size_t part_ = 0;                 ///< the partition that is being read
  Copied out_;                      ///< the rows of next(), and what of them was not returned yet
  Got got_;                         ///< of the worker that next() has returned last
};

}  // namespace mv::shard
