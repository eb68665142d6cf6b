#pragma once
// The members of the cluster, as the master last reported them.

#include <cstdint>
#include <string>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"
#include "wire/frame.hpp"

namespace mv::cluster {

enum class State { kHere, kFinished, kLost };

struct Member {
  uint32_t rank = 0;
  int32_t role = MV_ROLE_ALL;
  base::Peer peer = base::kNobody;
  std::string address;  ///< where it listens
  std::string host;
  uint32_t pid = 0;
  State state = State::kHere;
  std::string why = {};   ///< the reason of the loss
  bool is_out = false;    ///< the master has declared its process lost; what only this node has lost may be a connection
  uint32_t stand_in = 0;  ///< then, of a server: 1 + the rank of the server that has taken over its part; 0: none

  bool is_worker() const { return (role & MV_ROLE_WORKER) != 0; }
  bool is_server() const { return (role & MV_ROLE_SERVER) != 0; }
};

/// Members by rank. Workers and servers are numbered in the order of their ranks; the numbers never change.
class View {
 public:
  uint64_t epoch = 0;
  bool sync = false;
  std::vector<Member> members;

  const Member* find(base::Peer peer) const;
  Member* find(base::Peer peer);
  std::vector<const Member*> workers() const;
  std::vector<const Member*> servers() const;
  /// True if every worker has finished or is lost.
  bool workers_gone() const;
  /// The peer's number among the workers or servers, or -1.
  int64_t worker_id(base::Peer peer) const;
  int64_t server_id(base::Peer peer) const;
  const Member* at(uint32_t rank) const;
  /// The server that keeps copies of the tables of the server with this rank: of the servers after it, in a ring by rank, the first one on
  /// another host, or else the first one. nullptr if there is no other server.
  const Member* backup_of(uint32_t rank) const;
  /// The peer that serves the part of this server now; kNobody if it is lost.
  base::Peer serving(const Member& server) const;
  /// The peer that keeps a copy of this server's part now, if the cluster has `replicas` > 0; kNobody if none is left.
  base::Peer keeping_copy(const Member& server) const;
  /// "worker 1 (rank 2, pid 4711 on host)", "server 0 (...)"; "peer 1f3a" for a peer outside the view.
  std::string name(base::Peer peer) const;
  std::string names(const std::vector<base::Peer>& peers) const;
  /// "worker 1", "server 0".
  std::string short_name(base::Peer peer) const;
  /// True if these two need a connection: a worker and a server, or server 0 and another server. In addition, every
  /// member is connected with the master.
  bool need_each_other(const Member& a, const Member& b) const;
};

Member read_member(const wire::Member& wire);
flatbuffers::Offset<wire::Member> write_member(flatbuffers::FlatBufferBuilder& fbb, const Member& member);
View read_view(const wire::View& view);
flatbuffers::Offset<wire::View> write_view(flatbuffers::FlatBufferBuilder& fbb, const View& view);

}  // namespace mv::cluster
