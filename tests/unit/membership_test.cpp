// engine: the permissions of senders. Sends every kind of message from a process that has completed the hello and is not a member.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/dispatch.hpp"
#include "engine/member.hpp"
#include "keeping_link.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using namespace std::chrono_literals;
using unit::message_of;
using wire::Body;

class MovingClock final : public base::Clock {
 public:
  base::Nanos now() const override { return now_; }
  void pass(base::Nanos span) { now_ += span; }

 private:
  base::Nanos now_{1s};
};

class RecordingLink final : public base::Link {
 public:
  void dial(const std::string&) override {}
  void send(base::Peer to, const base::Frame& frame) override { sent[to].push_back(frame); }
  void close(base::Peer peer) override { closed.push_back(peer); }
  bool has_closed(base::Peer peer) const { return std::ranges::count(closed, peer) > 0; }

  std::map<base::Peer, std::vector<base::Frame>> sent;
  std::vector<base::Peer> closed;
};

constexpr base::Peer kMaster = 1, kWorker = 2, kOther = 3, kNewcomer = 4;
constexpr base::Nanos kHeartbeat = 5s;

/// An empty table is a valid body of any kind, because all fields have defaults.
base::Frame empty(Body body, rpc::Seq seq, wire::FrameBuilder& builder, const base::PayloadRef& payload = nullptr) {
  auto& fbb = builder.fbb();
  const auto start = fbb.StartTable();
  base::Frame frame = builder.finish(body, flatbuffers::Offset<void>(fbb.EndTable(start)), payload);
  wire::stamp(frame, seq, 0);
  return frame;
}

/// Requests to tables name the part that they are for. They have a stream of their own.
bool is_of_part(Body body) {
  const engine::Route& route = engine::route_of(body);
  return route.engine == engine::Engine::kTables && route.delivery == engine::Delivery::kRequest;
}
/// The next numbers of the worker's streams: after Join, and after Create and Ready.
constexpr rpc::Seq kNext = 2, kNextOfPart = 3;

/// One node's engines, and the messages that they send.
struct Node {
  explicit Node(cluster::Self self, bool starts = true) : member(clock, link, std::move(self), {}, {[](const auto&) {}, [](const auto&) {}, [] {}}) {
    if (starts) member.start();
  }

  template <typename Make>
  void hear(base::Peer from, Body body, rpc::Seq seq, Make make) {
    base::Frame frame = builder.finish(body, make(builder.fbb()));
    wire::stamp(frame, seq, 0);
    if (is_of_part(body)) wire::stamp_part(frame, part);
    hear(from, frame);
  }
  void hear_empty(base::Peer from, Body body, rpc::Seq seq) {
    base::Frame frame = empty(body, seq, builder);
    if (is_of_part(body)) wire::stamp_part(frame, part);
    hear(from, frame);
  }
  void hear(base::Peer from, const base::Frame& frame) {
    member.on_message(from, message_of(frame), unit::payload_of(frame));
    member.flush();
  }
  std::vector<base::Frame> said_to(base::Peer peer) { return std::exchange(link.sent[peer], {}); }
  /// The answer to request `seq`.
  int answer_to(base::Peer peer, rpc::Seq seq) {
    for (const base::Frame& frame : link.sent[peer])
      if (message_of(frame).seq() == seq) return message_of(frame).status();
    return 1;
  }
  bool has_said(base::Peer peer, Body body) {
    return std::ranges::any_of(link.sent[peer], [&](const base::Frame& frame) { return message_of(frame).body_type() == body; });
  }

  MovingClock clock;
  RecordingLink link;
  wire::FrameBuilder builder;
  engine::Member member;
  uint32_t part = 1;  ///< whose tables are meant: 1 + the rank of their server
};

cluster::Self self_of(base::Peer peer, int64_t rank, uint32_t nodes, int32_t role) {
  cluster::Self self;
  self.peer = peer;
  self.rank = rank;
  self.nodes = nodes;
  self.role = role;
  self.is_master = rank == 0;
  self.master = "master";
  self.address = "somewhere";
  self.heartbeat_timeout = kHeartbeat;
  return self;
}

