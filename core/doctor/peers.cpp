#include "doctor/peers.hpp"

namespace mv::doctor {

namespace {

using api::PeerReport;

/// On one machine, even a sleeping process answers faster than this.
constexpr base::Nanos kSlowOnOneMachine = std::chrono::milliseconds(5);

/// The remedy for TCP to a process that may be on this machine.
const char* todo_for_tcp(const PeerReport& peer) {
  if (peer.why_not_shm.starts_with("not by UCX")) return "set transport=ucx (POLYVERSO_TRANSPORT) in all processes, and the same UCX_TLS and UCX_NET_DEVICES";
  if (peer.why_not_shm == "transport=tcp") return "leave transport (POLYVERSO_TRANSPORT) unset to use shared memory";
  return "start both as the same user and in one network namespace (containers: --network=host, or one pod), and with "
         "transport unset on both";
}

/// Describes a peer: "server, pid 4711 on node7".
std::string describe(const PeerReport& peer) {
  return fmt::format("{}, pid {} on {}", name_of_role(peer.role), peer.pid, peer.host);
}

void judge_way(const PeerReport& peer, const std::string& who, Findings& findings) {
  const std::string way =
      fmt::format("{}: by {}{}{}, round trip {}", describe(peer), name_of(peer.transport), peer.cipher.empty() ? "" : ", encrypted by ", peer.cipher,
                  micros(peer.round_trip));
  if (peer.transport == base::TransportKind::kTcp && peer.why_not_shm.starts_with("not by UCX"))
    return findings.note(who, fmt::format("{}; {}", way, peer.why_not_shm), todo_for_tcp(peer));
  if (peer.transport == base::TransportKind::kTcp && peer.same_host)
    return findings.note(who, fmt::format("{}; no shared memory: {}", way, why_not_shm(peer)),
                         todo_for_tcp(peer));
  if (peer.same_host && peer.round_trip > kSlowOnOneMachine)
    return findings.note(who, way + ", which is long on one machine",
                         "check what else runs there: more threads than processors wait for each other");
  findings.ok(who, way);
}

}  // namespace

const char* name_of(const std::optional<base::TransportKind>& transport) {
  return transport ? base::kTransportNames[static_cast<size_t>(*transport)] : "none";
}

const char* name_of(PeerReport::State state) {
  switch (state) {
    case PeerReport::State::kHere:
      return "here";
    case PeerReport::State::kFinished:
      return "finished";
    case PeerReport::State::kLost:
      break;
  }
  return "lost";
}

const char* name_of_role(int32_t role) {
  switch (role) {
    case MV_ROLE_WORKER:
      return "worker";
    case MV_ROLE_SERVER:
      return "server";
    case MV_ROLE_ALL:
      return "all";
    default:
      return "scheduler";
  }
}

std::string why_not_shm(const PeerReport& peer) {
  if (peer.transport != base::TransportKind::kTcp) return {};
  if (peer.why_not_shm.starts_with("not by UCX")) return peer.why_not_shm;
  if (!peer.same_host) return "it is on another machine, " + peer.host;
  if (peer.why_not_shm == "transport=tcp") return "transport=tcp is set here";
  const std::string told = peer.why_not_shm.empty() ? "it did not connect that way" : peer.why_not_shm;
  return told + " (another container's network, another user, or transport=tcp there)";
}

Findings judge_peers(const std::vector<PeerReport>& peers) {
  Findings findings("peers");
  if (peers.empty()) findings.ok("peers", "none: this is a cluster of one process");
  for (const PeerReport& peer : peers) {
    const std::string who = fmt::format("rank {}", peer.rank), it = describe(peer);
    if (peer.state == PeerReport::State::kLost) {
      findings.problem(who, fmt::format("{}: lost: {}", it, peer.why_lost),
                       peer.role == MV_ROLE_WORKER ? "see its own output; a new worker may be started in its place"
                                                   : "see its own output; restart all processes from the last checkpoint");
    } else if (peer.state == PeerReport::State::kFinished && !peer.transport) {
      findings.ok(who, it + ": has finished");
    } else if (!peer.transport && !peer.needed) {
      findings.ok(who, it + ": no connection (none is needed: workers communicate only with servers)");
    } else if (!peer.transport) {
      findings.problem(who, fmt::format("{}: no connection to it at {}", it, peer.address),
                       "check whether that address can be reached from here (with `polyverso doctor --master`): if not, "
                       "set advertise (POLYVERSO_ADVERTISE) there");
    } else if (peer.round_trip == base::kNever) {
      findings.problem(
          who, fmt::format("{}: does not answer within a second, by {}", it, name_of(peer.transport)),
          fmt::format("check whether pid {} on {} is stopped, swapped out or in a debugger", peer.pid, peer.host));
    } else {
      judge_way(peer, who, findings);
    }
  }
  return findings;
}

}  // namespace mv::doctor
