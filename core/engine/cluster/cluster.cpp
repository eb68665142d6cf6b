#include "engine/cluster/cluster.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/succession.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kRedialAfter = 50ms;
/// How long a member waits beyond its own deadline for the master's list of the missing processes.
constexpr base::Nanos kLastWord = 2s;
/// Bytes of the text of a wait.
constexpr size_t kLongestWait = 200;
constexpr base::Nanos kNoticeAfter = 10s;
/// Messages that a non-member may send between two beats: a joiner sends pings, and probes for its Join.
constexpr uint32_t kMostOfStranger = 64;
constexpr size_t kLongestReason = 1000;  // of an abort, in bytes

/// A peer that sends no heartbeats for this long is worth a remark.
constexpr base::Nanos kSilent = std::chrono::seconds(2);

double seconds(base::Nanos span) { return std::chrono::duration<double>(span).count(); }
}  // namespace

/// Receives the master's answer to Join.
class Cluster::JoinPending final : public rpc::Pending {
 public:
  explicit JoinPending(Cluster& cluster) : cluster_(cluster) {}
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte>) override {
    cluster_.joined(status, answer);
  }

 private:
  Cluster& cluster_;
};

Cluster::Cluster(const base::Clock& clock, base::Link& link, rpc::Client& client, rpc::Server& server, Owner& owner, Self self)
    : clock_(clock), link_(link), client_(client), server_(server), owner_(owner), self_(std::move(self)), barrier_(server, view_), arrivals_(self_), contacts_(clock) {
  if (!self_.is_master) return;
  // Here and not in start(): a process may ask to join before start(), and is compared with the master itself.
  master_ = self_.peer;
  arrivals_.add_self();
}

void Cluster::start() {
  const base::Nanos now = clock_.now();
  started_ = now;
  notice_at_ = now + kNoticeAfter;
  give_up_ = base::after(now, self_.init_timeout);
  last_beat_ = now;
  next_beat_ = now + interval();
  if (!self_.is_master) return call_master();
  complete_if_all_here();
}

void Cluster::call_master() { link_.dial(self_.master); }

// ---- on the master

void Cluster::on_request(const rpc::Asked& asked, const wire::Message& request) {
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
    case wire::Body::HandOver:
      return hand_over_asked(asked, *request.body_as_HandOver());
    default:
      return server_.fail(asked, base::error(MV_EPROTOCOL, "unknown request: {}", wire::EnumNameBody(request.body_type())));
  }
}

/// The place of a lost worker or server that this process may take. A server has one only if another server has taken over its part.
Member* Cluster::vacancy(const wire::Join& request) {
  const auto is_free = [this](const Member& place) {
    return place.state == State::kLost && (!place.is_server() || view_.serving(place) != base::kNobody);
  };
  for (Member& member : view_.members)
    if (is_free(member) && member.role == request.role() &&
        (request.rank() < 0 || request.rank() == static_cast<int64_t>(member.rank)))
      return &member;
  return nullptr;
}

base::Status Cluster::check_joiner(base::Peer joiner, const wire::Join& request) {
  if (!self_.is_master) return base::error(MV_EDISAGREE, "{} is not the master (rank 0)", self_.address);
  const bool joining = phase_ == Phase::kJoining;
  if (view_.find(joiner) != nullptr || arrivals_.has(joiner)) return base::error(MV_EPROTOCOL, "this process has joined already");
  if (phase_ == Phase::kFailed) return base::error(MV_ETIMEOUT, "the cluster did not form");
  if (!joining && view_.workers_gone())
    return base::error(MV_EDISAGREE, "the cluster of {} processes is at its end: all workers have finished or are lost", self_.nodes);
  if (!joining && vacancy(request) == nullptr)
    return base::error(MV_EDISAGREE, "the cluster of {} processes is already complete, and none of its {} was lost{}", self_.nodes,
                       request.role() == MV_ROLE_SERVER   ? "servers"
                       : request.role() == MV_ROLE_WORKER ? "workers"
                                                          : "members",
                       (request.role() & MV_ROLE_SERVER) != 0 ? " whose tables another one has taken over (after a drain, or with replicas=1)" : "");
  if (base::Status wrong = arrivals_.check(request, contacts_[joiner].address); !wrong.ok()) return wrong;
  return joining ? arrivals_.check_rank(request) : base::Status();
}

