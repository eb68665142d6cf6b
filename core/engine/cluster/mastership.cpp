// With replicas: the master writes each view to the keeper before anyone acts on it, and another server takes the place of a lost master. Without
// them, a master that drains gives its role to another server.

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/cluster/succession.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kElectAgain = 50ms;
/// Between two attempts to tell the servers of the newest view, while there is no master.
constexpr base::Nanos kTellEvery = 500ms;
/// Between the attempts of two servers that could take the place of the master.
constexpr base::Nanos kStagger = 150ms;
/// Beyond two time-outs of the heartbeat: all that can take the master's place have noticed its loss by then, and have tried.
constexpr base::Nanos kPatience = 2s;
}  // namespace

// ---- the keeper

/// The cluster is complete, or this process has joined it: views are decided from now on.
void Cluster::begin_keeping() {
  if (self_.replicas == 0) return;
  roster_.set_decided(roster_.view());
  if (keeper_ != nullptr) return;
  QuorumKeeper::Events events;
  events.send = [this](base::Peer to, const QuorumKeeper::Vote& vote) { send_vote(to, vote); };
  events.hears_master = [this] { return roster_.is_master() || contacts_.is_connected(roster_.master()); };
  events.decided = [this](const View& view) { take_decided(view); };
  quorum_ = std::make_unique<QuorumKeeper>(clock_, self_.peer, self_.heartbeat_timeout, std::move(events));
  quorum_->learn(roster_.view());
  keeper_ = quorum_.get();
  revision_ = roster_.view().epoch;
  if (roster_.is_master()) warn_of_few_voters();
}

void Cluster::warn_of_few_voters() const {
  const auto voters = std::ranges::count_if(roster_.view().members, [](const Member& member) { return member.votes; });
  if (voters < 3)
    base::log_warn("only {} processes decide about the members: if {} is lost, no process can take its place. With three servers, or two and a process that is only "
                   "a worker, its loss is survived", voters, roster_.view().name(roster_.master()));
}

/// Votes have whole views. They go to the voters only, and a voter that has missed a view can vote at once.
void Cluster::send_vote(base::Peer to, const QuorumKeeper::Vote& vote) {
  auto& fbb = builder_.fbb();
  const auto view = vote.view ? write_view(fbb, *vote.view) : flatbuffers::Offset<wire::View>();
  const auto base = vote.base ? write_view(fbb, *vote.base) : flatbuffers::Offset<wire::View>();
  link_.send(to, builder_.finish(wire::Body::Vote, wire::CreateVote(fbb, vote.word, vote.epoch, vote.ballot, vote.accepted, view, base)));
}

void Cluster::on_vote(base::Peer from, const wire::Vote& vote) {
  if (quorum_ == nullptr) return;
  QuorumKeeper::Vote read{vote.word(), vote.epoch(), vote.ballot(), vote.accepted(), std::nullopt, std::nullopt};
  if (vote.view() != nullptr) read.view = read_view(*vote.view());
  if (vote.base() != nullptr) read.base = read_view(*vote.base());
  quorum_->on_vote(from, read);
}

// ---- the master

/// Lets `change` decide upon the next view, and calls `done` when that view holds, with it, before this node acts on it; or with an error.
void Cluster::decide(Change change, Decided done) {
  if (standing_.is_cut_off()) {
    if (done) done(standing_.why_cut_off(), roster_.decided());
    return;
  }
  decisions_.push_back({std::move(change), std::move(done)});
  barrier_.hold(true);
  if (undecided_since_ == base::kNever) {
    undecided_since_ = clock_.now();
    tell_undecided_at_ = base::after(undecided_since_, tell_undecided_every());
  }
  write_next();
}

/// A worker has finished.
void Cluster::decide_end(base::Peer worker) {
  decide([worker](View& next) {
    Member* const left = next.find(worker);
    if (left == nullptr || left->state != State::kHere) return base::Status(MV_ESTATE, "");
    left->state = State::kFinished;
    return base::Status();
  });
}