/// A master that serves, and a worker that has a table of ten floats there.
struct Served : Node {
  Served() : Node(self_of(kMaster, 0, 2, MV_ROLE_SERVER)) {
    member.on_connected(kWorker, "worker");
    hear(kWorker, Body::Join, 1, [](auto& fbb) { return wire::CreateJoinDirect(fbb, 2, 1, MV_ROLE_WORKER, wire::Mode::Async, "w", "w", 7); });
    hear(kWorker, Body::Ping, 0, [](auto& fbb) { return wire::CreatePing(fbb, 1); });
    hear(kWorker, Body::Create, 1, [](auto& fbb) {
      const auto name = fbb.CreateString("t");
      const auto updater = wire::CreateUpdaterDirect(fbb, "add");
      wire::TableSpecBuilder spec(fbb);
      spec.add_name(name);
      spec.add_kind(wire::TableKind::Array);
      spec.add_dtype(wire::DType::F32);
      spec.add_rows(10);
      spec.add_cols(1);
      spec.add_updater(updater);
      const auto specs = fbb.CreateVector(std::vector{spec.Finish()});
      const std::vector<uint8_t> no{0};
      return wire::CreateCreate(fbb, specs, fbb.CreateVector(no), fbb.CreateVector(no), fbb.CreateVector(no));
    });
    hear(kWorker, Body::Ready, 2, [](auto& fbb) { return wire::CreateReady(fbb, fbb.CreateVector(std::vector<uint32_t>{0})); });
    assert_int_equal(answer_to(kWorker, 2), MV_OK);
    link.sent.clear();
  }
  /// How many requests of this kind have started.
  uint64_t started(Body body) {
    uint64_t sum = 0;
    for (const rpc::Server* streams : member.parts().served_streams()) sum += streams->started()[static_cast<uint8_t>(body)];
    return sum;
  }
  bool has_table() { return member.shards().shard(0) != nullptr && !member.shards().shard(0)->destroyed; }
  void meet(base::Peer stranger) { member.on_connected(stranger, "stranger"); }
};

enum class Fate {
  kRefused,  ///< answered with MV_EAUTH, and the connection ends
  kDropped,  ///< neither answered nor executed
  kHeard,    ///< part of joining, or a question about the cluster's status
};

struct Expectation {
  Body body;
  Fate from_stranger;
};

