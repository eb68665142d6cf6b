#pragma once
// Memory that one thread fills while another one already takes its first pieces.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
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
  /// The pieces of ranges, in the order in which copy_some() fills them.
  static std::vector<Range> pieces(const std::vector<Range>& ranges) {
    std::vector<Range> all;
    bool is_more = true;
    for (size_t at = 0; std::exchange(is_more, false); at += kPieceBytes)
      for (const auto& [begin, end] : ranges)
        if (begin + at < end) {
          all.push_back({begin + at, std::min(begin + at + kPieceBytes, end)});
          is_more = true;
        }
    return all;
  }
  /// Fills the bytes begin .. end - 1.
  using Fill = std::function<void(size_t begin, size_t end)>;
  /// @param keep    keeps the memory alive: whoever takes the pieces may be gone before all are copied
  /// @param ranges  consecutive, and all of the bytes
  /// @param fill    must stay valid until copy_some() has returned false
  Filling(std::shared_ptr<const void> keep, std::vector<Range> ranges, Fill fill)
      : keep_(std::move(keep)), fill_(std::move(fill)), ranges_(std::move(ranges)), filled_(std::make_unique<std::atomic<size_t>[]>(ranges_.size())) {
    for (size_t i = 0; i < ranges_.size(); ++i) filled_[i].store(ranges_[i].begin, std::memory_order_relaxed);
  }

  /// Copies the next piece of each range. False when everything is copied. One thread.
  bool copy_some() {
    bool is_more = false;
    for (size_t i = 0; i < ranges_.size(); ++i) {
      const size_t at = filled_[i].load(std::memory_order_relaxed), end = std::min(at + kPieceBytes, ranges_[i].end);
      if (at < end) fill_(at, end);
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

  const std::shared_ptr<const void> keep_;
  const Fill fill_;
  const std::vector<Range> ranges_;
  const std::unique_ptr<std::atomic<size_t>[]> filled_;
};

}  // namespace mv::base
