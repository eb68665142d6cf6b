// engine/rpc: each request of each incarnation of a client starts once, in order, on any unreliable link.

#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "keeping_link.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}
#undef fail  // this macro clashes with a function of the core

namespace {

using namespace mv;
using unit::KeepingLink;
using unit::StillClock;
using unit::message_of;

constexpr base::Peer kServer = 1;

/// Executes changes by recording the table numbers that they name.
class Service final : public rpc::Service {
 public:
  base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte>,
                  const base::SinkRef&) override {
    started += fmt::format("{}{}", started.empty() ? "" : " ", request.body_as_Destroy()->table());
    if (is_the_last) server->on_lost(asked.client);
    if (holds) return held.push_back(asked);
    if (fails) return server->fail(asked, base::error(MV_ENOTFOUND, "there is no such table"));
    later ? server->finish_later(asked, base::Nanos{0}) : server->finish(asked);
  }
  void on_data(const rpc::Asked&, std::span<const std::byte>, const base::SinkRef&) override {}
  void on_cancel(const rpc::Asked&) override { ++cancels; }

  rpc::Server* server = nullptr;
  std::string started;
  std::vector<rpc::Asked> held;
  int cancels = 0;
  bool holds = false, fails = false, is_the_last = false, later = false;
};

class Heard final : public rpc::Pending {
 public:
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    ++times;
    code = status.code();
  }
  int times = 0;
  mv_status code = MV_OK;
};

/// One server, and one incarnation of a client.
struct Pair {
  explicit Pair(base::Peer client_peer = 2, Pair* same_server = nullptr)
      : self(client_peer), server(same_server != nullptr ? same_server->server : std::make_shared<Serving>()) {
    client.on_connected(kServer);
  }
  struct Serving {
    Serving() { service.server = &engine; }
    KeepingLink link;
    Service service;
    rpc::Server engine{link, service};
  };

  std::shared_ptr<Heard> call(uint32_t number) {
    const auto heard = std::make_shared<Heard>();
    wire::FrameBuilder builder;
    auto frame = builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), number));
    client.call(kServer, {std::move(frame), heard, false, 0, nullptr});
    return heard;
  }
  /// A call of this many bytes, with its place in the backlog.
  struct Order {
    size_t cost = 0;
    uint64_t queue = 0;
    int64_t priority = 0;
    size_t window = 0;
    bool is_get = false;
  };
  std::shared_ptr<Heard> queue(uint32_t number, const Order& order) {
    const auto heard = std::make_shared<Heard>();
    wire::FrameBuilder builder;
    rpc::Call call;
    call.frame = builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), number));
    call.pending = heard;
    call.wants_answer = order.is_get;
    call.cost = order.cost;
    call.queue = order.queue;
    call.priority = order.priority;
    call.window_bytes = order.window;
    client.call(kServer, std::move(call));
    return heard;
  }
  /// Runs until there is nothing left to send.
  void run() {
    for (auto sent = link.take(); !sent.empty(); sent = link.take()) {
      to_server(sent);
      answers_arrive();
    }
  }
  void to_server(const base::Frame& frame) { server->engine.on_message(self, message_of(frame), {}, nullptr); }
  void to_server(const std::vector<base::Frame>& frames) {
    for (const base::Frame& frame : frames) to_server(frame);
  }
  void to_client(const std::vector<base::Frame>& frames) {
    for (const base::Frame& frame : frames) client.on_answer(kServer, message_of(frame), {});
  }
  void answers_arrive() {
    server->engine.flush();
    to_client(server->link.take());
  }

  const base::Peer self;
  StillClock clock;
  KeepingLink link;
  rpc::Client client{clock, link, {}};
  std::shared_ptr<Serving> server;
};

void requests_start_in_the_order_of_the_calls(void**) {
  Pair pair;
  const auto first = pair.call(7), second = pair.call(8);
  const auto sent = pair.link.take();
  pair.to_server(sent[1]);
  assert_string_equal(pair.server->service.started.c_str(), "");
  pair.to_server(sent[0]);
  assert_string_equal(pair.server->service.started.c_str(), "7 8");
  pair.answers_arrive();
  assert_int_equal(first->times, 1);
  assert_int_equal(second->times, 1);
}