void Cluster::join(const rpc::Asked& asked, const wire::Message& message) {
  const wire::Join& request = *message.body_as_Join();
  const bool is_new = view_.find(asked.client) == nullptr;
  if (self_.is_master && phase_ == Phase::kReady && is_new && vacancy(request) == nullptr && may_become_vacant(request, false)) {
    early_.push_back({asked, wire::copy_header(message), clock_.now() + self_.heartbeat_timeout + kLastWord});
    settle_at_ = std::min(settle_at_, early_.back().until);
    return ask_all();  // those that answer are alive
  }
  if (const base::Status wrong = check_joiner(asked.client, request); !wrong.ok()) return server_.fail(asked, wrong);
  if (phase_ != Phase::kJoining) return rejoin(asked, request, *vacancy(request));
  arrivals_.add(asked, request);
  complete_if_all_here();
}

/// Whether a member with a place that this process could take may be dead: with `asked`, if it has not answered the last question.
bool Cluster::may_become_vacant(const wire::Join& request, bool asked) const {
  return std::ranges::any_of(view_.members, [&](const Member& member) {
    if (member.peer == self_.peer || member.is_out || member.state == State::kLost || member.role != request.role()) return false;
    if (request.rank() >= 0 && request.rank() != static_cast<int64_t>(member.rank)) return false;
    const Contact* const contact = contacts_.find(member.peer);
    return contact != nullptr && contact->connected && (!asked || contact->question != 0);
  });
}

void Cluster::settle_early() {
  const base::Nanos now = clock_.now();
  settle_at_ = base::kNever;
  for (const Early& early : std::exchange(early_, {})) {
    const auto& request = *flatbuffers::GetRoot<wire::Message>(early.header.data())->body_as_Join();
    if (vacancy(request) == nullptr && !view_.workers_gone() && may_become_vacant(request, true) && now < early.until) {
      settle_at_ = std::min(settle_at_, early.until);
      early_.push_back(early);
    } else if (const base::Status wrong = check_joiner(early.asked.client, request); !wrong.ok()) {
      server_.fail(early.asked, wrong);
    } else {
      rejoin(early.asked, request, *vacancy(request));
    }
  }
}

void Cluster::rejoin(const rpc::Asked& asked, const wire::Join& request, Member& place) {
  place.peer = asked.client;
  place.address = wire::text_of(request.address());
  place.host = wire::text_of(request.host());
  place.pid = request.pid();
  place.state = State::kHere;
  place.why.clear();
  place.is_out = false;
  const bool was_lost = !std::exchange(place.drained, false);
  place.draining = false;
  base::log_info("{} replaces a {}{}", view_.name(place.peer), was_lost ? "lost " : "", place.is_server() ? "server" : "worker");
  owner_.on_member_joined(place);
  if (place.is_server())
    for (const Member* part : name_next_backups(view_, self_.replicas)) owner_.on_part_moved(*part);
  publish();
  const auto written = write_view(builder_.fbb(), view_);
  server_.answer(asked, builder_.finish(wire::Body::View, written));
}

void Cluster::complete_if_all_here() {
  if (started_ == base::kNever || !arrivals_.all_here()) return;
  View view = arrivals_.view();
  base::Status wrong;
  if (view.servers().empty()) wrong = base::error(MV_EDISAGREE, "none of the {} processes is a server (role=server or role=all)", self_.nodes);
  if (view.workers().empty()) wrong = base::error(MV_EDISAGREE, "none of the {} processes is a worker (role=worker or role=all)", self_.nodes);
  if (self_.replicas > 0 && view.servers().size() < 2)
    wrong = base::error(MV_EDISAGREE, "replicas={} takes at least two servers, and there is only one", self_.replicas);
  if (!wrong.ok()) return fail(wrong);
  if (self_.replicas > 0) name_backups(view);
  for (const rpc::Asked& joiner : arrivals_.asked()) {
    const auto written = write_view(builder_.fbb(), view);
    server_.answer(joiner, builder_.finish(wire::Body::View, written));
  }
  adopt(std::move(view));
}

