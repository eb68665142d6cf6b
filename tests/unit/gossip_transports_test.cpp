// engine/gossip between messages and mapped memory: orders of events that are rare on a real network, and versions held for slow readers.

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "engine/gossip/gossip.hpp"
#include "keeping_link.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using namespace mv::unit;

constexpr base::Peer kOther = 7;
constexpr float kModel[] = {1, 2, 3};

/// A node that knows one peer, which has published, and is fetching from it.
struct Fetcher {
  Fetcher() {
    for (gossip::Publisher* publisher : {&own, &other}) {
      assert_true(publisher->add(kModel, std::size(kModel), MV_F32).ok());
      assert_true(publisher->publish(1, 0.5).ok());
    }
    gossip::Gossip::Hooks hooks;
    hooks.on_done = [this] { done = true; };
    hooks.on_more = [this] { ++more; };
    hooks.mapped = [this](base::Peer) { return is_mapped ? other.reader() : nullptr; };
    engine = std::make_unique<gossip::Gossip>(still, kept, config, gossip::Node{"a", "here", 1}, 1, own, std::move(hooks));
    assert_true(engine->add_peer({"b", "there", 2}).ok());
    engine->fetch(0, {{std::size(kModel), MV_F32}});
  }

  StillClock still;
  KeepingLink kept;
  gossip::Config config;
  gossip::Publisher own, other;
  std::unique_ptr<gossip::Gossip> engine;
  bool is_mapped = false, done = false;
  int more = 0;
};

void a_request_by_message_yields_to_memory_mapped_meanwhile(void**) {
  Fetcher fetcher;
  fetcher.engine->on_connected(kOther, "there:2");
  assert_int_equal(fetcher.more, 0);  // it sends requests
  fetcher.is_mapped = true;
  fetcher.engine->on_connected(kOther, "there:2");  // over another transport now
  for (int turns = 0; fetcher.more > turns && turns < 3; ++turns) fetcher.engine->go_on();
  assert_true(fetcher.done);
  assert_string_equal(fetcher.engine->result().peer.c_str(), "b");
}

class HandClock final : public base::Clock {
 public:
  base::Nanos now() const override { return time; }
  base::Nanos time{0};
};

/// A node with a model of two chunks, and its answers to requests by message.
struct Server {
  Server() {
    gossip::Gossip::Hooks hooks;
    hooks.on_done = [] {};
    engine = std::make_unique<gossip::Gossip>(clock, kept, config, gossip::Node{"a", "here", 1}, 1, own, std::move(hooks));
    publish(1);
  }
  void publish(int times) {
    const std::vector<float> model(2 * gossip::kChunkBytes / sizeof(float), static_cast<float>(++published));
    for (int i = 0; i < times; ++i) {
      assert_true(own.add(model.data(), model.size(), MV_F32).ok());
      assert_true(own.publish(1, 0.5).ok());
    }
  }
  void request(base::Peer peer, uint64_t version, uint64_t first) { request(peer, version, first, ++questions); }
  void request(base::Peer peer, uint64_t version, uint64_t first, uint64_t number) {
    wire::FetchBuilder body(builder.fbb());
    body.add_number(number);
    body.add_version(version);
    body.add_first(first);
    body.add_count(gossip::kChunkBytes);
    const base::Frame question = builder.finish(wire::Body::Fetch, body.Finish());
    engine->on_message(peer, message_of(question), {});
  }
  /// The version of the answer; 0: it has been superseded.
  uint64_t ask(base::Peer peer, uint64_t version, uint64_t first) {
    request(peer, version, first);
    const auto answers = kept.take();
    assert_int_equal(answers.size(), 1);
    return message_of(answers.front()).body_as_Fetched()->version();
  }
  void pass(base::Nanos span) {
    clock.time += span;
    if (clock.time >= engine->next_deadline()) engine->tick();
  }