void a_change_that_nobody_waits_for_is_acknowledged_later(void**) {
  Pair pair;
  rpc::Server& server = pair.server->engine;
  pair.server->service.later = true;
  const auto first = pair.call(1), second = pair.call(2);
  pair.to_server(pair.link.take());
  pair.answers_arrive();
  assert_int_equal(first->times + second->times, 0);
  const base::Nanos at = server.next_deadline();
  server.tick(at - base::Nanos{1});
  pair.answers_arrive();
  assert_int_equal(first->times + second->times, 0);
  server.tick(at);
  pair.answers_arrive();
  assert_int_equal(first->times, 1);
  assert_int_equal(second->times, 1);
  assert_true(server.next_deadline() == base::kNever);
}

void a_late_acknowledgement_leaves_with_the_next_message(void**) {
  Pair pair;
  pair.server->service.later = true;
  const auto early = pair.call(1);
  pair.to_server(pair.link.take());
  pair.server->engine.acknowledge(pair.self);
  pair.answers_arrive();
  assert_int_equal(early->times, 1);
  const auto late = pair.call(2);
  pair.to_server(pair.link.take());
  pair.server->service.later = false;
  const auto prompt = pair.call(3);
  pair.to_server(pair.link.take());
  pair.answers_arrive();
  assert_int_equal(late->times, 1);
  assert_int_equal(prompt->times, 1);
  pair.server->engine.tick(pair.server->engine.next_deadline());  // everything is acknowledged
  assert_true(pair.server->link.sent.empty());
}

void late_acknowledgements_do_not_pile_up(void**) {
  Pair pair;
  pair.server->service.later = true;
  const auto first = pair.call(0);
  for (uint32_t i = 1; i < 100 && first->times == 0; ++i) {
    pair.to_server(pair.link.take());
    pair.answers_arrive();
    pair.call(i);
  }
  assert_int_equal(first->times, 1);
}

void an_urgent_call_overtakes_all_but_its_own_queue(void**) {
  Pair pair;
  constexpr size_t kWhole = rpc::ClientOptions().window_bytes;
  pair.queue(1, {.cost = kWhole, .queue = 1});  // fills the window
  pair.queue(2, {.cost = kWhole, .queue = 1});
  pair.queue(3, {.cost = kWhole, .queue = 2});
  pair.queue(4, {.cost = kWhole, .queue = 3, .priority = 5});
  pair.queue(5, {.cost = kWhole, .queue = 1, .priority = 9});
  pair.queue(6, {.cost = kWhole});  // in no queue: it keeps its place, and so do all calls before it
  pair.queue(7, {.cost = kWhole, .queue = 4, .priority = 9});
  pair.queue(8, {.cost = kWhole, .queue = 5, .priority = -1});
  pair.queue(9, {.cost = kWhole, .queue = 6});
  pair.run();
  assert_string_equal(pair.server->service.started.c_str(), "1 4 2 5 3 6 7 9 8");
}

void a_call_may_ask_for_a_shorter_window(void**) {
  Pair pair;
  pair.queue(1, {.cost = 100, .queue = 1, .window = 250});
  pair.queue(2, {.cost = 100, .queue = 1, .window = 250});
  pair.queue(3, {.cost = 100, .queue = 1, .window = 250});
  assert_int_equal(pair.link.sent.size(), 2);
  pair.queue(4, {.cost = 100, .queue = 2, .priority = 1});  // more urgent, and without such a limit
  assert_int_equal(pair.link.sent.size(), 3);
  pair.run();
  assert_string_equal(pair.server->service.started.c_str(), "1 2 4 3");
}

/// Otherwise two workers, each of which gets elements that the other is about to change, would deadlock.
void changes_do_not_wait_for_gets(void**) {
  Pair pair;
  constexpr size_t kWhole = rpc::ClientOptions().window_bytes;
  pair.queue(1, {.cost = kWhole, .queue = 1, .is_get = true});
  pair.queue(2, {.cost = kWhole, .queue = 2});
  assert_int_equal(pair.link.sent.size(), 2);
  pair.queue(3, {.cost = kWhole, .queue = 3, .is_get = true});
  pair.queue(4, {.cost = kWhole, .queue = 4});
  assert_int_equal(pair.link.sent.size(), 2);
}