void Cluster::leave_asked(const rpc::Asked& asked) {
  server_.answer(asked, builder_.answer({}));
  mark_finished(asked.client);
}

/// A part has a back-up again.
void Cluster::copied(const rpc::Asked& asked, const wire::Copied& note) {
  server_.answer(asked, builder_.answer({}));
  const auto part = std::ranges::find_if(view_.members, [&](const Member& member) { return member.rank + 1 == note.part() && member.is_server(); });
  if (!self_.is_master || part == view_.members.end() || view_.serving(*part) != asked.client) return;
  if (part->next_backup == 0 || view_.next_backup_of(*part) != note.backup()) return;  // it was lost meanwhile
  part->backup = std::exchange(part->next_backup, 0);
  owner_.on_part_moved(*part);
  publish();
}

/// Sends the newest view to all members. A lost View is sent again when a Ping shows an old epoch.
void Cluster::publish() {
  ++view_.epoch;
  for (const Member& member : view_.members)
    if (member.peer != self_.peer && contacts_.is_connected(member.peer)) send_view(member.peer);
}

void Cluster::send_view(base::Peer to) {
  const auto written = write_view(builder_.fbb(), view_);
  link_.send(to, builder_.finish(wire::Body::View, written));
}

void Cluster::on_cancel(const rpc::Asked& asked) {
  if (barrier_.withdraw(asked, [&](base::Peer peer) { return doing(peer, owner_.known_waits()); })) return;
  if (std::erase_if(early_, [&](const Early& early) { return early.asked == asked; }) > 0)
    return server_.fail(asked, base::error(MV_ETIMEOUT, "the cluster is complete, and no process whose place this one could take was lost"));
  if (phase_ != Phase::kJoining) return;
  const std::string missing = arrivals_.text();
  if (arrivals_.withdraw(asked)) server_.fail(asked, base::error(MV_ETIMEOUT, "{}", missing));
}

/// What a worker does that has not arrived at a barrier, as far as the master knows without asking it.
std::string Cluster::doing(base::Peer peer, const std::vector<Wait>& waits) const {
  const auto wait = std::ranges::find(waits, peer, &Wait::who);
  if (wait != waits.end()) return fmt::format("waits in {}", describe(*wait));
  const auto quiet = contacts_.silence(peer);
  if (quiet && *quiet >= kSilent) return fmt::format("has been silent for {:.1f} s", seconds(*quiet));
  if (const Contact* contact = contacts_.find(peer); contact != nullptr && !contact->waits.empty()) return "waits in " + contact->waits;
  return barrier_.has_given_up(peer) ? "has given up waiting in it" : "is alive and has not called it";
}

// ---- joining

void Cluster::on_connected(base::Peer peer, const std::string& address) {
  contacts_.connected(peer, address);
  client_.on_connected(peer);
  if (!self_.is_master && phase_ == Phase::kJoining && master_ == base::kNobody && address == self_.master) {
    master_ = peer;
    auto& fbb = builder_.fbb();
    const auto mode = !self_.sync_said ? wire::Mode::Unsaid : self_.sync ? wire::Mode::Sync : wire::Mode::Async;
    const auto join = wire::CreateJoinDirect(fbb, self_.nodes, static_cast<int32_t>(self_.rank), static_cast<uint8_t>(self_.role), mode,
                                             self_.address.c_str(), self_.host.c_str(), self_.pid, self_.replicas);
    joining_ = std::make_shared<JoinPending>(*this);
    client_.call(master_, {builder_.finish(wire::Body::Join, join), joining_, true, 0, nullptr});
  }
  if (view_.epoch > 0) send_ping(peer);
  ready_if_all_ready();
}

void Cluster::on_dial_failed(const std::string& address, const base::Status& why) {
  if (phase_ == Phase::kFailed) return;
  if (phase_ == Phase::kReady) {  // dial a late member until it is there; other members report lost ones
    const auto wanted = [&](const Member& m) { return m.address == address && needs(m) && !contacts_.is_connected(m.peer); };
    if (std::any_of(view_.members.begin(), view_.members.end(), wanted)) redial_[address] = clock_.now() + kRedialAfter;
    return;
  }
  if (why.code() != MV_EUNREACHABLE) return fail(why);
  last_dial_ = why;
  redial_[address] = clock_.now() + kRedialAfter;
}

