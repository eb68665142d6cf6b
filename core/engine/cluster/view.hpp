#pragma once
// The members of the cluster, as the master last reported them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"
#include "engine/cluster/member_state.hpp"
#include "wire/frame.hpp"

namespace mv::cluster {

/// Member::stand_in of a server whose part is lost.
inline constexpr uint32_t kNobodyServes = UINT32_MAX;
/// The most reasons of losses in a view.
inline constexpr size_t kLossTexts = 16;

struct Member {
  uint32_t rank = 0;
  int32_t role = MV_ROLE_ALL;
  base::Peer peer = base::kNobody;
  std::string address;  ///< where it listens
  std::string host;
  uint32_t pid = 0;
  MemberState state = MemberState::kHere;
  std::string why = {};   ///< the reason of the loss
  bool is_out = false;    ///< the master has declared its process lost. If only this node has lost it, just the connection may be broken
  uint32_t stand_in = 0;  ///< of a server: 1 + the rank of the server that has taken over its part; 0: none
  std::vector<uint32_t> backups = {};  ///< of a server: 1 + the ranks of the servers that keep equal copies of its part, in the order of the chain
  uint32_t next_backup = 0;            ///< 1 + the rank of the server that is receiving a copy; 0: none
  bool draining = false;     ///< a server that will leave: its parts are being copied to others
  bool drained = false;      ///< it has handed its parts over, and has left. Its state is kLost, but nothing was lost
  bool votes = false;        ///< with replicas: its process takes part in the decision about the next view, see quorum_keeper.hpp
  uint32_t losses = 0;       ///< how many earlier processes of this place were lost; the others finished, or drained

  bool is_worker() const { return (role & MV_ROLE_WORKER) != 0; }
  bool is_server() const { return (role & MV_ROLE_SERVER) != 0; }
  /// Its parts are moving to others, or have moved.
  bool departs() const { return draining || drained; }
  /// Its process lives as far as the master knows, and does not drain.
  bool stays() const { return !is_out && state != MemberState::kLost && !draining; }
  /// No process has ever had this place: it is for a server or worker that may join later.
  bool is_vacant() const { return is_out && pid == 0; }
  bool operator==(const Member&) const = default;
};

/// Finds members by their peers. Members are changed in place, so an entry is only a hint, which is checked. Copies of
/// a view have indexes of their own.
class PeerIndex {
 public:
  /// The member's place in the list; SIZE_MAX: there is no such member.
  size_t find(const std::vector<Member>& members, base::Peer peer);

 private:
  void build(const std::vector<Member>& members);
  size_t slot_of(base::Peer peer) const { return peer * UINT64_C(0x9e3779b97f4a7c15) >> shift_; }

  std::vector<uint32_t> slots_;  ///< 1 + a place; 0: empty
  int shift_ = 0;
};

/// Members by rank. Workers and servers are numbered in the order of their ranks; the numbers never change. One thread
/// at a time: find() fills an index.
class View {
 public:
  uint64_t epoch = 0;
  bool sync = false;
  std::vector<Member> members;
  base::Peer master = base::kNobody;       ///< the process that decides about views
  uint64_t losses = 0;                     ///< how many losses fail a barrier of each survivor
  std::vector<std::string> loss_texts{};  ///< the reasons of the last ones
  bool moved = false;                      ///< see has_departures()
  uint32_t wanted_servers = 0;             ///< the number of servers that was asked for last; 0: none was
  bool elastic = false;                    ///< new workers may take the places of those that have finished, and vacant ones
  uint64_t barriers = 0;                   ///< only in the answer to Join: the barriers that the members have passed

  const Member* find(base::Peer peer) const;
  Member* find(base::Peer peer);
  std::vector<const Member*> workers() const;
  std::vector<const Member*> servers() const;
  /// The members without the vacant places.
  std::vector<const Member*> taken_places() const;
  /// The servers that are there and do not drain.
  std::vector<const Member*> staying_servers() const;
  /// The workers that have neither finished nor are lost.
  std::vector<base::Peer> active_workers() const;
  /// True if every worker has finished or is lost.
  bool workers_gone() const;
  /// Parts of the tables move without any loss, or have moved: requests may arrive at their former servers.
  bool has_departures() const;
  /// The peer's number among the workers or servers, or -1.
  int64_t worker_id(base::Peer peer) const;
  int64_t server_id(base::Peer peer) const;
  const Member* at(uint32_t rank) const { return const_cast<View*>(this)->at(rank); }
  Member* at(uint32_t rank);
  /// Adds the losses that only `newer` has. Of those, it may have reasons that this view has already.
  void take_losses(const View& newer);
  /// The reason of the `number`-th loss, from 0, which fails a barrier.
  base::Status loss(uint64_t number) const;
  /// The peer that serves the part of this server now; kNobody if it is lost.
  base::Peer serving(const Member& server) const;
  /// The peer that takes this server's part over if its present server dies: its first back-up. kNobody: there is none.
  base::Peer backup_of(const Member& server) const { return server.backups.empty() ? base::kNobody : peer_at(server.backups.front()); }
  /// The processes that have this server's part: the one that serves it, then its back-ups. Each passes inputs on to the
  /// next one (engine/replica/). Empty: it is lost.
  std::vector<base::Peer> chain_of(const Member& server) const;
  /// The last one in the chain; kNobody: the part is lost.
  base::Peer tail_of(const Member& server) const;
  /// The peer that is receiving a copy; kNobody if none is.
  base::Peer next_backup_of(const Member& server) const { return peer_at(server.next_backup); }
  /// "worker 1 (rank 2, pid 4711 on host)", "server 0 (...)"; "peer 1f3a" for a peer outside the view.
  std::string name(base::Peer peer) const;
  std::string names(const std::vector<base::Peer>& peers) const;
  /// name() of all workers.
  std::vector<std::string> worker_names() const;
  /// "worker 1", "server 0".
  std::string short_name(base::Peer peer) const;
  /// True if these two need a connection: a worker and a server, or server 0 and another server. In addition, every
  /// member is connected with the master.
  bool need_each_other(const Member& a, const Member& b) const;

 private:
  /// The peer with the rank `place - 1`; kNobody for 0.
  base::Peer peer_at(uint32_t place) const;
  static std::string long_name(const Member& member, const std::string& short_name);

  mutable PeerIndex index_;
};

Member read_member(const wire::Member& wire);
flatbuffers::Offset<wire::Member> write_member(flatbuffers::FlatBufferBuilder& fbb, const Member& member);
View read_view(const wire::View& view);
/// As a message of its own, for a keeper. MV_EPROTOCOL
std::vector<std::byte> to_bytes(const View& view);
base::Result<View> from_bytes(std::span<const std::byte> bytes);
flatbuffers::Offset<wire::View> write_view(flatbuffers::FlatBufferBuilder& fbb, const View& view);
/// With these members and reasons of losses only: those that are newer than the view with the number `base`.
flatbuffers::Offset<wire::View> write_changes(flatbuffers::FlatBufferBuilder& fbb, const View& view, const std::vector<const Member*>& members,
                                              std::span<const std::string> loss_texts, uint64_t base);

}  // namespace mv::cluster
