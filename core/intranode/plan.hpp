#pragma once
// An operation cut into blocks: who makes which of the result, of whose values, for whom.
//
// A group of blocks has one for each lane, and each lane has an owner, the rank that makes its blocks. Of an allreduce each rank
// owns a lane, and blocks are dealt out to them in turns; of an allgather or a reduce_scatter a lane is a rank's own part of the
// larger array; of a broadcast and a reduce there is one, the root's. Of an allreduce of two ranks each rank's lane is everything: both
// make all of the result.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/collective/operation.hpp"
#include "intranode/shared_region.hpp"

namespace mv::intranode {

/// A stretch of one array within a block.
struct Piece {
  size_t array;
  size_t in_at, out_at;  ///< in the array as the operation has it
  size_t block_at;       ///< in the block
  size_t bytes;
};

class Plan {
 public:
  Plan() = default;
  Plan(const collective::Operation& operation, size_t ranks);

  size_t lanes = 0;
  uint64_t groups = 0;
  bool from_all = false;   ///< owners need everybody's values, not only their own
  bool copied = false;     ///< everybody needs the results, not only their owner
  bool by_all = false;     ///< each rank makes all of the result, for itself

  size_t bytes() const { return lane_bytes_; }
  size_t block_bytes() const { return block_bytes_; }

  size_t owner(size_t lane) const { return has_root_ ? root_ : lane; }
  bool is_owner(size_t rank) const { return lanes > 0 && (!has_root_ || rank == root_); }
  size_t lane_of(size_t owner) const { return has_root_ ? 0 : owner; }

  /// work(Piece) for a block.
  template <typename Work>
  void over_block(size_t lane, uint64_t group, const Work& work) const {
    const size_t first = (dealt_ ? group * lanes + lane : group) * block_bytes_;
    over_range(lane, first, first + block_bytes_, work);
  }
  /// The same for a whole lane; of an allreduce, for everything.
  template <typename Work>
  void over_lane(size_t lane, const Work& work) const {
    over_range(lane, 0, lane_bytes_, work);
  }

  /// What a rank's values take up beside its header; each lane's at a multiple of lane_bytes().
  size_t inline_bytes() const { return lane_bytes_ * (sliced_in_ ? lanes : 1); }
  size_t inline_at(size_t lane) const { return sliced_in_ ? lane * lane_bytes_ : 0; }
  bool sliced_in() const { return sliced_in_; }
  /// Lanes that over_lane() has to be called for.
  size_t whole_lanes() const { return dealt_ && lanes > 0 ? 1 : lanes; }

 private:
  template <typename Work>
  void over_range(size_t lane, size_t first, size_t end, const Work& work) const;
  size_t array_at(size_t place) const;

  struct Part {
    size_t starts;  ///< in the lane, where arrays lie one after the other, each at a multiple of a cache line
    size_t bytes;
  };
  std::vector<Part> parts_;
  size_t lane_bytes_ = 0, block_bytes_ = 0;
  size_t root_ = 0;
  bool has_root_ = false, dealt_ = false, sliced_in_ = false, sliced_out_ = false;
};

template <typename Work>
void Plan::over_range(size_t lane, size_t first, size_t end, const Work& work) const {
  for (size_t array = array_at(first); array < parts_.size() && parts_[array].starts < end; ++array) {
    const Part& part = parts_[array];
    const size_t from = first > part.starts ? first - part.starts : 0;
    const size_t until = end - part.starts < part.bytes ? end - part.starts : part.bytes;
    if (from >= until) continue;
    const size_t slice = lane * part.bytes;
    work(Piece{array, from + (sliced_in_ ? slice : 0), from + (sliced_out_ ? slice : 0), part.starts + from - first, until - from});
  }
}

}  // namespace mv::intranode