void Cluster::write_next() {
  if (is_writing_ || is_taking_ || decisions_.empty() || !roster_.is_master() || standing_.is_drained() || standing_.is_cut_off()) return;
  View next = roster_.decided();
  for (Decision& decision : decisions_) decision.refused = decision.change(next);
  const bool changes = std::ranges::any_of(decisions_, [](const Decision& decision) { return decision.refused.ok(); });
  if (!changes) {
    end_decisions(decisions_.size(), roster_.decided());
    return barrier_.hold(!decisions_.empty());
  }
  ++next.epoch;
  name_voters(next);
  is_writing_ = true;
  writing_ = decisions_.size();
  keeper_->write(revision_, to_bytes(next), [this, next](const base::Result<uint64_t>& written) {
    is_writing_ = false;
    const size_t count = std::exchange(writing_, 0);
    if (standing_.is_cut_off()) return;
    keeper_trouble_ = written.status();
    if (!written.ok()) {  // another process has written, or nobody knows whether this one has
      read_at_ = clock_.now() + kElectAgain;
      return;
    }
    revision_ = written.value();
    hold(next, count);
  });
}

void Cluster::end_decisions(size_t count, const View& view) {
  for (size_t i = 0; i < count && !decisions_.empty(); ++i) {
    Decision over = std::move(decisions_.front());
    decisions_.pop_front();
    if (over.done) over.done(over.refused, view);
  }
  undecided_since_ = decisions_.empty() ? base::kNever : clock_.now();
  if (decisions_.empty()) tell_undecided_at_ = base::kNever;
}

/// `next` is decided, with the first `count` of the decisions in it. The others hear of it before this node acts on it.
void Cluster::hold(const View& next, size_t count) {
  if (quorum_ != nullptr) quorum_->learn(next);
  publisher_.follow(next);
  publisher_.tell_members(next);
  end_decisions(count, next);
  is_taking_ = true;
  take_view(next, next.workers_gone());
  is_taking_ = false;
  barrier_.hold(!decisions_.empty());
  if (!early_.empty()) settle_at_ = clock_.now();
  write_next();
}

void Cluster::read_keeper() {
  read_at_ = base::kNever;
  if (is_writing_ || standing_.is_cut_off()) return;
  is_writing_ = true;
  keeper_->read([this](const base::Result<Keeper::Content>& content) {
    is_writing_ = false;
    if (standing_.is_cut_off()) return;
    keeper_trouble_ = content.status();
    if (!content.ok()) {
      read_at_ = clock_.now() + kElectAgain;
      return;
    }
    const auto view = from_bytes(content.value().view);
    if (!view.ok()) return cut_off(base::error(MV_EPROTOCOL, "the keeper of the list of members has an invalid one: {}", view.status().text()));
    if (view.value().find(self_.peer) == nullptr && (quorum_ == nullptr || view.value().epoch > roster_.decided().epoch))
      return cut_off(base::error(MV_EPEERLOST, "this process is no longer a member: the others have declared it lost, or another cluster of this name has started"));
    revision_ = content.value().revision;
    if (view.value().epoch > roster_.decided().epoch) {
      take_decided(view.value());
      if (!standing_.is_cut_off()) publisher_.tell_members(roster_.decided());  // its writer may not hear from the keeper any more, or not have told all
    }
    if (roster_.is_master()) return write_next();
    if (awaits_master()) stand_for_master();
  });
}

// ---- members

/// A view is decided that this node has not written, as far as it knows.
void Cluster::take_decided(const View& view) {
  if (view.epoch <= roster_.decided().epoch || is_deposed()) return;
  may_be_master_ = false;
  if (view.master == self_.peer) return hold(view, 0);  // it was written after all: the decisions are made again, and change nothing
  if (quorum_ != nullptr) quorum_->learn(view);
  take_view(view, view.workers_gone());
}

void Cluster::change_master(const View& newer) {
  const base::Peer former = roster_.change_master(newer.master, newer.epoch);
  const bool mine = roster_.is_master();
  awaited_until_ = elect_at_ = read_at_ = tell_at_ = base::kNever;
  const Member* const was = roster_.view().find(former);
  base::detail::log_at(roster_.is_kept() ? MV_LOG_WARN : MV_LOG_INFO, "{} is the master now{}", mine ? "this process" : roster_.view().name(roster_.master()),
                       was != nullptr ? fmt::format(", in place of {}", roster_.view().name(former)) : "");
  const Member* const member = roster_.view().find(roster_.master());
  roster_.set_meets_master(!roster_.is_kept() && !mine && !contacts_.is_connected(roster_.master()) && (member == nullptr || member->state != State::kLost));
  if (!roster_.is_kept()) return;
  if (mine) {
    std::vector<base::Peer> workers;
    for (const Member* worker : newer.workers())
      if (worker->state == State::kHere) workers.push_back(worker->peer);
    return barrier_.take_over(workers);
  }
  settle_at_ = clock_.now();  // processes that want to join are sent there
  const auto why = base::error(MV_EPEERLOST, "{} is the master now", roster_.view().name(roster_.master()));
  held_requests_.fail_all(base::Status(MV_EDISAGREE, why.text()));
  barrier_.close(why);
  drop_decisions(why);
  undecided_since_ = tell_undecided_at_ = base::kNever;
}