/// The same if the change comes after a get that does not fit into the window: the get delays only its own queue, and not even a change
/// there.
void a_get_without_room_holds_up_no_change(void**) {
  Pair pair;
  constexpr size_t kWhole = rpc::ClientOptions().window_bytes;
  pair.queue(1, {.cost = kWhole, .queue = 1, .is_get = true});
  pair.queue(2, {.cost = kWhole, .queue = 2, .is_get = true});
  assert_int_equal(pair.link.sent.size(), 1);
  pair.queue(3, {.cost = kWhole, .queue = 3});
  assert_int_equal(pair.link.sent.size(), 2);  // overtakes the get of another queue
  pair.queue(4, {.cost = 1, .queue = 2});
  assert_int_equal(pair.link.sent.size(), 3);  // overtakes the get before it, which does not fit
  pair.run();
  assert_string_equal(pair.server->service.started.c_str(), "1 3 2 4");
}

void waiting_calls_can_be_withdrawn(void**) {
  Pair pair;
  constexpr size_t kWhole = rpc::ClientOptions().window_bytes;
  pair.queue(1, {.cost = kWhole, .queue = 1});
  const auto in_queue = pair.queue(2, {.cost = kWhole, .queue = 2}), fence = pair.queue(3, {.cost = kWhole}),
             behind = pair.queue(4, {.cost = kWhole, .queue = 2});
  pair.queue(5, {.cost = kWhole, .queue = 1});
  for (const auto& heard : {in_queue, fence, behind}) {
    pair.client.cancel(kServer, heard.get());
    assert_int_equal(heard->times, 1);
    assert_int_equal(heard->code, MV_ECANCELED);
  }
  pair.run();
  assert_string_equal(pair.server->service.started.c_str(), "1 5");
}

void a_repeated_request_starts_once_and_is_answered_again(void**) {
  Pair pair;
  const auto heard = pair.call(7);
  const auto sent = pair.link.take();
  pair.to_server(sent);
  pair.server->engine.flush();
  pair.server->link.take();  // the answer is lost
  pair.to_server(sent);
  assert_string_equal(pair.server->service.started.c_str(), "7");
  assert_int_equal(heard->times, 0);
  pair.answers_arrive();
  assert_int_equal(heard->times, 1);
  assert_int_equal(heard->code, MV_OK);
}

void an_error_is_kept_until_the_client_has_it(void**) {
  Pair pair;
  pair.server->service.fails = true;
  const auto heard = pair.call(7);
  const auto sent = pair.link.take();
  pair.to_server(sent);
  pair.server->link.take();  // lost
  pair.server->service.fails = false;
  pair.to_server(sent);
  pair.answers_arrive();
  assert_string_equal(pair.server->service.started.c_str(), "7");
  assert_int_equal(heard->code, MV_ENOTFOUND);
}

void requests_lost_in_a_break_are_sent_again_once(void**) {
  Pair pair;
  const auto first = pair.call(7), second = pair.call(8);
  pair.to_server(pair.link.take()[0]);  // the connection loses the second request and the answer
  pair.server->engine.flush();
  pair.server->link.take();
  pair.client.on_connected(kServer);
  for (int round = 0; round < 3; ++round) {
    pair.to_server(pair.link.take());
    pair.answers_arrive();
  }
  assert_string_equal(pair.server->service.started.c_str(), "7 8");
  assert_int_equal(first->times, 1);
  assert_int_equal(second->times, 1);
}

/// As when two nodes connect with each other at once: the second event finds requests of the first under way.
void what_was_sent_after_a_probe_is_not_sent_again(void**) {
  Pair pair;
  const auto first = pair.call(7);
  pair.client.on_connected(kServer);
  const auto second = pair.call(8);
  const auto sent = pair.link.take();
  assert_int_equal(sent.size(), 3);  // the second one is the probe
  pair.to_server(sent[0]);
  pair.to_server(sent[1]);
  pair.answers_arrive();  // while the last one is under way
  assert_int_equal(pair.client.repeated(), 0);
  pair.to_server(sent[2]);
  pair.answers_arrive();
  assert_int_equal(first->times, 1);
  assert_int_equal(second->times, 1);
}

class MovingClock final : public base::Clock {
 public:
  base::Nanos now() const override { return at; }
  base::Nanos at{0};
};

/// The answer to a probe is lost, and those to other requests keep coming, more often than the client would ask.
void other_answers_do_not_put_a_probe_off(void**) {
  using namespace std::chrono_literals;
  MovingClock clock;
  KeepingLink link;
  rpc::ClientOptions options;
  options.probe_after = 1s;
  rpc::Client client{clock, link, options};
  client.on_connected(kServer);
  const auto call = [&] {
    wire::FrameBuilder builder;
    client.call(kServer, {builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), 7)), std::make_shared<Heard>(), false, 0, nullptr});
  };
  call();
  link.take();  // it is under way
  clock.at = 1s;
  client.tick();
  assert_int_equal(link.take().size(), 1);
  size_t probes = 0;
  for (int i = 0; i < 10; ++i) {
    clock.at += 500ms;
    wire::FrameBuilder builder;
    client.on_answer(kServer, message_of(builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()))), {});
    client.tick();
    probes += link.take().size();
  }
  assert_true(probes > 0);
}