/// Every message, from a process that is not a member: an independent restatement of the rules in engine/dispatch.hpp.
constexpr Expectation kExpectations[] = {
    {Body::NONE, Fate::kRefused},       {Body::Join, Fate::kHeard},          {Body::View, Fate::kDropped},       {Body::Barrier, Fate::kRefused},
    {Body::Leave, Fate::kRefused},      {Body::Ping, Fate::kHeard},          {Body::Probe, Fate::kHeard},        {Body::Progress, Fate::kDropped},
    {Body::Reply, Fate::kDropped},      {Body::Ack, Fate::kDropped},         {Body::Seen, Fate::kHeard},         {Body::Cancel, Fate::kHeard},
    {Body::Grant, Fate::kDropped},      {Body::Data, Fate::kRefused},        {Body::Create, Fate::kRefused},     {Body::Created, Fate::kDropped},
    {Body::Ready, Fate::kRefused},      {Body::GiveUp, Fate::kRefused},      {Body::ChangeMany, Fate::kRefused}, {Body::GetMany, Fate::kRefused},
    {Body::Open, Fate::kRefused},       {Body::List, Fate::kRefused},        {Body::Listing, Fate::kDropped},    {Body::Destroy, Fate::kRefused},
    {Body::Change, Fate::kRefused},     {Body::Get, Fate::kRefused},         {Body::Got, Fate::kRefused},        {Body::Clock, Fate::kRefused},
    {Body::SetUpdater, Fate::kRefused}, {Body::Stat, Fate::kRefused},        {Body::Stats, Fate::kDropped},      {Body::Scan, Fate::kRefused},
    {Body::Scanned, Fate::kDropped},    {Body::Save, Fate::kRefused},        {Body::Saving, Fate::kDropped},     {Body::Saved, Fate::kRefused},
    {Body::Snapshot, Fate::kRefused},   {Body::Written, Fate::kRefused},     {Body::SavedFile, Fate::kDropped},  {Body::Load, Fate::kRefused},
    {Body::Check, Fate::kRefused},      {Body::Restore, Fate::kRefused},     {Body::Loaded, Fate::kDropped},     {Body::Inquire, Fate::kHeard},
    {Body::Report, Fate::kDropped},     {Body::Overview, Fate::kDropped},    {Body::Stuck, Fate::kRefused},      {Body::Command, Fate::kRefused},
    {Body::States, Fate::kRefused},     {Body::StateRows, Fate::kDropped},   {Body::SetStates, Fate::kRefused},  {Body::Fetch, Fate::kRefused},
    {Body::Fetched, Fate::kRefused},    {Body::Exchange, Fate::kRefused},    {Body::Collect, Fate::kRefused},    {Body::GroupNote, Fate::kRefused},
    {Body::ChannelAsk, Fate::kRefused}, {Body::ChannelPart, Fate::kRefused}, {Body::Abort, Fate::kRefused},      {Body::Unreachable, Fate::kRefused},
    {Body::Skip, Fate::kRefused},       {Body::Replicate, Fate::kRefused},   {Body::Copied, Fate::kRefused},     {Body::CallsEnded, Fate::kRefused},
    {Body::Drain, Fate::kRefused},      {Body::HandOver, Fate::kRefused},    {Body::Resize, Fate::kRefused},    {Body::FabricLine, Fate::kRefused}, {Body::Vote, Fate::kRefused},
    {Body::FabricAsk, Fate::kRefused},  {Body::FabricMemory, Fate::kRefused}, {Body::FabricDone, Fate::kRefused},
    {Body::Enter, Fate::kRefused},      {Body::Stopped, Fate::kDropped},     {Body::GoOn, Fate::kRefused},       {Body::Begin, Fate::kRefused},
};

void every_message_has_an_expectation(void**) {
  for (const Body body : wire::EnumValuesBody())
    assert_int_equal(std::ranges::count(kExpectations, body, &Expectation::body), 1);
}