void Cluster::joined(const base::Status& status, const wire::Message* answer) {
  joining_.reset();
  if (phase_ != Phase::kJoining) return;
  if (!status.ok()) return fail(status);
  const auto* view = answer != nullptr ? answer->body_as_View() : nullptr;
  if (view == nullptr) return fail(base::error(MV_EPROTOCOL, "{} did not answer like a master", self_.master));
  adopt(read_view(*view));
}

void Cluster::adopt(View view) {
  view_ = std::move(view);
  joined_epoch_ = view_.epoch;
  told_gone_ = view_.workers_gone();
  const Member* self = view_.find(self_.peer);
  if (self == nullptr) return fail(base::error(MV_EPROTOCOL, "the master's list of members does not contain this process"));
  phase_ = Phase::kConnecting;
  owner_.on_view(view_);
  for (const Member& member : view_.members) {
    if (member.peer == self_.peer) continue;
    if (contacts_.is_connected(member.peer))
      send_ping(member.peer);
    else if (needs(member) && self->rank > member.rank)
      link_.dial(member.address);
  }
  welcome();
  ready_if_all_ready();
}

bool Cluster::needs(const Member& member) const {
  const Member* self = view_.find(self_.peer);
  if (member.peer == self_.peer || member.state == State::kLost) return false;
  // A finished worker may still be a server.
  if (member.state == State::kFinished && member.peer != master_ && !member.is_server()) return false;
  return member.peer == master_ || self_.is_master || contacts_.is_wanted(member.peer) || view_.need_each_other(*self, member);
}

/// True for a finished member that is not connected and not needed: no connection to it will ever be made.
bool Cluster::ended_unmet(const Member& member) const {
  return member.state == State::kFinished && member.peer != self_.peer && !needs(member) && !contacts_.is_connected(member.peer);
}

void Cluster::want(base::Peer peer, Dialer dialer) {
  const Member* member = view_.find(peer);
  if (member == nullptr || peer == self_.peer || member->state == State::kLost || ended_unmet(*member)) return;
  Contact& contact = contacts_[peer];
  const bool is_new = !std::exchange(contact.wanted, true);
  if (contact.connected) return;
  if (is_new) contact.heard = clock_.now();
  if (dialer == Dialer::kSelf || (is_new && view_.find(self_.peer)->rank > member->rank)) link_.dial(member->address);
}

void Cluster::ready_if_all_ready() {
  if (phase_ != Phase::kConnecting) return;
  for (const Member& member : view_.members)
    if (needs(member) && contacts_[member.peer].epoch < joined_epoch_) return;
  phase_ = Phase::kReady;
  give_up_ = base::kNever;
  redial_.clear();
  owner_.on_ready();
}

void Cluster::fail(const base::Status& why) {
  if (phase_ == Phase::kReady || phase_ == Phase::kFailed) return;
  phase_ = Phase::kFailed;
  give_up_ = base::kNever;
  redial_.clear();
  for (const rpc::Asked& joiner : arrivals_.asked()) server_.fail(joiner, why);
  owner_.on_failed(why);
}

// ---- admission

bool Cluster::is_member(base::Peer peer) const {
  const Member* member = view_.find(peer);
  return member != nullptr && member->state != State::kLost;
}

bool Cluster::may_send(base::Peer peer, Sender sender) const {
  switch (sender) {
    case Sender::kAnyone:
      return true;
    case Sender::kMember:
      return is_member(peer);
    case Sender::kAsked:
      return peer == master_ || is_member(peer);
    case Sender::kMaster:
      return peer == master_;
    case Sender::kCoordinator: {
      const auto servers = view_.servers();
      if (self_.replicas > 0 || view_.has_departures()) return is_member(peer) && view_.find(peer)->is_server();
      return !servers.empty() && servers.front()->peer == peer;
    }
    case Sender::kNobody:
      break;
  }
  return false;
}