/// Without the first one, the server could not keep the payload of the second, which was sent after the probe.
void what_came_too_early_after_a_probe_is_sent_again(void**) {
  Pair pair;
  const auto first = pair.call(7);
  pair.link.take();  // lost
  pair.client.on_connected(kServer);
  const auto second = pair.call(8);
  const auto sent = pair.link.take();
  assert_int_equal(sent.size(), 2);
  pair.to_server(sent[0]);  // the probe
  pair.server->engine.on_message(pair.self, message_of(sent[1]), {}, base::Sink::nowhere());
  pair.answers_arrive();
  pair.run();
  assert_string_equal(pair.server->service.started.c_str(), "7 8");
  assert_int_equal(first->times, 1);
  assert_int_equal(second->times, 1);
}

/// A former back-up has not seen reads that its primary had answered. A request that waits for them goes on when the client has their answers.
void a_request_that_came_early_starts_when_those_before_it_are_skipped(void**) {
  Pair::Serving server;
  server.engine.set_part(1);
  wire::FrameBuilder builder;
  const auto hear = [&](base::Frame frame, rpc::Seq seq, rpc::Seq done) {
    wire::stamp(frame, seq, done);
    server.engine.on_message(2, message_of(frame), {}, nullptr);
  };
  hear(builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), 3)), 3, 0);
  assert_string_equal(server.service.started.c_str(), "");
  hear(builder.finish(wire::Body::Probe, wire::CreateProbe(builder.fbb(), 3)), 0, 2);
  assert_string_equal(server.service.started.c_str(), "3");
}

/// A client of which three requests wait while 50,000 later ones are answered.
struct Waiting {
  Waiting() {
    pair.server->service.holds = true;
    for (uint32_t number : {1, 2, 3}) waiting.push_back(pair.call(number));
    pair.run();
    pair.server->service.holds = false;
    const size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 50'000; ++i) {
      const auto later = pair.call(4);
      pair.run();
      assert_int_equal(later->times, 1);
      pair.server->service.started.clear();
    }
    bytes = mallinfo2().uordblks - before;
    assert_int_equal(waiting[0]->times + waiting[1]->times + waiting[2]->times, 0);
  }
  Pair pair;
  std::vector<std::shared_ptr<Heard>> waiting;
  size_t bytes = 0;  ///< that the 50,000 have left
};

