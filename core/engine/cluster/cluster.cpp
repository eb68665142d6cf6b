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
/// If nobody else would report its loss, a member is lost after this many failed dials in a row: a second, if nothing listens there any more.
constexpr uint32_t kMostFailedDials = 20;
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
  base::SinkRef place(const wire::Message&, size_t bytes) override {
    const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
    return base::Sink::into({memory.get(), bytes}, memory);
  }
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) override {
    cluster_.joined(status, answer, payload);
  }

 private:
  Cluster& cluster_;
};

Cluster::Cluster(const base::Clock& clock, base::Link& link, rpc::Client& client, rpc::Server& server, Owner& owner, Self self)
    : clock_(clock), link_(link), client_(client), server_(server), owner_(owner), self_(std::move(self)), barrier_(server, view_), arrivals_(self_), contacts_(clock) {
  for (size_t from = 0; from <= self_.master.size();) {
    const size_t end = std::min(self_.master.find(',', from), self_.master.size());
    masters_.push_back(self_.master.substr(from, end - from));
    from = end + 1;
  }
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

void Cluster::call_master() { dial_master(); }
void Cluster::dial_master() { link_.dial(masters_[asked_master_]); }

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
    case wire::Body::Resize:
      return resize_asked(asked, request.body_as_Resize()->servers());
    case wire::Body::HandOver:
      return hand_over_asked(asked, *request.body_as_HandOver());
    default:
      return server_.fail(asked, base::error(MV_EPROTOCOL, "unknown request: {}", wire::EnumNameBody(request.body_type())));
  }
}

/// The place that this process may take: of a lost worker or server, or in an elastic cluster of a worker that has finished. A server has one only
/// if another server has taken over its part.
Member* Cluster::vacancy(View& view, const wire::Join& request) {
  const auto is_free = [&view](const Member& place) {
    if (place.state == State::kFinished) return view.elastic && place.role == MV_ROLE_WORKER && place.peer != view.master;
    return place.state == State::kLost && place.peer != view.master && (!place.is_server() || view.serving(place) != base::kNobody);
  };
  for (Member& member : view.members)
    if (is_free(member) && member.role == request.role() &&
        (request.rank() < 0 || request.rank() == static_cast<int64_t>(member.rank)))
      return &member;
  return nullptr;
}

base::Status Cluster::check_joiner(base::Peer joiner, const wire::Join& request) {
  if (!is_master()) return base::error(MV_EDISAGREE, "{} is not the master (rank 0)", self_.address);
  const bool joining = phase_ == Phase::kJoining;
  View& places = is_kept() ? decided_ : view_;
  if (view_.find(joiner) != nullptr || arrivals_.has(joiner)) return base::error(MV_EPROTOCOL, "this process has joined already");
  if (phase_ == Phase::kFailed) return base::error(MV_ETIMEOUT, "the cluster did not form");
  if (!joining && view_.workers_gone())
    return base::error(MV_EDISAGREE, "the cluster of {} processes is at its end: all workers have finished or are lost", self_.nodes);
  if (!joining && vacancy(places, request) == nullptr)
    return base::error(MV_EDISAGREE, "the cluster of {} processes is already complete, and none of its {} was lost{}", self_.nodes,
                       request.role() == MV_ROLE_SERVER   ? "servers"
                       : request.role() == MV_ROLE_WORKER ? "workers"
                                                          : "members",
                       (request.role() & MV_ROLE_SERVER) != 0
                           ? " whose tables another one has taken over (after a drain, or with replicas=1). max_servers makes room for more"
                           : ", or its place is taken already. max_workers makes room for more");
  if (base::Status wrong = arrivals_.check(request, contacts_[joiner].address, !joining); !wrong.ok()) return wrong;
  return joining ? arrivals_.check_rank(request) : base::Status();
}

