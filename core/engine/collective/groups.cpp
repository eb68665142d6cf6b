#include "engine/collective/groups.hpp"

#include <algorithm>
#include <utility>

#include "base/mix.hpp"
#include "wire/text.hpp"

namespace mv::collective {

namespace {
/// Closed groups about which others may ask.
constexpr size_t kMostPast = 1024;

/// Whether the sender has given up opening the group. A rank that had it open may close it before the others know that
/// it is open; its note then has no error.
bool gives_up(const wire::GroupNote& note) { return note.word() == wire::GroupWord::Closed && note.status() != MV_OK; }

Setting setting_of(const cluster::View& view, const std::vector<base::Peer>& peers, base::Peer self) {
  Setting setting;
  setting.size = static_cast<int32_t>(peers.size());
  std::vector<std::string> hosts;
  for (size_t rank = 0; rank < peers.size(); ++rank) {
    if (peers[rank] == self) setting.rank = static_cast<int32_t>(rank);
    const cluster::Member* member = view.find(peers[rank]);
    const std::string host = member != nullptr ? member->host : "";
    const auto known = std::find(hosts.begin(), hosts.end(), host);
    setting.layout.hosts.push_back(static_cast<int32_t>(known - hosts.begin()));
    if (known == hosts.end()) hosts.push_back(host);
  }
  return setting;
}

/// The costs in the note; the defaults if the sender gives none.
base::Result<Basis> basis_of(const wire::GroupNote& note) {
  Basis basis;
  if (note.costs() == nullptr) return basis;
  const auto is_cost = [](double cost) { return cost >= 0 && cost <= kMostCost; };
  const bool fits = note.costs()->size() == 2 * basis.costs.transports.size() + 1 && note.beside() < basis.costs.transports.size();
  if (!fits || !std::all_of(note.costs()->begin(), note.costs()->end(), is_cost))
    return base::Status(MV_EPROTOCOL, "a request to open a group has invalid costs");
  for (uint32_t transport = 0; transport < basis.costs.transports.size(); ++transport)
    basis.costs.transports[transport] = {note.costs()->Get(2 * transport), note.costs()->Get(2 * transport + 1)};
  basis.costs.gamma = note.costs()->Get(note.costs()->size() - 1);
  basis.beside = static_cast<base::TransportKind>(note.beside());
  return basis;
}
}  // namespace

uint64_t Groups::number_of(const std::vector<base::Peer>& peers, uint64_t salt) {
  uint64_t number = base::mix(salt + 1);
  for (const base::Peer peer : peers) number = base::mix(number ^ peer) + 1;
  return number;
}

/// The members of a group that is opened.
Members Groups::all_of(const std::vector<base::Peer>& peers) const {
  Members members;
  members.peers = peers;
  for (const base::Peer peer : peers) members.places.push_back(cluster_.view().find(peer)->rank);
  members.since.assign(peers.size(), 0);
  return members;
}

/// The members of the group that comes after this one: survivors and newcomers, in the order of worker ids.
Members Groups::members_after(const Group& group, const Agreement::Decision& decided) {
  struct Seat {
    uint32_t place;
    base::Peer peer;
    uint32_t since;
  };
  const Members& before = group.members();
  std::vector<Seat> seats;
  for (const uint32_t rank : decided.ranks) seats.push_back({before.places[rank], before.peers[rank], before.since[rank]});
  for (const auto& [peer, place] : decided.joined) seats.push_back({place, peer, before.generation + 1});
  std::ranges::sort(seats, {}, [](const Seat& seat) { return std::pair(seat.place, seat.peer); });
  Members members;
  for (const Seat& seat : seats) {
    members.places.push_back(seat.place);
    members.peers.push_back(seat.peer);
    members.since.push_back(seat.since);
  }
  members.generation = before.generation + 1;
  members.id = number_of(members.peers, before.id);
  return members;
}

GroupRef Groups::add(Members members) {
  const uint64_t id = members.id;
  for (const base::Peer peer : members.peers) members.names.push_back(cluster_.view().name(peer));
  Setting setting = setting_of(cluster_.view(), members.peers, cluster_.self().peer);
  auto group = std::make_shared<Group>(clock_, sender_, server_, pool_, std::move(members), std::move(setting));
  group->trace_to(trace_);
  past_.erase(id);
  return groups_[id] = std::move(group);
}

// ---- shrinking

void Groups::shrink(const base::OperationRef& call, const GroupRef& group, Opened opened) { agree(call, group, std::nullopt, std::move(opened)); }

void Groups::agree(const base::OperationRef& call, const GroupRef& group, std::optional<Growth> growth, Opened opened) {
  const uint64_t id = group->members().id;
  if (shrinkings_.contains(id)) return opened(base::Status(MV_ESTATE, "another thread is shrinking or growing this group"));
  const std::string self = cluster_.view().name(cluster_.self().peer);
  group->break_group(base::error(MV_EPEERLOST, "{} has begun to {} the group", self, growth ? "grow" : "shrink"), true);
  Shrinking shrinking{begin(call), group, std::move(growth), std::move(opened)};
  if (const auto& known = group->agreement().decided()) return shrunk(shrinking, *known);
  const Agreement::Wish wish = shrinking.growth ? wish_of(*group, *shrinking.growth) : Agreement::Wish();
  shrinkings_.emplace(id, std::move(shrinking));
  // The entry owns the group. A reference in the group's own agreement would be a cycle, and keep the group alive after
  // the node.
  group->agreement().begin(wish, [this, id](const base::Result<Agreement::Decision>& decided) { shrunk(shrinkings_.extract(id).mapped(), decided); });
}

void Groups::shrunk(const Shrinking& shrinking, const base::Result<Agreement::Decision>& decided) {
  const auto& [caller, group, growth, opened] = shrinking;
  if (!decided.ok()) return opened(decided.status());
  const Members members = members_after(*group, decided.value());
  const bool here = std::find(members.peers.begin(), members.peers.end(), cluster_.self().peer) != members.peers.end();
  if (!here) return opened(base::Status(MV_EPEERLOST, "the others consider this rank lost and have continued without it"));
  const uint64_t id = members.id;
  if (openings_.contains(id)) return opened(base::Status(MV_ESTATE, "another thread is shrinking or growing this group"));
  if (const auto known = groups_.find(id); known != groups_.end()) {
    const GroupRef next = known->second;
    if (!next->counters().broken.ok()) return agree(caller.call, next, growth, opened);
    return opened(base::Status(MV_ESTATE, "this group has been shrunk already, and the group of its survivors is open"));
  }
  if (group->lineage().was_shrunk) return opened(base::Status(MV_ESTATE, "this rank has closed the group of the survivors"));
  if (growth) invite(members, growth->name);
  begin_opening({caller, add(members), opened, group, false, growth});
  const std::set<base::Peer> quitters = std::exchange(quitters_[id], {});
  quitters_.erase(id);
  look_for_lost(id, quitters);
}

/// Some ranks of a group that begins to open may never open it.
void Groups::look_for_lost(uint64_t id, const std::set<base::Peer>& quitters) {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  const GroupRef group = found->second;
  uint32_t rank = 0;
  for (const base::Peer peer : group->members().peers) {
    const cluster::Member* const member = cluster_.view().find(peer);
    const bool is_here = member != nullptr && member->state == cluster::MemberState::kHere;
    if (!is_here || quitters.contains(peer))
      group->lost(rank, base::error(MV_EPEERLOST, "{} {}", cluster_.view().name(peer), is_here ? "has given up joining" : "was lost meanwhile"), false);
    ++rank;
  }
  check_opened(id);
}

/// The members that have not done their part, for the error at the deadline.
base::Status Groups::missing(const Shrinking& shrinking) const {
  Agreement& agreement = shrinking.group->agreement();
  const Members& members = shrinking.group->members();
  std::vector<base::Peer> silent;
  for (const uint32_t rank : agreement.awaited()) silent.push_back(members.peers[rank]);
  if (!shrinking.growth) return base::error(MV_ETIMEOUT, "these have not shrunk the group: {}", cluster_.view().names(silent));
  const Agreement::Wish wish = wish_of(*shrinking.group, *shrinking.growth);
  const size_t here = agreement.survivors().size(), asked = wish.newcomers.size();
  if (here + asked >= shrinking.growth->size) return base::error(MV_ETIMEOUT, "these have not grown the group: {}", cluster_.view().names(silent));
  std::vector<base::Peer> lost;
  for (const cluster::Member* worker : cluster_.view().workers())
    if (worker->state == cluster::MemberState::kLost) lost.push_back(worker->peer);
  return base::error(MV_ETIMEOUT,
                     "the group has {} ranks, {} workers have asked to join it by the name \"{}\" (mv_group_join()), and it shall have {}{}{}", here,
                     asked, shrinking.growth->name, shrinking.growth->size, lost.empty() ? "" : "; these are lost, and no process has taken their place: ",
                     cluster_.view().names(lost));
}

// ---- closing and losses

void Groups::close(const GroupRef& group, const base::Status& gave_up) { end(group, gave_up.ok() ? Group::Tell::kMet : Group::Tell::kAll, gave_up); }

void Groups::end(const GroupRef& group, Group::Tell tell, const base::Status& gave_up) {
  const uint64_t id = group->members().id;
  if (groups_.erase(id) == 0) return;
  past_[id] = group->closing(gave_up);
  std::erase(past_order_, id);
  past_order_.push_back(id);
  if (past_order_.size() > kMostPast) {
    past_.erase(past_order_.front());
    past_order_.pop_front();
  }
  group->close(tell, gave_up);
  if (const GroupRef next = survivors_of(*group); next != nullptr && next->lineage().abandoned) close(next);
}

void Groups::abort(const GroupRef& group, const std::string& reason) {
  group->abort(reason);
  close(group);
}

void Groups::abandon(const GroupRef& group, const base::Status& why) {
  group->break_group(why, true);
  group->lineage().abandoned = true;
  const auto is_before = [&](const auto& entry) { return survivors_of(*entry.second) == group; };
  if (std::none_of(groups_.begin(), groups_.end(), is_before)) close(group);
}

/// The group that came from shrinking this one, or null if there is none here.
GroupRef Groups::survivors_of(Group& group) const {
  const auto& decided = group.agreement().decided();
  if (!decided) return nullptr;
  const auto found = groups_.find(members_after(group, *decided).id);
  return found == groups_.end() ? nullptr : found->second;
}

Groups::Caller Groups::begin(const base::OperationRef& call) {
  Caller caller{call, std::make_shared<base::WithdrawnBy>([this, call = call.get()](mv_status code) { withdraw(*call, code); })};
  call->begin(caller.work);
  return caller;
}

void Groups::withdraw(const base::Operation& call, mv_status code) {
  for (const auto& [name, joining] : joinings_)
    if (joining.caller.call.get() == &call) return end_join(std::string(name), base::Status(code, "withdrawn"));
  for (const auto& [id, opening] : openings_)
    if (opening.caller.call.get() == &call) return fail_opening(id, base::error(code, "withdrawn; these have not opened the group: {}", missing(opening)));
  for (const auto& [id, shrinking] : shrinkings_)
    if (shrinking.caller.call.get() == &call) return shrinking.group->agreement().give_up(base::Status(code, "withdrawn"));
}

void Groups::close_all() {
  while (!openings_.empty()) fail_opening(openings_.begin()->first, base::Status(MV_ECANCELED, "this process leaves the cluster"));
  const auto groups = groups_;
  for (const auto& [id, group] : groups) close(group);
}

void Groups::leave(std::function<void()> left) {
  close_all();
  sender_.when_all_taken(std::move(left));
}

void Groups::forget_wishes(base::Peer peer) {
  for (auto& [name, wishes] : wishes_)
    if (wishes.erase(peer) > 0) wishes_changed(name);
  std::erase_if(wishes_, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [id, quitters] : quitters_) quitters.erase(peer);
  std::erase_if(quitters_, [](const auto& entry) { return entry.second.empty(); });
}

void Groups::lost(base::Peer peer, const base::Status& why, bool all_hear) {
  forget_wishes(peer);
  const auto groups = groups_;
  for (const auto& [id, group] : groups) {
    const auto& peers = group->members().peers;
    const auto found = std::find(peers.begin(), peers.end(), peer);
    if (found != peers.end()) group->lost(static_cast<uint32_t>(found - peers.begin()), why, all_hear);
  }
  for (const auto& [id, group] : groups) check_opened(id);
}

void Groups::master_lost() {
  for (const auto& [id, opening] : openings_) meet_missing(opening);
}

/// It has left its groups, and will open no others. If it is to open one, rank 0 knows whether it has: the others hear that
/// soon, or it has not.
void Groups::finished(base::Peer peer, const base::Status& why) {
  forget_wishes(peer);
  const auto groups = groups_;
  for (const auto& [id, group] : groups) {
    const auto& peers = group->members().peers;
    const auto found = std::find(peers.begin(), peers.end(), peer);
    if (found == peers.end()) continue;
    const auto opening = openings_.find(id);
    const auto rank = static_cast<uint32_t>(found - peers.begin());
    const bool awaited = opening != openings_.end() && !here_[id].contains(peer) && (group->setting().rank == 0 || rank == 0);
    if (awaited) {
      group->lost(rank, why, false);
      continue;
    }
    group->finished(rank, why);
    if (opening == openings_.end() || opening->second.left_deadline != base::kNever) continue;
    opening->second.left = why;
    opening->second.left_deadline = clock_.now() + kTimeToHear;
  }
  for (const auto& [id, group] : groups) check_opened(id);
}

// ---- messages

/// A note of a group that is not open here.
void Groups::on_stranger(base::Peer from, const wire::GroupNote& note) {
  const auto past = past_.find(note.group());
  switch (note.word()) {
    case wire::GroupWord::Opened:
      if (past != past_.end() && past->second.status == MV_OK) return on_late(from, note.group());
      if (past != past_.end() && past->second.generation == 0) return;  // its number is not tried again
      if (const auto basis = basis_of(note); basis.ok()) here_[note.group()][from] = basis.value();
      return;
    case wire::GroupWord::Closed: {
      if (!gives_up(note)) return;
      const auto here = here_.find(note.group());
      if (here != here_.end() && here->second.erase(from) > 0 && here->second.empty()) here_.erase(here);
      if (past == past_.end() && note.generation() == 0)
        given_up_[note.group()] = note.status() == MV_EPEERLOST ? base::Status(MV_EPEERLOST, wire::text_of(note.text())) : base::Status();
      if (note.status() == MV_EPEERLOST && note.generation() != 0) quitters_[note.group()].insert(from);
      return;
    }
    case wire::GroupWord::Waits:
    case wire::GroupWord::Asks:
    case wire::GroupWord::Drains:
    case wire::GroupWord::Comes:
    case wire::GroupWord::Shrinks:
      return on_late(from, note.group());
    default:
      return;
  }
}

/// A rank continues to use a group that this node may have closed.
void Groups::on_late(base::Peer from, uint64_t id) {
  if (const auto past = past_.find(id); past != past_.end()) sender_.send(from, frame_of(sender_.builder(), past->second));
}

void Groups::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged) {
  const auto* collect = request.body_as_Collect();
  const auto* note = request.body_as_GroupNote();
  const uint64_t id = collect != nullptr ? collect->group() : note->group();
  const uint32_t from = collect != nullptr ? collect->from() : note->from();
  const auto found = groups_.find(id);
  if (note != nullptr && (note->word() == wire::GroupWord::Wishes || (note->word() == wire::GroupWord::Invites && found == groups_.end()))) {
    note->word() == wire::GroupWord::Wishes ? on_wish(asked.client, *note) : on_invitation(asked.client, *note);
    return server_.finish(asked);
  }
  cluster_.want(asked.client);  // each notices if it loses the other one
  if (found == groups_.end()) {
    note != nullptr ? on_stranger(asked.client, *note) : on_late(asked.client, id);
    return server_.finish(asked);
  }
  const GroupRef group = found->second;
  const auto& peers = group->members().peers;
  if (from >= peers.size() || peers[from] != asked.client) return server_.fail(asked, base::error(MV_EPROTOCOL, "rank {} of the group is another process", from));
  if (collect != nullptr) return group->on_chunk(asked, *collect, payload, staged);
  const auto basis = basis_of(*note);
  if (!basis.ok()) return server_.fail(asked, basis.status());
  server_.finish(asked);
  const auto opening = openings_.find(id);
  if (opening == openings_.end()) return group->on_note(*note);
  const bool given_up = gives_up(*note);
  if (given_up && opening->second.is_first()) {
    if (note->status() != MV_EPEERLOST) return reopen(id);
    return fail_opening(id, base::error(MV_EPEERLOST, "{} has given up: {}", cluster_.view().name(asked.client), wire::text_of(note->text())));
  }
  if (note->word() == wire::GroupWord::Opened)
    here_[id][asked.client] = basis.value();
  else if (note->word() == wire::GroupWord::Awaits)
    return hear_missing(opening->second, *note);
  else if (given_up && note->status() != MV_EPEERLOST)
    here_[id].erase(asked.client);
  else
    group->on_note(*note);
  if (note->word() == wire::GroupWord::Closed && !given_up) here_[id].try_emplace(asked.client, basis_);  // it was open there
  check_opened(id);
  if (const auto still = openings_.find(id); still != openings_.end() && note->word() == wire::GroupWord::Opened && group->setting().rank == 0)
    tell_missing(still->second, asked.client);
}