void a_stranger_is_refused_whatever_it_sends(void**) {
  Served node;
  base::Peer stranger = 100;
  const auto started = node.member.service().started();
  for (const Expectation& expected : kExpectations) {
    if (expected.body == Body::NONE || expected.from_stranger == Fate::kHeard) continue;
    node.meet(++stranger);
    node.said_to(stranger);
    node.hear_empty(stranger, expected.body, 7);
    const bool refused = expected.from_stranger == Fate::kRefused;
    const auto said = node.said_to(stranger);
    assert_int_equal(said.size(), refused ? 1 : 0);
    assert_int_equal(node.link.has_closed(stranger), refused);
    if (refused) {
      assert_int_equal(message_of(said[0]).seq(), 7);
      assert_int_equal(message_of(said[0]).status(), MV_EAUTH);
      const std::string text = message_of(said[0]).text()->str();
      assert_non_null(strstr(text.c_str(), "not a member"));
      assert_non_null(strstr(text.c_str(), wire::EnumNameBody(expected.body)));
    }
    // A request without a number gets no answer and has no effect.
    node.meet(++stranger);
    node.said_to(stranger);
    node.hear_empty(stranger, expected.body, 0);
    assert_int_equal(node.said_to(stranger).size(), 0);
    assert_false(node.link.has_closed(stranger));
    // Nor is a payload accepted.
    const base::Frame large = empty(expected.body, 7, node.builder, base::Payload::copy(std::vector<std::byte>(100'000)));
    assert_true(node.member.on_header(stranger, message_of(large), 100'000)->discards());
  }
  assert_true(node.member.service().started() == started);
  assert_true(node.has_table());
  assert_false(node.link.has_closed(kWorker));
}

void each_request_of_a_member_reaches_an_engine_that_knows_it(void**) {
  size_t requests = 0;
  for (const Body body : wire::EnumValuesBody()) {
    const engine::Route& route = engine::route_of(body);
    if (route.delivery != engine::Delivery::kRequest || route.sender != cluster::Sender::kMember) continue;
    ++requests;
    Served node;
    node.hear_empty(kWorker, body, is_of_part(body) ? kNextOfPart : kNext);
    assert_int_equal(node.started(body), body == Body::Create || body == Body::Ready ? 2 : 1);
    for (const base::Frame& frame : node.said_to(kWorker)) {
      const std::string text = message_of(frame).text() != nullptr ? message_of(frame).text()->str() : "";
      assert_false(text.find("unknown request") != std::string::npos || text.find("is not allowed") != std::string::npos);
    }
  }
  assert_true(requests > 20);
}

void a_number_that_is_no_kind_may_be_sent_by_nobody(void**) {
  for (int number = static_cast<int>(Body::MAX) + 1; number < 256; ++number) {
    const engine::Route& route = engine::route_of(static_cast<Body>(number));
    assert_true(route.engine == engine::Engine::kNone && route.delivery == engine::Delivery::kRequest && route.sender == cluster::Sender::kNobody);
  }
  Served node;
  node.hear_empty(kWorker, static_cast<Body>(200), kNext);
  assert_int_equal(node.answer_to(kWorker, kNext), MV_EPROTOCOL);
}

void a_member_is_lost_by_silence_but_not_while_a_part_of_its_message_arrives(void**) {
  Served node;
  const auto beats = [&](int count, bool arrives) {
    for (int i = 0; i < count; ++i) {
      node.clock.pass(kHeartbeat / 10);
      if (arrives) node.member.on_part(kWorker);
      node.member.tick();
    }
  };
  beats(30, true);
  assert_false(node.link.has_closed(kWorker));
  beats(12, false);
  assert_true(node.link.has_closed(kWorker));
}

void an_abort_makes_its_sender_lost(void**) {
  Served node;
  node.meet(100);
  node.hear(100, Body::Abort, 0, [](auto& fbb) { return wire::CreateAbortDirect(fbb, "I am no member"); });
  node.hear(kWorker, Body::Abort, 0, [](auto& fbb) { return wire::CreateAbortDirect(fbb, std::string(5000, 'x').c_str()); });
  assert_true(node.link.has_closed(kWorker));
  const cluster::Member* worker = node.member.cluster().view().find(kWorker);
  assert_true(worker->state == cluster::MemberState::kLost);
  assert_string_equal(worker->why.c_str(), ("worker 0: " + std::string(1000, 'x') + " (rank 1, pid 7 on w)").c_str());
  node.hear(kWorker, Body::Abort, 0, [](auto& fbb) { return wire::CreateAbortDirect(fbb, "again"); });
  assert_true(worker->why.find("again") == std::string::npos);
}

void an_abort_without_a_reason_is_one(void**) {
  Served node;
  node.hear_empty(kWorker, Body::Abort, 0);
  assert_true(node.member.cluster().view().find(kWorker)->state == cluster::MemberState::kLost);
}

void who_aborts_waits_until_all_have_closed(void**) {
  Served node;
  int told = 0;
  node.member.abort("a mistake", [&] { ++told; });
  assert_true(node.has_said(kWorker, Body::Abort));
  assert_int_equal(told, 0);
  node.member.on_lost(kWorker, base::error(MV_EPEERLOST, "closed"));
  assert_int_equal(told, 1);
  assert_true(node.member.cluster().view().find(kWorker)->state == cluster::MemberState::kHere);  // it did not lose the others
}

void a_cancel_reaches_the_engine_of_its_request(void**) {
  Served node;
  node.hear(kWorker, Body::Command, kNext, [](auto& fbb) { return wire::CreateCommand(fbb, 9); });  // waits for a controller
  assert_int_equal(node.answer_to(kWorker, kNext), 1);
  node.hear(kWorker, Body::Cancel, 0, [](auto& fbb) { return wire::CreateCancel(fbb, kNext + 1); });  // another number
  assert_int_equal(node.answer_to(kWorker, kNext), 1);
  node.hear(kWorker, Body::Cancel, 0, [](auto& fbb) { return wire::CreateCancel(fbb, kNext); });
  assert_int_equal(node.answer_to(kWorker, kNext), MV_ETIMEOUT);
}

void further_messages_of_a_refused_stranger_are_ignored(void**) {
  Served node;
  node.meet(100);
  node.hear_empty(100, Body::Destroy, 1);
  node.said_to(100);
  for (rpc::Seq seq = 2; seq < 1000; ++seq) node.hear_empty(100, Body::Destroy, seq);
  assert_int_equal(node.said_to(100).size(), 0);
  assert_true(node.has_table());
}

void messages_for_joining_are_accepted_but_limited(void**) {
  Served node;
  node.meet(100);
  node.said_to(100);
  node.hear_empty(100, Body::Probe, 0);
  assert_true(node.has_said(100, Body::Progress));
  node.hear(100, Body::Inquire, 0, [](auto& fbb) { return wire::CreateInquire(fbb, 5, true, false); });
  node.hear_empty(100, Body::Seen, 0);
  node.hear(100, Body::Cancel, 0, [](auto& fbb) { return wire::CreateCancel(fbb, 1); });
  node.said_to(100);
  node.hear(100, Body::Ping, 0, [](auto& fbb) { return wire::CreatePing(fbb, 0, 77); });
  assert_int_equal(node.said_to(100).size(), 0);  // only members may ask for an echo
  for (int i = 0; i < 1000; ++i) node.hear_empty(100, Body::Probe, 0);
  assert_true(node.said_to(100).size() <= 64);
  assert_false(node.link.has_closed(100));
}

/// It may have been sent to a master that is gone, too.
void a_process_may_ask_to_join_again(void**) {
  Served node;
  const auto join = [](auto& fbb) { return wire::CreateJoinDirect(fbb, 2, 1, MV_ROLE_WORKER, wire::Mode::Async, "x", "x", 8); };
  node.meet(100);
  node.hear(100, Body::Join, 1, join);
  node.hear(100, Body::Join, 2, join);
  assert_int_equal(node.answer_to(100, 2), 1);
  assert_false(node.link.has_closed(100));
  node.meet(101);
  node.hear(101, Body::Join, 1, join);
  assert_int_equal(node.answer_to(101, 1), 1);  // the cluster is full, but the worker may be dead
  uint64_t question = 0;
  for (const base::Frame& frame : node.said_to(kWorker))
    if (const auto* ping = message_of(frame).body_as_Ping()) question = std::max(question, ping->asks());
  node.hear(kWorker, Body::Ping, 0, [&](auto& fbb) { return wire::CreatePing(fbb, 1, 0, question); });
  node.member.tick();
  assert_int_equal(node.answer_to(101, 1), MV_EDISAGREE);  // it is not
  node.hear(kWorker, Body::Join, kNext, join);             // nor a second rank for the same process
  assert_int_equal(node.answer_to(kWorker, kNext), MV_EPROTOCOL);
}

void a_connection_that_does_not_join_is_closed(void**) {
  Served node;
  node.meet(100);
  for (int beat = 0; beat < 50 && !node.link.has_closed(100); ++beat) {
    node.clock.pass(kHeartbeat / 10);
    node.hear_empty(100, Body::Ping, 0);
    node.hear(kWorker, Body::Ping, 0, [](auto& fbb) { return wire::CreatePing(fbb, 1); });
    node.member.tick();
  }
  assert_true(node.link.has_closed(100));
  assert_false(node.link.has_closed(kWorker));
}

void members_have_their_own_limits(void**) {
  Served node;
  rpc::Seq seq = kNext - 1;
  for (const Body body : {Body::Snapshot, Body::Written, Body::Check, Body::Restore, Body::Fetch, Body::Fetched, Body::Exchange}) {
    node.hear_empty(kWorker, body, ++seq);  // only server 0 directs checkpoints; gossip has no cluster
    assert_int_equal(node.answer_to(kWorker, seq), MV_EPROTOCOL);
  }
  assert_false(node.link.has_closed(kWorker));
}

/// A worker of a cluster of three processes; the master has given it rank 1.
struct Joined : Node {
  Joined() : Node(self_of(kWorker, 1, 3, MV_ROLE_ALL)) {
    part = 2;
    member.on_connected(kMaster, "master");
    tell(1, 1, kOther);
  }
  void tell(rpc::Seq seq, uint64_t epoch, base::Peer last) {
    hear(kMaster, Body::View, seq, [&](auto& fbb) {
      std::vector<flatbuffers::Offset<wire::Member>> members;
      uint32_t rank = 0;
      for (const base::Peer peer : {kMaster, kWorker, last}) members.push_back(wire::CreateMemberDirect(fbb, rank++, MV_ROLE_ALL, peer, "a", "h", 1));
      return wire::CreateViewDirect(fbb, epoch, false, &members);
    });
  }
};

void a_member_that_connects_before_its_view_arrives_is_asked_again(void**) {
  Joined node;
  node.member.on_connected(kNewcomer, "newcomer");
  node.said_to(kNewcomer);
  node.hear_empty(kNewcomer, Body::GroupNote, 1);
  node.hear_empty(kNewcomer, Body::List, 1);
  assert_int_equal(node.said_to(kNewcomer).size(), 0);
  assert_false(node.link.has_closed(kNewcomer));
  node.tell(0, 2, kNewcomer);
  assert_true(node.has_said(kNewcomer, Body::Progress));
  node.hear_empty(kNewcomer, Body::GroupNote, 1);
  node.hear_empty(kNewcomer, Body::List, 1);
  assert_true(node.has_said(kNewcomer, Body::Listing));
}

void a_member_without_the_base_of_a_change_asks_for_it(void**) {
  Joined node;
  const auto tell_change = [&](base::Peer from, uint64_t base, uint64_t epoch) {
    node.said_to(kMaster);
    node.hear(from, Body::View, 0, [&](auto& fbb) {
      const std::vector members{wire::CreateMemberDirect(fbb, 2, MV_ROLE_ALL, kNewcomer, "a", "h", 1)};
      return wire::CreateViewDirect(fbb, epoch, false, &members, base::kNobody, 0, nullptr, 0, 0, false, base);
    });
  };
  const cluster::View& view = node.member.cluster().view();
  tell_change(kMaster, 2, 3);
  assert_int_equal(view.epoch, 1);
  assert_null(view.find(kNewcomer));
  const auto said = node.said_to(kMaster);
  assert_int_equal(said.size(), 1);
  assert_int_equal(message_of(said[0]).body_as_Ping()->epoch(), 1);
  tell_change(kOther, 1, 3);  // only the master tells
  assert_int_equal(view.epoch, 1);
  tell_change(kMaster, 1, 3);
  assert_int_equal(view.epoch, 3);
  assert_non_null(view.find(kNewcomer));
  assert_null(view.find(kOther));
  assert_non_null(view.find(kWorker));
  tell_change(kMaster, 1, 2);  // late
  assert_int_equal(view.epoch, 3);
}

/// A server that has taken a part over may answer a worker that does not know it yet. The values of such an answer have no place.
/// If the view comes between the header and the values, they must not count as the answer.
void an_answer_whose_values_went_nowhere_is_not_taken(void**) {
  class Counting final : public rpc::Pending {
   public:
    void finish(const base::Status&, const wire::Message*, std::span<const std::byte>) override { ++ended; }
    int ended = 0;
  };
  constexpr uint32_t kPart = 3;  // of kOther, until kMaster has it
  Joined node;
  node.member.on_connected(kOther, "other");
  const auto pending = std::make_shared<Counting>();
  node.member.parts().requests().call(kOther, {empty(Body::Get, 0, node.builder), pending, true, 0, nullptr});
  base::Frame answer = empty(Body::Reply, 1, node.builder, base::Payload::copy(std::vector<std::byte>(4096)));
  wire::stamp_part(answer, kPart);

  const base::SinkRef nowhere = node.member.on_header(kMaster, message_of(answer), 4096);
  assert_true(nowhere->discards());
  node.hear(kMaster, Body::View, 0, [&](auto& fbb) {
    const std::vector members{wire::CreateMemberDirect(fbb, kPart - 1, MV_ROLE_ALL, kOther, "a", "h", 1, wire::MemberState::Lost, "drained", true, 1)};
    return wire::CreateViewDirect(fbb, 2, false, &members, base::kNobody, 0, nullptr, 0, 0, false, 1);
  });
  node.member.on_payload(kMaster, message_of(answer), *nowhere);
  assert_int_equal(pending->ended, 0);
  node.hear(kMaster, answer);  // the same answer, whole
  assert_int_equal(pending->ended, 1);
}

void the_master_tells_what_has_changed_since_the_view_that_a_member_has(void**) {
  Node node(self_of(kMaster, 0, 4, MV_ROLE_ALL));
  int32_t rank = 0;
  for (const base::Peer peer : {kWorker, kOther, kNewcomer}) {
    node.member.on_connected(peer, "worker");
    node.hear(peer, Body::Join, 1, [&](auto& fbb) { return wire::CreateJoinDirect(fbb, 4, ++rank, MV_ROLE_WORKER, wire::Mode::Async, "w", "w", 7); });
  }
  const auto ping = [&](uint64_t epoch) { node.hear(kWorker, Body::Ping, 0, [&](auto& fbb) { return wire::CreatePing(fbb, epoch); }); };
  /// The base and the number of members of the view that was sent to the worker; -1: none was.
  using Told = std::pair<int64_t, int64_t>;
  const auto told = [&] {
    Told told{-1, -1};
    for (const base::Frame& frame : node.said_to(kWorker))
      if (const auto* view = message_of(frame).body_as_View()) told = {view->base(), view->members()->size()};
    return told;
  };
  assert_true((told() == Told{0, 4}));  // the answer to its Join
  node.member.on_lost(kOther, base::error(MV_EPEERLOST, "killed"));
  assert_true((told() == Told{1, 1}));  // messages keep their order
  node.clock.pass(1s);
  node.member.on_lost(kNewcomer, base::error(MV_EPEERLOST, "killed"));
  assert_true((told() == Told{2, 1}));
  ping(1);  // neither has arrived
  assert_true((told() == Told{1, 2}));
  ping(2);
  assert_true((told() == Told{2, 1}));
  ping(3);
  assert_int_equal(told().first, -1);
}

/// Another member dies while a server, or a worker, still connects to it.
void a_server_that_is_still_connecting_goes_on_without_the_lost(void**) {
  for (const auto& [own, lost] : {std::pair(MV_ROLE_SERVER, MV_ROLE_SERVER), std::pair(MV_ROLE_SERVER, MV_ROLE_ALL), std::pair(MV_ROLE_ALL, MV_ROLE_SERVER)}) {
    Node node(self_of(kWorker, 1, 3, own));
    node.member.on_connected(kMaster, "master");
    node.hear(kMaster, Body::View, 1, [&](auto& fbb) {
      const std::vector members{wire::CreateMemberDirect(fbb, 0, MV_ROLE_WORKER, kMaster, "a", "h", 1),
                                wire::CreateMemberDirect(fbb, 1, static_cast<uint8_t>(own), kWorker, "a", "h", 1),
                                wire::CreateMemberDirect(fbb, 2, static_cast<uint8_t>(lost), kOther, "a", "h", 1)};
      return wire::CreateViewDirect(fbb, 1, false, &members);
    });
    node.member.on_connected(kOther, "other");
    assert_string_equal(node.member.cluster().phase(), "connecting");
    node.member.on_lost(kOther, base::error(MV_EPEERLOST, "killed"));
    node.hear(kMaster, Body::Ping, 0, [](auto& fbb) { return wire::CreatePing(fbb, 1); });
    assert_string_equal(node.member.cluster().phase(), own == MV_ROLE_SERVER ? "ready" : "failed");
  }
}

void a_table_request_that_names_no_part_is_refused(void**) {
  Served node;
  node.hear(kWorker, empty(Body::List, kNext, node.builder));
  assert_int_equal(node.answer_to(kWorker, kNext), MV_EPROTOCOL);
}

void a_process_that_never_becomes_a_member_gets_an_error(void**) {
  Joined node;
  node.member.on_connected(100, "stranger");
  node.said_to(100);
  node.hear_empty(100, Body::Get, 5);
  node.hear_empty(100, Body::Get, 6);
  for (int beat = 0; beat < 50 && !node.link.has_closed(100); ++beat) {
    node.clock.pass(kHeartbeat / 10);
    node.hear_empty(100, Body::Ping, 0);
    node.hear(kMaster, Body::Ping, 0, [](auto& fbb) { return wire::CreatePing(fbb, 1); });
    node.member.tick();
  }
  assert_true(node.link.has_closed(100));
  assert_int_equal(node.answer_to(100, 5), MV_EAUTH);
}

/// The stranger asks again: this node will know the master when its cluster is complete.
void a_join_at_one_that_joins_itself_is_answered_at_once(void**) {
  Joined node;
  node.member.on_connected(100, "stranger");
  node.hear_empty(100, Body::Join, 1);
  assert_int_equal(node.answer_to(100, 1), MV_EUNREACHABLE);
}

/// The loop of a process may serve a connection before its engines start.
void a_join_before_the_master_starts_is_compared_with_the_masters_settings(void**) {
  cluster::Self self = self_of(kMaster, 0, 2, MV_ROLE_ALL);
  self.sync = self.sync_said = true;
  Node master(self, /*starts=*/false);
  const auto join = [&](base::Peer peer, int32_t rank, wire::Mode mode) {
    master.member.on_connected(peer, "worker");
    master.hear(peer, Body::Join, 1, [&](auto& fbb) { return wire::CreateJoinDirect(fbb, 2, rank, MV_ROLE_ALL, mode, "w", "w", 7); });
    return master.answer_to(peer, 1);
  };
  assert_int_equal(join(kWorker, 1, wire::Mode::Async), MV_EDISAGREE);
  assert_int_equal(join(kOther, 0, wire::Mode::Sync), MV_EDISAGREE);  // rank 0 is the master's
  assert_int_equal(join(kNewcomer, 1, wire::Mode::Sync), 1);          // no answer before the master takes part
  assert_true(master.member.cluster().is_joining());
  master.member.start();
  master.member.flush();
  assert_int_equal(master.answer_to(kNewcomer, 1), MV_OK);
  assert_true(master.member.cluster().view().sync);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_message_has_an_expectation),
      cmocka_unit_test(a_stranger_is_refused_whatever_it_sends),
      cmocka_unit_test(each_request_of_a_member_reaches_an_engine_that_knows_it),
      cmocka_unit_test(a_number_that_is_no_kind_may_be_sent_by_nobody),
      cmocka_unit_test(a_member_is_lost_by_silence_but_not_while_a_part_of_its_message_arrives),
      cmocka_unit_test(an_abort_makes_its_sender_lost),
      cmocka_unit_test(an_abort_without_a_reason_is_one),
      cmocka_unit_test(who_aborts_waits_until_all_have_closed),
      cmocka_unit_test(a_cancel_reaches_the_engine_of_its_request),
      cmocka_unit_test(further_messages_of_a_refused_stranger_are_ignored),
      cmocka_unit_test(messages_for_joining_are_accepted_but_limited),
      cmocka_unit_test(a_process_may_ask_to_join_again),
      cmocka_unit_test(a_connection_that_does_not_join_is_closed),
      cmocka_unit_test(members_have_their_own_limits),
      cmocka_unit_test(a_member_that_connects_before_its_view_arrives_is_asked_again),
      cmocka_unit_test(a_member_without_the_base_of_a_change_asks_for_it),
      cmocka_unit_test(an_answer_whose_values_went_nowhere_is_not_taken),
      cmocka_unit_test(the_master_tells_what_has_changed_since_the_view_that_a_member_has),
      cmocka_unit_test(a_server_that_is_still_connecting_goes_on_without_the_lost),
      cmocka_unit_test(a_table_request_that_names_no_part_is_refused),
      cmocka_unit_test(a_process_that_never_becomes_a_member_gets_an_error),
      cmocka_unit_test(a_join_at_one_that_joins_itself_is_answered_at_once),
      cmocka_unit_test(a_join_before_the_master_starts_is_compared_with_the_masters_settings),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