  HandClock clock;
  KeepingLink kept;
  gossip::Config config;
  gossip::Publisher own;
  wire::FrameBuilder builder;
  std::unique_ptr<gossip::Gossip> engine;
  int published = 0;
  uint64_t questions = 0;
};

constexpr uint64_t kEnd = gossip::kChunkBytes;

void the_version_that_is_read_by_messages_stays_until_all_are_through(void**) {
  Server server;
  assert_int_equal(server.ask(7, 0, 0), 1);
  server.publish(5);
  assert_int_equal(server.ask(8, 0, 0), 1);  // joins
  assert_int_equal(server.ask(7, 1, kEnd), 1);
  server.publish(5);
  assert_int_equal(server.ask(7, 0, 0), 1);  // the other peer still reads it
  assert_int_equal(server.ask(8, 1, kEnd), 1);
  server.engine->on_lost(7, {});
  assert_int_equal(server.engine->serving().held(), 0);
  assert_int_equal(server.ask(8, 0, 0), 11);
  assert_int_equal(server.ask(8, 0, 0), 11);
  server.publish(1);
  assert_int_equal(server.ask(8, 0, 0), 12);  // alone, and from the beginning: of the newest version
}

void a_reader_that_falls_silent_holds_nothing(void**) {
  Server server;
  assert_int_equal(server.ask(7, 0, 0), 1);
  assert_true(server.engine->next_deadline() == server.config.timeout);
  server.pass(server.config.timeout / 2);
  assert_int_equal(server.ask(8, 0, 0), 1);
  server.pass(server.config.timeout / 2);
  server.publish(5);
  assert_int_equal(server.ask(8, 1, kEnd), 1);  // the later request still counts
  assert_int_equal(server.engine->serving().held(), 0);
  assert_true(server.engine->next_deadline() == base::kNever);
  assert_int_equal(server.ask(8, 0, 0), 6);
  server.pass(server.config.timeout);
  assert_int_equal(server.engine->serving().held(), 0);
  server.publish(3);
  assert_int_equal(server.ask(8, 6, kEnd), 0);
}

void readers_that_follow_each_other_do_not_hold_one_version_for_ever(void**) {
  Server server;
  for (base::Peer peer = 10; peer < 14; ++peer) {
    assert_int_equal(server.ask(peer, 0, 0), 1);
    server.pass(server.config.timeout / 4);
  }
  server.publish(1);
  assert_int_equal(server.ask(20, 0, 0), 2);
  assert_int_equal(server.engine->serving().held(), 2);
}

void a_larger_model_does_not_take_the_memory_away(void**) {
  Server server;
  assert_int_equal(server.ask(7, 0, 0), 1);
  const std::vector<float> larger(5 * gossip::kChunkBytes / sizeof(float));
  for (int i = 0; i < 4; ++i) {
    assert_true(server.own.add(larger.data(), larger.size(), MV_F32).ok());
    assert_true(server.own.publish(1, 0.5).ok());
  }
  assert_int_equal(server.ask(7, 1, kEnd), 1);
  assert_int_equal(server.ask(7, 0, 0), 5);
}

/// The offsets of the answered chunks. From here on, the transport has released them.
std::vector<uint64_t> answered(Server& server) {
  std::vector<uint64_t> firsts;
  for (const base::Frame& frame : server.kept.take()) firsts.push_back(message_of(frame).body_as_Fetched()->first());
  return firsts;
}

void a_request_waits_while_the_transport_has_as_many_chunks_as_it_may(void**) {
  Server server;
  for (size_t i = 0; i < gossip::kWindow; ++i) server.request(7, 1, kEnd);
  server.request(7, 1, kEnd);
  server.request(7, 0, 0);  // the peer has another transport now, and begins again
  server.request(7, 1, kEnd);
  assert_true(server.engine->next_deadline() > server.clock.time);
  assert_int_equal(answered(server).size(), gossip::kWindow);
  assert_true(server.engine->next_deadline() == server.clock.time);
  server.engine->tick();
  assert_true((answered(server) == std::vector<uint64_t>{0, kEnd}));
  assert_int_equal(server.ask(7, 0, 0), 1);
}

