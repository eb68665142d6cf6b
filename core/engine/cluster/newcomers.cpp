#include "engine/cluster/newcomers.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/succession.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
/// How long a process waits here beyond the time-out of the heartbeat.
constexpr base::Nanos kBeyondTimeout = 2s;

/// Whether this process may have this place, by its role and the rank that it asks for.
bool is_suitable(const Member& place, const wire::Join& request) {
  return place.role == request.role() && (request.rank() < 0 || request.rank() == static_cast<int64_t>(place.rank));
}

/// The place that this process may take: of a lost worker or server, or in an elastic cluster of a worker that has finished. A server has one only
/// if another server has taken over its part.
const Member* vacancy(const View& view, const wire::Join& request) {
  const auto is_free = [&view](const Member& place) {
    if (place.state == MemberState::kFinished) return view.elastic && place.role == MV_ROLE_WORKER && place.peer != view.master;
    return place.state == MemberState::kLost && place.peer != view.master && (!place.is_server() || view.serving(place) != base::kNobody);
  };
  for (const Member& member : view.members)
    if (is_free(member) && is_suitable(member, request)) return &member;
  return nullptr;
}

void take_place(Member& place, base::Peer peer, const wire::Join& request) {
  const bool was_vacant = place.is_vacant(), was_drained = std::exchange(place.drained, false);
  const bool was_lost = place.state == MemberState::kLost && !was_drained;
  if (was_lost) ++place.losses;
  place.peer = peer;
  place.address = wire::text_of(request.address());
  place.host = wire::text_of(request.host());
  place.pid = request.pid();
  place.state = MemberState::kHere;
  place.why.clear();
  place.is_out = place.draining = false;
  const char* const what = place.is_server() ? "server" : "worker";
  if (was_vacant) return base::log_info("a {} joins as rank {}: pid {} on {}", what, place.rank, place.pid, place.host);
  base::log_info("pid {} on {} replaces a {}{} (rank {})", place.pid, place.host, was_lost ? "lost " : was_drained ? "" : "finished ", what, place.rank);
}

const wire::Join& join_in(const std::vector<std::byte>& header) { return *flatbuffers::GetRoot<wire::Message>(header.data())->body_as_Join(); }
}  // namespace

base::Status Newcomers::check(base::Peer joiner, const wire::Join& request) const {
  const Self& self = roster_.self();
  const Phase phase = standing_.phase();
  if (!roster_.is_master() && phase == Phase::kReady) return base::error(MV_EDISAGREE, "{} is not the master of this cluster", self.address);
  if (!roster_.is_master() && phase != Phase::kFailed)  // it is asked again: see Joining::answered()
    return base::error(MV_EUNREACHABLE, "the process at {} has not joined itself, and does not know the master", self.address);
  const bool joining = phase == Phase::kJoining;
  const Arrivals& arrivals = founding_.arrivals();
  if (roster_.view().find(joiner) != nullptr || arrivals.has(joiner)) return base::error(MV_EPROTOCOL, "this process has joined already");
  if (phase == Phase::kFailed) return base::error(MV_ETIMEOUT, "the cluster did not form");
  if (!joining && roster_.view().workers_gone())
    return base::error(MV_EDISAGREE, "the cluster of {} processes is at its end: all workers have finished or are lost", self.nodes);
  if (!joining && vacancy(roster_.decided(), request) == nullptr)
    return base::error(MV_EDISAGREE, "the cluster of {} processes is already complete, and none of its {} was lost{}", self.nodes,
                       request.role() == MV_ROLE_SERVER   ? "servers"
                       : request.role() == MV_ROLE_WORKER ? "workers"
                                                          : "members",
                       (request.role() & MV_ROLE_SERVER) != 0
                           ? " whose tables another one has taken over (after a drain, or with replicas=1). max_servers makes room for more"
                           : ", or its place is taken already. max_workers makes room for more");
  if (base::Status wrong = arrivals.check(request, contacts_[joiner].address, !joining); !wrong.ok()) return wrong;
  return joining ? arrivals.check_rank(request) : base::Status();
}

/// Whether another process is the master, or will be.
bool Newcomers::asks_master() const { return !roster_.is_master() && (roster_.is_kept() || !roster_.has_lost_master()); }

void Newcomers::join(const rpc::Asked& asked, const wire::Message& message) {
  const wire::Join& request = *message.body_as_Join();
  const bool is_new = roster_.view().find(asked.client) == nullptr;
  if (standing_.is_cut_off() && is_new) return server_.fail(asked, standing_.why_cut_off());
  const bool is_ready = standing_.phase() == Phase::kReady;
  if (is_ready && is_new && asks_master()) {  // the new process asks the master then
    if (!election_.awaits_master()) return point_to_master(asked);
    keep(asked, message);
    return;
  }
  const auto may_find_place = [&] { return may_become_vacant(request, false) || is_to_be_vacant(request) || !decisions_.empty(); };
  if (roster_.is_master() && is_ready && is_new && (barrier_.awaits_followers() || (vacancy(roster_.decided(), request) == nullptr && may_find_place()))) {
    if (keep(asked, message)) heartbeat_.ask_all();  // those that answer are alive
    return;
  }
  if (const base::Status wrong = check(asked.client, request); !wrong.ok()) return server_.fail(asked, wrong);
  if (standing_.phase() != Phase::kJoining) return admit(asked, wire::copy_header(message));
  founding_.add(asked, request);
}

