#include "engine/cluster/succession.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/log.hpp"

namespace mv::cluster {

namespace {

bool is_alive(const Member& server) { return !server.is_out && server.state != MemberState::kLost; }

/// Whether this server serves the part, or has or gets a copy of it.
bool has(const View& view, const Member& server, const Member& part) {
  return view.serving(part) == server.peer || std::ranges::find(part.backups, server.rank + 1) != part.backups.end() || part.next_backup == server.rank + 1;
}

/// The parts that a server serves, or has or gets a copy of.
size_t load_of(const View& view, const Member& server) {
  return static_cast<size_t>(std::ranges::count_if(view.servers(), [&](const Member* part) { return has(view, server, *part); }));
}

/// The server that should have one more copy of this part: on a host without one if there is such a server, then the one with the fewest parts,
/// then the next one in a ring by rank. nullptr: there is none.
const Member* candidate(const View& view, const Member& part) {
  const Member* const by = view.find(view.serving(part));
  if (by == nullptr) return nullptr;
  auto ring = view.servers();
  std::rotate(ring.begin(), std::ranges::find(ring, by), ring.end());
  std::set<std::string> hosts;
  for (const Member* server : ring)
    if (has(view, *server, part)) hosts.insert(server->host);
  const Member* best = nullptr;
  const auto rank_of = [&](const Member& server) { return std::pair(hosts.contains(server.host), load_of(view, server)); };
  for (const Member* server : ring)
    if (!has(view, *server, part) && server->stays() && (best == nullptr || rank_of(*server) < rank_of(*best))) best = server;
  return best;
}

}  // namespace

void name_backups(View& view, uint32_t replicas) {
  for (Member& part : view.members) {
    part.backups.clear();
    if (!part.is_server()) continue;
    const Member* backup = nullptr;
    while (part.backups.size() < replicas && (backup = candidate(view, part)) != nullptr) part.backups.push_back(backup->rank + 1);
  }
}

namespace {

/// The server to which this part moves if nothing comes between: it has one copy more than it keeps, or is to get that. nullptr: it does not move.
const Member* heads_for(const View& view, const Member& part, uint32_t replicas) {
  if (part.backups.size() + (part.next_backup != 0 ? 1 : 0) <= replicas) return nullptr;
  if (std::ranges::find(part.backups, part.rank + 1) != part.backups.end()) return &part;
  return view.at((part.next_backup != 0 ? part.next_backup : part.backups.back()) - 1);
}

}  // namespace

const Member* destination(const View& view, const Member& part, uint32_t replicas) {
  const Member* const by = view.find(view.serving(part));
  const Member* const to = heads_for(view, part, replicas);
  return part.next_backup == 0 && by != nullptr && by->stays() && to != nullptr && to->stays() ? to : nullptr;
}

void move(View& view, Member& part, uint32_t replicas) {
  const uint32_t to = destination(view, part, replicas)->rank + 1;
  std::erase(part.backups, to);
  part.stand_in = to == part.rank + 1 ? 0 : to;
  if (part.stand_in == 0) base::log_info("{} serves its own part of the tables", view.name(part.peer));
  else base::log_info("{} serves the part of {}", view.name(view.serving(part)), view.name(part.peer));
}

namespace {

/// The server that gets a copy so that `part` can move to `to`: `to` itself, or another one if that has a copy already. nullptr: there is none, or
/// the copies would be on fewer hosts than now.
const Member* copy_for_move(const View& view, const Member& part, const Member& to) {
  const Member* const next = has(view, to, part) ? candidate(view, part) : &to;
  if (next == nullptr) return nullptr;
  std::set<std::string> others;
  for (const uint32_t backup : part.backups) others.insert(view.at(backup - 1)->host);
  const bool narrows = !part.backups.empty() && others.contains(next->host) && !others.contains(view.find(view.serving(part))->host);
  return narrows ? nullptr : next;
}

/// A part that should move now, and the server that gets a copy for that. {}: there is none.
std::pair<Member*, const Member*> next_move(View& view, uint32_t replicas) {
  const auto servers = view.servers();
  std::map<const Member*, size_t> loads;  // when all moves are over
  std::set<const Member*> givers;
  for (const Member* server : view.staying_servers()) loads.emplace(server, 0);
  std::vector<Member*> movable;  // that of the highest rank first: new servers take the places of the lowest ranks
  for (Member& part : view.members) {
    const Member* const by = part.is_server() ? view.find(view.serving(part)) : nullptr;
    if (by == nullptr) continue;
    const Member* const to = heads_for(view, part, replicas);
    if (const auto load = loads.find(to != nullptr ? to : by); load != loads.end()) ++load->second;
    if (to != nullptr)
      givers.insert(by);
    else if (by->stays() && by->peer != part.peer && servers.front() != &part && part.backups.size() == replicas && part.next_backup == 0)
      movable.insert(movable.begin(), &part);
  }
  std::erase_if(movable, [&](const Member* part) { return givers.contains(view.find(view.serving(*part))); });
  for (Member* part : movable)
    if (const Member* const next = part->stays() ? copy_for_move(view, *part, *part) : nullptr; next != nullptr) return {part, next};
  // The one with the fewest parts first. If it can take none, because it has copies of them already, the next one may.
  std::vector<std::pair<const Member*, size_t>> takers(loads.begin(), loads.end());
  std::ranges::sort(takers, {}, [](const auto& taker) { return std::pair(taker.second, taker.first->rank); });
  for (const auto& [to, load] : takers) {
    Member* best = nullptr;
    for (Member* part : movable) {
      const auto load_of_server = [&](const Member& of) { return loads.at(view.find(view.serving(of))); };
      const bool can_move = !has(view, *to, *part) && copy_for_move(view, *part, *to) != nullptr;
      if (can_move && load_of_server(*part) >= load + 2 && (best == nullptr || load_of_server(*part) > load_of_server(*best))) best = part;
    }
    if (best != nullptr) return {best, to};
  }
  return {};
}

}  // namespace

std::vector<const Member*> name_next_backups(View& view, uint32_t replicas) {
  std::vector<const Member*> changed;
  for (Member& part : view.members) {
    const Member* const by = part.is_server() ? view.find(view.serving(part)) : nullptr;
    if (by == nullptr || part.next_backup != 0) continue;
    const uint32_t wanted = replicas == 0 && by->draining ? 1 : replicas;
    if (part.backups.size() >= wanted) continue;
    const Member* const next = candidate(view, part);
    if (next == nullptr) continue;
    part.next_backup = next->rank + 1;
    changed.push_back(&part);
  }
  for (auto [part, next] = next_move(view, replicas); part != nullptr; std::tie(part, next) = next_move(view, replicas)) {
    part->next_backup = next->rank + 1;
    changed.push_back(part);
  }
  return changed;
}

void take_copy(View& view, Member& part, uint32_t replicas) {
  part.backups.push_back(std::exchange(part.next_backup, 0));
  if (replicas > 0) (void)name_next_backups(view, replicas);
}

Succession succeed(View& view, Member& lost, uint32_t replicas) {
  Succession after;
  const auto served_it = [&](const Member& part) { return view.serving(part) == lost.peer; };
  std::vector<Member*> orphans;
  for (Member& part : view.members)
    if (part.is_server() && served_it(part)) orphans.push_back(&part);
  lost.is_out = true;
  if (!lost.is_server()) return after;
  const bool goes_on = !view.workers_gone();
  for (Member& part : view.members) {
    if (!part.is_server()) continue;
    const bool is_orphan = std::ranges::find(orphans, &part) != orphans.end();
    const auto as_backup = std::ranges::find(part.backups, lost.rank + 1);
    const bool was_backup = as_backup != part.backups.end(), was_next = part.next_backup == lost.rank + 1;
    if (!is_orphan && !was_backup && !was_next) continue;
    // The last one in the chain gives the next back-up its copy.
    if (was_next || view.tail_of(part) == lost.peer || (is_orphan && part.backups.empty())) part.next_backup = 0;
    if (was_backup) part.backups.erase(as_backup);
    if (is_orphan) {
      part.stand_in = goes_on && !part.backups.empty() ? part.backups.front() : kNobodyServes;
      if (!part.backups.empty()) part.backups.erase(part.backups.begin());
      after.loses_values |= part.stand_in == kNobodyServes;
    }
    after.changed.push_back(&part);
  }
  if (!goes_on) return after;
  for (const Member* part : name_next_backups(view, replicas))
    if (std::ranges::find(after.changed, part) == after.changed.end()) after.changed.push_back(part);
  return after;
}

Succession lose(View& view, base::Peer peer, uint32_t replicas, const std::string& why) {
  Member* const member = view.find(peer);
  if (member == nullptr || member->is_out || member->drained) return {};
  const bool was_here = member->state == MemberState::kHere;
  if (was_here) member->state = MemberState::kLost;
  member->why = why;
  Succession after = succeed(view, *member, replicas);
  if (!after.loses_values && !(was_here && member->is_worker())) return after;
  note_loss(view, why);
  return after;
}

void note_loss(View& view, const std::string& why) {
  ++view.losses;
  view.loss_texts.push_back(why);
  if (view.loss_texts.size() > kLossTexts) view.loss_texts.erase(view.loss_texts.begin());
}

void name_voters(View& view) {
  size_t servers = 0;
  for (Member& member : view.members) {
    member.votes = member.is_server() && is_alive(member);
    servers += member.votes ? 1 : 0;
  }
  Member* const master = view.find(view.master);
  const bool can_add_master = master != nullptr && !master->is_server() && is_alive(*master);
  if (servers == 1 && can_add_master) master->votes = true;  // the master alone can still declare the server lost
  if (servers % 2 != 0) return;
  if (can_add_master) {
    master->votes = true;
    return;
  }
  const auto other = std::ranges::find_if(view.members, [](const Member& member) { return !member.is_server() && is_alive(member) && member.state == MemberState::kHere; });
  if (other != view.members.end()) other->votes = true;
}

base::Result<std::vector<const Member*>> begin_drain(View& view, Member& leaver, uint32_t replicas) {
  std::vector<const Member*> changed;
  const auto note = [&](const Member* part) {
    if (std::ranges::find(changed, part) == changed.end()) changed.push_back(part);
  };
  const View before = view;
  leaver.draining = true;
  for (Member& part : view.members) {
    if (!part.is_server()) continue;
    const Member* const by = view.find(view.serving(part));
    // A copy that is not complete should go to a server that stays, and so should that of a part that moves.
    const bool was_next = part.next_backup == leaver.rank + 1;
    const bool was_copy = replicas == 0 && std::ranges::find(part.backups, leaver.rank + 1) != part.backups.end();
    const bool must_move = replicas > 0 || (by != nullptr && by->draining);
    if ((!was_next && !was_copy) || (must_move && candidate(view, part) == nullptr)) continue;
    if (was_next) part.next_backup = 0;
    else part.backups.clear();
    note(&part);
  }
  for (const Member* part : name_next_backups(view, replicas)) note(part);
  const bool is_stuck = std::ranges::any_of(view.servers(), [&](const Member* part) {
    return view.serving(*part) == leaver.peer && part->backups.empty() && part->next_backup == 0;
  });
  if (is_stuck || view.staying_servers().empty()) {  // one of them may have to be the master
    view.members = before.members;
    return base::error(MV_EUNREACHABLE, "there is no other server that stays and could take over its tables");
  }
  return changed;
}

namespace {
std::string so_many(uint32_t servers) { return fmt::format("{} {}", servers, servers == 1 ? "server is" : "servers are"); }
}  // namespace

base::Result<std::vector<const Member*>> begin_resize(View& view, uint32_t servers, uint32_t replicas) {
  const size_t places = view.servers().size();
  if (servers > places)
    return base::error(MV_EINVAL, "{} wanted, but this cluster has room for {}: set max_servers when it is started", so_many(servers), places);
  if (servers < 1 + replicas) return base::error(MV_EINVAL, "{} wanted, but this cluster needs at least {}", so_many(servers), 1 + replicas);
  auto leavers = view.staying_servers();
  const size_t count = leavers.size();
  std::erase_if(leavers, [&](const Member* server) { return server->is_worker() || server->peer == view.master; });
  if (count - leavers.size() > servers)
    return base::error(MV_EINVAL, "{} wanted, but {} can't leave: the master and servers that are also workers stay", so_many(servers),
                       count - leavers.size());
  std::vector<const Member*> changed;
  const View before = view;
  for (size_t left = count; left > servers; --left) {
    const auto moved = begin_drain(view, *view.find(leavers.back()->peer), replicas);
    if (!moved.ok()) {
      view.members = before.members;
      return moved.status();
    }
    leavers.pop_back();
    for (const Member* part : moved.value())
      if (std::ranges::find(changed, part) == changed.end()) changed.push_back(part);
  }
  view.wanted_servers = servers;
  return changed;
}

bool can_hand_over(const View& view, const Member& leaver, const std::vector<uint32_t>& parts) {
  const auto servers = view.servers();
  return std::ranges::all_of(servers, [&](const Member* part) {
    if (view.serving(*part) != leaver.peer) return true;
    const Member* const heir = view.find(view.backup_of(*part));
    return heir != nullptr && is_alive(*heir) && std::ranges::find(parts, part->rank + 1) != parts.end();
  });
}

std::vector<const Member*> partners(const View& view, const Member& server) {
  std::vector<const Member*> partners;
  for (const Member* part : view.servers()) {
    auto chain = view.chain_of(*part);
    if (!chain.empty() && part->next_backup != 0) chain.push_back(view.next_backup_of(*part));
    for (size_t i = 1; i < chain.size(); ++i) {
      const base::Peer other = chain[i - 1] == server.peer ? chain[i] : chain[i] == server.peer ? chain[i - 1] : base::kNobody;
      const Member* const partner = other != base::kNobody ? view.find(other) : nullptr;
      if (partner != nullptr && std::ranges::find(partners, partner) == partners.end()) partners.push_back(partner);
    }
  }
  return partners;
}

}  // namespace mv::cluster