void Groups::hear_missing(Opening& opening, const wire::GroupNote& note) const {
  const auto& peers = opening.group->members().peers;
  if (note.ranks() == nullptr || note.from() != 0) return;
  opening.missing.clear();
  opening.missing_count = note.size();
  for (const uint32_t rank : *note.ranks())
    if (rank < peers.size()) opening.missing.push_back(peers[rank]);
}

base::SinkRef Groups::place(const wire::Collect& collect, size_t bytes) {
  const auto found = groups_.find(collect.group());
  if (found != groups_.end() && collect.from() < found->second->members().peers.size()) return found->second->place(collect, bytes);
  base::Pool::Block block = pool_.take(bytes);
  return base::Sink::into(block.bytes, block.memory);
}

// ---- state

std::vector<GroupState> Groups::reports() const {
  std::vector<GroupState> reports;
  for (const auto& [id, group] : groups_) reports.push_back(group->report());
  return reports;
}

std::vector<cluster::Wait> Groups::waits() const {
  std::vector<cluster::Wait> waits;
  for (const auto& [id, group] : groups_) {
    const auto of_group = group->waits();
    waits.insert(waits.end(), of_group.begin(), of_group.end());
  }
  for (const auto& [id, opening] : openings_) {
    const base::Nanos age = clock_.now() - opening.group->made();
    cluster::Wait& wait = waits.emplace_back(cluster::Wait{cluster::WaitKind::kCollective, cluster_.self().peer, "the opening of a group", 0, age, age, {}});
    for (const base::Peer peer : missing_peers(opening)) wait.awaited.push_back({peer, "has not opened it"});
  }
  return waits;
}