/// Answers this Join later. True if it is the first one of its process that waits.
bool Newcomers::keep(const rpc::Asked& asked, const wire::Message& message) {
  const bool is_first = std::erase_if(early_, [&](const Early& early) { return early.asked.client == asked.client; }) == 0;
  early_.push_back({asked, wire::copy_header(message), clock_.now() + roster_.self().heartbeat_timeout + kBeyondTimeout});
  settle_at_ = std::min(settle_at_, early_.back().until);
  return is_first;
}

bool Newcomers::has(base::Peer peer) const {
  return std::ranges::any_of(early_, [peer](const Early& early) { return early.asked.client == peer; });
}

void Newcomers::forget(base::Peer peer) {
  std::erase_if(early_, [&](const Early& early) { return early.asked.client == peer; });
}

bool Newcomers::withdraw(const rpc::Asked& asked) {
  if (std::erase_if(early_, [&](const Early& early) { return early.asked == asked; }) == 0) return false;
  server_.fail(asked, base::error(MV_ETIMEOUT, "the cluster is complete, and no process whose place this one could take was lost"));
  return true;
}

/// Whether a member with a place that this process could take may be dead: with `asked`, if it has not answered the last question.
bool Newcomers::may_become_vacant(const wire::Join& request, bool asked) const {
  return std::ranges::any_of(roster_.view().members, [&](const Member& member) {
    if (member.peer == roster_.self().peer || member.is_out || member.state == MemberState::kLost || !is_suitable(member, request)) return false;
    const Contact* const contact = contacts_.find(member.peer);
    return contact != nullptr && contact->connected && (!asked || contact->question != 0);
  });
}

/// Whether a server with a place that this process could take is draining, or has drained and is the master until another one has the role.
bool Newcomers::is_to_be_vacant(const wire::Join& request) const {
  return std::ranges::any_of(roster_.view().members, [&](const Member& member) {
    const bool drains = member.draining && !member.drained && member.state == MemberState::kHere;
    return (drains || (member.drained && member.peer == roster_.view().master)) && is_suitable(member, request);
  });
}

void Newcomers::settle_soon() {
  if (!early_.empty()) settle_at_ = clock_.now();
}

void Newcomers::settle() {
  const base::Nanos now = clock_.now();
  settle_at_ = base::kNever;
  for (const Early& early : std::exchange(early_, {})) settle(early, now);
}

void Newcomers::settle(const Early& early, base::Nanos now) {
  const auto wait_until = [&](base::Nanos at) {
    settle_at_ = std::min(settle_at_, at);
    early_.push_back(early);
  };
  const wire::Join& request = join_in(early.header);
  if (standing_.is_cut_off()) return server_.fail(early.asked, standing_.why_cut_off());
  if (asks_master()) {
    if (!election_.awaits_master()) return point_to_master(early.asked);
    if (now < early.until) return wait_until(early.until);
    return server_.fail(early.asked, base::error(MV_EPEERLOST, "the master of this cluster is lost: {}", election_.why_lost().text()));
  }
  const bool has_no_place = vacancy(roster_.decided(), request) == nullptr && !roster_.view().workers_gone();
  const bool may_find_place = has_no_place && (may_become_vacant(request, true) || !decisions_.empty());
  const bool is_draining = has_no_place && is_to_be_vacant(request);
  if (((barrier_.awaits_followers() || may_find_place) && now < early.until) || is_draining)
    wait_until(is_draining ? now + heartbeat_.interval() : early.until);
  else if (const base::Status wrong = check(early.asked.client, request); !wrong.ok())
    server_.fail(early.asked, wrong);
  else
    admit(early.asked, early.header);
}

void Newcomers::answer(const rpc::Asked& asked, const View& view) { publisher_.answer(asked, view, publisher_.whole(view, barrier_.passed())); }

/// Answers a process that wants to join with the master only. It does not learn of other members.
void Newcomers::point_to_master(const rpc::Asked& asked) {
  View pointer;
  pointer.epoch = roster_.decided().epoch;
  pointer.master = roster_.master();
  if (const Member* const master = roster_.decided().find(roster_.master())) pointer.members.push_back(*master);
  server_.answer(asked, publisher_.whole(pointer, barrier_.passed()));
}

/// Gives this process the place of another one.
void Newcomers::admit(const rpc::Asked& asked, std::vector<std::byte> header) {
  if (!roster_.is_kept()) {
    View& view = roster_.view();
    Member& place = *view.at(vacancy(view, join_in(header))->rank);
    forget_former(client_, place);
    take_place(place, asked.client, join_in(header));
    owner_.on_member_joined(place);
    if (place.is_server())
      for (const Member* part : name_next_backups(view, roster_.self().replicas)) owner_.on_part_moved(*part);
    publisher_.publish();
    publisher_.note_view();
    return answer(asked, view);
  }
  decisions_.decide(
      [this, asked, header = std::move(header)](View& next) {
        const wire::Join& wanted = join_in(header);
        if (next.find(asked.client) != nullptr) return base::Status();  // the write before has succeeded after all
        if (!contacts_.is_connected(asked.client)) return base::error(MV_EPEERLOST, "it has gone meanwhile");
        const Member* const place = vacancy(next, wanted);
        if (place == nullptr) return base::error(MV_EDISAGREE, "another process has taken the place of the lost one");
        take_place(*next.at(place->rank), asked.client, wanted);
        name_next_backups(next, roster_.self().replicas);
        return base::Status();
      },
      [this, asked](const base::Status& refused, const View& view) { refused.ok() ? answer(asked, view) : server_.fail(asked, refused); });
}

}  // namespace mv::cluster
