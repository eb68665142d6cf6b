#pragma once
// The report of one member about itself, and its form on the wire.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "engine/cluster/wait.hpp"
#include "engine/collective/group_state.hpp"
#include "engine/status/reported_numbers.hpp"
#include "engine/table/state.hpp"
#include "wire/frame.hpp"

namespace mv::status {

/// The path from a node to a peer.
struct Path {
  std::string transport;            ///< "shm", "tcp", …; empty if there is none
  uint64_t sent = 0, received = 0;  ///< bytes
  std::string cipher;               ///< by which it is encrypted: "TLS_AES_128_GCM_SHA256"; empty if it is not
};

struct PeerState {
  base::Peer peer = base::kNobody;
  Path path;
  double send_rate = 0, receive_rate = 0;  ///< bytes per second, over the last seconds
  base::Nanos silence{0};
};

struct Report {
  std::string phase;
  base::Nanos uptime{0};
  std::string metrics;     ///< the HTTP address of its metrics; empty if it serves none
  std::string choice;      ///< the transports that it uses, and why
  std::string keeper;      ///< where the cluster is known by a name, and how the member stands with that; empty: nowhere. Not sent: only of the asked member
  uint64_t in_flight = 0;  ///< bytes of asynchronous calls that are not finished
  std::vector<PeerState> peers;
  PeerState rest;                                   ///< the sum of those that shorten_peers() left out
  std::map<std::string, uint32_t> rest_transports;  ///< how many those are, by transport and cipher
  std::vector<table::TableState> own;   ///< its own calls on tables, as a worker
  std::vector<table::TableState> held;  ///< the tables that it holds, as a server
  std::vector<cluster::Wait> waits;
  std::vector<collective::GroupState> groups;  ///< the groups that it is a rank of
  std::vector<ReportedNumber> reported;        ///< by its program
  uint32_t left_out = 0;                       ///< entries of the lists that did not fit into the message
};

/// With all peers, the status of hundreds of connected members is many MiB.
inline constexpr size_t kMostMembersWithPairs = 32, kBusiestPairs = 20;
/// Keeps the kBusiestPairs peers with the most bytes per second, and the sum of the others.
void shorten_peers(Report& report);
/// The total traffic of a member with all others.
PeerState total_of(const Report& report);
/// The number of connections, by transport.
std::map<std::string, uint32_t> transports_of(const Report& report);

/// Serializes a report. Cuts lists so that the message stays within the size limit of a header.
flatbuffers::Offset<wire::Report> write_report(flatbuffers::FlatBufferBuilder& fbb, uint64_t number,
                                               const Report& report);
Report read_report(const wire::Report& wire);
/// The answer to a request for the log only.
flatbuffers::Offset<wire::Report> write_log(flatbuffers::FlatBufferBuilder& fbb, uint64_t number, const base::LogTail& tail);
base::LogTail read_log(const wire::Report& wire);

}  // namespace mv::status
