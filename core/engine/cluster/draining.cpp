// Servers that are to end hand their parts over: what they ask the master, and what it decides.

#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/cluster/succession.hpp"

namespace mv::cluster {

// ---- on the master

void Cluster::drain_asked(const rpc::Asked& asked) {
  Member* const member = view_.find(asked.client);
  if (!self_.is_master || member == nullptr || member->is_worker() || !member->is_server())
    return server_.fail(asked, base::error(MV_EPROTOCOL, "only a process that is only a server can hand its tables over, and it asks the master"));
  if (member->draining) return server_.answer(asked, builder_.answer({}));
  const auto changed = begin_drain(view_, *member, self_.replicas);
  if (!changed.ok()) return server_.fail(asked, changed.status());
  base::log_info("{} is to end, and hands its tables over", view_.name(asked.client));
  server_.answer(asked, builder_.answer({}));
  owner_.on_member_draining(*member);
  for (const Member* part : changed.value()) owner_.on_part_moved(*part);
  publish();
}

void Cluster::hand_over_asked(const rpc::Asked& asked, const wire::HandOver& request) {
  Member* const member = view_.find(asked.client);
  std::vector<uint32_t> parts;
  if (request.parts() != nullptr) parts.assign(request.parts()->begin(), request.parts()->end());
  if (!self_.is_master || member == nullptr || !member->draining || member->state == State::kLost || !can_hand_over(view_, *member, parts))
    return server_.fail(asked, base::error(MV_ESTATE, "not every part of this server's tables has a copy any more"));
  server_.answer(asked, builder_.answer({}));
  server_.flush();  // from now on it is no member
  member->draining = false;
  member->drained = true;
  member->state = State::kLost;
  member->why = fmt::format("{} has handed its tables over and left", view_.name(member->peer));
  const base::Status why(MV_EPEERLOST, member->why);
  base::log_info("{}", member->why);
  client_.on_lost(member->peer, why);
  owner_.on_member_lost(*member, why);
  declare_out(*member);
  publish();
}

// ---- on the server that is to end

void Cluster::drain(rpc::PendingRef pending) {
  client_.call(master_, {builder_.finish(wire::Body::Drain, wire::CreateDrain(builder_.fbb())), std::move(pending), true, 0, nullptr});
}

void Cluster::hand_over(const std::vector<uint32_t>& parts, rpc::PendingRef pending) {
  const auto written = builder_.fbb().CreateVector(parts);
  client_.call(master_, {builder_.finish(wire::Body::HandOver, wire::CreateHandOver(builder_.fbb(), written)), std::move(pending), true, 0, nullptr});
}

void Cluster::await_goodbyes(std::function<void()> told) {
  is_drained_ = true;
  aborted_ = std::move(told);
  abort_if_all_told();
}

}  // namespace mv::cluster
