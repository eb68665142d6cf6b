// How the cluster stands, for callers' threads.

#include <atomic>
#include <memory>

#include "node/member_node.hpp"

namespace mv::node {

status::Way MemberNode::way_to(base::Peer peer) const {
  status::Way way;
  if (const auto reach = router_->reach(peer)) way.road = base::kRoadNames[static_cast<size_t>(reach->by)];
  const auto traffic = router_->traffic().find(peer);
  if (traffic == router_->traffic().end()) return way;
  for (size_t road = 0; road < base::kRoadNames.size(); ++road) {
    way.sent += traffic->second.sent[road].bytes;
    way.received += traffic->second.received[road].bytes;
  }
  return way;
}

base::Result<std::string> MemberNode::status(bool json) {
  struct Answer {
    std::atomic<bool> here{false};
    std::string text;
  };
  const auto answer = std::make_shared<Answer>();
  loop_.post([this, answer, json] {
    member_->status().ask(json, [answer](const std::string& text) {
      answer->text = text;
      answer->here.store(true, std::memory_order_release);
    });
  });
  const auto here = [&] { return answer->here.load(std::memory_order_acquire); };
  while (loop_.drive_until(here, base::kNever) == io::Driven::kInterrupted) {  // it takes no longer than a few seconds
  }
  if (!here()) return ended();
  return answer->text;
}

}  // namespace mv::node
