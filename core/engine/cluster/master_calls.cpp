#include "engine/cluster/master_calls.hpp"

#include <algorithm>
#include <utility>

namespace mv::cluster {

/// A request that is repeated to the next master: a barrier, a change of the number of servers, or, without replicas, a departure. A barrier
/// outlives its call, because a new master must learn of each barrier that was released.
class MasterCalls::Visit final : public rpc::Pending, public std::enable_shared_from_this<Visit> {
 public:
  Visit(MasterCalls& calls, wire::Body kind, rpc::PendingRef inner, uint32_t servers = 0)
      : kind(kind), servers(servers), inner(std::move(inner)), calls_(calls) {}
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte>) override {
    calls_.answered(shared_from_this(), status, answer);
  }
  const wire::Body kind;
  const uint32_t servers;  ///< of a Resize
  rpc::PendingRef inner;  ///< null: the call has ended
  bool is_withdrawn = false;
  base::Peer asked = base::kNobody;  ///< the master that was asked

 private:
  MasterCalls& calls_;
};

void MasterCalls::barrier(rpc::PendingRef pending) { ask(std::make_shared<Visit>(*this, wire::Body::Barrier, std::move(pending))); }

void MasterCalls::leave(rpc::PendingRef pending) { ask(std::make_shared<Visit>(*this, wire::Body::Leave, std::move(pending))); }

void MasterCalls::resize(uint32_t servers, rpc::PendingRef pending) {
  ask(std::make_shared<Visit>(*this, wire::Body::Resize, std::move(pending), servers));
}

void MasterCalls::ask(const std::shared_ptr<Visit>& visit) {
  if (visit->is_withdrawn) return end(*visit, base::error(MV_ETIMEOUT, "barrier: the master was lost, or left, while this call was withdrawn"));
  if (roster_.is_kept() && standing_.is_cut_off()) return end(*visit, standing_.why_cut_off());
  if (standing_.has_given_role()) return end(*visit, roster_.why_role_is_given());
  visits_.push_back(visit);
  visit->asked = roster_.master();
  auto& fbb = builder_.fbb();
  auto frame = visit->kind == wire::Body::Resize  ? builder_.finish(visit->kind, wire::CreateResize(fbb, visit->servers))
               : visit->kind == wire::Body::Leave ? builder_.finish(visit->kind, wire::CreateLeave(fbb))
                                                  : builder_.finish(visit->kind, wire::CreateBarrier(fbb));
  client_.call(roster_.master(), {std::move(frame), visit, true, 0, nullptr});
}

void MasterCalls::answered(const std::shared_ptr<Visit>& visit, const base::Status& status, const wire::Message* answer) {
  const bool is_next = visit->asked != roster_.master();
  if (roster_.is_kept() && status.code() == MV_EDISAGREE) return;  // see HeldRequests::fail_all(): a newer view will tell whom to ask
  const bool is_asked_again = roster_.is_kept() ? !standing_.is_cut_off() && (visit->kind == wire::Body::Barrier || election_.awaits_master() || is_next) : is_next;
  if (answer == nullptr && is_asked_again && !status.ok()) return;  // the master is lost: see repeat_all()
  std::erase(visits_, visit);
  const bool counts = answer != nullptr && visit->kind == wire::Body::Barrier;
  if (counts && status.ok()) ++passed_;
  if (counts && status.code() == MV_EPEERLOST) ++told_;
  end(*visit, status);
}

void MasterCalls::end(Visit& visit, const base::Status& status) {
  if (const rpc::PendingRef inner = std::exchange(visit.inner, nullptr)) inner->finish(status, nullptr, {});
}

std::shared_ptr<MasterCalls::Visit> MasterCalls::visit_of(const rpc::Pending* pending) const {
  const auto found = std::ranges::find_if(visits_, [&](const auto& visit) { return visit->inner.get() == pending; });
  return found != visits_.end() ? *found : nullptr;
}

void MasterCalls::cancel_barrier(const rpc::Pending* pending) {
  const auto visit = visit_of(pending);
  if (visit == nullptr) return;
  visit->is_withdrawn = true;
  client_.cancel(roster_.master(), visit.get());
}

void MasterCalls::abandon_barrier(const rpc::Pending* pending, const base::Status& status) {
  if (const auto visit = visit_of(pending)) end(*visit, status);
}

void MasterCalls::repeat_all() {
  for (const auto& visit : std::exchange(visits_, {})) ask(visit);
}

void MasterCalls::end_all(const base::Status& why) {
  for (const auto& visit : std::exchange(visits_, {})) end(*visit, why);
}

void MasterCalls::drain(rpc::PendingRef pending) {
  client_.call(roster_.master(), {builder_.finish(wire::Body::Drain, wire::CreateDrain(builder_.fbb())), std::move(pending), true, 0, nullptr});
}

void MasterCalls::hand_over(const std::vector<uint32_t>& parts, rpc::PendingRef pending) {
  const auto written = builder_.fbb().CreateVector(parts);
  client_.call(roster_.master(), {builder_.finish(wire::Body::HandOver, wire::CreateHandOver(builder_.fbb(), written)), std::move(pending), true, 0, nullptr});
}

}  // namespace mv::cluster