void what_is_answered_while_a_request_waits_leaves_no_memory(void**) {
  Waiting client;
  assert_true(client.bytes < 500'000);
  Pair& pair = client.pair;
  pair.client.on_connected(kServer);
  pair.run();
  assert_int_equal(pair.client.repeated(), 0);
  assert_false(pair.client.unsent(kServer, client.waiting[1].get()));
  pair.client.cancel(kServer, client.waiting[1].get());
  pair.run();
  assert_int_equal(pair.server->service.cancels, 1);
  const auto held = pair.server->service.held;
  for (const size_t i : {2, 0, 1}) {
    pair.server->engine.finish(held[i]);
    pair.answers_arrive();
    assert_int_equal(client.waiting[i]->times, 1);
    assert_true(pair.client.unsent(kServer, client.waiting[i].get()));
  }
  const auto last = pair.call(5);
  pair.run();
  assert_int_equal(last->times, 1);
}

void requests_that_wait_long_are_lost_with_their_server(void**) {
  Waiting client;
  client.pair.client.on_lost(kServer, base::Status(MV_EPEERLOST, "lost"));
  for (const auto& heard : client.waiting) assert_true(heard->times == 1 && heard->code == MV_EPEERLOST);
}

/// It gets the requests that wait, and hears of the others in a few messages.
void a_former_backup_skips_what_its_primary_has_answered(void**) {
  Waiting client;
  Pair& pair = client.pair;
  pair.server = std::make_shared<Pair::Serving>();
  pair.server->engine.set_part(1);
  pair.client.serve_by(kServer, kServer, 1, true);
  size_t frames = 0;
  for (auto sent = pair.link.take(); !sent.empty(); sent = pair.link.take()) {
    frames += sent.size();
    pair.to_server(sent);
    pair.answers_arrive();
  }
  assert_true(frames < 20);
  assert_string_equal(pair.server->service.started.c_str(), "1 2 3");
  for (const auto& heard : client.waiting) assert_int_equal(heard->times, 1);
  const auto last = pair.call(5);
  pair.run();
  assert_int_equal(last->times, 1);
  assert_string_equal(pair.server->service.started.c_str(), "1 2 3 5");
}

/// Each second request waits, and those between them are answered: all come too early at the next server but the first.
void a_former_backup_gets_requests_in_their_order(void**) {
  Pair pair;
  std::vector<std::shared_ptr<Heard>> waiting;
  for (uint32_t number = 0; number < 2000; ++number) {
    pair.server->service.holds = number % 2 == 0;
    const auto heard = pair.call(number);
    pair.run();
    if (number % 2 == 0) waiting.push_back(heard);
    else assert_int_equal(heard->times, 1);
  }
  pair.server = std::make_shared<Pair::Serving>();
  pair.server->engine.set_part(1);
  pair.client.serve_by(kServer, kServer, 1, true);
  pair.run();
  for (const auto& heard : waiting) assert_int_equal(heard->times, 1);
  const auto last = pair.call(5);
  pair.run();
  assert_int_equal(last->times, 1);
}

/// The server keeps 256 of them. It asks for the others when it has started these.
void requests_that_came_too_early_to_be_kept_are_sent_again(void**) {
  Pair pair;
  std::vector<std::shared_ptr<Heard>> all;
  for (uint32_t number = 1; number <= 1000; ++number) all.push_back(pair.call(number));
  auto sent = pair.link.take();
  std::reverse(sent.begin(), sent.end());
  pair.to_server(sent);
  pair.answers_arrive();
  pair.run();
  for (const auto& heard : all) assert_int_equal(heard->times, 1);
}

/// Some are kept, and the one before them is not: nothing arrives any more that would ask for it.
void what_is_missing_before_early_requests_is_asked_for(void**) {
  Pair pair;
  std::vector<std::shared_ptr<Heard>> all;
  for (uint32_t number = 1; number <= 600; ++number) all.push_back(pair.call(number));
  const auto sent = pair.link.take();
  const auto deliver = [&](size_t from, size_t to) { pair.to_server({sent.begin() + static_cast<ptrdiff_t>(from), sent.begin() + static_cast<ptrdiff_t>(to)}); };
  deliver(300, 556);  // 301 to 556 are kept
  deliver(1, 300);    // 2 to 300 are not
  pair.server->link.take();  // the gap is reported, but this is lost
  deliver(0, 1);
  pair.answers_arrive();
  pair.run();
  for (size_t i = 0; i < 556; ++i) assert_int_equal(all[i]->times, 1);
}

/// The place of its payload was chosen while it was too early, and the gap closed before all of the payload was here.
void a_payload_that_was_discarded_is_asked_for_when_the_gap_has_closed(void**) {
  Pair pair;
  const auto first = pair.call(7), second = pair.call(8);
  const auto sent = pair.link.take();
  pair.to_server(sent[0]);
  pair.server->engine.on_message(pair.self, message_of(sent[1]), {}, base::Sink::nowhere());
  pair.answers_arrive();
  pair.run();
  assert_string_equal(pair.server->service.started.c_str(), "7 8");
  assert_int_equal(second->times, 1);
}

void a_restarted_client_is_never_taken_for_its_old_self(void**) {
  Pair old(2);
  old.call(7);
  old.call(8);
  old.to_server(old.link.take());
  Pair young(3, &old);  // numbers its requests from 1 again
  old.server->engine.on_lost(old.self);
  young.call(9);
  young.to_server(young.link.take());
  assert_string_equal(old.server->service.started.c_str(), "7 8 9");
}

/// As a view of the cluster does that a request leads to, if the client is no member of it any more.
void a_client_may_be_lost_by_its_own_request(void**) {
  Pair pair;
  pair.call(7);
  pair.call(8);
  const auto sent = pair.link.take();
  pair.server->service.is_the_last = true;
  pair.to_server(sent[1]);
  pair.to_server(sent[0]);
  assert_string_equal(pair.server->service.started.c_str(), "7");  // nothing of the client is left, also not what came early
  assert_true(pair.server->engine.is_idle());
}

void calls_to_a_lost_server_fail_at_once(void**) {
  Pair pair;
  const auto under_way = pair.call(7);
  pair.client.on_lost(kServer, base::error(MV_EPEERLOST, "gone"));
  const auto later = pair.call(8);
  assert_int_equal(under_way->code, MV_EPEERLOST);
  assert_int_equal(later->code, MV_EPEERLOST);
  assert_int_equal(under_way->times + later->times, 2);
}

/// A back-up does not see the gets of a client, of which any number may finish while an earlier one waits.
void replays_after_millions_of_gets(void**) {
  Pair::Serving backup;
  wire::FrameBuilder builder;
  const auto replay = [&](rpc::Seq seq, uint32_t table) {
    const base::Frame frame = builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), table));
    return backup.engine.replay({2, seq}, 0, message_of(frame), {}, nullptr);
  };
  constexpr rpc::Seq kLast = 5'000'000;
  assert_true(replay(7, 1).ok());
  assert_true(replay(kLast, 2).ok());
  assert_true(replay(kLast + 9, 3).ok());
  assert_string_equal(backup.service.started.c_str(), "1 2 3");
  flatbuffers::FlatBufferBuilder fbb;
  const auto states = backup.engine.write_state(fbb);
  fbb.Finish(states.front());
  const auto* const state = flatbuffers::GetRoot<wire::StreamState>(fbb.GetBufferPointer());
  assert_int_equal(state->next(), kLast + 10);
  assert_true(state->finished() == nullptr || state->finished()->size() <= 2);
}