void Cluster::join(const rpc::Asked& asked, const wire::Message& message) {
  const wire::Join& request = *message.body_as_Join();
  const bool is_new = view_.find(asked.client) == nullptr;
  if (!cut_off_.ok() && is_new) return server_.fail(asked, cut_off_);
  if (!is_master() && is_kept() && phase_ == Phase::kReady && is_new) {  // the new process asks the master then
    if (!awaits_master()) return point_to_master(asked);
    keep_early(asked, message);
    return;
  }
  View& places = is_kept() ? decided_ : view_;
  if (is_master() && phase_ == Phase::kReady && is_new && vacancy(places, request) == nullptr && (may_become_vacant(request, false) || !decisions_.empty())) {
    if (keep_early(asked, message)) ask_all();  // those that answer are alive
    return;
  }
  if (const base::Status wrong = check_joiner(asked.client, request); !wrong.ok()) return server_.fail(asked, wrong);
  if (phase_ != Phase::kJoining) return rejoin(asked, wire::copy_header(message));
  arrivals_.add(asked, request);
  complete_if_all_here();
}

/// Answers this Join later. True if it is the first one of its process that waits.
bool Cluster::keep_early(const rpc::Asked& asked, const wire::Message& message) {
  const bool is_first = std::erase_if(early_, [&](const Early& early) { return early.asked.client == asked.client; }) == 0;
  early_.push_back({asked, wire::copy_header(message), clock_.now() + self_.heartbeat_timeout + kLastWord});
  settle_at_ = std::min(settle_at_, early_.back().until);
  return is_first;
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
    if (!cut_off_.ok()) {
      server_.fail(early.asked, cut_off_);
      continue;
    }
    if (!is_master() && is_kept()) {
      if (!awaits_master()) point_to_master(early.asked);
      else if (now < early.until) settle_at_ = std::min(settle_at_, early.until), early_.push_back(early);
      else server_.fail(early.asked, base::error(MV_EPEERLOST, "the master of this cluster is lost: {}", master_lost_.text()));
      continue;
    }
    View& places = is_kept() ? decided_ : view_;
    if (vacancy(places, request) == nullptr && !view_.workers_gone() && (may_become_vacant(request, true) || !decisions_.empty()) && now < early.until) {
      settle_at_ = std::min(settle_at_, early.until);
      early_.push_back(early);
    } else if (const base::Status wrong = check_joiner(early.asked.client, request); !wrong.ok()) {
      server_.fail(early.asked, wrong);
    } else {
      rejoin(early.asked, early.header);
    }
  }
}

void Cluster::take_place(Member& place, base::Peer peer, const wire::Join& request) {
  const bool was_vacant = place.is_vacant(), was_drained = std::exchange(place.drained, false);
  const bool was_lost = place.state == State::kLost && !was_drained;
  if (was_lost) ++place.losses;
  place.peer = peer;
  place.address = wire::text_of(request.address());
  place.host = wire::text_of(request.host());
  place.pid = request.pid();
  place.state = State::kHere;
  place.why.clear();
  place.is_out = place.draining = false;
  const char* const what = place.is_server() ? "server" : "worker";
  if (was_vacant) return base::log_info("a {} joins as rank {}: pid {} on {}", what, place.rank, place.pid, place.host);
  base::log_info("pid {} on {} replaces a {}{} (rank {})", place.pid, place.host, was_lost ? "lost " : was_drained ? "" : "finished ", what, place.rank);
}

base::Frame Cluster::join_answer(const View& view) {
  View told = view;
  told.barriers = barrier_.passed();
  return log_.write(builder_, told, 0);
}

void Cluster::answer_join(const rpc::Asked& asked, const View& view, base::Frame answer) {
  if (Contact* const contact = contacts_.find(asked.client)) contact->told = view.epoch;
  server_.answer(asked, std::move(answer));
}