bool Cluster::hears_stranger(base::Peer from, const wire::Message& message, Sender sender) {
  Contact* const contact = contacts_.find(from);
  if (contact == nullptr) return false;
  if (from == master_) return may_send(from, sender);  // its answer to this node's Join
  const bool joins = message.body_type() == wire::Body::Join;
  const Member* const former = view_.find(from);
  if (former != nullptr && former->drained && message.body_type() == wire::Body::HandOver) return true;  // the answer to the first one was lost
  const auto* inquire = message.body_as_Inquire();
  if (inquire != nullptr && !inquire->whole()) return false;  // observers ask for the whole status only
  switch (sender) {
    case Sender::kAnyone:
      // Bounds the number and the cost of answers to non-members. The Join of an incarnation is its first request.
      if (joins ? message.seq() == 1 : message.seq() == 0) return ++contact->messages <= kMostOfStranger;
      break;
    case Sender::kAsked:
    case Sender::kMaster:
      return false;  // this node has made no request to it
    case Sender::kMember:
    case Sender::kCoordinator:
    case Sender::kNobody:
      break;
  }
  if (message.seq() == 0) return false;
  // The master knows all members. Another node may get messages of a new member before the master's view.
  if (self_.is_master || joins)
    turn_away(from, message.seq(),
              base::error(MV_EAUTH, "this process is not a member of the cluster: it must join with mv_init() before it sends {}",
                          wire::EnumNameBody(message.body_type())));
  else if (rpc::Seq& dropped = contact->dropped; dropped == 0 || message.seq() < dropped)
    dropped = message.seq();
  return false;
}

/// Answers `request`, unless it is 0, with the error and closes the connection.
void Cluster::turn_away(base::Peer peer, rpc::Seq request, const base::Status& why) {
  base::log_debug("rejected ({:016x}): {}", peer, why.text());
  if (request != 0) {
    base::Frame answer = builder_.answer(why);
    wire::stamp(answer, request, 0);
    link_.send(peer, answer);
  }
  link_.close(peer);
  on_lost(peer, why);
}

/// Makes new members retransmit requests that were dropped before this node knew them as members.
void Cluster::welcome() {
  for (auto& [peer, contact] : contacts_)
    if (contact.dropped != 0 && is_member(peer)) {
      contact.dropped = 0;
      server_.ask_again(peer);
    }
}

/// True for a process that waits for its place, for the master, and for any process while this node itself is joining.
bool Cluster::may_yet_join(base::Peer peer) const {
  if (phase_ == Phase::kJoining && !self_.is_master) return true;
  return (phase_ == Phase::kJoining && arrivals_.has(peer)) || peer == master_;
}

void Cluster::watch_strangers(base::Nanos now) {
  std::vector<std::pair<base::Peer, rpc::Seq>> late;
  for (auto& [peer, contact] : contacts_) {
    contact.messages = 0;
    if (contact.connected && !is_member(peer) && !may_yet_join(peer) && now - contact.met - self_.heartbeat_timeout > self_.heartbeat_timeout)
      late.emplace_back(peer, contact.dropped);
  }
  for (const auto& [peer, request] : late)
    turn_away(peer, request,
              base::error(MV_EAUTH, "this process has not become a member of the cluster: it must join with mv_init() at the master"));
}

void Cluster::on_ping(base::Peer from, const wire::Ping& ping) {
  Contact& contact = contacts_[from];
  contact.epoch = std::max(contact.epoch, ping.epoch());
  if (self_.is_master) contact.waits = wire::text_of(ping.waits()).substr(0, kLongestWait);
  if (self_.is_master && ping.epoch() < view_.epoch && view_.find(from) != nullptr && ping.epoch() > 0) send_view(from);
  if (ping.asks() != 0 && (is_member(from) || from == master_)) send_ping(from, 0, ping.asks());
  contacts_.answered(contact, ping.answers());
  if (!early_.empty()) settle_at_ = clock_.now();
  ready_if_all_ready();
}

