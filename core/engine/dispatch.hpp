#pragma once
// The destination of each kind of message in a member: the engine that receives it, the path to that engine, and the
// permitted senders. A new kind of message needs one line here; without it, this file does not compile.

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/cluster/sender.hpp"
#include "wire/frame.hpp"

namespace mv::engine {

enum class Engine : uint8_t { kNone, kRpc, kCluster, kStatus, kGroups, kChannels, kCoordinator, kParticipant, kCommands, kTables, kReplicas, kEntry };

enum class Delivery : uint8_t {
  kRequest,       ///< through rpc's server, in the order of the sender's requests
  kAnswer,        ///< through rpc's client, to the call that it answers
  kNote,          ///< directly
  kAnswerOrNote,  ///< an answer if it has a number, otherwise a note
};

/// `engine` takes the message; of an answer, it is the one whose call is answered.
struct Route {
  Engine engine = Engine::kNone;
  Delivery delivery = Delivery::kRequest;
  cluster::Sender sender = cluster::Sender::kNobody;
};

namespace dispatch {

struct Entry {
  wire::Body body;
  Route route;
};

using enum wire::Body;
using enum Delivery;
using cluster::Sender;

inline constexpr Entry kEntries[] = {
    {NONE, {Engine::kNone, kRequest, Sender::kNobody}},

    // requests themselves
    {Probe, {Engine::kRpc, kNote, Sender::kAnyone}},
    {Seen, {Engine::kRpc, kNote, Sender::kAnyone}},
    {Cancel, {Engine::kRpc, kNote, Sender::kAnyone}},
    {Data, {Engine::kRpc, kNote, Sender::kMember}},
    {Skip, {Engine::kRpc, kRequest, Sender::kMember}},
    {Progress, {Engine::kRpc, kAnswer, Sender::kAsked}},
    {Reply, {Engine::kRpc, kAnswer, Sender::kAsked}},
    {Ack, {Engine::kRpc, kAnswer, Sender::kAsked}},
    {Grant, {Engine::kRpc, kAnswer, Sender::kAsked}},

    {Join, {Engine::kCluster, kRequest, Sender::kAnyone}},
    {View, {Engine::kCluster, kAnswerOrNote, Sender::kAsked}},  // the answer to Join has a number; broadcasts have none, see Cluster::on_view()
    {Vote, {Engine::kCluster, kNote, Sender::kMember}},
    {Ping, {Engine::kCluster, kNote, Sender::kAnyone}},
    {Barrier, {Engine::kCluster, kRequest, Sender::kMember}},
    {Leave, {Engine::kCluster, kRequest, Sender::kMember}},
    {Abort, {Engine::kCluster, kNote, Sender::kMember}},
    {Unreachable, {Engine::kCluster, kNote, Sender::kMember}},
    {Copied, {Engine::kCluster, kRequest, Sender::kMember}},
    {Drain, {Engine::kCluster, kRequest, Sender::kMember}},
    {HandOver, {Engine::kCluster, kRequest, Sender::kMember}},
    {Resize, {Engine::kCluster, kRequest, Sender::kMember}},

    {Create, {Engine::kTables, kRequest, Sender::kMember}},
    {Created, {Engine::kTables, kAnswer, Sender::kAsked}},
    {Ready, {Engine::kTables, kRequest, Sender::kMember}},
    {GiveUp, {Engine::kTables, kRequest, Sender::kMember}},
    {Open, {Engine::kTables, kRequest, Sender::kMember}},
    {List, {Engine::kTables, kRequest, Sender::kMember}},
    {Listing, {Engine::kTables, kAnswer, Sender::kAsked}},
    {Destroy, {Engine::kTables, kRequest, Sender::kMember}},
    {Change, {Engine::kTables, kRequest, Sender::kMember}},
    {ChangeMany, {Engine::kTables, kRequest, Sender::kMember}},
    {Get, {Engine::kTables, kRequest, Sender::kMember}},
    {GetMany, {Engine::kTables, kRequest, Sender::kMember}},
    {Got, {Engine::kTables, kRequest, Sender::kMember}},
    {Clock, {Engine::kTables, kRequest, Sender::kMember}},
    {SetUpdater, {Engine::kTables, kRequest, Sender::kMember}},
    {Stat, {Engine::kTables, kRequest, Sender::kMember}},
    {Stats, {Engine::kTables, kAnswer, Sender::kAsked}},
    {Scan, {Engine::kTables, kRequest, Sender::kMember}},
    {Scanned, {Engine::kTables, kAnswer, Sender::kAsked}},
    {States, {Engine::kTables, kRequest, Sender::kMember}},
    {StateRows, {Engine::kTables, kAnswer, Sender::kAsked}},
    {SetStates, {Engine::kTables, kRequest, Sender::kMember}},

    {Enter, {Engine::kEntry, kRequest, Sender::kMember}},
    {Stopped, {Engine::kEntry, kAnswer, Sender::kAsked}},
    {GoOn, {Engine::kEntry, kRequest, Sender::kMember}},
    {Begin, {Engine::kTables, kRequest, Sender::kMember}},

    {Replicate, {Engine::kReplicas, kRequest, Sender::kMember}},

    {Command, {Engine::kCommands, kRequest, Sender::kMember}},

    {Save, {Engine::kCoordinator, kRequest, Sender::kMember}},
    {Saving, {Engine::kCoordinator, kAnswer, Sender::kAsked}},
    {Saved, {Engine::kCoordinator, kRequest, Sender::kMember}},
    {CallsEnded, {Engine::kCoordinator, kRequest, Sender::kMember}},
    {Load, {Engine::kCoordinator, kRequest, Sender::kMember}},
    {Loaded, {Engine::kCoordinator, kAnswer, Sender::kAsked}},
    {Snapshot, {Engine::kParticipant, kRequest, Sender::kCoordinator}},
    {Written, {Engine::kParticipant, kRequest, Sender::kCoordinator}},
    {SavedFile, {Engine::kParticipant, kAnswer, Sender::kAsked}},
    {Check, {Engine::kParticipant, kRequest, Sender::kCoordinator}},
    {Restore, {Engine::kParticipant, kRequest, Sender::kCoordinator}},

    {Inquire, {Engine::kStatus, kNote, Sender::kAnyone}},
    {Report, {Engine::kStatus, kNote, Sender::kAsked}},
    {Overview, {Engine::kStatus, kNote, Sender::kMaster}},
    {Stuck, {Engine::kStatus, kNote, Sender::kMember}},

    {Collect, {Engine::kGroups, kRequest, Sender::kMember}},
    {GroupNote, {Engine::kGroups, kRequest, Sender::kMember}},
    {ChannelAsk, {Engine::kChannels, kRequest, Sender::kMember}},
    {ChannelPart, {Engine::kChannels, kRequest, Sender::kMember}},

    // the transports' own
    {FabricLine, {Engine::kNone, kRequest, Sender::kNobody}},
    {FabricAsk, {Engine::kNone, kRequest, Sender::kNobody}},
    {FabricMemory, {Engine::kNone, kRequest, Sender::kNobody}},
    {FabricDone, {Engine::kNone, kRequest, Sender::kNobody}},

    // gossip, which has no cluster
    {Fetch, {Engine::kNone, kRequest, Sender::kNobody}},
    {Fetched, {Engine::kNone, kRequest, Sender::kNobody}},
    {Exchange, {Engine::kNone, kRequest, Sender::kNobody}},
};

constexpr bool has_every_kind_once() {
  std::array<int, 256> entries{};
  for (const Entry& entry : kEntries) ++entries[static_cast<size_t>(entry.body)];
  for (size_t body = 0; body <= static_cast<size_t>(MAX); ++body)
    if (entries[body] != 1) return false;
  return true;
}
static_assert(has_every_kind_once(), "each kind of message (union Body in wire/polyverso.fbs) needs one line in kEntries");

/// By kind. Numbers that are no kind, which wire::read_header() refuses, are requests that nobody may send.
inline constexpr std::array<Route, 256> kRoutes = [] {
  std::array<Route, 256> routes{};
  for (const Entry& entry : kEntries) routes[static_cast<size_t>(entry.body)] = entry.route;
  return routes;
}();

}  // namespace dispatch

constexpr const Route& route_of(wire::Body body) { return dispatch::kRoutes[static_cast<uint8_t>(body)]; }

inline bool is_answer(const Route& route, const wire::Message& message) {
  return route.delivery == Delivery::kAnswer || (route.delivery == Delivery::kAnswerOrNote && message.seq() > 0);
}

}  // namespace mv::engine
