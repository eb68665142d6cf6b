// Processes that join: what they ask the master, and what it decides.

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/cluster/succession.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
/// How long a member waits beyond its own deadline for the master's list of the missing processes.
constexpr base::Nanos kLastWord = 2s;
constexpr base::Nanos kNoticeAfter = 10s;

/// Whether this process may have this place, by its role and the rank that it asks for.
bool is_suitable(const Member& place, const wire::Join& request) {
  return place.role == request.role() && (request.rank() < 0 || request.rank() == static_cast<int64_t>(place.rank));
}
}  // namespace

// ---- on the master

/// The place that this process may take: of a lost worker or server, or in an elastic cluster of a worker that has finished. A server has one only
/// if another server has taken over its part.
const Member* Cluster::vacancy(const View& view, const wire::Join& request) {
  const auto is_free = [&view](const Member& place) {
    if (place.state == State::kFinished) return view.elastic && place.role == MV_ROLE_WORKER && place.peer != view.master;
    return place.state == State::kLost && place.peer != view.master && (!place.is_server() || view.serving(place) != base::kNobody);
  };
  for (const Member& member : view.members)
    if (is_free(member) && is_suitable(member, request)) return &member;
  return nullptr;
}

base::Status Cluster::check_joiner(base::Peer joiner, const wire::Join& request) {
  if (!roster_.is_master() && standing_.phase() == Phase::kReady) return base::error(MV_EDISAGREE, "{} is not the master of this cluster", self_.address);
  if (!roster_.is_master() && standing_.phase() != Phase::kFailed)  // it is asked again: see joined()
    return base::error(MV_EUNREACHABLE, "the process at {} has not joined itself, and does not know the master", self_.address);
  const bool joining = standing_.phase() == Phase::kJoining;
  const View& places = roster_.decided();
  if (roster_.view().find(joiner) != nullptr || arrivals_.has(joiner)) return base::error(MV_EPROTOCOL, "this process has joined already");
  if (standing_.phase() == Phase::kFailed) return base::error(MV_ETIMEOUT, "the cluster did not form");
  if (!joining && roster_.view().workers_gone())
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
  const bool is_new = roster_.view().find(asked.client) == nullptr;
  if (standing_.is_cut_off() && is_new) return server_.fail(asked, standing_.why_cut_off());
  if (!roster_.is_master() && standing_.phase() == Phase::kReady && is_new && (roster_.is_kept() || !roster_.has_lost_master())) {  // the new process asks the master then
    if (!election_.awaits_master()) return point_to_master(asked);
    keep_early(asked, message);
    return;
  }
  const View& places = roster_.decided();
  if (roster_.is_master() && standing_.phase() == Phase::kReady && is_new &&
      (barrier_.awaits_followers() ||
       (vacancy(places, request) == nullptr && (may_become_vacant(request, false) || is_to_be_vacant(request) || !decisions_.empty())))) {
    if (keep_early(asked, message)) heartbeat_.ask_all();  // those that answer are alive
    return;
  }
  if (const base::Status wrong = check_joiner(asked.client, request); !wrong.ok()) return server_.fail(asked, wrong);
  if (standing_.phase() != Phase::kJoining) return rejoin(asked, wire::copy_header(message));
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
  return std::ranges::any_of(roster_.view().members, [&](const Member& member) {
    if (member.peer == self_.peer || member.is_out || member.state == State::kLost || !is_suitable(member, request)) return false;
    const Contact* const contact = contacts_.find(member.peer);
    return contact != nullptr && contact->connected && (!asked || contact->question != 0);
  });
}

/// Whether a server with a place that this process could take is draining, or has drained and is the master until another one has the role.
bool Cluster::is_to_be_vacant(const wire::Join& request) const {
  return std::ranges::any_of(roster_.view().members, [&](const Member& member) {
    const bool drains = member.draining && !member.drained && member.state == State::kHere;
    return (drains || (member.drained && member.peer == roster_.view().master)) && is_suitable(member, request);
  });
}