void Cluster::on_view(base::Peer from, const wire::View& wire) {
  if (from != master_ || wire.epoch() <= view_.epoch || view_.epoch == 0) return;
  const View newer = read_view(wire);
  view_.epoch = newer.epoch;
  told_gone_ = newer.workers_gone();
  std::vector<const Member*> moved;
  for (const Member& member : newer.members) {
    const bool is_self = member.peer == self_.peer;
    if (view_.find(member.peer) == nullptr) replace(member);
    if (Member* const known = view_.find(member.peer)) {
      const bool begins = member.draining && !known->draining;
      std::tie(known->draining, known->drained) = std::pair(member.draining, member.drained);
      if (begins) owner_.on_member_draining(*known);
    }
    is_drained_ = is_drained_ || (is_self && member.drained);
    if (member.state == State::kFinished && !is_self) mark_finished(member.peer);
    if ((member.state == State::kLost || member.is_out) && !is_self) {
      link_.close(member.peer);
      mark_lost(member.peer, base::Status(MV_EPEERLOST, member.why));
    }
    Member* const known = view_.find(member.peer);
    if (known == nullptr || (is_self && member.is_out)) continue;  // the master closes the connection
    const auto place = [](const Member& of) { return std::tuple(of.is_out, of.stand_in, of.backup, of.next_backup); };
    if (place(*known) == place(member)) continue;
    std::tie(known->is_out, known->stand_in, known->backup, known->next_backup) = place(member);
    if (known->is_server()) moved.push_back(known);
  }
  for (const Member* part : moved) owner_.on_part_moved(*part);
  welcome();
  owner_.on_news();
  if (is_drained_) owner_.on_drained();
}

void Cluster::on_lost(base::Peer peer, const base::Status& why) {
  contacts_.forget(peer);
  if (aborted_) return abort_if_all_told();
  if (phase_ == Phase::kJoining) arrivals_.lost(peer);
  std::erase_if(early_, [&](const Early& early) { return early.asked.client == peer; });
  const Member* member = view_.find(peer);
  const std::string name = member != nullptr ? view_.name(peer) : peer == master_ ? fmt::format("the master at {}", self_.master) : "";
  mark_lost(peer, name.empty() ? why : base::error(why.code(), "{} is gone: {}", name, why.text()));
  if (member == nullptr && peer != master_) client_.forget(peer);
  if (peer == master_) owner_.on_news();
}

void Cluster::mark_lost(base::Peer peer, const base::Status& why) {
  contacts_.forget(peer);
  if (!early_.empty()) settle_at_ = clock_.now();
  client_.on_lost(peer, why);
  Member* member = view_.find(peer);
  const bool needed = member != nullptr && needs(*member);
  if (member != nullptr && member->state == State::kHere) {
    member->state = State::kLost;
    member->why = why.text();
    owner_.on_member_lost(*member, why);
    if (member->is_server()) owner_.on_server_missed(*member, why);
    if (self_.is_master) {
      if (declare_out(*member) || member->is_worker()) barrier_.lost(peer, why);
      publish();
    }
  } else if (member != nullptr && member->state == State::kFinished && member->is_server() && !member->is_out && !view_.workers_gone()) {
    member->why = why.text();
    owner_.on_server_missed(*member, why);
    if (self_.is_master && self_.replicas > 0) {
      if (declare_out(*member)) barrier_.lost(peer, why);
      publish();
    }
  }
  const bool can_go_on = member != nullptr && goes_on_without(*member, peer);
  if (phase_ == Phase::kConnecting && needed && !can_go_on) fail(why);
  if (can_go_on) ready_if_all_ready();
  server_.on_lost(peer);
}

/// A server with a back-up isn't needed: the master will name who serves its tables. A process that is only a server goes on without the others:
/// workers may be using its tables already, since not all members get ready at once.
bool Cluster::goes_on_without(const Member& member, base::Peer peer) const {
  const Member* const self = view_.find(self_.peer);
  const bool only_serves = self != nullptr && !self->is_worker();
  return peer != master_ && (only_serves || member.departs() || (self_.replicas > 0 && member.is_server()));
}

/// The master decides who serves the tables of a lost server. True if values are lost.
bool Cluster::declare_out(Member& member) {
  const Succession after = succeed(view_, member, self_.replicas);
  for (const Member* part : after.changed) owner_.on_part_moved(*part);
  return after.loses_values;
}

void Cluster::on_unreachable(base::Peer from, const wire::Unreachable& note) {
  const Member* const member = view_.find(note.peer());
  if (!self_.is_master || member == nullptr || member->state == State::kLost || member->peer == self_.peer) return;
  link_.close(note.peer());
  on_lost(note.peer(), base::error(MV_EPEERLOST, "{} has lost its connection to it", view_.name(from)));
}