void Cluster::drop_decisions(const base::Status& why) {
  writing_ = 0;
  for (const Decision& decision : std::exchange(decisions_, {}))
    if (decision.done) decision.done(why, roster_.decided());
}

/// Without replicas: the server that gets this master's role when it has drained. kNobody: there is none.
base::Peer Cluster::successor() const {
  std::vector<base::Peer> candidates;
  for (const Member* server : roster_.view().staying_servers())
    if (server->peer != self_.peer && contacts_.is_connected(server->peer)) candidates.push_back(server->peer);
  if (candidates.empty()) return base::kNobody;
  // One that is silent may be about to be lost, and one that has never spoken of a view is joining still.
  return *std::ranges::min_element(candidates, {}, [this](base::Peer peer) { return std::pair(was_silent(peer), contacts_.find(peer)->epoch == 0); });
}

/// Without replicas: this master has drained, and decides no more. What it has not answered is asked again at its successor.
void Cluster::give_role(base::Peer to) {
  roster_.view().master = to;
  publisher_.publish();
  if (publisher_.is_due()) publisher_.send_to_all();
  roster_.change_master(to, roster_.view().epoch);
  standing_.set_given_role();
  barrier_.forget();
  settle_at_ = clock_.now();
  for (const auto& visit : std::exchange(visits_, {})) end_visit(*visit, roster_.why_role_is_given());
  base::log_info("{} is the master now", roster_.view().name(to));
}

/// Without replicas: the former master has named this node. The view is applied.
void Cluster::take_role() {
  std::vector<base::Peer> workers;
  for (const Member* worker : roster_.view().workers())
    if (worker->state == State::kHere) workers.push_back(worker->peer);
  barrier_.take_over(workers);
  ++roster_.view().epoch;  // this node's own view, in which more may have finished than in the one that it got: everybody gets all of it
  publisher_.begin();
  for (Member& known : roster_.view().members) {
    if (known.state == State::kLost && !known.is_out) decide_loss(known, known.is_worker(), base::Status(MV_EPEERLOST, known.why));
    if (roster_.needs(known)) meet(known.peer);
  }
  publisher_.publish();
}

/// Connects with this member. Its silence counts from now on.
void Cluster::meet(base::Peer peer) {
  want(peer, Dialer::kSelf);
  if (!contacts_.is_connected(peer)) contacts_[peer].heard = clock_.now();
}

/// The new master is known, and the view is applied: repeats there what the former one has not answered.
void Cluster::follow_master() {
  if (roster_.is_master()) {
    if (!roster_.is_kept()) take_role();
    barrier_.follow(self_.peer, passed_, told_);
    if (roster_.is_kept()) decide_noticed();
    for (const auto& [asked, header] : held_requests_.take()) on_request(asked, *flatbuffers::GetRoot<wire::Message>(header.data()));
  } else {
    if (roster_.meets_master()) meet(roster_.master());
    send_ping(roster_.master());
  }
  for (const auto& visit : std::exchange(visits_, {})) ask_master(visit);
  owner_.on_new_master();
  if (!roster_.is_kept() && roster_.has_lost_master()) miss_master(base::error(MV_EPEERLOST, "{} can't be reached from here", roster_.view().name(roster_.master())));
  if (!roster_.is_master() && !contacts_.is_connected(roster_.master())) await_master(base::error(MV_EPEERLOST, "{} can't be reached from here", roster_.view().name(roster_.master())));
}

