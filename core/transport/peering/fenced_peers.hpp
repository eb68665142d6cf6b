#pragma once
// The fenced lives of peers: a transport refuses their connections.

#include <cstddef>
#include <deque>
#include <unordered_set>

#include "base/link.hpp"

namespace mv::transport {

/// A set of the newest `most` fenced lives. It is bounded because a process that passes the hello can connect and leave
/// any number of times; without a limit, each time would cost memory until this node ends.
class FencedPeers {
 public:
  explicit FencedPeers(size_t most = kMost) : most_(most) {}

  void add(base::Peer life) {
    if (!lives_.insert(life).second) return;
    order_.push_back(life);
    if (order_.size() <= most_) return;
    lives_.erase(order_.front());
    order_.pop_front();
  }
  bool contains(base::Peer life) const { return lives_.contains(life); }

  static constexpr size_t kMost = 4096;

 private:
  const size_t most_;
  std::unordered_set<base::Peer> lives_;
  std::deque<base::Peer> order_;  ///< oldest first
};

}  // namespace mv::transport
