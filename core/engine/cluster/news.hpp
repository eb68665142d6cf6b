#pragma once
// The latest changes of the membership, for the status and traces.

#include <cstddef>
#include <deque>
#include <utility>

#include "base/clock.hpp"
#include "engine/cluster/event.hpp"

namespace mv::cluster {

struct NewsItem {
  MembershipEvent event;
  base::Nanos at{0};  ///< when this node learnt of it
};

/// The oldest first. Loop thread only.
class News {
 public:
  static constexpr size_t kMost = 64;
  void note(MembershipEvent event, base::Nanos now) {
    if (items_.size() == kMost) items_.pop_front();
    items_.push_back({std::move(event), now});
  }
  const std::deque<NewsItem>& items() const { return items_; }

 private:
  std::deque<NewsItem> items_;
};

}  // namespace mv::cluster