/// Applies the changes that have happened since this node asked to be the master.
void Cluster::decide_noticed() {
  for (Member& known : roster_.view().members) {
    const Member* const member = roster_.decided().find(known.peer);
    if (member == nullptr || member->state != State::kHere) continue;
    if (known.state == State::kFinished) {
      decide_end(known.peer);
      barrier_.finished(known.peer);
    }
    if (known.state == State::kLost) decide_loss(known, known.is_worker(), base::Status(MV_EPEERLOST, known.why));
  }
}

bool Cluster::can_replace_master() const {
  std::set<base::Peer> voters;
  for (const Member& member : roster_.decided().members) {
    const Member* const here = roster_.view().find(member.peer);  // null: take_view() has not come to it yet
    if (member.votes && (here == nullptr || here->state != State::kLost) && !(member.peer == roster_.master() && !roster_.is_master())) voters.insert(member.peer);
  }
  return quorum_ == nullptr || QuorumKeeper::is_quorum(roster_.decided(), voters);
}

/// The master is lost, as far as this node knows. A server that can take its place tries to.
void Cluster::await_master(const base::Status& why) {
  if (!roster_.is_kept() || roster_.is_master() || standing_.is_cut_off() || standing_.phase() != Phase::kReady || roster_.view().workers_gone()) return;
  master_lost_ = why;
  if (tell_at_ == base::kNever) tell_at_ = clock_.now();
  if (awaited_until_ == base::kNever) awaited_until_ = base::after(clock_.now(), 2 * self_.heartbeat_timeout + kPatience);
  // Of two voters, the other one can do nothing; else a newer view may be on its way, which has other voters.
  const auto voters = std::ranges::count_if(roster_.decided().members, [](const Member& member) { return member.votes; });
  if (!can_replace_master()) awaited_until_ = std::min(awaited_until_, voters > 2 ? base::after(clock_.now(), self_.heartbeat_timeout) : clock_.now());
  const Member* const self = roster_.own();
  if (!self->is_server() || elect_at_ != base::kNever) return;
  const auto ahead = std::ranges::count_if(roster_.view().members, [&](const Member& member) {
    return member.is_server() && member.rank < self->rank && member.peer != roster_.master() && member.state != State::kLost;
  });
  elect_at_ = clock_.now() + ahead * kStagger;
}

/// The master may have been lost before each server had the last view. One that has an older one may count lost voters and find no majority.
void Cluster::tell_servers() {
  tell_at_ = clock_.now() + kTellEvery;
  if (quorum_ == nullptr) return;
  for (const Member& member : roster_.view().members)
    if (member.is_server() && member.peer != self_.peer && contacts_.is_connected(member.peer))
      send_vote(member.peer, {wire::VoteWord::Decided, roster_.decided().epoch, 0, 0, roster_.decided(), std::nullopt});
}

/// The newest view names the lost master still: this server writes one in which it is the master itself.
void Cluster::stand_for_master() {
  View next = roster_.decided();
  next.master = self_.peer;
  for (const Member& known : roster_.view().members) {
    Member* const member = next.find(known.peer);
    if (member == nullptr) continue;
    if (known.state == State::kFinished && member->state == State::kHere) member->state = State::kFinished;
    const bool is_lost = known.peer == roster_.master() || (known.state == State::kLost && member->state != State::kLost);
    if (is_lost) (void)lose(next, known.peer, self_.replicas, known.peer == roster_.master() ? master_lost_.text() : known.why);
  }
  ++next.epoch;
  name_voters(next);
  is_writing_ = true;
  const bool could_be_master = std::exchange(may_be_master_, true);
  keeper_->write(revision_, to_bytes(next), [this, next, could_be_master](const base::Result<uint64_t>& written) {
    is_writing_ = false;
    if (standing_.is_cut_off()) return;  // the others lose this node, and ask the next master
    keeper_trouble_ = written.status();
    if (!written.ok()) {
      if (written.status().code() != MV_EUNREACHABLE && !could_be_master) may_be_master_ = false;
      read_at_ = clock_.now() + kElectAgain;
      return;
    }
    revision_ = written.value();
    if (next.epoch > roster_.decided().epoch) return hold(next, 0);
    write_next();  // another server has read it, and told this one earlier
  });
}

