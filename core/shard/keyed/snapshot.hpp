#pragma once
// A keyed shard as it was: parts that change before they are read are copied first.

#include <memory>
#include <vector>

#include "shard/keyed/keyed.hpp"
#include "shard/snapshot.hpp"

namespace mv::shard {

class KeyedSnapshot final : public Snapshot {
 public:
  /// Every part learns of it, one after the other.
  KeyedSnapshot(std::shared_ptr<KeyedShard> shard, size_t states);
  ~KeyedSnapshot() override;

  uint64_t rows() const override { return rows_; }
  size_t states() const override { return states_; }
  Rows next() override;

  /// Keeps what is unread of a part; under its lock.
  void set_aside(const KeyedShard::Partition& part);

 private:
  struct Copied {
    std::vector<int64_t> ids;
    std::vector<std::byte> values;
    std::vector<std::vector<std::byte>> states;
  };
  struct Progress {
    size_t position = 0;  ///< in the part's index: what comes before it was read
    Copied aside;
  };
  /// Rows from the part's position on, `most` or a few more; moves the position.
  Copied copy(const KeyedShard::Partition& part, size_t most);

  const std::shared_ptr<KeyedShard> shard_;
  const size_t states_;
  uint64_t rows_ = 0;
  std::vector<Progress> progress_;  ///< of the parts, under their locks
  size_t part_ = 0;                 ///< that is being read
  Copied out_;                      ///< what next() gives
};

}  // namespace mv::shard
