#include "engine/cluster/cluster.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/succession.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kRedialAfter = 50ms;
/// If nobody else would report its loss, a member is lost after this many failed dials in a row: a second, if nothing listens there any more.
constexpr uint32_t kMostFailedDials = 20;
/// A peer that sends no heartbeats for this long is worth a remark.
constexpr base::Nanos kSilent = std::chrono::seconds(2);
/// Bytes of the text of a wait.
constexpr size_t kLongestWait = 200;
}  // namespace

Cluster::Cluster(const base::Clock& clock, base::Link& link, rpc::Client& client, rpc::Server& server, Owner& owner, Self self)
    : clock_(clock), link_(link), client_(client), server_(server), owner_(owner), self_(std::move(self)), contacts_(clock), roster_(self_, standing_, contacts_), publisher_(clock, link, roster_, contacts_), held_requests_(server, roster_, standing_), barrier_(server, roster_.view()),
      keeping_(clock, link, roster_, standing_, contacts_, keeping_events()), decisions_(clock, roster_, standing_, keeping_, publisher_, barrier_, [this](const View& view) { take_held(view); }),
      election_(clock, roster_, standing_, keeping_, decisions_), calls_(client, roster_, standing_, election_), heartbeat_(clock, link, owner, roster_, contacts_, calls_, decisions_), disputes_(clock, link, roster_, contacts_, heartbeat_, keeping_), arrivals_(self_) {
  for (size_t from = 0; from <= self_.master.size();) {
    const size_t end = std::min(self_.master.find(',', from), self_.master.size());
    masters_.push_back(self_.master.substr(from, end - from));
    from = end + 1;
  }
  if (!self_.is_master) return;
  // Here and not in start(): a process may ask to join before start(), and is compared with the master itself.
  roster_.set_master(self_.peer);
  arrivals_.add_self();
}

Keeping::Events Cluster::keeping_events() {
  Keeping::Events events;
  events.decided = [this](const View& view) { take_decided(view); };
  events.read = [this](bool is_new) {
    if (is_new && !standing_.is_cut_off()) publisher_.tell_members(roster_.decided());  // its writer may not hear from the keeper any more, or not have told all
    if (roster_.is_master()) return decisions_.write_next();
    if (election_.awaits_master()) election_.stand();
  };
  events.cut_off = [this](const base::Status& why) { cut_off(why); };
  return events;
}

/// This view is decided, and names this node as the master.
void Cluster::take_held(const View& view) {
  take_view(view, view.workers_gone());
  if (!early_.empty()) settle_at_ = clock_.now();
}

// ---- on the master

void Cluster::on_request(const rpc::Asked& asked, const wire::Message& request) {
  const bool is_for_any = request.body_type() == wire::Body::Join || (request.body_type() == wire::Body::Leave && !standing_.has_given_role());
  if (!is_for_any && standing_.has_given_role()) return;  // the new master is asked again
  if (!is_for_any && !roster_.is_master()) return held_requests_.keep(asked, request);
  switch (request.body_type()) {
    case wire::Body::Join:
      return join(asked, request);
    case wire::Body::Barrier:
      return barrier_.enter(asked, clock_.now());
    case wire::Body::Leave:
      return leave_asked(asked);
    case wire::Body::Copied:
      return copied(asked, *request.body_as_Copied());
    case wire::Body::Drain:
      return drain_asked(asked);
    case wire::Body::Resize:
      return resize_asked(asked, request.body_as_Resize()->servers());
    case wire::Body::HandOver:
      return hand_over_asked(asked, *request.body_as_HandOver());
    default:
      return server_.fail(asked, base::error(MV_EPROTOCOL, "unknown request: {}", wire::EnumNameBody(request.body_type())));
  }
}

/// A part has a back-up again.
void Cluster::copied(const rpc::Asked& asked, const wire::Copied& note) {
  server_.answer(asked, builder_.answer({}));
  const auto part = std::ranges::find_if(roster_.view().members, [&](const Member& member) { return member.rank + 1 == note.part() && member.is_server(); });
  if (part == roster_.view().members.end()) return;
  const auto holds = [client = asked.client, backup = note.backup()](const View& view, const Member& of) {
    return view.tail_of(of) == client && of.next_backup != 0 && view.next_backup_of(of) == backup;  // else one of the two was lost meanwhile
  };
  if (roster_.is_kept())
    return decisions_.decide([holds, rank = part->rank, replicas = self_.replicas](View& next) {
      const auto copied = std::ranges::find(next.members, rank, &Member::rank);
      if (copied == next.members.end() || !holds(next, *copied)) return base::Status(MV_ESTATE, "");
      take_copy(next, *copied, replicas);
      return base::Status();
    });
  if (!holds(roster_.view(), *part)) return;
  take_copy(roster_.view(), *part, self_.replicas);
  owner_.on_part_moved(*part);
  publisher_.publish();
}