void more_requests_than_a_peer_may_have_are_ignored(void**) {
  Server server;
  for (size_t i = 0; i < 5 * gossip::kWindow; ++i) server.request(7, 1, kEnd);
  assert_int_equal(answered(server).size(), gossip::kWindow);
  server.engine->tick();
  assert_int_equal(answered(server).size(), gossip::kWindow);
  server.engine->tick();
  assert_int_equal(answered(server).size(), 0);
}

/// The requests of a peer that begins again, over shared memory, overtake those that it has sent over TCP.
void requests_that_were_overtaken_do_not_take_the_place_of_others(void**) {
  Server server;
  server.request(7, 0, 0, 1);
  server.request(7, 0, 0, 6);
  for (const uint64_t late : {2, 3, 4}) server.request(7, 1, kEnd, late);
  for (const uint64_t number : {7, 8, 9, 10}) server.request(7, 1, kEnd, number);
  server.request(7, 0, 0, 5);
  std::vector<uint64_t> numbers;
  for (int turn = 0; turn < 3; ++turn) {
    for (const base::Frame& frame : server.kept.take()) numbers.push_back(message_of(frame).body_as_Fetched()->number());
    server.engine->tick();
  }
  assert_true((numbers == std::vector<uint64_t>{1, 6, 7, 8, 9, 10}));
}

/// A node that exchanges with one peer, whose memory is mapped.
struct Exchanging {
  explicit Exchanging(bool knows_peer = true) {
    config.exchange = gossip::Exchange::kSymmetric;
    for (gossip::Publisher* publisher : {&own, &other}) {
      assert_true(publisher->add(kModel, std::size(kModel), MV_F32).ok());
      assert_true(publisher->publish(1, 0.5).ok());
    }
    gossip::Gossip::Hooks hooks;
    hooks.on_done = [this] { ++done; };
    hooks.on_more = [this] { is_more = true; };
    hooks.mapped = [this](base::Peer) { return other.reader(); };
    engine = std::make_unique<gossip::Gossip>(clock, kept, config, gossip::Node{"a", "here", 1}, 1, own, std::move(hooks));
    if (knows_peer) add_peer();
    engine->on_connected(kOther, "there:2");
  }
  void add_peer() { assert_true(engine->add_peer({"b", "there", 2}).ok()); }
  void fetch() {
    engine->fetch(0, {{std::size(kModel), MV_F32}});
    while (std::exchange(is_more, false)) engine->go_on();
  }
  void hear(wire::Word word, uint64_t number, bool proposer) {
    wire::ExchangeBuilder body(builder.fbb());
    body.add_number(number);
    body.add_word(word);
    body.add_proposer(proposer);
    body.add_version(1);
    body.add_priority(UINT64_MAX);
    const base::Frame frame = builder.finish(wire::Body::Exchange, body.Finish());
    engine->on_message(kOther, message_of(frame), {});
    while (std::exchange(is_more, false)) engine->go_on();
  }
  /// What the node has said since the last call.
  std::vector<wire::Word> said() {
    std::vector<wire::Word> words;
    for (const base::Frame& frame : kept.take()) words.push_back(message_of(frame).body_as_Exchange()->word());
    return words;
  }
  void run_out() {
    clock.time += 2 * config.timeout;
    engine->tick();
  }

  HandClock clock;
  KeepingLink kept;
  gossip::Config config;
  gossip::Publisher own, other;
  wire::FrameBuilder builder;
  std::unique_ptr<gossip::Gossip> engine;
  bool is_more = false;
  int done = 0;
};
using Said = std::vector<wire::Word>;

