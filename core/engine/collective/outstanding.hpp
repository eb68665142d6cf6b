#pragma once
// The messages of a group that their receivers have not taken yet.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mv::collective {

/// Counts messages by rank. Operations end only while no rank is far behind, because a rank that runs ahead of a slow one would keep copies of ever more
/// messages. What is counted together is taken in the order in which it was sent: a rank that is behind never waits for a call that this holds up.
/// So each group has one for its operations, and one for its sends, which may be received at any later time.
class Outstanding {
 public:
  explicit Outstanding(size_t ranks) : loads_(ranks) {}

  void sent(uint32_t rank, size_t bytes) {
    Load& load = loads_[rank];
    ++load.messages;
    load.bytes += bytes;
    if (is_large(load) && !std::exchange(load.is_behind, true)) ++behind_;
  }
  /// True if the rank was far behind and has caught up: operations that were held up may end.
  bool taken(uint32_t rank, size_t bytes) {
    Load& load = loads_[rank];
    --load.messages;
    load.bytes -= bytes;
    if (is_large(load) || !std::exchange(load.is_behind, false)) return false;
    --behind_;
    return true;
  }
  /// Whether a rank is far behind, and which.
  bool any() const { return behind_ > 0; }
  bool is_behind(uint32_t rank) const { return loads_[rank].is_behind; }

 private:
  static constexpr size_t kMostMessages = 256, kMostBytes = 8 << 20;
  struct Load {
    size_t messages = 0, bytes = 0;
    bool is_behind = false;
  };
  static bool is_large(const Load& load) { return load.messages >= kMostMessages || load.bytes >= kMostBytes; }

  std::vector<Load> loads_;
  size_t behind_ = 0;
};

}  // namespace mv::collective