void numbers_are_kept_as_intervals(void**) {
  rpc::SeqSet set;
  for (const rpc::Seq seq : {5, 3, 9, 4, 10, 1}) set.add(seq);
  const std::map<rpc::Seq, rpc::Seq> expected{{1, 1}, {3, 5}, {9, 10}};
  assert_true(set.ranges() == expected);
  set.add(2, 9);
  assert_true((set.ranges() == std::map<rpc::Seq, rpc::Seq>{{1, 10}}));
  set.add(8, 7);  // none
  set.remove_through(6);
  assert_true((set.front() == std::pair<rpc::Seq, rpc::Seq>(7, 10)));
  set.remove_through(10);
  assert_true(set.empty());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(requests_start_in_the_order_of_the_calls),
      cmocka_unit_test(a_change_that_nobody_waits_for_is_acknowledged_later),
      cmocka_unit_test(a_late_acknowledgement_leaves_with_the_next_message),
      cmocka_unit_test(late_acknowledgements_do_not_pile_up),
      cmocka_unit_test(an_urgent_call_overtakes_all_but_its_own_queue),
      cmocka_unit_test(a_call_may_ask_for_a_shorter_window),
      cmocka_unit_test(changes_do_not_wait_for_gets),
      cmocka_unit_test(a_get_without_room_holds_up_no_change),
      cmocka_unit_test(waiting_calls_can_be_withdrawn),
      cmocka_unit_test(a_repeated_request_starts_once_and_is_answered_again),
      cmocka_unit_test(an_error_is_kept_until_the_client_has_it),
      cmocka_unit_test(requests_lost_in_a_break_are_sent_again_once),
      cmocka_unit_test(what_was_sent_after_a_probe_is_not_sent_again),
      cmocka_unit_test(other_answers_do_not_put_a_probe_off),
      cmocka_unit_test(what_came_too_early_after_a_probe_is_sent_again),
      cmocka_unit_test(a_request_that_came_early_starts_when_those_before_it_are_skipped),
      cmocka_unit_test(what_is_answered_while_a_request_waits_leaves_no_memory),
      cmocka_unit_test(requests_that_wait_long_are_lost_with_their_server),
      cmocka_unit_test(a_former_backup_skips_what_its_primary_has_answered),
      cmocka_unit_test(a_former_backup_gets_requests_in_their_order),
      cmocka_unit_test(requests_that_came_too_early_to_be_kept_are_sent_again),
      cmocka_unit_test(what_is_missing_before_early_requests_is_asked_for),
      cmocka_unit_test(a_payload_that_was_discarded_is_asked_for_when_the_gap_has_closed),
      cmocka_unit_test(a_restarted_client_is_never_taken_for_its_old_self),
      cmocka_unit_test(a_client_may_be_lost_by_its_own_request),
      cmocka_unit_test(replays_after_millions_of_gets),
      cmocka_unit_test(numbers_are_kept_as_intervals),
      cmocka_unit_test(calls_to_a_lost_server_fail_at_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