/// A proposal by shared memory may overtake its copy on TCP.
void a_proposal_that_comes_again_late_is_not_held(void**) {
  Exchanging node;
  node.hear(wire::Word::Propose, 5, true);
  assert_true(node.said() == Said{wire::Word::Wait});
  node.fetch();
  assert_true((node.said() == Said{wire::Word::Agree, wire::Word::Ready}));
  node.hear(wire::Word::Propose, 5, true);  // the answer may be lost
  assert_true(node.said() == Said{wire::Word::Agree});
  node.hear(wire::Word::Commit, 5, true);
  assert_int_equal(node.done, 1);
  for (const uint64_t late : {4, 5}) node.hear(wire::Word::Propose, late, true);
  assert_true(node.said().empty());  // that exchange is valid
  assert_int_equal(node.engine->proposals(), 0);
  node.hear(wire::Word::Propose, 6, true);
  node.fetch();
  assert_true((node.said() == Said{wire::Word::Wait, wire::Word::Agree, wire::Word::Ready}));
  node.run_out();
  assert_true(node.said() == Said{wire::Word::Withdraw});
  node.hear(wire::Word::Propose, 6, true);
  assert_true(node.said() == Said{wire::Word::Withdraw});
  assert_int_equal(node.engine->proposals(), 0);
}

/// The first Withdraw may have gone into a connection that broke.
void a_peer_that_connects_again_hears_which_exchange_was_given_up(void**) {
  Exchanging node;
  node.hear(wire::Word::Propose, 5, true);
  node.fetch();
  node.run_out();
  assert_true((node.said() == Said{wire::Word::Wait, wire::Word::Agree, wire::Word::Ready, wire::Word::Withdraw}));
  assert_int_equal(node.engine->exchanges().unsettled, 1);
  node.engine->on_lost(kOther, {});
  node.engine->on_connected(kOther, "there:2");
  assert_true(node.said() == Said{wire::Word::Withdraw});
}

void the_half_of_an_exchange_is_counted_after_a_break(void**) {
  Exchanging node;
  node.fetch();
  const auto proposals = node.kept.take();
  assert_int_equal(proposals.size(), 1);
  const uint64_t number = message_of(proposals[0]).body_as_Exchange()->number();
  node.hear(wire::Word::Agree, number, false);
  node.hear(wire::Word::Ready, number, false);
  assert_true(node.said() == Said{wire::Word::Commit});
  assert_int_equal(node.engine->exchanges().valid, 1);
  node.engine->on_lost(kOther, {});
  node.engine->on_connected(kOther, "there:2");
  node.hear(wire::Word::Withdraw, number, false);
  assert_int_equal(node.engine->exchanges().valid, 0);
  assert_int_equal(node.engine->exchanges().half, 1);
}

void a_peer_that_is_added_while_it_is_connected_may_propose(void**) {
  Exchanging node(false);
  node.hear(wire::Word::Propose, 5, true);
  assert_true(node.said() == Said{wire::Word::Decline});
  node.add_peer();
  node.hear(wire::Word::Propose, 6, true);
  assert_true(node.said() == Said{wire::Word::Wait});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_version_that_is_read_by_messages_stays_until_all_are_through),
      cmocka_unit_test(a_reader_that_falls_silent_holds_nothing),
      cmocka_unit_test(readers_that_follow_each_other_do_not_hold_one_version_for_ever),
      cmocka_unit_test(a_larger_model_does_not_take_the_memory_away),
      cmocka_unit_test(a_request_waits_while_the_transport_has_as_many_chunks_as_it_may),
      cmocka_unit_test(more_requests_than_a_peer_may_have_are_ignored),
      cmocka_unit_test(requests_that_were_overtaken_do_not_take_the_place_of_others),
      cmocka_unit_test(a_proposal_that_comes_again_late_is_not_held),
      cmocka_unit_test(a_peer_that_connects_again_hears_which_exchange_was_given_up),
      cmocka_unit_test(the_half_of_an_exchange_is_counted_after_a_break),
      cmocka_unit_test(a_peer_that_is_added_while_it_is_connected_may_propose),
      cmocka_unit_test(a_request_by_message_yields_to_memory_mapped_meanwhile),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
