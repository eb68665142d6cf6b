#pragma once
// How one member stands, by its own account.

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/cluster/wait.hpp"
#include "engine/collective/group_state.hpp"
#include "engine/table/state.hpp"
#include "wire/frame.hpp"

namespace mv::status {

/// What a node knows of its way to a peer.
struct Path {
  std::string transport;                 ///< "shm", "tcp", …; empty if there is none
  uint64_t sent = 0, received = 0;  ///< bytes
};

struct PeerState {
  base::Peer peer = base::kNobody;
  Path path;
  double send_rate = 0, receive_rate = 0;  ///< bytes a second, over the last seconds
  base::Nanos silence{0};
};

struct Report {
  std::string phase;
  base::Nanos uptime{0};
  std::string metrics;     ///< where it serves them over HTTP; empty if it does not
  uint64_t in_flight = 0;  ///< bytes of asynchronous calls that are not finished
  std::vector<PeerState> peers;
  std::vector<table::TableState> own;   ///< what it does itself on tables
  std::vector<table::TableState> held;  ///< what it holds as a server
  std::vector<cluster::Wait> waits;
  std::vector<collective::GroupState> groups;  ///< that it is in
  uint32_t left_out = 0;                          ///< entries of the lists for which a message had no room
};

/// Lists are cut so that the message keeps within a header's limits.
flatbuffers::Offset<wire::Report> write_report(flatbuffers::FlatBufferBuilder& fbb, uint64_t number,
                                               const Report& report);
Report read_report(const wire::Report& wire);

}  // namespace mv::status