void Cluster::on_cancel(const rpc::Asked& asked) {
  if (barrier_.withdraw(asked, [&](base::Peer peer) { return doing(peer, owner_.known_waits()); })) return;
  if (std::erase_if(early_, [&](const Early& early) { return early.asked == asked; }) > 0)
    return server_.fail(asked, base::error(MV_ETIMEOUT, "the cluster is complete, and no process whose place this one could take was lost"));
  if (held_requests_.withdraw(asked)) return;
  if (standing_.phase() != Phase::kJoining) return;
  const std::string missing = arrivals_.text();
  if (arrivals_.withdraw(asked)) server_.fail(asked, base::error(MV_ETIMEOUT, "{}", missing));
}

/// What a worker does that has not arrived at a barrier, as far as the master knows without asking it.
std::string Cluster::doing(base::Peer peer, const std::vector<Wait>& waits) const {
  const auto wait = std::ranges::find(waits, peer, &Wait::who);
  if (wait != waits.end()) return fmt::format("waits in {}", describe(*wait));
  const auto quiet = contacts_.silence(peer);
  if (quiet && *quiet >= kSilent) return fmt::format("has been silent for {:.1f} s", base::seconds(*quiet));
  if (const Contact* contact = contacts_.find(peer); contact != nullptr && !contact->waits.empty()) return "waits in " + contact->waits;
  return barrier_.has_given_up(peer) ? "has given up waiting in it" : "is alive and has not called it";
}

// ---- connections

void Cluster::on_connected(base::Peer peer, const std::string& address) {
  contacts_.connected(peer, address);
  client_.on_connected(peer);
  if (!roster_.is_master() && standing_.phase() == Phase::kJoining && roster_.master() == base::kNobody && address == masters_[asked_master_]) {
    roster_.set_master(peer);
    ask_to_join();
  }
  if (peer == roster_.master()) roster_.set_meets_master(false);
  if (peer == roster_.master() && election_.awaits_master()) election_.end();
  if (roster_.view().epoch > 0) heartbeat_.ping(peer);
  ready_if_all_ready();
}

void Cluster::on_dial_failed(const std::string& address, const base::Status& why) {
  if (standing_.phase() == Phase::kFailed) return;
  if (standing_.phase() == Phase::kReady) {  // dial a late member until it is there; other members report lost ones
    const auto wanted = [&](const Member& m) { return m.address == address && roster_.needs(m) && !contacts_.is_connected(m.peer); };
    const auto member = std::ranges::find_if(roster_.view().members, wanted);
    if (member == roster_.view().members.end()) return;
    const base::Peer peer = member->peer;
    Contact& contact = contacts_[peer];
    if (is_refused_for_long(*member, contact, why)) {
      link_.close(peer);
      return on_lost(peer, base::error(MV_EPEERLOST, "it and this process can't connect: {}", why.text()));
    }
    const bool has_never_met = !roster_.is_kept() && roster_.master_since() > 0 && contact.epoch == 0;  // a new master meets all members: only their silence counts
    if (++contact.failed_dials < kMostFailedDials || has_never_met || !roster_.judges_alone(peer)) {
      return dial_later(address);
    }
    link_.close(peer);
    return on_lost(peer, why);
  }
  if (why.code() != MV_EUNREACHABLE) return fail(why);
  last_dial_ = why;
  if (standing_.phase() == Phase::kJoining && address == masters_[asked_master_]) asked_master_ = (asked_master_ + 1) % masters_.size();
  dial_later(standing_.phase() == Phase::kJoining ? masters_[asked_master_] : address);
}

/// The log says once which member can't be connected with. One that lives, but refuses this process or is refused by it, will do so for ever, as
/// with a wrong certificate: then true, and what waits for the member fails. With replicas, servers report that to the master.
bool Cluster::is_refused_for_long(const Member& member, Contact& contact, const base::Status& why) {
  if (contact.dials_fail_since == base::kNever) contact.dials_fail_since = clock_.now();
  const bool is_refused = why.code() != MV_EUNREACHABLE;
  const base::Nanos since = clock_.now() - contact.dials_fail_since;
  if ((is_refused || since > self_.heartbeat_timeout) && !std::exchange(contact.told_of_failed_dials, true))
    base::log_warn("can't connect with {}, and tries again: {}", roster_.view().name(member.peer), why.text());
  return is_refused && !roster_.is_kept() && since > self_.heartbeat_timeout;
}

void Cluster::dial_later(const std::string& address) { redial_[address] = clock_.now() + kRedialAfter; }