/// This node can take no part any more: it was declared lost, or nobody can decide about the members.
void Cluster::cut_off(const base::Status& why) {
  if (standing_.is_cut_off() || !roster_.is_kept()) return;
  standing_.cut_off(why);
  if (roster_.is_master() || (may_be_master_ && can_replace_master())) standing_.set_deposed();
  awaited_until_ = elect_at_ = read_at_ = tell_at_ = base::kNever;
  base::log_error("{}", why.text());
  if (standing_.is_to_be_deposed()) {  // the others lose this node, and ask the next master: an answer would fail their barriers first
    barrier_.forget();
    held_requests_.clear();
  }
  barrier_.close(why);
  held_requests_.fail_all(why);
  drop_decisions(why);
  for (const auto& visit : std::exchange(visits_, {})) end_visit(*visit, why);
  if (standing_.is_to_be_deposed() || std::ranges::any_of(roster_.view().members, [this](const Member& member) { return roster_.is_undecided_loss(member); })) depose();
  owner_.on_cut_off(why);
  owner_.on_news();
}

/// A master that hears from too few voters can decide nothing. If the others still hear from it, they can choose another master only after its
/// end.
bool Cluster::hears_quorum() {
  std::set<base::Peer> heard{self_.peer};
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && clock_.now() - contact.heard <= self_.heartbeat_timeout - 2 * interval()) heard.insert(peer);
  return quorum_ == nullptr || QuorumKeeper::is_quorum(roster_.decided(), heard);
}

/// This node is cut off for good: the others must not wait for it. No process can confirm any more that the workers that this node has lost are
/// lost, and calls may wait for them here. So it declares them lost itself, after it has made sure that no other process learns of that.
void Cluster::depose() {
  standing_.set_deposed();
  owner_.on_deposed();
  std::vector<base::Peer> others;
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && roster_.is_member(peer)) others.push_back(peer);
  for (const base::Peer peer : others) {
    link_.send(peer, builder_.finish(wire::Body::Abort, wire::CreateAbortDirect(builder_.fbb(), standing_.why_cut_off().text().c_str())));
    link_.close(peer);
  }
  for (const base::Peer peer : others) on_lost(peer, standing_.why_cut_off());
  for (const Member& member : roster_.view().members)
    if (member.is_worker() && member.state == State::kLost && !member.drained) owner_.on_worker_lost(member, base::Status(MV_EPEERLOST, member.why));
}

// ---- time

base::Nanos Cluster::keeping_deadline() const {
  if (!roster_.is_kept() || standing_.is_cut_off()) return base::kNever;
  base::Nanos next = std::min({awaited_until_, elect_at_, read_at_, tell_at_, quorum_ != nullptr ? quorum_->next_deadline() : base::kNever});
  if (is_undecided()) next = std::min({next, patience_until(), tell_undecided_at_});
  return next;
}

base::Nanos Cluster::patience_until() const { return base::after(undecided_since_, 2 * self_.heartbeat_timeout + kPatience); }

void Cluster::tick_keeping(base::Nanos now) {
  if (!roster_.is_kept() || standing_.is_cut_off()) return;
  if (quorum_ != nullptr) quorum_->tick();
  if (now >= tell_at_) tell_servers();
  if (now >= elect_at_) {
    elect_at_ = base::kNever;
    read_at_ = now;
  }
  if (now >= read_at_) read_keeper();
  if (now >= awaited_until_) cut_off(base::Status(MV_EPEERLOST, why_no_master()));
  if (now >= tell_undecided_at_) {
    tell_undecided_at_ = now + tell_undecided_every();
    for (const auto& [peer, contact] : contacts_)
      if (contact.connected && roster_.is_member(peer)) send_ping(peer);
  }
  if (is_undecided() && now >= patience_until() && !standing_.is_cut_off())
    cut_off(base::Status(MV_EPEERLOST, why_undecided()));
}

// Texts for users. A keeper outside of the cluster describes its own trouble.

std::string Cluster::why_no_master() const {
  if (!can_replace_master())
    return fmt::format("{}, and of the processes that decide about the members too few are left to choose a new master", master_lost_.text());
  return fmt::format("{}, and no other server could take its place as master within {:.3g} s{}{}", master_lost_.text(),
                     base::seconds(2 * self_.heartbeat_timeout + kPatience), has_keeper_trouble() ? ": " : "",
                     has_keeper_trouble() ? keeper_trouble_.text() : "");
}

std::string Cluster::why_undecided() const {
  if (!has_keeper_trouble()) return "this process, the master, is cut off from most of the processes that decide about the members";
  return fmt::format("this process, the master, could decide nothing about the members for {:.3g} s: {}",
                     base::seconds(2 * self_.heartbeat_timeout + kPatience), keeper_trouble_.text());
}