void Cluster::report_unreachable() {
  const Member* const self = view_.find(self_.peer);
  if ((self_.replicas == 0 && !view_.has_departures()) || self_.is_master || self == nullptr) return;
  for (const Member* partner : partners(view_, *self))
    if (!partner->is_out && partner->peer != master_ && !contacts_.is_connected(partner->peer) && partner->state != State::kHere)
      link_.send(master_, builder_.finish(wire::Body::Unreachable, wire::CreateUnreachable(builder_.fbb(), partner->peer)));
}

void Cluster::mark_finished(base::Peer peer) {
  Member* member = view_.find(peer);
  if (member == nullptr || member->state != State::kHere) return;
  member->state = State::kFinished;
  // Requests queued for a connection that will never be made would wait forever, so they fail here.
  if (ended_unmet(*member)) client_.on_lost(peer, base::error(MV_EPEERLOST, "{} has finished", view_.name(peer)));
  owner_.on_member_finished(*member);
  if (self_.is_master) {
    barrier_.finished(peer);
    publish();
  }
  ready_if_all_ready();  // it may have been the last member that this node waited for
}

/// Another process has this rank now.
void Cluster::replace(const Member& member) {
  const auto place = std::find_if(view_.members.begin(), view_.members.end(), [&](const Member& m) { return m.rank == member.rank; });
  // This process itself was declared lost. It learns that from the master, which closes the connection.
  if (place == view_.members.end() || place->peer == self_.peer) return;
  mark_lost(place->peer, base::error(MV_EPEERLOST, "{} was lost", view_.name(place->peer)));
  *place = member;
  place->state = State::kHere;
  owner_.on_member_joined(*place);
  if (place->is_server()) owner_.on_part_moved(*place);
  if (contacts_.is_connected(member.peer))
    send_ping(member.peer);
  else if (needs(*place) && view_.find(self_.peer)->rank > member.rank)
    link_.dial(member.address);
}

bool Cluster::all_workers_gone() const {
  if (self_.is_master) return view_.workers_gone();
  return contacts_.is_connected(master_) ? told_gone_ : view_.workers_gone();
}

void Cluster::finish_self() { mark_finished(self_.peer); }

void Cluster::barrier(rpc::PendingRef pending) {
  auto frame = builder_.finish(wire::Body::Barrier, wire::CreateBarrier(builder_.fbb()));
  client_.call(master_, {std::move(frame), std::move(pending), true, 0, nullptr});
}

std::vector<base::Peer> Cluster::leave_targets() const {
  std::vector<base::Peer> targets;
  for (const Member& member : view_.members)
    if (member.peer != self_.peer && member.state != State::kLost && !ended_unmet(member) &&
        (member.peer == master_ || member.is_server() || contacts_.is_wanted(member.peer)))
      targets.push_back(member.peer);
  return targets;
}

void Cluster::leave(const std::vector<rpc::PendingRef>& pendings) {
  const auto targets = leave_targets();
  for (size_t i = 0; i < targets.size() && i < pendings.size(); ++i)
    client_.call(targets[i], {builder_.finish(wire::Body::Leave, wire::CreateLeave(builder_.fbb())), pendings[i], true, 0, nullptr});
}

void Cluster::abort(const std::string& why, std::function<void()> told) {
  aborted_ = std::move(told);
  for (const auto& [peer, contact] : contacts_) {
    if (!contact.connected || !is_member(peer)) continue;
    const auto abort = wire::CreateAbortDirect(builder_.fbb(), why.c_str());
    link_.send(peer, builder_.finish(wire::Body::Abort, abort));
  }
  abort_if_all_told();
}

/// A peer that has read the message closes its connection.
void Cluster::abort_if_all_told() {
  const bool all = std::ranges::none_of(contacts_, [&](const auto& entry) {
    return entry.second.connected && is_member(entry.first) && !(is_drained_ && entry.first == master_);
  });
  if (all && aborted_) std::exchange(aborted_, [] {})();
}

