#pragma once
// Memory that one thread fills while another one already takes its first pieces.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace mv::base {

/// A copy that is made piece by piece. It consists of ranges, of which each is taken in its order; they are filled side
/// by side.
class Filling {
 public:
  struct Range {
    size_t begin, end;
  };
  /// @param to      as large as `from`, which must stay valid until copy_some() has returned false
  /// @param keep    keeps `to` alive: whoever takes the pieces may be gone before all are copied
  /// @param ranges  consecutive, and all of the bytes
  Filling(std::byte* to, std::shared_ptr<const void> keep, std::span<const std::byte> from, std::vector<Range> ranges)
      : to_(to), keep_(std::move(keep)), from_(from), ranges_(std::move(ranges)), filled_(std::make_unique<std::atomic<size_t>[]>(ranges_.size())) {
    for (size_t i = 0; i < ranges_.size(); ++i) filled_[i].store(ranges_[i].begin, std::memory_order_relaxed);
  }

  /// Copies the next piece of each range. False when everything is copied. One thread.
  bool copy_some() {
    bool is_more = false;
    for (size_t i = 0; i < ranges_.size(); ++i) {
      const size_t at = filled_[i].load(std::memory_order_relaxed), end = std::min(at + kPieceBytes, ranges_[i].end);
      if (at < end) std::memcpy(to_ + at, from_.data() + at, end - at);
      filled_[i].store(end, std::memory_order_release);
      is_more = is_more || end < ranges_[i].end;
    }
    return is_more;
  }
  /// Returns when the bytes begin..end - 1, which are in one range, are filled. Another thread is copying them at this
  /// moment, and waits for nothing.
  void wait_for(size_t begin, size_t end) const {
    for (size_t i = 0; i < ranges_.size(); ++i)
      while (begin >= ranges_[i].begin && begin < ranges_[i].end && filled_[i].load(std::memory_order_acquire) < end) std::this_thread::yield();
  }

 private:
  static constexpr size_t kPieceBytes = 1 << 20;

  std::byte* const to_;
  const std::shared_ptr<const void> keep_;
  const std::span<const std::byte> from_;
  const std::vector<Range> ranges_;
  const std::unique_ptr<std::atomic<size_t>[]> filled_;
};

}  // namespace mv::base
