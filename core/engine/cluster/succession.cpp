#include "engine/cluster/succession.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace mv::cluster {

namespace {

bool is_alive(const Member& server) { return !server.is_out && server.state != State::kLost; }
/// Whether it may be given copies.
bool stays(const Member& server) { return is_alive(server) && !server.draining; }

/// The parts that a server serves, or has or gets a copy of.
size_t load_of(const View& view, const Member& server) {
  return static_cast<size_t>(std::ranges::count_if(view.servers(), [&](const Member* part) {
    return view.serving(*part) == server.peer || view.backup_of(*part) == server.peer || view.next_backup_of(*part) == server.peer;
  }));
}

/// The server that should have a copy of this part: on another host than its server if there is one, then the one with the fewest parts,
/// then the next one in a ring by rank. nullptr: there is none.
const Member* candidate(const View& view, const Member& part) {
  const Member* const by = view.find(view.serving(part));
  if (by == nullptr) return nullptr;
  auto ring = view.servers();
  std::ranges::rotate(ring, std::ranges::find(ring, by));
  const Member* best = nullptr;
  const auto rank_of = [&](const Member& server) { return std::pair(server.host == by->host, load_of(view, server)); };
  for (const Member* server : ring)
    if (server != by && stays(*server) && (best == nullptr || rank_of(*server) < rank_of(*best))) best = server;
  return best;
}

}  // namespace

void name_backups(View& view) {
  for (Member& part : view.members) {
    const Member* const backup = part.is_server() ? candidate(view, part) : nullptr;
    part.backup = backup != nullptr ? backup->rank + 1 : 0;
  }
}

bool goes_home(const View& view, const Member& part, uint32_t replicas) {
  const auto servers = view.servers();
  const bool is_away = part.stand_in != 0 && part.stand_in != kNobodyServes && part.stand_in != part.rank + 1;
  return replicas == 0 && part.is_server() && is_away && stays(part) && servers.front()->rank != part.rank;
}

std::vector<const Member*> name_next_backups(View& view, uint32_t replicas) {
  std::vector<const Member*> changed;
  for (Member& part : view.members) {
    if (!part.is_server() || part.backup != 0 || part.next_backup != 0) continue;
    const Member* const by = view.find(view.serving(part));
    const bool is_going_home = goes_home(view, part, replicas);
    if (by == nullptr || (replicas == 0 && !by->draining && !is_going_home)) continue;
    const Member* const next = is_going_home ? &part : candidate(view, part);
    if (next == nullptr) continue;
    part.next_backup = next->rank + 1;
    changed.push_back(&part);
  }
  return changed;
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
    const bool was_backup = part.backup == lost.rank + 1, was_next = part.next_backup == lost.rank + 1;
    if (!is_orphan && !was_backup && !was_next) continue;
    if (was_backup) part.backup = 0;
    if (was_next || is_orphan) part.next_backup = 0;
    if (is_orphan) {
      const uint32_t heir = std::exchange(part.backup, 0);
      part.stand_in = goes_on && heir != 0 ? heir : kNobodyServes;
      after.loses_values |= part.stand_in == kNobodyServes;
      if (part.stand_in != kNobodyServes)
        base::log_warn("{} serves the tables of {} from now on", view.name(view.serving(part)), view.name(part.peer));
    }
    after.changed.push_back(&part);
  }
  if (!goes_on) return after;
  for (const Member* part : name_next_backups(view, replicas))
    if (std::ranges::find(after.changed, part) == after.changed.end()) after.changed.push_back(part);
  return after;
}

Succession lose(View& view, base::Peer peer, uint32_t replicas, const std::string& why) {
  constexpr size_t kTexts = 16;
  Member* const member = view.find(peer);
  if (member == nullptr || member->is_out || member->drained) return {};
  const bool was_here = member->state == State::kHere;
  if (was_here) member->state = State::kLost;
  member->why = why;
  Succession after = succeed(view, *member, replicas);
  if (!after.loses_values && !(was_here && member->is_worker())) return after;
  ++view.losses;
  view.loss_texts.push_back(why);
  if (view.loss_texts.size() > kTexts) view.loss_texts.erase(view.loss_texts.begin());
  return after;
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
  const auto other = std::ranges::find_if(view.members, [](const Member& member) { return !member.is_server() && is_alive(member) && member.state == State::kHere; });
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
    // A copy that is not complete should go to a server that stays, and so should that of a part which moves itself.
    const bool was_next = part.next_backup == leaver.rank + 1;
    const bool was_copy = part.backup == leaver.rank + 1 && by != nullptr && by->draining && replicas == 0;
    if ((!was_next && !was_copy) || candidate(view, part) == nullptr) continue;
    (was_next ? part.next_backup : part.backup) = 0;
    note(&part);
  }
  for (const Member* part : name_next_backups(view, replicas)) note(part);
  for (const Member* part : view.servers())
    if (view.serving(*part) == leaver.peer && part->backup == 0 && part->next_backup == 0) {
      view.members = before.members;
      return base::error(MV_EUNREACHABLE, "there is no other server that stays and could take over its tables");
    }
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
    const base::Peer by = view.serving(*part);
    for (const base::Peer copy : {view.backup_of(*part), view.next_backup_of(*part)}) {
      const base::Peer other = by == server.peer ? copy : copy == server.peer ? by : base::kNobody;
      const Member* const partner = other != base::kNobody ? view.find(other) : nullptr;
      if (partner != nullptr && std::ranges::find(partners, partner) == partners.end()) partners.push_back(partner);
    }
  }
  return partners;
}

}  // namespace mv::cluster
