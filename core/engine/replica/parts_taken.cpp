// How a back-up of a part becomes its server.

#include <utility>

#include "engine/replica/parts.hpp"

namespace mv::replica {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kAskFollowerAgain = 100ms;
}  // namespace

/// What the process that is to follow this one says.
class Parts::FollowerAnswered final : public rpc::Pending {
 public:
  FollowerAnswered(Parts& parts, const std::shared_ptr<Heir>& heir) : parts_(parts), heir_(heir) {}
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    const auto heir = heir_.lock();  // else `parts` may be gone, too
    if (heir == nullptr) return;
    heir->may_lead = status.ok();
    heir->ask_at = status.ok() ? base::kNever : parts_.clock_.now() + kAskFollowerAgain;
    const cluster::Member* const server = parts_.server_of(heir->number);
    if (status.ok() && server != nullptr) parts_.part_moved(*server);
  }

 private:
  Parts& parts_;
  const std::weak_ptr<Heir> heir_;
};

/// Whether the process that follows takes inputs from this one, which has not led the part before. It may have been before this one in the chain, so
/// it is asked first, and answers when it knows the view that has changed that.
bool Parts::may_pass_to(base::Peer follows, uint32_t number) {
  auto& heir = heirs_[number];
  if (heir != nullptr && heir->follows == follows && (heir->may_lead || clock_.now() < heir->ask_at)) return heir->may_lead;
  heir = std::make_shared<Heir>(Heir{number, follows});
  cluster_.want(follows, cluster::Cluster::Dialer::kSelf);
  const auto question = wire::CreateReplicate(builder_.fbb(), number, wire::ReplicaEvent::Leads, cluster_.self().peer, 0, 0, 0, 0, 0, 0, nullptr, nullptr, 0, 0,
                                              cluster_.view().epoch, follows);
  peers_.call(follows, {builder_.finish(wire::Body::Replicate, question), std::make_shared<FollowerAnswered>(*this, heir), false, 0, nullptr});
  return false;
}

void Parts::take_over(const cluster::Member& server) {
  const uint32_t number = server.rank + 1;
  const auto copy = copies_.find(number);
  if (copy == copies_.end() || led_.contains(number) || !catch_up(*copy->second, SIZE_MAX)) return;
  copy->second->next.reset();
  process_journals(number, *copy->second);
  InChain& chain = in_chain(number);
  const base::Peer follows = cluster_.view().backup_of(server);
  if (follows != base::kNobody && follows != chain.successor.peer()) {
    if (!may_pass_to(follows, number)) return;
    chain.successor.peer() == base::kNobody ? chain.successor.begin(follows) : chain.successor.replace(follows);
  }
  heirs_.erase(number);
  if (chain.from == cluster_.self().peer && chain.transfer == nullptr) chain.from = chain.to = base::kNobody;
  chain.is_inherited = chain.to != base::kNobody;
  Part& part = copy->second->part;
  if (!part.has_all())
    copy->second->tables.lose_without_backups(base::error(MV_EPEERLOST, "{}, which served this part of it, is lost", cluster_.view().name(followed_[number])));
  if (!part.damage().ok())
    copy->second->tables.lose_all(base::error(MV_EPEERLOST, "{}, which served this part of it, is lost, and the copy here lacks changes: {}",
                                              cluster_.view().name(followed_[number]), part.damage().text()));
  part.set_has_all(!is_replicated());
  lead(number, part, copy->second->tables);
  if (checkpoint::HeldSave* const save = part.save(); save != nullptr && save->tables) save->until = clock_.now() + checkpoint::kKeepsSave;
  chain.unanswered.clear();  // the one that waits for these answers is gone
  if (chain.successor.peer() != base::kNobody) {
    pass_on(number, led_.at(number), chain.successor.unacknowledged());
    part.tell({.event = wire::ReplicaEvent::Leads, .client = cluster_.self().peer});
  }
  see_to_journal(number, led_.at(number));  // after Leads: a back-up acts upon that only when it comes as a message
  const cluster::View view = cluster_.certain_view();
  part.catch_up(view);
  for (const cluster::Member& member : view.members)
    if (member.is_worker() && member.state != cluster::MemberState::kLost) part.streams().ask_again(member.peer);
}

}  // namespace mv::replica
