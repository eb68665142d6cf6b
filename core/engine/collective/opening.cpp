// Groups that open: all members tell rank 0, and it tells them when all have.

#include <algorithm>
#include <utility>

#include "engine/collective/groups.hpp"

namespace mv::collective {

namespace {
/// Missing ranks in a message.
constexpr size_t kNamed = 16;
}  // namespace

/// To rank 0, or from it to all.
void Groups::tell_opened(base::Peer to, uint64_t id, uint32_t rank) {
  Note note;
  note.group = id;
  note.word = wire::GroupWord::Opened;
  note.from = rank;
  for (const TransportCost& transport : basis_.costs.transports) note.costs.insert(note.costs.end(), {transport.alpha, transport.beta});
  note.costs.push_back(basis_.costs.gamma);
  note.beside = static_cast<uint8_t>(basis_.beside);
  sender_.send(to, frame_of(sender_.builder(), note));
}

void Groups::open(const base::OperationRef& call, std::vector<base::Peer> peers, Opened opened) {
  base::Status gone = gone_of(peers);
  if (!gone.ok()) {
    if (peers.front() == cluster_.self().peer) tell_gone(peers, gone);
    return opened(gone);
  }
  const uint64_t id = next_number(peers, gone);
  if (!gone.ok()) return opened(gone);
  Members members = all_of(peers);
  members.id = id;
  if (groups_.contains(members.id)) return opened(base::Status(MV_ESTATE, "another thread is opening a group of the same workers"));
  begin_opening({begin(call), add(std::move(members)), std::move(opened), nullptr});
}

/// Why these workers can't open a group, if one of them is gone.
base::Status Groups::gone_of(const std::vector<base::Peer>& peers) const {
  for (const base::Peer peer : peers) {
    const cluster::Member* member = cluster_.view().find(peer);
    if (member != nullptr && member->state == cluster::MemberState::kHere) continue;
    return base::error(MV_EPEERLOST, "{} {}: list the workers of the group, or use mv_group_shrink()", cluster_.view().name(peer),
                       member != nullptr && member->state == cluster::MemberState::kLost ? "is lost" : "has finished");
  }
  return {};
}

/// As rank 0, which others may wait for: they may not know that a member is gone.
void Groups::tell_gone(const std::vector<base::Peer>& peers, const base::Status& why) {
  base::Status given_up;
  Note note;
  note.group = next_number(peers, given_up);
  note.word = wire::GroupWord::Closed;
  note.status = why.code();
  note.text = why.text();
  if (given_up.ok()) ++tried_[peers];
  for (const base::Peer peer : peers)
    if (peer != cluster_.self().peer) sender_.send(peer, frame_of(sender_.builder(), note));
}

/// Skips numbers that other members have given up before this node opened them. `gone`: why one of them was given up, if
/// that was because of a loss: then the others do not try the next number.
uint64_t Groups::next_number(const std::vector<base::Peer>& peers, base::Status& gone) {
  uint64_t& tried = tried_[peers];
  while (true) {
    const uint64_t id = number_of(peers, tried);
    const auto given_up = given_up_.find(id);
    if (given_up == given_up_.end()) return id;
    gone = given_up->second;
    given_up_.erase(given_up);
    here_.erase(id);
    ++tried;
    if (!gone.ok()) return id;
  }
}

void Groups::begin_opening(Opening opening) {
  const Members& members = opening.group->members();
  const uint64_t id = members.id;
  const auto rank = static_cast<uint32_t>(opening.group->setting().rank);
  here_[id][cluster_.self().peer] = basis_;
  if (rank != 0) tell_opened(members.peers.front(), id, rank);
  meet_missing(openings_.emplace(id, std::move(opening)).first->second);
  check_opened(id);
}

void Groups::check_opened(uint64_t id) {
  const auto found = openings_.find(id);
  if (found == openings_.end()) return;
  const GroupRef group = found->second.group;
  const auto& peers = group->members().peers;
  if (const base::Status broken = group->counters().broken; !broken.ok()) {
    const bool was_given_up = broken.code() != MV_EPEERLOST && group->agreement().all_here();
    return was_given_up && found->second.is_first() ? reopen(id) : fail_opening(id, broken);
  }
  const auto& here = here_[id];
  const bool tells = group->setting().rank == 0;
  if (tells ? !std::ranges::all_of(peers, [&](base::Peer peer) { return here.contains(peer); }) : !here.contains(peers.front())) return;
  if (tells)
    for (const base::Peer peer : peers)
      if (peer != cluster_.self().peer) tell_opened(peer, id, 0);
  const Opened opened = std::move(found->second.opened);
  if (const GroupRef& shrunk = found->second.shrunk)
    shrunk->lineage().was_shrunk = true;
  else if (found->second.is_first())
    ++tried_[peers];
  group->choose_by(here_[id][peers.front()]);
  openings_.erase(found);
  here_.erase(id);
  opened(group);
}

/// A member has given up and will try the next number; this node does the same.
void Groups::reopen(uint64_t id) {
  Opening opening = std::move(openings_.extract(id).mapped());
  const std::vector<base::Peer> peers = opening.group->members().peers;
  here_.erase(id);
  ++tried_[peers];
  end(opening.group, Group::Tell::kNobody, base::Status(MV_ECANCELED, "another rank gave up opening the group"));  // it has told all
  base::Status gone = gone_of(peers);
  const uint64_t next = gone.ok() ? next_number(peers, gone) : id;
  if (!gone.ok()) return opening.opened(gone);
  Members members = all_of(peers);
  members.id = next;
  opening.group = add(std::move(members));
  opening.here_told = 0;
  opening.told = opening.group->made();
  begin_opening(std::move(opening));
}

void Groups::fail_opening(uint64_t id, const base::Status& why) {
  const auto found = openings_.find(id);
  if (found == openings_.end()) return;
  const Opening opening = std::move(found->second);
  openings_.erase(found);
  if (!opening.is_first() && why.code() == MV_EPEERLOST) {
    opening.group->lineage().abandoned = true;
    return agree(opening.caller.call, opening.group, opening.growth, opening.opened);
  }
  if (opening.shrunk != nullptr) {
    here_[id].erase(cluster_.self().peer);  // it may be tried again
  } else {
    here_.erase(id);
    if (opening.is_first()) ++tried_[opening.group->members().peers];  // next try: for other members this number may be open
  }
  // A rank that has noticed a loss notifies all ranks; the others notify rank 0, which may open the group later. A newcomer
  // that gives up counts as lost: the others continue without it.
  const bool is_told = opening.is_first() && why.code() == MV_EPEERLOST && opening.group->setting().rank != 0;
  end(opening.group, is_told ? Group::Tell::kMet : Group::Tell::kAll,
      opening.joins ? base::error(MV_EPEERLOST, "it has given up joining: {}", why.text()) : why);
  opening.opened(why);
}

std::string Groups::missing(const Opening& opening) const {
  const std::vector<base::Peer> missing = missing_peers(opening);
  const size_t more = opening.missing_count > missing.size() ? opening.missing_count - missing.size() : 0;
  return cluster_.view().names(missing) + (more > 0 ? fmt::format(", and {} more", more) : "");
}

/// The members that have not opened the group, as far as this rank knows. It knows of the others what rank 0 has told.
std::vector<base::Peer> Groups::missing_peers(const Opening& opening, size_t most) const {
  const auto& peers = opening.group->members().peers;
  if (opening.group->setting().rank != 0) return opening.missing.empty() ? std::vector{peers.front()} : opening.missing;
  std::vector<base::Peer> missing;
  const auto here = here_.find(opening.group->members().id);
  for (auto peer = peers.begin(); peer != peers.end() && missing.size() < most; ++peer)
    if (here == here_.end() || !here->second.contains(*peer)) missing.push_back(*peer);
  return missing;
}

void Groups::tell_missing(const Opening& opening, base::Peer to) {
  const Members& members = opening.group->members();
  Note note;
  note.group = members.id;
  note.word = wire::GroupWord::Awaits;
  note.size = static_cast<uint32_t>(members.peers.size() - std::min(here_.at(members.id).size(), members.peers.size()));
  for (const base::Peer peer : missing_peers(opening, kNamed))
    note.ranks.push_back(static_cast<uint32_t>(std::ranges::find(members.peers, peer) - members.peers.begin()));
  sender_.send(to, frame_of(sender_.builder(), note));
}

/// As rank 0: without a master, nobody tells this node of the end of a member that it is not connected with.
void Groups::meet_missing(const Opening& opening) {
  if (opening.group->setting().rank != 0 || !cluster_.has_lost_master() || cluster_.is_kept()) return;
  for (const base::Peer peer : missing_peers(opening)) cluster_.want(peer, cluster::Cluster::Dialer::kSelf);
}

/// As rank 0.
void Groups::tell_missing_to_all(base::Nanos now) {
  for (auto& [id, opening] : openings_) {
    const auto& here = here_[id];
    if (opening.group->setting().rank != 0 || here.size() == opening.here_told || now < opening.told + kTellMissing) continue;
    opening.here_told = here.size();
    opening.told = now;
    for (const auto& [peer, basis] : here)
      if (peer != cluster_.self().peer) tell_missing(opening, peer);
  }
}

}  // namespace mv::collective