/// To a process that wants to join. It learns of nobody else.
void Cluster::point_to_master(const rpc::Asked& asked) {
  View pointer;
  pointer.epoch = decided_.epoch;
  pointer.master = master_;
  if (const Member* const master = decided_.find(master_)) pointer.members.push_back(*master);
  server_.answer(asked, join_answer(pointer));
}

void Cluster::rejoin(const rpc::Asked& asked, std::vector<std::byte> header) {
  const auto join_in = [](const std::vector<std::byte>& message) -> const wire::Join& {
    return *flatbuffers::GetRoot<wire::Message>(message.data())->body_as_Join();
  };
  if (!is_kept()) {
    const wire::Join& request = join_in(header);
    Member& place = *vacancy(view_, request);
    take_place(place, asked.client, request);
    owner_.on_member_joined(place);
    if (place.is_server())
      for (const Member* part : name_next_backups(view_, self_.replicas)) owner_.on_part_moved(*part);
    publish();
    note_view();
    return answer_join(asked, view_, join_answer(view_));
  }
  decide(
      [this, asked, join_in, header = std::move(header)](View& next) {
        const wire::Join& wanted = join_in(header);
        if (next.find(asked.client) != nullptr) return base::Status();  // the write before has succeeded after all
        if (!contacts_.is_connected(asked.client)) return base::error(MV_EPEERLOST, "it has gone meanwhile");
        Member* const place = vacancy(next, wanted);
        if (place == nullptr) return base::error(MV_EDISAGREE, "another process has taken the place of the lost one");
        take_place(*place, asked.client, wanted);
        name_next_backups(next, self_.replicas);
        return base::Status();
      },
      [this, asked](const base::Status& refused, const View& view) {
        refused.ok() ? answer_join(asked, view, join_answer(view)) : server_.fail(asked, refused);
      });
}

void Cluster::complete_if_all_here() {
  if (started_ == base::kNever || !arrivals_.all_here()) return;
  View view = arrivals_.view();
  base::Status wrong;
  if (view.servers().empty()) wrong = base::error(MV_EDISAGREE, "none of the {} processes is a server (role=server or role=all)", self_.nodes);
  if (view.workers().empty()) wrong = base::error(MV_EDISAGREE, "none of the {} processes is a worker (role=worker or role=all)", self_.nodes);
  const auto servers = std::ranges::count_if(view.servers(), [](const Member* server) { return !server->is_vacant(); });
  if (std::cmp_less_equal(servers, self_.replicas) && servers > 0)
    wrong = base::error(MV_EDISAGREE, "replicas={} needs at least {} servers, and this cluster has {}", self_.replicas, self_.replicas + 1, servers);
  if (!wrong.ok()) return fail(wrong);
  view.master = self_.peer;
  if (self_.replicas == 0) return found(std::move(view));
  name_backups(view, self_.replicas);
  name_voters(view);
  if (keeper_ == nullptr) return found(std::move(view));
  // A view of an earlier cluster may be there. This process has the name, so that cluster has ended, or has lost the keeper: it can't decide any more.
  keeper_->read([this, view](const base::Result<Keeper::Content>& content) {
    if (!content.ok()) return fail(content.status());
    keeper_->write(content.value().revision, to_bytes(view), [this, view](const base::Result<uint64_t>& written) {
      if (!written.ok() && written.status().code() == MV_ESTATE)
        return fail(base::error(MV_EDISAGREE, "another cluster of this name has begun: {}", written.status().text()));
      if (!written.ok()) return fail(written.status());
      revision_ = written.value();
      found(view);
    });
  });
}