void Cluster::settle_early() {
  const base::Nanos now = clock_.now();
  settle_at_ = base::kNever;
  for (const Early& early : std::exchange(early_, {})) {
    const auto& request = *flatbuffers::GetRoot<wire::Message>(early.header.data())->body_as_Join();
    if (standing_.is_cut_off()) {
      server_.fail(early.asked, standing_.why_cut_off());
      continue;
    }
    if (!roster_.is_master() && (roster_.is_kept() || !roster_.has_lost_master())) {
      if (!election_.awaits_master()) point_to_master(early.asked);
      else if (now < early.until) settle_at_ = std::min(settle_at_, early.until), early_.push_back(early);
      else server_.fail(early.asked, base::error(MV_EPEERLOST, "the master of this cluster is lost: {}", election_.why_lost().text()));
      continue;
    }
    const View& places = roster_.decided();
    const bool has_no_place = vacancy(places, request) == nullptr && !roster_.view().workers_gone();
    const bool may_find_place = has_no_place && (may_become_vacant(request, true) || !decisions_.empty());
    const bool is_draining = has_no_place && is_to_be_vacant(request);
    if (((barrier_.awaits_followers() || may_find_place) && now < early.until) || is_draining) {
      settle_at_ = std::min(settle_at_, is_draining ? now + heartbeat_.interval() : early.until);
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
  return publisher_.whole(told);
}

void Cluster::answer_join(const rpc::Asked& asked, const View& view, base::Frame answer) {
  if (Contact* const contact = contacts_.find(asked.client)) contact->told = view.epoch;
  server_.answer(asked, std::move(answer));
}

/// Answers a process that wants to join with the master only. It does not learn of other members.
void Cluster::point_to_master(const rpc::Asked& asked) {
  View pointer;
  pointer.epoch = decided().epoch;
  pointer.master = roster_.master();
  if (const Member* const master = decided().find(roster_.master())) pointer.members.push_back(*master);
  server_.answer(asked, join_answer(pointer));
}

void Cluster::rejoin(const rpc::Asked& asked, std::vector<std::byte> header) {
  const auto join_in = [](const std::vector<std::byte>& message) -> const wire::Join& {
    return *flatbuffers::GetRoot<wire::Message>(message.data())->body_as_Join();
  };
  if (!roster_.is_kept()) {
    const wire::Join& request = join_in(header);
    Member& place = *roster_.view().at(vacancy(roster_.view(), request)->rank);
    take_place(place, asked.client, request);
    owner_.on_member_joined(place);
    if (place.is_server())
      for (const Member* part : name_next_backups(roster_.view(), self_.replicas)) owner_.on_part_moved(*part);
    publisher_.publish();
    publisher_.note_view();
    return answer_join(asked, roster_.view(), join_answer(roster_.view()));
  }
  decisions_.decide(
      [this, asked, join_in, header = std::move(header)](View& next) {
        const wire::Join& wanted = join_in(header);
        if (next.find(asked.client) != nullptr) return base::Status();  // the write before has succeeded after all
        if (!contacts_.is_connected(asked.client)) return base::error(MV_EPEERLOST, "it has gone meanwhile");
        const Member* const place = vacancy(next, wanted);
        if (place == nullptr) return base::error(MV_EDISAGREE, "another process has taken the place of the lost one");
        take_place(*next.at(place->rank), asked.client, wanted);
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
  if (!keeping_.has_keeper()) return found(std::move(view));
  keeping_.found(view, [this, view](const base::Status& status) { status.ok() ? found(view) : fail(status); });
}

/// The first view holds.
void Cluster::found(View view) {
  const base::Frame answer = join_answer(view);
  for (const rpc::Asked& joiner : arrivals_.asked()) answer_join(joiner, view, answer);
  adopt(std::move(view));
}

// ---- on the process that joins

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

void Cluster::start() {
  const base::Nanos now = clock_.now();
  started_ = now;
  notice_at_ = now + kNoticeAfter;
  give_up_ = base::after(now, self_.init_timeout);
  heartbeat_.start();
  if (!self_.is_master) return dial_master();
  complete_if_all_here();
}

void Cluster::ask_at(const std::string& address) {
  if (standing_.phase() != Phase::kJoining || self_.is_master || address == masters_[asked_master_]) return;
  base::log_info("the master is at {} now: asking it", address);
  const base::Status moved = base::error(MV_EPEERLOST, "the master is at {} now", address);
  const size_t next = index_of_master(address);
  if (const base::Peer former = roster_.master(); former != base::kNobody) {
    link_.close(former);
    on_lost(former, moved);
  }
  redial_.clear();
  asked_master_ = next;
  dial_master();
}

size_t Cluster::index_of_master(const std::string& address) {
  const auto known = std::ranges::find(masters_, address);
  const size_t index = static_cast<size_t>(known - masters_.begin());
  if (known == masters_.end()) masters_.push_back(address);
  return index;
}

void Cluster::dial_master() { link_.dial(masters_[asked_master_]); }

void Cluster::ask_to_join() {
  auto& fbb = builder_.fbb();
  const auto mode = !self_.sync_said ? wire::Mode::Unsaid : self_.sync ? wire::Mode::Sync : wire::Mode::Async;
  const auto join = wire::CreateJoinDirect(fbb, self_.nodes, static_cast<int32_t>(self_.rank), static_cast<uint8_t>(self_.role), mode,
                                           self_.address.c_str(), self_.host.c_str(), self_.pid, self_.replicas);
  joining_ = std::make_shared<JoinPending>(*this);
  client_.call(roster_.master(), {builder_.finish(wire::Body::Join, join), joining_, true, 0, nullptr});
}

/// The peer behind this address with which this node is connected; kNobody: there is none.
base::Peer Cluster::connected_at(const std::string& address) {
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && contact.address == address) return peer;
  return base::kNobody;
}

/// Whether this process is connected with the master already, and asks it once more: it did not know of its role before.
bool Cluster::asks_again(const std::string& address) {
  const base::Peer met = connected_at(address);
  if (standing_.phase() != Phase::kJoining || roster_.master() != base::kNobody || met == base::kNobody) return false;
  roster_.set_master(met);
  ask_to_join();
  return true;
}

void Cluster::joined(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
  joining_.reset();
  if (standing_.phase() != Phase::kJoining) return;
  // Another process may know the successor of the one that is gone, or the keeper will (see ask_at()); and a process that is still joining will learn of the master.
  const bool has_successor = masters_.size() > 1 || (self_.replicas > 0 && self_.asks_keeper);
  if ((status.code() == MV_EPEERLOST && has_successor) || status.code() == MV_EUNREACHABLE) {
    last_dial_ = status;
    roster_.set_master(base::kNobody);
    asked_master_ = (asked_master_ + 1) % masters_.size();
    return dial_later(masters_[asked_master_]);
  }
  if (!status.ok()) return fail(status);
  const auto* view = answer != nullptr ? answer->body_as_View() : nullptr;
  if (view == nullptr) return fail(base::error(MV_EPROTOCOL, "{} did not answer like a master", self_.master));
  auto update = read_update(*view, payload);
  if (!update.ok()) return fail(update.status());
  View answered = std::move(update.value().view);
  if (const Member* const master = answered.find(answered.master); master != nullptr && answered.find(self_.peer) == nullptr) {
    base::log_info("{} is the master of this cluster now: asking it", answered.name(master->peer));  // it can't be the one that was asked
    asked_master_ = index_of_master(master->address);
    roster_.set_master(base::kNobody);
    return connected_at(master->address) != base::kNobody ? dial_later(master->address) : dial_master();
  }
  adopt(std::move(answered));
}

void Cluster::adopt(View view) {
  roster_.view() = std::move(view);
  standing_.set_joined_epoch(roster_.view().epoch);
  roster_.set_told_gone(roster_.view().workers_gone());
  if (roster_.view().master != base::kNobody) roster_.set_master(roster_.view().master);
  calls_.begin(std::exchange(roster_.view().barriers, 0), roster_.view().losses);
  const Member* self = roster_.own();
  if (self == nullptr) return fail(base::error(MV_EPROTOCOL, "the master's list of members does not contain this process"));
  standing_.set_phase(Phase::kConnecting);
  if (roster_.is_master() || self_.replicas > 0) publisher_.begin();
  if (self_.replicas > 0) {
    roster_.set_decided(roster_.view());
    keeping_.begin();
  }
  owner_.on_view(roster_.view());
  for (const Member& member : roster_.view().members) {
    if (member.peer == self_.peer) continue;
    if (contacts_.is_connected(member.peer))
      heartbeat_.ping(member.peer);
    else if (roster_.needs(member) && self->rank > member.rank)
      link_.dial(member.address);
  }
  welcome();
  ready_if_all_ready();
}

void Cluster::ready_if_all_ready() {
  if (standing_.phase() != Phase::kConnecting) return;
  // Begins at the member that was missing before, because each of n members calls this.
  const size_t count = roster_.view().members.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t place = (missing_ + i) % count;
    const Member& member = roster_.view().members[place];
    if (!roster_.needs(member) || contacts_[member.peer].epoch >= standing_.joined_epoch()) continue;
    missing_ = place;
    return;
  }
  standing_.set_phase(Phase::kReady);
  give_up_ = base::kNever;
  redial_.clear();
  owner_.on_ready();
}

void Cluster::fail(const base::Status& why) {
  if (standing_.phase() == Phase::kReady || standing_.phase() == Phase::kFailed) return;
  standing_.set_phase(Phase::kFailed);
  give_up_ = base::kNever;
  redial_.clear();
  for (const rpc::Asked& joiner : arrivals_.asked()) server_.fail(joiner, why);
  owner_.on_failed(why);
}

/// The time to join is over.
void Cluster::give_up_joining() {
  if (joining_ != nullptr && standing_.phase() == Phase::kJoining) {  // the answer to the cancel lists the missing processes
    client_.cancel(roster_.master(), joining_.get());
    joining_.reset();
    give_up_ = clock_.now() + kLastWord;
  } else if (self_.is_master && standing_.phase() == Phase::kJoining) {
    fail(base::error(MV_ETIMEOUT, "{} within {:.3g} s", arrivals_.text(), base::seconds(self_.init_timeout)));
  } else if (last_dial_.ok()) {
    fail(base::error(MV_ETIMEOUT, "the cluster did not form within {:.3g} s", base::seconds(self_.init_timeout)));
  } else {
    fail(base::error(MV_EUNREACHABLE, "{}; tried for {:.3g} s. Is rank 0 running there?", last_dial_.text(), base::seconds(self_.init_timeout)));
  }
}

/// Logs which processes are missing when joining takes long.
void Cluster::tell_of_arrivals(base::Nanos now) {
  if (!self_.is_master || standing_.phase() != Phase::kJoining || now < notice_at_) return;
  base::log_warn("after {:.0f} s {}", base::seconds(now - started_), arrivals_.text());
  notice_at_ = now + 6 * kNoticeAfter;
}

std::string Cluster::missing_joiners() const { return self_.is_master && standing_.phase() == Phase::kJoining ? arrivals_.text() : ""; }

}  // namespace mv::cluster
