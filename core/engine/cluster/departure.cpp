#include "engine/cluster/departure.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace mv::cluster {

void Departure::leave(const std::vector<rpc::PendingRef>& pendings) {
  has_left_ = true;
  const auto targets = roster_.leave_targets();
  for (size_t i = 0; i < targets.size() && i < pendings.size(); ++i)
    targets[i] == roster_.master() && !roster_.is_kept() ? calls_.leave(pendings[i]) : send_leave(targets[i], pendings[i]);
}

void Departure::leave_late(base::Peer peer) {
  if (has_left_) send_leave(peer, std::make_shared<rpc::Ignored>());
}

void Departure::send_leave(base::Peer to, rpc::PendingRef pending) {
  client_.call(to, {builder_.finish(wire::Body::Leave, wire::CreateLeave(builder_.fbb())), std::move(pending), true, 0, nullptr});
}

void Departure::abort(const std::string& why, std::function<void()> told) {
  told_ = std::move(told);
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && roster_.is_member(peer)) send_abort(peer, why);
  look_again();
}

void Departure::send_abort(base::Peer to, const std::string& why) {
  link_.send(to, builder_.finish(wire::Body::Abort, wire::CreateAbortDirect(builder_.fbb(), why.c_str())));
}

void Departure::await_goodbyes(std::function<void()> told) {
  told_ = std::move(told);
  look_again();
}

void Departure::look_again() {
  const bool all = std::ranges::none_of(contacts_, [&](const auto& entry) {
    return entry.second.connected && roster_.is_member(entry.first) && !(standing_.is_drained() && !standing_.has_given_role() && entry.first == roster_.master());
  });
  if (all && told_) std::exchange(told_, [] {})();
}

}  // namespace mv::cluster