// ---- time

base::Nanos Groups::next_deadline() const {
  base::Nanos next = base::kNever;
  for (const auto& [id, group] : groups_) next = std::min(next, group->next_deadline());
  for (const auto& [id, opening] : openings_) {
    next = std::min(next, opening.deadline());
    if (opening.group->setting().rank == 0 && here_.at(id).size() != opening.here_told) next = std::min(next, opening.told + kTellMissing);
  }
  for (const auto& [id, shrinking] : shrinkings_) next = std::min(next, shrinking.caller.call->deadline());
  for (const auto& [name, joining] : joinings_) next = std::min(next, joining.invited ? clock_.now() + kLookAgain : joining.caller.call->deadline());
  return next;
}

void Groups::tick() {
  const base::Nanos now = clock_.now();
  const auto groups = groups_;
  for (const auto& [id, group] : groups) group->tick(now);
  tell_missing_to_all(now);
  const auto opens_late = [&](const auto& entry) { return entry.second.deadline() <= now; };
  for (auto late = std::find_if(openings_.begin(), openings_.end(), opens_late); late != openings_.end();
       late = std::find_if(openings_.begin(), openings_.end(), opens_late))
    fail_opening(late->first, !late->second.left.ok() ? late->second.left : base::error(MV_ETIMEOUT, "these have not opened the group: {}", missing(late->second)));
  const auto is_late = [&](const auto& entry) { return entry.second.caller.call->deadline() <= now; };
  for (auto late = std::find_if(shrinkings_.begin(), shrinkings_.end(), is_late); late != shrinkings_.end();
       late = std::find_if(shrinkings_.begin(), shrinkings_.end(), is_late)) {
    const base::Status why = missing(late->second);
    const GroupRef group = late->second.group;  // the entry ends
    group->agreement().give_up(why);
  }
  expire_joins(now);
}

}  // namespace mv::collective