void Cluster::on_abort(base::Peer from, const wire::Abort& abort) {
  const Member* member = view_.find(from);
  const std::string why = wire::text_of(abort.why()).substr(0, kLongestReason);
  const base::Status status = base::error(MV_EPEERLOST, "{}: {} (rank {}, pid {} on {})", view_.short_name(from), why, member->rank, member->pid, member->host);
  mark_lost(from, status);  // before the sender learns that it was heard: then it ends its groups
  link_.close(from);
  if (from == master_) owner_.on_news();
}

// ---- time

void Cluster::send_ping(base::Peer to, uint64_t asks, uint64_t answers) {
  const std::string waits = to == master_ ? owner_.own_wait() : "";
  link_.send(to, builder_.finish(wire::Body::Ping, wire::CreatePingDirect(builder_.fbb(), view_.epoch, asks, answers, waits.c_str())));
}

void Cluster::ask_all() {
  const uint64_t question = contacts_.ask();
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected) send_ping(peer, question);
}

base::Nanos Cluster::next_deadline() const {
  base::Nanos next = std::min({next_beat_, give_up_, settle_at_});
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
    link_.dial(address);
  }
  if (now >= give_up_) {
    if (joining_ != nullptr && phase_ == Phase::kJoining) {  // the answer to the cancel lists the missing processes
      client_.cancel(master_, joining_.get());
      joining_.reset();
      give_up_ = now + kLastWord;
    } else if (self_.is_master && phase_ == Phase::kJoining) {
      fail(base::error(MV_ETIMEOUT, "{} within {:.3g} s", arrivals_.text(), seconds(self_.init_timeout)));
    } else if (last_dial_.ok()) {
      fail(base::error(MV_ETIMEOUT, "the cluster did not form within {:.3g} s", seconds(self_.init_timeout)));
    } else {
      fail(base::error(MV_EUNREACHABLE, "{}; tried for {:.3g} s. Is rank 0 running there?", last_dial_.text(), seconds(self_.init_timeout)));
    }
  }
  if (now >= settle_at_) settle_early();
  if (now >= next_beat_) beat(now);
}

void Cluster::beat(base::Nanos now) {
  // Time in which this node itself did not run does not count as silence.
  const base::Nanos starved = std::max(base::Nanos(0), now - last_beat_ - 2 * interval());
  last_beat_ = now;
  next_beat_ = now + interval();
  // The master reports the loss of peers that are not connected yet. Without a master, nobody does.
  const Member* master = view_.find(master_);
  const bool nobody_tells = master != nullptr && master->state == State::kLost;
  std::vector<std::pair<base::Peer, base::Nanos>> silent;
  for (auto& [peer, contact] : contacts_) {
    contact.heard = std::exchange(contact.spoke, false) ? now : contact.heard + starved;
    if (!contact.connected && !(contact.wanted && nobody_tells)) continue;
    if (now - contact.heard > self_.heartbeat_timeout)
      silent.emplace_back(peer, now - contact.heard);
    else if (contact.connected)
      send_ping(peer);
  }
  for (const auto& [peer, span] : silent) {
    link_.close(peer);
    // Not for other losses: at Ctrl-C all processes end at once, and their last words are the launcher's.
    if (self_.is_master && view_.find(peer) != nullptr)
      base::log_warn("{} is lost: nothing heard from it for {:.2g} s", view_.name(peer), seconds(span));
    on_lost(peer, base::error(MV_EPEERLOST, "nothing heard from it for {:.2g} s", seconds(span)));
  }
  report_unreachable();
  watch_strangers(now);
  tell_of_arrivals(now);
}

/// Logs which processes are missing when joining takes long.
void Cluster::tell_of_arrivals(base::Nanos now) {
  if (!self_.is_master || phase_ != Phase::kJoining || now < notice_at_) return;
  base::log_warn("after {:.0f} s {}", seconds(now - started_), arrivals_.text());
  notice_at_ = now + 6 * kNoticeAfter;
}

// ---- status

const char* Cluster::phase() const {
  switch (phase_) {
    case Phase::kJoining:
      return "joining";
    case Phase::kConnecting:
      return "connecting";
    case Phase::kReady:
      return "ready";
    case Phase::kFailed:
      break;
  }
  return "failed";
}

std::string Cluster::missing_joiners() const { return self_.is_master && phase_ == Phase::kJoining ? arrivals_.text() : ""; }

}  // namespace mv::cluster
