#include "engine/cluster/relocation.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "engine/cluster/succession.hpp"

namespace mv::cluster {

/// A part has a back-up again.
void Relocation::copied(const rpc::Asked& asked, const wire::Copied& note) {
  server_.answer(asked, builder_.answer({}));
  const auto part = std::ranges::find_if(roster_.view().members, [&](const Member& member) { return member.rank + 1 == note.part() && member.is_server(); });
  if (part == roster_.view().members.end()) return;
  const auto holds = [client = asked.client, backup = note.backup()](const View& view, const Member& of) {
    return view.tail_of(of) == client && of.next_backup != 0 && view.next_backup_of(of) == backup;  // else one of the two was lost meanwhile
  };
  if (roster_.is_kept())
    return decisions_.decide([holds, rank = part->rank, replicas = roster_.self().replicas](View& next) {
      const auto copied = std::ranges::find(next.members, rank, &Member::rank);
      if (copied == next.members.end() || !holds(next, *copied)) return base::Status(MV_ESTATE, "");
      take_copy(next, *copied, replicas);
      return base::Status();
    });
  if (!holds(roster_.view(), *part)) return;
  take_copy(roster_.view(), *part, roster_.self().replicas);
  owner_.on_part_moved(*part);
  publisher_.publish();
}

void Relocation::drain(const rpc::Asked& asked) {
  Member* const member = roster_.view().find(asked.client);
  if (member == nullptr || !member->is_server()) return server_.fail(asked, base::error(MV_EPROTOCOL, "only a server can hand its tables over, and it asks the master"));
  if (member->is_worker() && member->state == MemberState::kHere)
    return server_.fail(asked, base::error(MV_ESTATE, "a worker finishes before its process hands its tables over"));
  if (member->draining) return server_.answer(asked, builder_.answer({}));
  if (roster_.is_kept())
    return decisions_.decide(
        [peer = asked.client, replicas = roster_.self().replicas](View& next) {
          Member* const leaver = next.find(peer);
          if (leaver == nullptr || leaver->draining) return leaver != nullptr ? base::Status() : base::Status(MV_ESTATE, "it is no member");
          const auto changed = begin_drain(next, *leaver, replicas);
          return changed.ok() ? base::Status() : changed.status();
        },
        [this, asked](const base::Status& refused, const View& view) {
          if (!refused.ok()) return server_.fail(asked, refused);
          base::log_info("{} is to end, and hands its tables over", view.name(asked.client));
          server_.answer(asked, builder_.answer({}));
        });
  const auto changed = begin_drain(roster_.view(), *member, roster_.self().replicas);
  if (!changed.ok()) return server_.fail(asked, changed.status());
  base::log_info("{} is to end, and hands its tables over", roster_.view().name(asked.client));
  server_.answer(asked, builder_.answer({}));
  owner_.on_member_draining(*member);
  for (const Member* part : changed.value()) owner_.on_part_moved(*part);
  publisher_.publish();
}

void Relocation::resize(const rpc::Asked& asked, uint32_t servers) {
  if (roster_.is_kept())
    return decisions_.decide(
        [servers, replicas = roster_.self().replicas](View& next) {
          const auto changed = begin_resize(next, servers, replicas);
          return changed.ok() ? base::Status() : changed.status();
        },
        [this, asked, servers](const base::Status& refused, const View&) {
          if (!refused.ok()) return server_.fail(asked, refused);
          ++resizes_;
          if (roster_.decided().wanted_servers != servers) base::log_info("the wanted number of servers is {}", servers);
          server_.answer(asked, builder_.answer({}));
        });
  const uint32_t wanted = roster_.view().wanted_servers;
  if (const base::Status begun = begin_to_have(servers); !begun.ok()) return server_.fail(asked, begun);
  ++resizes_;
  if (wanted != servers) base::log_info("the wanted number of servers is {}", servers);
  server_.answer(asked, builder_.answer({}));
  owner_.on_news();
}

/// Without a keeper.
base::Status Relocation::begin_to_have(uint32_t servers) {
  const View before = roster_.view();
  const auto changed = begin_resize(roster_.view(), servers, roster_.self().replicas);
  if (!changed.ok()) return changed.status();
  for (const Member& member : roster_.view().members)
    if (member.draining && !before.at(member.rank)->draining) owner_.on_member_draining(member);
  for (const Member* part : changed.value()) owner_.on_part_moved(*part);
  publisher_.publish();
  return {};
}

void Relocation::end_surplus() {
  if (!roster_.is_master()) return;
  const auto has_surplus = [](const View& view) { return view.wanted_servers != 0 && view.staying_servers().size() > view.wanted_servers; };
  if (roster_.is_kept())
    return decisions_.decide([has_surplus, replicas = roster_.self().replicas](View& next) {
      if (!has_surplus(next)) return base::Status(MV_ESTATE, "");  // another number was asked for meanwhile
      const auto changed = begin_resize(next, next.wanted_servers, replicas);
      return changed.ok() ? base::Status() : changed.status();
    });
  if (has_surplus(roster_.view())) (void)begin_to_have(roster_.view().wanted_servers);
}

namespace {

/// Those of the parts with these numbers that `server` serves.
std::vector<Member*> served_by(View& view, base::Peer server, const std::vector<uint32_t>& numbers) {
  std::vector<Member*> parts;
  for (Member& part : view.members)
    if (std::ranges::find(numbers, part.rank + 1) != numbers.end() && view.serving(part) == server) parts.push_back(&part);
  return parts;
}

/// Moves the parts with these numbers away from `from`. MV_ESTATE: not all of them can move any more; then none has moved.
base::Status move_parts(View& view, base::Peer from, const std::vector<uint32_t>& numbers, uint32_t replicas) {
  const auto parts = served_by(view, from, numbers);
  const auto can_move = [&](const Member* part) { return destination(view, *part, replicas) != nullptr; };
  if (parts.empty() || parts.size() != numbers.size() || !std::ranges::all_of(parts, can_move))
    return base::error(MV_ESTATE, "not every one of these parts can move to its new server any more");
  for (Member* part : parts) move(view, *part, replicas);
  return {};
}

}  // namespace

/// A server that stays gives parts to others.
void Relocation::move_asked(const rpc::Asked& asked, const std::vector<uint32_t>& numbers) {
  if (roster_.is_kept())
    return decisions_.decide(
        [numbers, from = asked.client, replicas = roster_.self().replicas](View& next) {
          if (served_by(next, from, numbers).empty()) return base::Status();  // the former master has moved them
          if (base::Status wrong = move_parts(next, from, numbers, replicas); !wrong.ok()) return wrong;
          (void)name_next_backups(next, replicas);
          return base::Status();
        },
        [this, asked](const base::Status& refused, const View&) { refused.ok() ? server_.answer(asked, builder_.answer({})) : server_.fail(asked, refused); });
  if (served_by(roster_.view(), asked.client, numbers).empty()) return server_.answer(asked, builder_.answer({}));
  if (const base::Status wrong = move_parts(roster_.view(), asked.client, numbers, roster_.self().replicas); !wrong.ok()) return server_.fail(asked, wrong);
  server_.answer(asked, builder_.answer({}));
  for (const uint32_t number : numbers) owner_.on_part_moved(*roster_.view().at(number - 1));
  for (const Member* part : name_next_backups(roster_.view(), roster_.self().replicas)) owner_.on_part_moved(*part);
  publisher_.publish();
}

void Relocation::hand_over(const rpc::Asked& asked, const wire::HandOver& request) {
  Member* const member = roster_.view().find(asked.client);
  std::vector<uint32_t> parts;
  if (request.parts() != nullptr) parts.assign(request.parts()->begin(), request.parts()->end());
  if (member != nullptr && !member->departs()) return move_asked(asked, parts);
  const auto check = [parts](const View& view, const Member* leaver) {
    return leaver != nullptr && leaver->draining && leaver->state != MemberState::kLost && can_hand_over(view, *leaver, parts)
               ? base::Status()
               : base::error(MV_ESTATE, "not every part of this server's tables has a copy any more");
  };
  const auto depart = [](Member& leaver, const View& view) {
    leaver.draining = false;
    leaver.drained = true;
    leaver.state = MemberState::kLost;
    leaver.why = fmt::format("{} has handed its tables over and left", view.name(leaver.peer));
  };
  if (roster_.is_kept())
    return decisions_.decide(
        [check, depart, peer = asked.client, replicas = roster_.self().replicas](View& next) {
          Member* const leaver = next.find(peer);
          if (leaver != nullptr && leaver->drained) return base::Status();
          if (base::Status wrong = check(next, leaver); !wrong.ok()) return wrong;
          depart(*leaver, next);
          (void)succeed(next, *leaver, replicas);
          return base::Status();
        },
        [this, asked](const base::Status& refused, const View& view) {
          if (!refused.ok()) return server_.fail(asked, refused);
          const Member* const leaver = view.find(asked.client);  // null if the same view has given its place to another process
          base::log_info("{}", leaver != nullptr ? leaver->why : "a server has handed its tables over and left");
          server_.answer(asked, builder_.answer({}));
          server_.flush();  // from now on it is no member
        });
  if (member != nullptr && member->drained) return server_.answer(asked, builder_.answer({}));
  if (const base::Status wrong = check(roster_.view(), member); !wrong.ok()) return server_.fail(asked, wrong);
  const bool is_self = member->peer == roster_.self().peer;
  const base::Peer next_master = is_self ? successor() : roster_.master();
  if (next_master == base::kNobody) return server_.fail(asked, base::error(MV_ESTATE, "there is no other server that could be the master"));
  server_.answer(asked, builder_.answer({}));
  server_.flush();  // from now on it is no member
  depart(*member, roster_.view());
  base::log_info("{}", member->why);
  if (is_self) {
    declare_out(*member);
    give_role_(next_master);
    return owner_.on_drained();
  }
  const base::Status why(MV_EPEERLOST, member->why);
  client_.on_lost(member->peer, why);
  owner_.on_member_lost(*member, why);
  declare_out(*member);
  publisher_.publish();
}

/// Without replicas: the server that gets this master's role when it has drained. kNobody: there is none.
base::Peer Relocation::successor() const {
  std::vector<base::Peer> candidates;
  for (const Member* server : roster_.view().staying_servers())
    if (server->peer != roster_.self().peer && contacts_.is_connected(server->peer)) candidates.push_back(server->peer);
  if (candidates.empty()) return base::kNobody;
  // One that is silent may be about to be lost, and one that has never spoken of a view is joining still.
  return *std::ranges::min_element(candidates, {}, [this](base::Peer peer) { return std::pair(heartbeat_.was_silent(peer), contacts_.find(peer)->epoch == 0); });
}

/// The master decides which server takes over the tables of a lost one. True if values are lost.
bool Relocation::declare_out(Member& member) {
  const Succession after = succeed(roster_.view(), member, roster_.self().replicas);
  for (const Member* part : after.changed) owner_.on_part_moved(*part);
  return after.loses_values;
}

}  // namespace mv::cluster
