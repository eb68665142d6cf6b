#pragma once
// The output queue of one socket: blocks of many small frames, and large payloads by reference, in order.

#include <sys/uio.h>

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "base/link.hpp"

namespace mv::transport {

class Outbox {
 public:
  /// Copies the head, keeps a reference to the tail, and adds the padding that follows the tail.
  void push(const base::Frame& frame);
  void push_bytes(std::span<const std::byte> bytes);
  void clear();

  bool empty() const { return bytes_ == 0; }
  size_t bytes() const { return bytes_; }

  /// The next pieces to write, up to `most`, with the current addresses of the payloads. Valid until the next change.
  size_t gather(iovec* pieces, size_t most) const;
  /// Removes the first `bytes`, which have been written.
  void written(size_t bytes);

 private:
  struct Segment {
    std::vector<std::byte> block;  // or
    base::PayloadRef tail;
    size_t tail_bytes = 0;  // size of the tail when it was queued: it may move, but keeps its size
    size_t bytes() const { return tail ? tail_bytes : block.size(); }
  };
  static constexpr size_t kBlockBytes = 64 << 10;
  static constexpr size_t kSpareBlocks = 4;

  std::deque<Segment> segments_;
  size_t front_written_ = 0;  // bytes of the first segment
  size_t bytes_ = 0;
  std::vector<std::vector<std::byte>> spare_;  // empty blocks, for reuse of their memory
};

}  // namespace mv::transport
