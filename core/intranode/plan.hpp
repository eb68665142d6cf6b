#pragma once
// The plan of an operation: cuts it into blocks, and assigns to each rank the parts of the result that it computes.
//
// A group of blocks has one block for each channel. Each channel has an owner, the rank that makes its blocks. In an
// allreduce each rank owns a channel, and blocks are dealt to the channels in turn. In an allgather or a
// reduce_scatter, a channel is a rank's own part of the larger array. A broadcast or a reduce has one channel, the
// root's. In an allreduce of two ranks, each channel may be the whole array: both ranks compute the whole result. The
// algorithm decides that, see algorithms.hpp.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/collective/operation.hpp"
#include "intranode/shared_region.hpp"
#include "intranode/algorithms.hpp"

namespace mv::intranode {

/// A range of one array within a block.
struct Extent {
  size_t array;
  size_t in_at, out_at;  ///< in the operation's array
  size_t block_at;       ///< in the block
  size_t bytes;
};

class Plan {
 public:
  Plan() = default;
  /// At first, an allreduce is cut for Algorithm::kShares.
  Plan(const collective::Operation& operation, size_t ranks);
  /// Cuts an allreduce for another algorithm. To be called before any block is used.
  void take(Algorithm algorithm);

  size_t channels = 0;
  uint64_t groups = 0;
  bool from_all = false;   ///< owners need the values of all ranks, not only their own
  bool copied = false;     ///< all ranks need the results, not only their owner
  bool by_all = false;     ///< each rank computes the whole result
  bool direct = false;     ///< if by_all: reads values in place where it can

  size_t bytes() const { return channel_bytes_; }
  size_t block_bytes() const { return block_bytes_; }

  size_t owner(size_t channel) const { return has_root_ ? root_ : channel; }
  bool is_owner(size_t rank) const { return channels > 0 && (!has_root_ || rank == root_); }
  size_t channel_of(size_t owner) const { return has_root_ ? 0 : owner; }

  /// Calls work(Extent) for each range of a block.
  template <typename Work>
  void over_block(size_t channel, uint64_t group, const Work& work) const {
    const size_t first = (dealt_ ? group * channels + channel : group) * block_bytes_;
    over_range(channel, first, first + block_bytes_, work);
  }
  /// The same for a whole channel; in an allreduce, for everything.
  template <typename Work>
  void over_channel(size_t channel, const Work& work) const {
    over_range(channel, 0, channel_bytes_, work);
  }

  /// The size of a rank's values beside its header; each channel begins at a multiple of bytes().
  size_t inline_bytes() const { return channel_bytes_ * (sliced_in_ ? channels : 1); }
  size_t inline_at(size_t channel) const { return sliced_in_ ? channel * channel_bytes_ : 0; }
  bool sliced_in() const { return sliced_in_; }
  /// The channels for which over_channel() has to be called.
  size_t whole_channels() const { return dealt_ && channels > 0 ? 1 : channels; }

 private:
  void cut(size_t block_bytes);
  template <typename Work>
  void over_range(size_t channel, size_t first, size_t end, const Work& work) const;
  size_t array_at(size_t place) const;

  struct ArraySpan {
    size_t starts;  ///< in the channel, where arrays follow each other, each aligned to a cache line
    size_t bytes;
  };
  std::vector<ArraySpan> parts_;
  size_t channel_bytes_ = 0, block_bytes_ = 0;
  size_t root_ = 0;
  bool has_root_ = false, dealt_ = false, sliced_in_ = false, sliced_out_ = false;
};

template <typename Work>
void Plan::over_range(size_t channel, size_t first, size_t end, const Work& work) const {
  for (size_t array = array_at(first); array < parts_.size() && parts_[array].starts < end; ++array) {
    const ArraySpan& part = parts_[array];
    const size_t from = first > part.starts ? first - part.starts : 0;
    const size_t until = end - part.starts < part.bytes ? end - part.starts : part.bytes;
    if (from >= until) continue;
    const size_t slice = channel * part.bytes;
    work(Extent{array, from + (sliced_in_ ? slice : 0), from + (sliced_out_ ? slice : 0), part.starts + from - first, until - from});
  }
}

}  // namespace mv::intranode
