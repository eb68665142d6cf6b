// The end of this node's part: a worker that has finished, or a process that has failed.

#include <algorithm>
#include <utility>

#include "engine/cluster/cluster.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

namespace {
constexpr size_t kLongestReason = 1000;  // of an abort, in bytes
}  // namespace

void Cluster::leave_asked(const rpc::Asked& asked) {
  server_.answer(asked, builder_.answer({}));
  mark_finished(asked.client);
}

void Cluster::finish_self() { mark_finished(self_.peer); }

void Cluster::leave(const std::vector<rpc::PendingRef>& pendings) {
  has_left_ = true;
  const auto targets = roster_.leave_targets();
  for (size_t i = 0; i < targets.size() && i < pendings.size(); ++i)
    targets[i] == roster_.master() && !roster_.is_kept() ? calls_.leave(pendings[i]) : send_leave(targets[i], pendings[i]);
}

void Cluster::send_leave(base::Peer to, rpc::PendingRef pending) {
  client_.call(to, {builder_.finish(wire::Body::Leave, wire::CreateLeave(builder_.fbb())), std::move(pending), true, 0, nullptr});
}

void Cluster::abort(const std::string& why, std::function<void()> told) {
  aborted_ = std::move(told);
  for (const auto& [peer, contact] : contacts_) {
    if (!contact.connected || !roster_.is_member(peer)) continue;
    const auto abort = wire::CreateAbortDirect(builder_.fbb(), why.c_str());
    link_.send(peer, builder_.finish(wire::Body::Abort, abort));
  }
  abort_if_all_told();
}

/// A peer that has read the message closes its connection.
void Cluster::abort_if_all_told() {
  const bool all = std::ranges::none_of(contacts_, [&](const auto& entry) {
    return entry.second.connected && roster_.is_member(entry.first) && !(standing_.is_drained() && !standing_.has_given_role() && entry.first == roster_.master());
  });
  if (all && aborted_) std::exchange(aborted_, [] {})();
}

void Cluster::on_abort(base::Peer from, const wire::Abort& abort) {
  const Member* member = roster_.view().find(from);
  const std::string why = wire::text_of(abort.why()).substr(0, kLongestReason);
  const base::Status status = base::error(MV_EPEERLOST, "{}: {} (rank {}, pid {} on {})", roster_.view().short_name(from), why, member->rank, member->pid, member->host);
  mark_lost(from, status);  // before the sender learns that it was heard: then it ends its groups
  link_.close(from);
  if (from == roster_.master()) owner_.on_news();
}

}  // namespace mv::cluster