/// The first view holds.
void Cluster::found(View view) {
  const base::Frame answer = join_answer(view);
  for (const rpc::Asked& joiner : arrivals_.asked()) answer_join(joiner, view, answer);
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
  if (!is_master() || part == view_.members.end()) return;
  const auto holds = [client = asked.client, backup = note.backup()](const View& view, const Member& of) {
    return view.tail_of(of) == client && of.next_backup != 0 && view.next_backup_of(of) == backup;  // else one of the two was lost meanwhile
  };
  if (is_kept())
    return decide([holds, rank = part->rank, replicas = self_.replicas](View& next) {
      const auto copied = std::ranges::find(next.members, rank, &Member::rank);
      if (copied == next.members.end() || !holds(next, *copied)) return base::Status(MV_ESTATE, "");
      take_copy(next, *copied, replicas);
      return base::Status();
    });
  if (!holds(view_, *part)) return;
  take_copy(view_, *part, self_.replicas);
  owner_.on_part_moved(*part);
  publish();
}

/// The view has changed. Sends it to all members, at once or together with the changes that follow soon: when all n
/// workers end, n views of n members to n of them would take n^3 time. A lost View is sent again when a Ping shows an old
/// epoch.
void Cluster::publish() {
  ++view_.epoch;
  view_.moved = view_.has_departures();
  const base::Nanos due = published_ + between_views();
  if (view_.workers_gone() || clock_.now() >= due) return send_to_all();  // at the end, this process may not have another turn
  publish_at_ = std::min(publish_at_, due);
}

void Cluster::send_to_all() {
  published_ = clock_.now();
  publish_at_ = base::kNever;
  note_view();
  tell_members(view_);
}

/// On a master without a keeper: what has changed is to be in the next messages.
void Cluster::note_view() {
  log_.follow(noted_, view_);
  noted_ = view_;
}

/// Sends each connected member what it lacks of this view, the last one of log_.
void Cluster::tell_members(const View& view) {
  std::map<uint64_t, base::Frame> frames;  // by the number of the receiver's view
  for (const Member& member : view_.members) {
    Contact* const contact = contacts_.find(member.peer);
    if (member.peer == self_.peer || contact == nullptr || !contact->connected) continue;
    const uint64_t has = std::max(contact->epoch, contact->told);
    if (has >= view.epoch) continue;
    const auto [frame, is_new] = frames.try_emplace(has);
    if (is_new) frame->second = log_.write(builder_, view, has);
    contact->told = view.epoch;
    link_.send(member.peer, frame->second);
  }
}

/// The more members, the longer: each of them spends time on each member in a view.
base::Nanos Cluster::between_views() const {
  constexpr base::Nanos kForEachPair = 2us, kMost = 250ms;
  const auto members = static_cast<int64_t>(view_.members.size());
  return std::min(members * members * kForEachPair, kMost);
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
  if (!is_master() && phase_ == Phase::kJoining && master_ == base::kNobody && address == masters_[asked_master_]) {
    master_ = peer;
    auto& fbb = builder_.fbb();
    const auto mode = !self_.sync_said ? wire::Mode::Unsaid : self_.sync ? wire::Mode::Sync : wire::Mode::Async;
    const auto join = wire::CreateJoinDirect(fbb, self_.nodes, static_cast<int32_t>(self_.rank), static_cast<uint8_t>(self_.role), mode,
                                             self_.address.c_str(), self_.host.c_str(), self_.pid, self_.replicas);
    joining_ = std::make_shared<JoinPending>(*this);
    client_.call(master_, {builder_.finish(wire::Body::Join, join), joining_, true, 0, nullptr});
  }
  if (peer == master_ && awaits_master()) awaited_until_ = elect_at_ = tell_at_ = base::kNever;
  if (view_.epoch > 0) send_ping(peer);
  ready_if_all_ready();
}