// ---- barriers

/// A request that is repeated to the next master: a barrier, a change of the number of servers, or, without replicas, a departure. A barrier
/// outlives its call, because a new master must learn of each barrier that was released.
class Cluster::Visit final : public rpc::Pending, public std::enable_shared_from_this<Visit> {
 public:
  Visit(Cluster& cluster, wire::Body kind, rpc::PendingRef inner, uint32_t servers = 0)
      : kind(kind), servers(servers), inner(std::move(inner)), cluster_(cluster) {}
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte>) override {
    cluster_.visited(shared_from_this(), status, answer);
  }
  const wire::Body kind;
  const uint32_t servers;  ///< of a Resize
  rpc::PendingRef inner;  ///< null: the call has ended
  bool is_withdrawn = false;
  base::Peer asked = base::kNobody;  ///< the master that was asked

 private:
  Cluster& cluster_;
};

void Cluster::barrier(rpc::PendingRef pending) { ask_master(std::make_shared<Visit>(*this, wire::Body::Barrier, std::move(pending))); }

void Cluster::leave_master(rpc::PendingRef pending) { ask_master(std::make_shared<Visit>(*this, wire::Body::Leave, std::move(pending))); }
void Cluster::resize(uint32_t servers, rpc::PendingRef pending) {
  ask_master(std::make_shared<Visit>(*this, wire::Body::Resize, std::move(pending), servers));
}

void Cluster::ask_master(const std::shared_ptr<Visit>& visit) {
  if (visit->is_withdrawn) return end_visit(*visit, base::error(MV_ETIMEOUT, "barrier: the master was lost, or left, while this call was withdrawn"));
  if (roster_.is_kept() && standing_.is_cut_off()) return end_visit(*visit, standing_.why_cut_off());
  if (standing_.has_given_role()) return end_visit(*visit, roster_.why_role_is_given());
  visits_.push_back(visit);
  visit->asked = roster_.master();
  if (visit->kind == wire::Body::Leave) return send_leave(roster_.master(), visit);
  auto& fbb = builder_.fbb();
  auto frame = visit->kind == wire::Body::Resize ? builder_.finish(visit->kind, wire::CreateResize(fbb, visit->servers))
                                                 : builder_.finish(visit->kind, wire::CreateBarrier(fbb));
  client_.call(roster_.master(), {std::move(frame), visit, true, 0, nullptr});
}

void Cluster::visited(const std::shared_ptr<Visit>& visit, const base::Status& status, const wire::Message* answer) {
  const bool is_next = visit->asked != roster_.master();
  if (roster_.is_kept() && status.code() == MV_EDISAGREE) return;  // see HeldRequests::fail_all(): a newer view will tell whom to ask
  const bool is_asked_again = roster_.is_kept() ? !standing_.is_cut_off() && (visit->kind == wire::Body::Barrier || awaits_master() || is_next) : is_next;
  if (answer == nullptr && is_asked_again && !status.ok()) return;  // the master is lost: see follow_master()
  std::erase(visits_, visit);
  const bool counts = answer != nullptr && visit->kind == wire::Body::Barrier;
  if (counts && status.ok()) ++passed_;
  if (counts && status.code() == MV_EPEERLOST) ++told_;
  end_visit(*visit, status);
}

void Cluster::end_visit(Visit& visit, const base::Status& status) {
  if (const rpc::PendingRef inner = std::exchange(visit.inner, nullptr)) inner->finish(status, nullptr, {});
}

std::shared_ptr<Cluster::Visit> Cluster::visit_of(const rpc::Pending* pending) const {
  const auto found = std::ranges::find_if(visits_, [&](const auto& visit) { return visit->inner.get() == pending; });
  return found != visits_.end() ? *found : nullptr;
}

void Cluster::cancel_barrier(const rpc::Pending* pending) {
  const auto visit = visit_of(pending);
  if (visit == nullptr) return;
  visit->is_withdrawn = true;
  client_.cancel(roster_.master(), visit.get());
}

void Cluster::abandon_barrier(const rpc::Pending* pending, const base::Status& status) {
  if (const auto visit = visit_of(pending)) end_visit(*visit, status);
}

}  // namespace mv::cluster
