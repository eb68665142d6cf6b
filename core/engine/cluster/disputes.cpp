#include "engine/cluster/disputes.hpp"

#include <algorithm>
#include <set>

#include "engine/cluster/succession.hpp"

namespace mv::cluster {

std::optional<Disputes::Verdict> Disputes::judge(base::Peer from, const wire::Unreachable& note) {
  const Member* const member = roster_.view().find(note.peer());
  const Member* const reporter = roster_.view().find(from);
  if (!roster_.is_master() || member == nullptr || member->state == MemberState::kLost || member->peer == roster_.self().peer) return std::nullopt;
  if (reporter == nullptr || reporter->is_out) return std::nullopt;  // the others close their connections with one that has left, perhaps before it knows
  const base::Peer lost = choose_lost(*reporter, *member);
  if (lost == base::kNobody) return std::nullopt;  // the report is repeated at the next beat
  const std::string why = lost == from ? fmt::format("it has lost its connection to {}, which lives", roster_.view().name(note.peer()))
                                       : fmt::format("{} has lost its connection to it", roster_.view().name(from));
  return Verdict{lost, why};
}

void Disputes::report() {
  const Member* const self = roster_.own();
  if (roster_.is_master() || self == nullptr || (!roster_.is_kept() && !roster_.view().has_departures())) return;
  // One that does not hear the master either is the one that can't be reached.
  const Contact* const master = contacts_.find(roster_.master());
  if (master == nullptr || !master->connected || clock_.now() - master->heard > roster_.self().heartbeat_timeout / 2) return;
  const auto report = [this](const Member& lost) {
    link_.send(roster_.master(), builder_.finish(wire::Body::Unreachable, wire::CreateUnreachable(builder_.fbb(), lost.peer)));
  };
  for (const Member* partner : partners(roster_.view(), *self))
    if (!partner->is_out && partner->peer != roster_.master() && !contacts_.is_connected(partner->peer) && !partner->why.empty()) report(*partner);
  // Others may wait here for a worker that continues elsewhere.
  for (const Member* worker : roster_.view().workers())
    if (worker->peer != roster_.master() && roster_.is_undecided_loss(*worker)) report(*worker);
}

/// A server and another member have lost each other, though the master hears both: one of the two is lost. kNobody: the next report will tell. The
/// loss of a server that has back-ups fails no call, and that of a worker may. But a worker that another server has reported before is lost itself. A
/// process that was silent for a while was cut off, and may have lost all others.
base::Peer Disputes::choose_lost(const Member& reporter, const Member& reported) {
  const Contact* const contact = contacts_.find(reported.peer);
  if (!roster_.is_kept() || !can_spare(reporter) || contact == nullptr || !contact->connected) return reported.peer;
  const bool is_cut_off = heartbeat_.was_silent(reporter.peer);
  if (heartbeat_.was_silent(reported.peer) && !is_cut_off) return reported.peer;
  const Accused& accused = accused_.try_emplace(reported.peer, Accused{reporter.peer, clock_.now()}).first->second;
  if (contact->heard <= accused.since + heartbeat_.interval()) return base::kNobody;  // it may have ended, and this node is still to hear of that
  if (is_cut_off && !heartbeat_.was_silent(reported.peer)) {
    std::erase_if(accused_, [&](const auto& entry) { return entry.second.by == reporter.peer; });  // its reports say nothing of the others
    return reporter.peer;
  }
  if (reported.is_server() && !can_spare(reported)) return reporter.peer;
  const bool spares_worker = reported.is_worker() && !reporter.is_worker() && accused.by == reporter.peer;
  return spares_worker ? reporter.peer : reported.peer;
}

/// Whether the others can continue without this server, and without any loss.
bool Disputes::can_spare(const Member& server) const {
  if (!server.is_server() || server.peer == roster_.master()) return false;
  std::set<base::Peer> others;
  const auto lives = [&](const Member& member) {
    const Member* const here = roster_.view().find(member.peer);
    return here == nullptr || (here->state != MemberState::kLost && !here->is_out);
  };
  for (const Member& member : roster_.decided().members) {
    if (member.is_server() && roster_.decided().serving(member) == server.peer && std::ranges::none_of(member.backups, [&](uint32_t backup) { return lives(*roster_.decided().at(backup - 1)); }))
      return false;
    if (member.votes && member.peer != server.peer && lives(member)) others.insert(member.peer);
  }
  return keeping_.is_quorum(others);
}

}  // namespace mv::cluster