void Cluster::on_dial_failed(const std::string& address, const base::Status& why) {
  if (phase_ == Phase::kFailed) return;
  if (phase_ == Phase::kReady) {  // dial a late member until it is there; other members report lost ones
    const auto wanted = [&](const Member& m) { return m.address == address && needs(m) && !contacts_.is_connected(m.peer); };
    const auto member = std::ranges::find_if(view_.members, wanted);
    if (member == view_.members.end()) return;
    const base::Peer peer = member->peer;
    if (++contacts_[peer].failed_dials < kMostFailedDials || !judges_alone(peer)) {
      redial_[address] = clock_.now() + kRedialAfter;
      return;
    }
    link_.close(peer);
    return on_lost(peer, why);
  }
  if (why.code() != MV_EUNREACHABLE) return fail(why);
  last_dial_ = why;
  if (phase_ == Phase::kJoining && address == masters_[asked_master_]) asked_master_ = (asked_master_ + 1) % masters_.size();
  redial_[phase_ == Phase::kJoining ? masters_[asked_master_] : address] = clock_.now() + kRedialAfter;
}

void Cluster::joined(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
  joining_.reset();
  if (phase_ != Phase::kJoining) return;
  if (status.code() == MV_EPEERLOST && masters_.size() > 1) {  // another one may know who follows the one that is gone
    last_dial_ = status;
    master_ = base::kNobody;
    asked_master_ = (asked_master_ + 1) % masters_.size();
    redial_[masters_[asked_master_]] = clock_.now() + kRedialAfter;
    return;
  }
  if (!status.ok()) return fail(status);
  const auto* view = answer != nullptr ? answer->body_as_View() : nullptr;
  if (view == nullptr) return fail(base::error(MV_EPROTOCOL, "{} did not answer like a master", self_.master));
  auto update = read_update(*view, payload);
  if (!update.ok()) return fail(update.status());
  View answered = std::move(update.value().view);
  if (const Member* const master = answered.find(answered.master); master != nullptr && answered.find(self_.peer) == nullptr) {
    base::log_info("{} is the master of this cluster now: asking it", answered.name(master->peer));  // it can't be the one that was asked
    const auto known = std::ranges::find(masters_, master->address);
    asked_master_ = static_cast<size_t>(known - masters_.begin());
    if (known == masters_.end()) masters_.push_back(master->address);
    master_ = base::kNobody;
    return dial_master();
  }
  adopt(std::move(answered));
}

void Cluster::adopt(View view) {
  view_ = std::move(view);
  joined_epoch_ = view_.epoch;
  told_gone_ = view_.workers_gone();
  if (view_.master != base::kNobody) master_ = view_.master;
  passed_ = std::exchange(view_.barriers, 0);
  told_ = view_.losses;
  const Member* self = view_.find(self_.peer);
  if (self == nullptr) return fail(base::error(MV_EPROTOCOL, "the master's list of members does not contain this process"));
  phase_ = Phase::kConnecting;
  if (is_master() || self_.replicas > 0) log_.begin(view_);
  if (is_master() && self_.replicas == 0) noted_ = view_;
  begin_keeping();
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
  // With a keeper, each server may be the master one day.
  if (is_kept() && (self->is_server() || member.is_server())) return true;
  return member.peer == master_ || is_master() || contacts_.is_wanted(member.peer);
}

/// Whether this node may have requests for that member, or the member for this node.
bool Cluster::may_need(const Member& member) const {
  if (member.peer == self_.peer || member.state == State::kLost) return false;
  if (needs(member)) return true;
  return (member.state == State::kHere || member.is_server()) && view_.need_each_other(*view_.find(self_.peer), member);
}

void Cluster::connect_with_all() {
  for (const Member& member : view_.members) {
    if (!may_need(member)) continue;
    want(member.peer, Dialer::kSelf);
    if (has_left_) send_leave(member.peer, std::make_shared<rpc::Ignored>());
  }
}

size_t Cluster::unconnected() const {
  return static_cast<size_t>(std::ranges::count_if(
      view_.members, [&](const Member& member) { return may_need(member) && !contacts_.is_connected(member.peer); }));
}

/// True for a finished member that is not connected and not needed: no connection to it will ever be made.
bool Cluster::ended_unmet(const Member& member) const {
  return member.state == State::kFinished && member.peer != self_.peer && !may_need(member) && !contacts_.is_connected(member.peer);
}

