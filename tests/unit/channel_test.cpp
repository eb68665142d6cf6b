// engine/channel: workers collect bytes from each other and deliver bytes to each other, whatever becomes of messages and of workers.

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mix.hpp"
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
using channel::Bytes;
using Collected = std::shared_ptr<std::vector<Bytes>>;

constexpr size_t kNodes = 4, kServer = 3;  // ranks 0 to 2 are workers, and only servers
constexpr const char* kChannel = "kv-0/";

class MovingClock final : public base::Clock {
 public:
  base::Nanos now() const override { return now_; }
  base::Nanos now_{1s};
};

/// How a call ended.
struct Outcome final : base::Operation {
  void ended(const base::Status&) override { ++times; }
  std::string text() const {
    return times == 1 ? std::string(mv_status_name(status().code())) + " " + status().text() : std::to_string(times) + " ends";
  }
  int times = 0;
};

void expect(const std::shared_ptr<Outcome>& call, mv_status code, const char* part = "") {
  const std::string text = call->text();
  const bool fits = call->times == 1 && call->status().code() == code && text.find(part) != std::string::npos;
  if (!fits) fail_msg("%s instead of %d, %s", text.c_str(), code, part);
}

Bytes text(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
channel::BytesRef ref(Bytes bytes) { return std::make_shared<const Bytes>(std::move(bytes)); }
/// So many that they take several messages, and differ everywhere.
Bytes many(size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = std::byte(i * 7 + (i >> 16));
  return bytes;
}

/// A cluster of three workers and a server, between which the test carries messages. Workers are not connected with each other by their roles.
class Cluster {
 public:
  explicit Cluster(base::Nanos probe_after = base::kNever) {
    for (size_t rank = 0; rank < kNodes; ++rank) nodes_.push_back(std::make_unique<Node>(*this, rank, probe_after));
    for (const auto& node : nodes_) node->member->start();
    carry();
    for (size_t worker = 0; worker < kServer; ++worker) open(worker, kChannel);
  }

  channel::Channels& at(size_t rank) { return nodes_[rank]->member->channels(); }
  base::Peer peer(size_t rank) const { return 10 + rank; }
  std::shared_ptr<channel::Shared> open(size_t rank, const char* name, uint64_t limit = 100 << 20) {
    auto shared = std::make_shared<channel::Shared>();
    shared->limit = limit;
    at(rank).open(name, shared, [this, rank] { ++nodes_[rank]->wakes; });
    return ends[rank] = shared;
  }
  int wakes(size_t rank) const { return nodes_[rank]->wakes; }

  std::shared_ptr<Outcome> collect(size_t rank, Collected& into, base::Nanos patience = 10s, const char* name = kChannel) {
    auto call = std::make_shared<Outcome>();
    call->set_deadline(clock.now() + patience);
    into = std::make_shared<std::vector<Bytes>>();
    at(rank).collect(call, name, into);
    carry();
    return call;
  }
  std::shared_ptr<Outcome> deliver(size_t rank, const std::vector<Bytes>& by_worker, const char* name = kChannel) {
    auto call = std::make_shared<Outcome>();
    call->set_deadline(clock.now() + 60s);
    std::vector<channel::BytesRef> refs;
    for (const Bytes& bytes : by_worker) refs.push_back(ref(bytes));
    at(rank).deliver(call, name, refs);
    carry();
    return call;
  }
  void give(size_t rank, const Bytes& bytes, const char* name = kChannel) {
    at(rank).give(name, ref(bytes));
    carry();
  }
  Bytes delivered_to(size_t rank, const char* name = kChannel) {
    auto due = at(rank).take(name);
    return due.delivered ? std::move(*due.delivered) : text("(none)");
  }

  /// Carries all messages, and those that they cause.
  void carry() {
    do {
      while (!messages_.empty()) {
        const auto carry = std::move(messages_.front());
        messages_.pop_front();
        carry();
      }
      for (const auto& node : nodes_)
        if (node->member != nullptr) node->member->flush();
    } while (!messages_.empty());
  }
  void pass_until_over(const std::shared_ptr<Outcome>& call) {
    while (call->times == 0) pass(100ms);
  }
  void pass(base::Nanos span) {
    for (base::Nanos passed{0}; passed < span; passed += 100ms) {
      clock.now_ += 100ms;
      for (const auto& node : nodes_)
        if (node->member != nullptr) node->member->tick();
      carry();
    }
  }
  /// Its process has ended without a word.
  void kill(size_t rank, mv_status why = MV_EPEERLOST) {
    nodes_[rank]->member.reset();
    for (const auto& node : nodes_)
      if (node->member != nullptr) node->member->on_lost(peer(rank), base::Status(why, "gone"));
    carry();
  }
  void leave(size_t rank) {
    nodes_[rank]->member->leave([](const base::Status&) {});
    carry();
  }
  /// A message that channels would not send, and the status of its answer.
  template <typename Body>
  mv_status say(size_t from, size_t to, wire::Body kind, Body make, const Bytes& payload = {}) {
    struct Answer final : rpc::Pending {
      void finish(const base::Status& ended, const wire::Message*, std::span<const std::byte>) override { status = ended.code(); }
      mv_status status = MV_EINTR;
    };
    const auto answer = std::make_shared<Answer>();
    rpc::Call call;
    call.frame = builder_.finish(kind, make(builder_.fbb()), payload.empty() ? nullptr : base::Payload::copy(payload));
    call.pending = answer;
    call.wants_answer = kind == wire::Body::ChannelAsk;
    nodes_[from]->requests().call(peer(to), std::move(call));
    carry();
    return answer->status;
  }
  mv_status say_part(size_t from, size_t to, const char* name, uint64_t number, uint64_t first, uint64_t bytes, const Bytes& payload) {
    return say(from, to, wire::Body::ChannelPart, [&](auto& fbb) { return wire::CreateChannelPartDirect(fbb, name, number, first, bytes); }, payload);
  }

  MovingClock clock;
  std::array<std::shared_ptr<channel::Shared>, kNodes> ends;
  uint64_t seed = 0;  ///< of the dice that lose some messages, and double others; 0: none

 private:
  struct Node final : base::Link {
    Node(Cluster& cluster, size_t rank, base::Nanos probe_after) : cluster(cluster), peer(cluster.peer(rank)) {
      cluster::Self self;
      self.peer = peer;
      self.rank = static_cast<int64_t>(rank);
      self.nodes = kNodes;
      self.role = rank == kServer ? MV_ROLE_SERVER : MV_ROLE_WORKER;
      self.is_master = rank == 0;
      self.master = "n0";
      self.address = "n" + std::to_string(rank);
      self.heartbeat_timeout = 1h;
      rpc::ClientOptions options;
      options.probe_after = probe_after;
      engine::Member::Events events{[](const auto&) {}, [](const auto&) {}, [] {}};
      member = std::make_unique<engine::Member>(cluster.clock, *this, self, options, std::move(events));
    }
    rpc::Client& requests() { return const_cast<rpc::Client&>(member->requests()); }
    void dial(const std::string& address) override {
      cluster.messages_.push_back([this, &other = *cluster.nodes_[address[1] - '0'], address] {
        member->on_connected(other.peer, address);
        other.member->on_connected(peer, "n" + std::to_string(peer - 10));
      });
    }
    void send(base::Peer to, const base::Frame& frame) override {
      cluster.messages_.push_back([this, &other = *cluster.nodes_[to - 10], frame] {
        for (int copies = cluster.copies(); copies > 0 && other.member != nullptr; --copies)
          other.member->on_message(peer, unit::message_of(frame), unit::payload_of(frame));
      });
    }
    void close(base::Peer) override {}

    Cluster& cluster;
    const base::Peer peer;
    std::unique_ptr<engine::Member> member;
    int wakes = 0;
  };
  int copies() {
    if (seed == 0) return 1;
    const uint64_t dice = base::mix(++seed) % 8;
    return dice == 0 ? 0 : dice == 1 ? 2 : 1;
  }

  std::vector<std::unique_ptr<Node>> nodes_;
  std::deque<std::function<void()>> messages_;
  wire::FrameBuilder builder_;
};

// ---- collecting

void who_gives_is_waited_for_and_nobody_else(void**) {
  Cluster cluster;
  cluster.at(2).set_giving(kChannel, true);
  Collected bytes;
  const auto call = cluster.collect(1, bytes);  // worker 2 has the higher rank, but does not know that it is asked
  assert_int_equal(call->times, 0);
  assert_true(cluster.ends[2]->due);
  assert_int_equal(cluster.wakes(2), 1);
  assert_false(cluster.ends[0]->due);
  assert_true(cluster.at(2).take(kChannel).asked);
  cluster.give(2, text("two"));
  expect(call, MV_OK);
  assert_true(*bytes == (std::vector<Bytes>{{}, {}, text("two")}));
  assert_false(cluster.ends[2]->due);
}

void two_workers_that_collect_at_once_get_all(void**) {
  Cluster cluster;
  for (size_t worker : {0, 1, 2}) cluster.at(worker).set_giving(kChannel, true);
  std::array<Collected, 2> bytes;
  const std::array calls{cluster.collect(0, bytes[0]), cluster.collect(1, bytes[1])};
  for (size_t worker : {0, 1, 2}) cluster.give(worker, text(std::to_string(worker)));
  for (const auto& call : calls) expect(call, MV_OK);
  assert_true(*bytes[0] == (std::vector<Bytes>{{}, text("1"), text("2")}));
  assert_true(*bytes[1] == (std::vector<Bytes>{text("0"), {}, text("2")}));
}

void channels_are_kept_apart(void**) {
  Cluster cluster;
  const auto other = cluster.open(2, "kv-1/");
  const auto end = cluster.open(2, kChannel);
  for (const char* name : {kChannel, "kv-1/"}) cluster.at(2).set_giving(name, true);
  Collected bytes;
  const auto call = cluster.collect(0, bytes);
  assert_true(end->due);
  assert_false(other->due);
  cluster.give(2, text("wrong"), "kv-1/");
  assert_int_equal(call->times, 0);
  cluster.give(2, text("right"));
  expect(call, MV_OK);
  assert_true(bytes->at(2) == text("right"));
  expect(cluster.deliver(2, {text("a"), text("b"), {}}), MV_OK);
  cluster.open(0, "kv-1/");
  assert_true(cluster.delivered_to(0, "kv-1/") == text("(none)"));
  assert_true(cluster.delivered_to(0) == text("a"));
}

void who_is_lost_has_left_or_closes_gives_nothing(void**) {
  enum class End { kLost, kFenced, kLeft, kCloses, kGivesNoMore };
  for (const End end : {End::kLost, End::kFenced, End::kLeft, End::kCloses, End::kGivesNoMore}) {
    Cluster cluster;
    for (size_t worker : {1, 2}) cluster.at(worker).set_giving(kChannel, true);
    Collected bytes;
    const auto call = cluster.collect(0, bytes);
    cluster.give(1, text("one"));
    assert_int_equal(call->times, 0);
    if (end == End::kLost) cluster.kill(2);
    if (end == End::kFenced) cluster.kill(2, MV_EPROTOCOL);
    if (end == End::kLeft) cluster.leave(2);
    if (end == End::kCloses) cluster.at(2).close(kChannel);
    if (end == End::kGivesNoMore) cluster.at(2).set_giving(kChannel, false);
    cluster.carry();
    expect(call, MV_OK);
    assert_true(*bytes == (std::vector<Bytes>{{}, text("one"), {}}));
    expect(cluster.collect(1, bytes), MV_OK);
  }
}

void who_does_not_give_in_time_is_named(void**) {
  Cluster cluster;
  for (size_t worker : {1, 2}) cluster.at(worker).set_giving(kChannel, true);
  Collected bytes;
  const auto late = cluster.collect(0, bytes, 5s);
  cluster.give(1, text("one"));
  cluster.pass(4s);
  assert_int_equal(late->times, 0);
  cluster.pass(2s);
  expect(late, MV_ETIMEOUT, "no answer from worker 2 (");
  assert_false(cluster.ends[2]->due);  // it is not asked any more
  const auto again = cluster.collect(0, bytes);
  for (size_t worker : {1, 2}) cluster.give(worker, text("again"));
  expect(again, MV_OK);
  assert_true(*bytes == (std::vector<Bytes>{{}, text("again"), text("again")}));

  const auto withdrawn = cluster.collect(0, bytes);
  withdrawn->withdraw(MV_EINTR);
  expect(withdrawn, MV_EINTR);
  cluster.carry();
  assert_false(cluster.ends[1]->due || cluster.ends[2]->due);
}

// ---- delivering

void what_is_delivered_outlives_its_sender(void**) {
  Cluster cluster;
  expect(cluster.deliver(2, {text("for 0"), text("for 1"), text("for itself")}), MV_OK);
  cluster.leave(2);
  assert_true(cluster.ends[0]->due);
  assert_int_equal(cluster.wakes(0), 1);
  assert_true(cluster.delivered_to(0) == text("for 0"));
  assert_false(cluster.ends[0]->due);
  assert_true(cluster.delivered_to(0) == text("(none)"));
  expect(cluster.deliver(0, {{}, {}, text("nobody")}), MV_OK);  // and replaces what worker 1 has not taken
  assert_true(cluster.delivered_to(1).empty());
}

void a_worker_without_the_channel_is_named(void**) {
  Cluster cluster;
  cluster.at(1).close(kChannel);
  expect(cluster.deliver(0, {{}, text("b"), text("c")}), MV_ENOTFOUND, "worker 1 (");
  expect(cluster.deliver(0, {{}, {}, text("d")}), MV_OK);  // there is nothing for it
  assert_true(cluster.delivered_to(2) == text("d"));
}

void what_is_lost_or_doubled_on_the_way_arrives_once(void**) {
  for (const uint64_t seed : {1000, 2000, 3000, 4000, 5000}) {
    Cluster cluster(200ms);
    for (size_t worker : {0, 1, 2}) cluster.at(worker).set_giving(kChannel, true);
    Collected bytes;
    expect(cluster.deliver(0, {{}, {}, {}}), MV_OK);  // all are connected now
    cluster.seed = seed;
    const Bytes large = many((3 << 20) + 12345), larger = many(5 << 20);
    const auto delivery = cluster.deliver(0, {{}, large, larger});
    cluster.pass_until_over(delivery);
    expect(delivery, MV_OK);
    assert_true(cluster.delivered_to(1) == large);
    assert_true(cluster.delivered_to(2) == larger);
    const auto collection = cluster.collect(1, bytes, 60s);
    while (!cluster.ends[0]->due || !cluster.ends[2]->due) cluster.pass(100ms);
    for (size_t worker : {0, 2}) cluster.give(worker, worker == 0 ? large : larger);
    cluster.pass_until_over(collection);
    expect(collection, MV_OK);
    assert_true(*bytes == (std::vector<Bytes>{large, {}, larger}));
  }
}

// ---- peers that err

void what_nobody_asked_for_is_refused(void**) {
  Cluster cluster;
  expect(cluster.deliver(2, {text("kept"), {}, {}}), MV_OK);
  for (size_t worker : {1, 2}) cluster.at(worker).set_giving(kChannel, true);
  Collected bytes;
  const auto call = cluster.collect(0, bytes);  // number 1
  assert_int_equal(cluster.say_part(1, 0, kChannel, 2, 0, 3, text("abc")), MV_ESTATE);
  assert_int_equal(cluster.say_part(1, 0, "kv-1/", 1, 0, 3, text("abc")), MV_ENOTFOUND);
  assert_int_equal(cluster.say_part(kServer, 0, kChannel, 1, 0, 3, text("abc")), MV_EPROTOCOL);
  assert_int_equal(cluster.say_part(kServer, 0, kChannel, 0, 0, 3, text("abc")), MV_EPROTOCOL);
  for (size_t worker : {1, 2}) cluster.give(worker, text("given"));
  expect(call, MV_OK);
  assert_int_equal(cluster.say_part(1, 0, kChannel, 1, 0, 3, text("abc")), MV_ESTATE);
  assert_true(*bytes == (std::vector<Bytes>{{}, text("given"), text("given")}));
  assert_true(cluster.delivered_to(0) == text("kept"));
}

void parts_that_do_not_fit_change_nothing(void**) {
  Cluster cluster;
  cluster.ends[0]->limit = 10;
  expect(cluster.deliver(1, {text("ten bytes."), {}, {}}), MV_OK);
  expect(cluster.deliver(1, {text("more than ten"), {}, {}}), MV_EPROTOCOL, "limit here is 10");
  assert_int_equal(cluster.say_part(1, 0, kChannel, 0, 0, UINT64_MAX, text("abc")), MV_EPROTOCOL);
  assert_int_equal(cluster.say_part(1, 0, kChannel, 0, 3, 6, text("abc")), MV_EPROTOCOL);       // the first part is missing
  assert_int_equal(cluster.say_part(1, 0, kChannel, 0, 0, 6, text("abc")), MV_OK);
  assert_int_equal(cluster.say_part(1, 0, kChannel, 0, 3, 7, text("abc")), MV_EPROTOCOL);       // another size
  assert_int_equal(cluster.say_part(1, 0, kChannel, 0, 3, 6, text("abcd")), MV_EPROTOCOL);      // too long
  assert_int_equal(cluster.say_part(1, 0, kChannel, 0, 3, 6, {}), MV_EPROTOCOL);                // nothing
  assert_int_equal(cluster.say_part(1, 0, kChannel, 0, UINT64_MAX, 6, text("abc")), MV_EPROTOCOL);
  assert_true(cluster.delivered_to(0) == text("ten bytes."));
  assert_int_equal(cluster.say_part(2, 0, kChannel, 0, 3, 6, text("xyz")), MV_ESTATE);          // of another's delivery
  assert_int_equal(cluster.say_part(1, 0, kChannel, 0, 3, 6, text("def")), MV_OK);
  assert_true(cluster.delivered_to(0) == text("abcdef"));

  cluster.at(1).set_giving(kChannel, true);
  Collected bytes;
  const auto call = cluster.collect(0, bytes);
  cluster.give(1, text("more than ten"));
  expect(call, MV_EPROTOCOL, "worker 1 (");
}

/// A worker that asks again and again costs one entry.
void the_last_question_of_a_worker_counts(void**) {
  Cluster cluster;
  cluster.at(0).set_giving(kChannel, true);
  const auto ask = [&](uint64_t number) {
    return cluster.say(1, 0, wire::Body::ChannelAsk, [&](auto& fbb) { return wire::CreateChannelAskDirect(fbb, kChannel, number); });
  };
  for (uint64_t number = 1; number < 100; ++number) assert_int_equal(ask(number), MV_EINTR);  // not answered yet
  Collected bytes;
  const auto call = cluster.collect(1, bytes);
  cluster.give(0, text("zero"));
  expect(call, MV_OK);
  assert_true(bytes->at(0) == text("zero"));
  assert_int_equal(cluster.say(1, 0, wire::Body::ChannelAsk, [](auto& fbb) { return wire::CreateChannelAsk(fbb); }), MV_OK);  // without a name
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(who_gives_is_waited_for_and_nobody_else),
      cmocka_unit_test(two_workers_that_collect_at_once_get_all),
      cmocka_unit_test(channels_are_kept_apart),
      cmocka_unit_test(who_is_lost_has_left_or_closes_gives_nothing),
      cmocka_unit_test(who_does_not_give_in_time_is_named),
      cmocka_unit_test(what_is_delivered_outlives_its_sender),
      cmocka_unit_test(a_worker_without_the_channel_is_named),
      cmocka_unit_test(what_is_lost_or_doubled_on_the_way_arrives_once),
      cmocka_unit_test(what_nobody_asked_for_is_refused),
      cmocka_unit_test(parts_that_do_not_fit_change_nothing),
      cmocka_unit_test(the_last_question_of_a_worker_counts),
  };
  return cmocka_run_group_tests_name("channel", tests, nullptr, nullptr);
}