void Cluster::connect_with_all() {
  for (const Member& member : roster_.view().members) {
    if (!roster_.may_need(member)) continue;
    want(member.peer, Dialer::kSelf);
    if (has_left_) send_leave(member.peer, std::make_shared<rpc::Ignored>());
  }
}

void Cluster::want(base::Peer peer, Dialer dialer) {
  const Contact* const known = contacts_.find(peer);
  if (known != nullptr && known->wanted && known->connected) return;
  const Member* member = roster_.view().find(peer);
  if (member == nullptr || peer == self_.peer || member->state == State::kLost || roster_.ended_unmet(*member)) return;
  Contact& contact = contacts_[peer];
  const bool is_new = !std::exchange(contact.wanted, true);
  if (contact.connected) return;
  if (is_new) contact.heard = clock_.now();
  if (dialer == Dialer::kHigherRank && roster_.own()->rank < member->rank) return;
  if (!std::exchange(contact.dialed, true)) link_.dial(member->address);
}

// ---- heartbeat

void Cluster::on_ping(base::Peer from, const wire::Ping& ping) {
  Contact& contact = contacts_[from];
  contact.epoch = std::max(contact.epoch, ping.epoch());
  if (from == roster_.master()) roster_.set_master_is_undecided(ping.undecided());
  if (roster_.is_master()) contact.waits = wire::text_of(ping.waits()).substr(0, kLongestWait);
  if (roster_.is_master() && ping.epoch() >= roster_.master_since()) barrier_.follow(from, ping.barriers(), ping.losses());
  // Its newest view may be on its way. If it was lost, the member asks again.
  const bool lacks_view = ping.epoch() < roster_.view().epoch && ping.epoch() > 0 && roster_.view().find(from) != nullptr;
  if ((roster_.is_master() || standing_.has_given_role()) && !publisher_.is_due() && lacks_view) publisher_.tell_again(from, contact, ping.epoch());
  if (ping.asks() != 0 && (roster_.is_member(from) || from == roster_.master())) heartbeat_.ping(from, 0, ping.asks());
  contacts_.answered(contact, ping.answers());
  if (!early_.empty()) settle_at_ = clock_.now();
  ready_if_all_ready();
}

void Cluster::beat(base::Nanos now) {
  auto silent = heartbeat_.beat(now);
  const bool misses_members = std::ranges::any_of(silent, [this](const auto& silence) { return roster_.is_member(silence.peer); });
  // A master that hears from too few voters can decide nothing. If the others still hear from it, they can choose another master only after its end.
  const bool decides = roster_.is_master() && roster_.is_kept() && !standing_.is_cut_off() && !standing_.is_drained() && !roster_.decided().workers_gone();
  if (misses_members && decides && !keeping_.is_quorum(heartbeat_.heard())) {
    const auto longest = std::ranges::max(silent, {}, &Heartbeat::Silence::span).span;
    if (longest > self_.heartbeat_timeout + 4 * heartbeat_.interval())
      return cut_off(base::error(MV_EPEERLOST, "this process, the master, does not hear from most of the processes that decide about the members"));
    silent.clear();  // the others may be slow
  }
  for (const auto& [peer, span] : silent) {
    link_.close(peer);
    // Not for other losses: at Ctrl-C all processes end at once, and their last words are the launcher's.
    if (roster_.is_master() && roster_.view().find(peer) != nullptr)
      base::log_warn("{} is lost: nothing heard from it for {:.2g} s", roster_.view().name(peer), base::seconds(span));
    on_lost(peer, base::error(MV_EPEERLOST, "nothing heard from it for {:.2g} s", base::seconds(span)));
  }
  disputes_.report();
  watch_strangers(now);
  tell_of_arrivals(now);
}

// ---- time

base::Nanos Cluster::next_deadline() const {
  base::Nanos next = std::min({heartbeat_.next_deadline(), give_up_, settle_at_, publisher_.next_deadline(), keeping_deadline()});
  for (const auto& [address, at] : redial_) next = std::min(next, at);
  return next;
}

void Cluster::tick() {
  const base::Nanos now = clock_.now();
  for (auto at = redial_.begin(); at != redial_.end();) {
    if (at->second > now) {
      ++at;
      continue;
    }
    const std::string address = at->first;
    at = redial_.erase(at);
    if (!asks_again(address)) link_.dial(address);
  }
  if (now >= give_up_) give_up_joining();
  if (now >= settle_at_) settle_early();
  if (now >= publisher_.next_deadline()) publisher_.send_to_all();
  tick_keeping(now);
  if (now >= heartbeat_.next_deadline()) beat(now);
}

}  // namespace mv::cluster