void Cluster::want(base::Peer peer, Dialer dialer) {
  const Member* member = view_.find(peer);
  if (member == nullptr || peer == self_.peer || member->state == State::kLost || ended_unmet(*member)) return;
  Contact& contact = contacts_[peer];
  const bool is_new = !std::exchange(contact.wanted, true);
  if (contact.connected) return;
  if (is_new) contact.heard = clock_.now();
  if (dialer == Dialer::kHigherRank && view_.find(self_.peer)->rank < member->rank) return;
  if (!std::exchange(contact.dialed, true)) link_.dial(member->address);
}

void Cluster::ready_if_all_ready() {
  if (phase_ != Phase::kConnecting) return;
  // Begins at the member that was missing before, because each of n members calls this.
  const size_t count = view_.members.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t place = (missing_ + i) % count;
    const Member& member = view_.members[place];
    if (!needs(member) || contacts_[member.peer].epoch >= joined_epoch_) continue;
    missing_ = place;
    return;
  }
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
  // The answer to the first HandOver was lost. Other requests of the leaver that come late must not end its connection before it has that answer.
  if (former != nullptr && former->drained) return message.body_type() == wire::Body::HandOver;
  const auto* inquire = message.body_as_Inquire();
  if (inquire != nullptr && !inquire->whole()) return false;  // observers ask for the whole status only
  switch (sender) {
    case Sender::kAnyone:
      // Bounds the number of answers to non-members. A process that was sent to a master which is gone, too, asks again.
      if (joins) contact->met = clock_.now();
      if (joins || message.seq() == 0) return ++contact->messages <= kMostOfStranger;
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
  if (is_master() || joins)
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
      owner_.on_welcome(peer);
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
  if (from == master_) master_is_undecided_ = ping.undecided();
  if (is_master()) contact.waits = wire::text_of(ping.waits()).substr(0, kLongestWait);
  if (is_master() && is_kept() && ping.epoch() >= master_since_) barrier_.follow(from, ping.barriers(), ping.losses());
  // Its newest view may be on its way. If it was lost, the member asks again.
  const bool is_due = publish_at_ != base::kNever;
  if (is_master() && !is_due && ping.epoch() < view_.epoch && view_.find(from) != nullptr && ping.epoch() > 0) {
    link_.send(from, log_.write(builder_, is_kept() ? decided_ : view_, ping.epoch()));
    contact.told = view_.epoch;
  }
  if (ping.asks() != 0 && (is_member(from) || from == master_)) send_ping(from, 0, ping.asks());
  contacts_.answered(contact, ping.answers());
  if (!early_.empty()) settle_at_ = clock_.now();
  ready_if_all_ready();
}

void Cluster::on_view(base::Peer from, const wire::View& header, std::span<const std::byte> payload) {
  if (header.epoch() <= view_.epoch || view_.epoch == 0) return;
  if (!is_kept() && from != master_) return;
  if (header.base() > view_.epoch) return send_ping(from);  // a view between them was lost: the ping asks for what has changed since this node's
  const auto update = read_update(header, payload);
  if (!update.ok() || update.value().view.epoch != header.epoch()) return;
  if (!is_kept()) return take_view(update.value().view, update.value().workers_gone);
  View next = decided_;
  if (apply(update.value(), next)) take_decided(next);  // whoever sent it: it holds
}

/// The part of a newer view about this process itself. False if it is no member any more.
bool Cluster::take_own_place(const View& newer) {
  const Member* const self = newer.find(self_.peer);
  if (is_drained_ || (self != nullptr && (self->drained || !self->is_out))) return true;
  const auto why = base::error(MV_EPEERLOST, "the other processes have declared this one lost, and go on without it{}", self != nullptr ? ": " + self->why : "");
  if (cut_off_.ok()) {
    is_deposed_ = true;
    cut_off(why);
  } else if (!is_deposed_) {  // it was cut off before
    depose();
    owner_.on_cut_off(why);
  }
  return false;
}

/// @param newer  without a keeper it may have only the members that have changed: what this node has noticed itself stays as it is
/// @param workers_gone  View::workers_gone() of the whole view
void Cluster::take_view(const View& newer, bool workers_gone) {
  if (is_kept() && !take_own_place(newer)) return;
  if (!cut_off_.ok()) {  // it has waited too short a time for another master
    if (is_deposed_) return;
    cut_off_ = {};
    barrier_.close({});
  }
  const bool has_new_master = is_kept() && newer.master != master_;
  const uint64_t losses = std::exchange(view_.losses, newer.losses);
  view_.loss_texts = newer.loss_texts;
  view_.wanted_servers = newer.wanted_servers;
  view_.elastic = newer.elastic;
  view_.moved = newer.has_departures();
  if (is_kept()) {
    if (newer.epoch > log_.last()) log_.follow(decided_, newer);
    decided_ = newer;
  }
  if (has_new_master) change_master(newer);
  view_.epoch = newer.epoch;
  told_gone_ = workers_gone;
  master_is_undecided_ = false;
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
    const bool has_finished = member.state == State::kFinished || (member.is_worker() && member.drained);  // workers finish before they drain
    if (Member* const known = view_.find(member.peer); known != nullptr && has_finished && !is_self) learn_finished(*known);
    if ((member.state == State::kLost || member.is_out) && !is_self && !member.is_vacant()) {
      if (!is_master() || !member.drained) link_.close(member.peer);
      mark_lost(member.peer, base::Status(MV_EPEERLOST, member.why));
      if (member.is_worker() && member.state == State::kLost && !member.drained && is_kept()) owner_.on_worker_lost(member, base::Status(MV_EPEERLOST, member.why));
    }
    Member* const known = view_.find(member.peer);
    if (known == nullptr || (is_self && member.is_out)) continue;  // the master closes the connection
    known->votes = member.votes;
    const auto place = [](const Member& of) { return std::tuple(of.is_out, of.stand_in, of.backups, of.next_backup); };
    if (place(*known) == place(member)) continue;
    std::tie(known->is_out, known->stand_in, known->backups, known->next_backup) = place(member);
    if (known->is_server()) moved.push_back(known);
  }
  for (const Member* part : moved) owner_.on_part_moved(*part);
  if (is_master() && is_kept()) {
    for (uint64_t loss = losses; loss < view_.losses; ++loss) barrier_.tell_loss(view_.loss(loss));
    for (const Member& member : view_.members)
      if (member.peer != self_.peer && needs(member) && !contacts_.is_connected(member.peer)) want(member.peer, Dialer::kSelf);
  }
  if (has_new_master) follow_master();
  welcome();
  owner_.on_news();
  if (is_drained_) owner_.on_drained();
}

bool Cluster::all_workers_gone() const {
  // Nobody will tell this node of the end of a worker that it has never met.
  const auto may_call = [this](const Member& member) {
    return member.is_worker() && member.state == State::kHere && (member.peer == self_.peer || contacts_.is_connected(member.peer));
  };
  if (!cut_off_.ok() && !contacts_.is_connected(master_)) return std::ranges::none_of(view_.members, may_call);
  if (is_kept() && cut_off_.ok() && is_master()) return decided_.workers_gone();
  if (is_master()) return view_.workers_gone();
  return contacts_.is_connected(master_) ? told_gone_ : view_.workers_gone();
}

void Cluster::finish_self() { mark_finished(self_.peer); }

std::vector<base::Peer> Cluster::leave_targets() const {
  std::vector<base::Peer> targets;
  for (const Member& member : view_.members) {
    const bool will_connect = contacts_.is_connected(member.peer) || (!is_kept() && contacts_.is_wanted(member.peer));
    if (member.peer != master_ && !will_connect) continue;
    if (member.peer != self_.peer && member.state != State::kLost && !ended_unmet(member) &&
        (member.peer == master_ || member.is_server() || contacts_.is_wanted(member.peer)))
      targets.push_back(member.peer);
  }
  return targets;
}

void Cluster::leave(const std::vector<rpc::PendingRef>& pendings) {
  has_left_ = true;
  const auto targets = leave_targets();
  for (size_t i = 0; i < targets.size() && i < pendings.size(); ++i) send_leave(targets[i], pendings[i]);
}

void Cluster::send_leave(base::Peer to, rpc::PendingRef pending) {
  client_.call(to, {builder_.finish(wire::Body::Leave, wire::CreateLeave(builder_.fbb())), std::move(pending), true, 0, nullptr});
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
  link_.send(to, builder_.finish(wire::Body::Ping, wire::CreatePingDirect(builder_.fbb(), view_.epoch, asks, answers, waits.c_str(), passed_, told_, is_undecided())));
}

void Cluster::ask_all() {
  const uint64_t question = contacts_.ask();
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected) send_ping(peer, question);
}

base::Nanos Cluster::next_deadline() const {
  base::Nanos next = std::min({next_beat_, give_up_, settle_at_, publish_at_, keeping_deadline()});
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
  if (now >= publish_at_) send_to_all();
  tick_keeping(now);
  if (now >= next_beat_) beat(now);
}

/// Whether this node has to notice by itself that this peer is lost, although the two are not connected. Usually the master reports it. Without a
/// master, nobody does.
bool Cluster::judges_alone(base::Peer peer) const {
  const Member* const member = view_.find(peer);
  const Contact* const contact = contacts_.find(peer);
  // With a keeper, another master will report it.
  const bool is_expected = (contact != nullptr && contact->wanted) || (!is_kept() && member != nullptr && needs(*member));
  const Member* const master = view_.find(master_);
  const bool has_ended = master != nullptr && master->state == State::kFinished && master_ != self_.peer && !contacts_.is_connected(master_);
  const bool nobody_tells = master != nullptr && (master->state == State::kLost || has_ended);
  return is_expected && (nobody_tells || (is_master() && is_kept()));
}

void Cluster::beat(base::Nanos now) {
  // Time in which this node itself did not run does not count as silence.
  const base::Nanos starved = this->starved(now);
  last_beat_ = now;
  next_beat_ = now + interval();
  std::vector<std::pair<base::Peer, base::Nanos>> silent;
  for (auto& [peer, contact] : contacts_) {
    if (contact.spoke && now - contact.heard - starved > self_.heartbeat_timeout / 2) contact.silent_until = now;
    contact.heard = std::exchange(contact.spoke, false) ? now : contact.heard + starved;
    if (!contact.connected && !judges_alone(peer)) continue;
    if (now - contact.heard > self_.heartbeat_timeout)
      silent.emplace_back(peer, now - contact.heard);
    else if (contact.connected)
      send_ping(peer);
  }
  const bool misses_members = std::ranges::any_of(silent, [this](const auto& entry) { return is_member(entry.first); });
  if (misses_members && is_master() && is_kept() && cut_off_.ok() && !is_drained_ && !decided_.workers_gone() && !hears_quorum()) {
    const auto longest = std::ranges::max(silent, {}, [](const auto& entry) { return entry.second; }).second;
    if (longest > self_.heartbeat_timeout + 4 * interval())
      return cut_off(base::error(MV_EPEERLOST, "this process, the master, does not hear from most of the processes that decide about the members"));
    silent.clear();  // the others may be slow
  }
  for (const auto& [peer, span] : silent) {
    link_.close(peer);
    // Not for other losses: at Ctrl-C all processes end at once, and their last words are the launcher's.
    if (is_master() && view_.find(peer) != nullptr)
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
