// engine/table: a worker that replaces a lost one whose loss the servers noticed at different moments.

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/pool.hpp"
#include "engine/table/client/client.hpp"
#include "engine/table/spec_wire.hpp"
#include "two_workers.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using unit::StillClock;
using unit::message_of;

constexpr base::Peer kSelf = 7, kServers[] = {1, 2};

/// A link that only stores messages.
class KeepingLink final : public base::Link {
 public:
  void dial(const std::string&) override {}
  void send(base::Peer to, const base::Frame& frame) override { sent[to].push_back(frame); }
  void close(base::Peer) override {}
  std::map<base::Peer, std::vector<base::Frame>> sent;
};

/// A worker that opens a table on two servers.
struct LateWorker {
  LateWorker() {
    for (const base::Peer server : kServers) unit::join(view, server, MV_ROLE_SERVER);
    unit::join(view, kSelf, MV_ROLE_WORKER);
    for (const base::Peer server : kServers) rpc.on_connected(server);
    client.start(view);
    client.catalogue().open("t", base::kNever, [this](auto opened) {
      if (opened.ok()) table = opened.value();
    });
  }
  /// The server's answer: this worker's clock there is `clock`.
  void hear(base::Peer server, uint64_t clock) {
    shard::Spec spec;
    spec.name = "t";
    spec.rows = 10;
    spec.staleness = 1;
    wire::FrameBuilder builder;
    const auto written = table::write_spec(builder.fbb(), spec);
    const wire::CreatedTable opened(clock, 0, 0, 5, true, false);
    const auto tables = builder.fbb().CreateVectorOfStructs(&opened, 1);
    auto frame = builder.finish(wire::Body::Created, wire::CreateCreated(builder.fbb(), tables, written));
    wire::stamp(frame, 1, 1);
    rpc.on_answer(server, message_of(frame), {});
  }
  /// The messages to this server about this worker's clock: "8", "", "3 8"
  std::string told(base::Peer server) {
    std::string clocks;
    for (const base::Frame& frame : link.sent[server])
      if (const auto* clock = message_of(frame).body_as_Clock())
        clocks += (clocks.empty() ? "" : " ") + std::to_string(clock->clock());
    return clocks;
  }

  StillClock time;
  KeepingLink link;
  rpc::Client rpc{time, link, {}};
  base::Pool pool{4096, 1};
  cluster::View view;
  table::TableViewRef table;
  table::Client client{time, rpc, rpc, pool};
};

void it_begins_at_the_latest_clock_and_all_servers_know(void**) {
  LateWorker worker;
  worker.hear(kServers[1], 8);
  assert_null(worker.table.get());
  worker.hear(kServers[0], 3);
  assert_non_null(worker.table.get());
  assert_int_equal(worker.table->clock, 8);
  for (const base::Peer server : kServers) assert_string_equal(worker.told(server).c_str(), "8");
  assert_int_equal(worker.table->open_changes, 1);  // a flush waits for their acknowledgement
}

void servers_that_agree_get_no_message(void**) {
  LateWorker worker;
  for (const base::Peer server : kServers) worker.hear(server, 4);
  assert_non_null(worker.table.get());
  assert_int_equal(worker.table->clock, 4);
  for (const base::Peer server : kServers) assert_string_equal(worker.told(server).c_str(), "");
  assert_int_equal(worker.table->open_changes, 0);
}

// ---- the entry into rounds

constexpr base::Peer kElders[] = {8, 9};
constexpr uint32_t kNumber = 5;

class Ending final : public base::Operation {
  void ended(const base::Status& status) override { code = status.code(); }

 public:
  mv_status code = MV_OK;
};

/// A worker that has opened a merging table, or one in sync mode, of two servers while two other workers use it.
struct Newcomer {
  explicit Newcomer(uint32_t flags = MV_MERGE, int64_t staleness = -1) {
    for (const base::Peer server : kServers) unit::join(view, server, MV_ROLE_SERVER);
    for (const base::Peer worker : kElders) unit::join(view, worker, MV_ROLE_WORKER);
    unit::join(view, kSelf, MV_ROLE_WORKER);
    for (const cluster::Member& member : view.members) rpc.on_connected(member.peer);
    client.start(view, kSelf);
    table = open("t", kNumber, flags, staleness);
  }
  table::TableViewRef open(const char* name, uint32_t number, uint32_t flags, int64_t staleness) {
    table::TableViewRef known;
    client.catalogue().open(name, base::kNever, [&known](auto opened) { known = opened.value(); });
    shard::Spec spec;
    spec.name = name;
    spec.rows = 10;
    spec.flags = flags;
    spec.staleness = staleness;
    const wire::CreatedTable opened(0, 0, 0, number, true, true);
    for (const base::Peer server : kServers) {
      const auto written = table::write_spec(builder.fbb(), spec);
      const auto tables = builder.fbb().CreateVectorOfStructs(&opened, 1);
      answer(server, builder.finish(wire::Body::Created, wire::CreateCreated(builder.fbb(), tables, written)));
    }
    return known;
  }

  void get(std::shared_ptr<base::Operation> operation) {
    table::Request request;
    request.table = table;
    request.operation = std::move(operation);
    request.kind = table::OpKind::kGet;
    request.all = true;
    request.destination = std::as_writable_bytes(std::span(got));
    client.begin(std::move(request));
  }
  /// An add of all rows, or of one.
  void add(std::vector<int64_t> rows = {}, std::shared_ptr<base::Operation> operation = nullptr) {
    table::Request request;
    request.table = table;
    request.operation = std::move(operation);
    request.kind = table::OpKind::kChange;
    request.all = rows.empty();
    request.rows = std::move(rows);
    request.source = base::Payload::lent(std::as_bytes(std::span(values).first(request.all ? 10 : 1)));
    table->open_changes.fetch_add(1);
    client.begin(std::move(request));
  }
  /// Answers the last request to this peer.
  void answer(base::Peer peer, base::Frame frame, std::span<const std::byte> payload = {}) {
    const uint64_t seq = message_of(link.sent[peer].back()).seq();
    wire::stamp(frame, seq, seq);
    rpc.on_answer(peer, message_of(frame), payload);
  }
  void answer(base::Peer peer, mv_status code) { answer(peer, builder.answer(base::Status(code, code != MV_OK ? "no" : ""))); }
  /// The host stops: it has made so many adds.
  void stop(base::Peer host, uint64_t adds) {
    const std::pair<std::array<uint32_t, 2>, table::Counts> point{{kNumber, kNumber}, {adds, 0, 0}};
    answer(host, builder.finish(wire::Body::Stopped, wire::CreateStopped(builder.fbb())), std::as_bytes(std::span(&point, 1)));
  }
  /// The requests to this peer since the last call, with the numbers that they name: "Begin 7, Change 7".
  void expect(base::Peer peer, const char* text) {
    const std::vector<base::Frame>& all = link.sent[peer];
    std::string news;
    for (size_t i = std::exchange(seen[peer], all.size()); i < all.size(); ++i) {
      const wire::Message& message = message_of(all[i]);
      if (message.seq() == 0) continue;
      news += fmt::format("{}{}", news.empty() ? "" : ", ", wire::EnumNameBody(message.body_type()));
      if (const auto* begin = message.body_as_Begin(); begin != nullptr && begin->clocks() != nullptr)
        news += begin->clocks()->Get(0) == UINT64_MAX ? " never" : fmt::format(" {}", begin->clocks()->Get(0));
      if (const auto* change = message.body_as_Change()) news += fmt::format(" {}", change->index());
    }
    assert_string_equal(news.c_str(), text);
  }

  const std::array<float, 10> values{};
  std::array<float, 10> got{};
  StillClock time;
  KeepingLink link;
  rpc::Client rpc{time, link, {}};
  base::Pool pool{4096, 1};
  cluster::View view;
  wire::FrameBuilder builder;
  table::TableViewRef table;
  table::Client client{time, rpc, rpc, pool};
  std::map<base::Peer, size_t> seen;
};

void expect_servers(Newcomer& newcomer, const char* text) {
  for (const base::Peer server : kServers) newcomer.expect(server, text);
}
void answer_servers(Newcomer& newcomer) {
  for (const base::Peer server : kServers) newcomer.answer(server, MV_OK);
}

void a_newcomer_begins_where_another_worker_stops(void**) {
  Newcomer newcomer;
  expect_servers(newcomer, "Open");
  newcomer.add();
  newcomer.add({0});  // has a message for each server, too
  newcomer.expect(kElders[0], "Enter");
  newcomer.stop(kElders[0], 7);
  expect_servers(newcomer, "Begin 7");
  newcomer.answer(kServers[0], MV_OK);
  newcomer.expect(kElders[0], "");
  newcomer.answer(kServers[1], MV_OK);
  newcomer.expect(kElders[0], "GoOn");
  expect_servers(newcomer, "Change 7, Change 8");
  newcomer.add();
  expect_servers(newcomer, "Change 9");
  newcomer.expect(kElders[1], "");
}

void a_newcomer_whom_nobody_helps_begins_where_the_servers_are(void**) {
  Newcomer newcomer;
  expect_servers(newcomer, "Open");
  newcomer.add();
  for (const base::Peer elder : kElders) {
    newcomer.expect(elder, "Enter");
    newcomer.answer(elder, MV_ENOTFOUND);
  }
  expect_servers(newcomer, "Begin");
  for (const base::Peer server : kServers) {
    const wire::CreatedTable here(server + 2, 0, 0, kNumber, true, false);
    const auto tables = newcomer.builder.fbb().CreateVectorOfStructs(&here, 1);
    newcomer.answer(server, newcomer.builder.finish(wire::Body::Created, wire::CreateCreated(newcomer.builder.fbb(), tables)));
  }
  expect_servers(newcomer, "Begin 4");  // the latest of 3 and 4
  answer_servers(newcomer);
  expect_servers(newcomer, "Change 4");
}

void a_newcomer_that_comes_too_late_asks_again(void**) {
  Newcomer newcomer;
  expect_servers(newcomer, "Open");
  newcomer.add();
  newcomer.stop(kElders[0], 7);
  newcomer.answer(kServers[0], MV_OK);
  newcomer.answer(kServers[1], MV_EDISAGREE);
  expect_servers(newcomer, "Begin 7, Begin never");
  answer_servers(newcomer);
  newcomer.expect(kElders[0], "Enter, GoOn, Enter");
  newcomer.stop(kElders[0], 8);
  answer_servers(newcomer);
  expect_servers(newcomer, "Begin 8, Change 8");
}

void a_host_that_leaves_is_replaced(void**) {
  Newcomer newcomer;
  newcomer.add();
  newcomer.client.entry().gone(kElders[0]);
  newcomer.expect(kElders[1], "Enter");
  newcomer.stop(kElders[0], 7);  // it had stopped nevertheless
  newcomer.expect(kElders[0], "Enter, GoOn");
  newcomer.stop(kElders[1], 9);
  answer_servers(newcomer);
  newcomer.expect(kElders[1], "GoOn");
  expect_servers(newcomer, "Open, Begin 9, Change 9");
}

void a_host_that_says_nothing_goes_on(void**) {
  Newcomer newcomer;
  newcomer.add();
  newcomer.answer(kElders[0], newcomer.builder.finish(wire::Body::Stopped, wire::CreateStopped(newcomer.builder.fbb())),
                  std::as_bytes(std::span("not the size of a point")));
  newcomer.expect(kElders[0], "Enter, GoOn");
  newcomer.expect(kElders[1], "Enter");
}

void a_newcomer_gives_its_first_call_up_while_it_asks(void**) {
  Newcomer newcomer;
  const auto ending = std::make_shared<Ending>();
  newcomer.add({}, ending);
  ending->withdraw(MV_ETIMEOUT);
  assert_int_equal(ending->code, MV_ETIMEOUT);
  newcomer.expect(kElders[0], "Enter");
  newcomer.stop(kElders[0], 7);
  newcomer.expect(kElders[0], "GoOn");
  expect_servers(newcomer, "Open");
  newcomer.add();
  newcomer.expect(kElders[0], "Enter");
  newcomer.stop(kElders[0], 9);
  answer_servers(newcomer);
  expect_servers(newcomer, "Begin 9, Change 9");
}

void a_newcomer_gives_its_first_call_up_while_it_begins(void**) {
  Newcomer newcomer;
  const auto ending = std::make_shared<Ending>();
  newcomer.add({}, ending);
  newcomer.stop(kElders[0], 7);
  ending->withdraw(MV_ECANCELED);
  assert_int_equal(ending->code, MV_ECANCELED);
  answer_servers(newcomer);
  expect_servers(newcomer, "Open, Begin 7, Begin never");
  newcomer.expect(kElders[0], "Enter");
  answer_servers(newcomer);
  newcomer.expect(kElders[0], "GoOn");
  newcomer.add();
  newcomer.expect(kElders[0], "Enter");
}

void with_the_next_table_it_asks_again(void**) {
  Newcomer newcomer;
  const auto ending = std::make_shared<Ending>();
  newcomer.add({}, ending);
  newcomer.expect(kElders[0], "Enter");
  newcomer.table = newcomer.open("u", kNumber + 1, MV_MERGE, -1);
  newcomer.add();
  newcomer.expect(kElders[0], "");
  ending->withdraw(MV_ETIMEOUT);
  newcomer.expect(kElders[0], "Enter");
}

void a_get_that_an_add_follows_counts_as_made(void**) {
  Newcomer newcomer(0, 0);
  const auto ending = std::make_shared<Ending>();
  newcomer.get(ending);
  newcomer.add();
  ending->withdraw(MV_ETIMEOUT);
  assert_int_equal(ending->code, MV_ETIMEOUT);
  newcomer.expect(kElders[0], "Enter");  // it still begins with the get
}

void the_second_one_of_two_calls_is_not_missed(void**) {
  Newcomer newcomer;
  const auto ending = std::make_shared<Ending>();
  newcomer.add();
  newcomer.add({}, ending);
  ending->withdraw(MV_ETIMEOUT);
  newcomer.stop(kElders[0], 7);
  answer_servers(newcomer);
  expect_servers(newcomer, "Open, Begin 7, Change 7");
  newcomer.expect(kElders[0], "Enter, GoOn");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_newcomer_begins_where_another_worker_stops),
      cmocka_unit_test(a_newcomer_whom_nobody_helps_begins_where_the_servers_are),
      cmocka_unit_test(a_newcomer_that_comes_too_late_asks_again),
      cmocka_unit_test(a_host_that_leaves_is_replaced),
      cmocka_unit_test(a_host_that_says_nothing_goes_on),
      cmocka_unit_test(a_newcomer_gives_its_first_call_up_while_it_asks),
      cmocka_unit_test(a_newcomer_gives_its_first_call_up_while_it_begins),
      cmocka_unit_test(with_the_next_table_it_asks_again),
      cmocka_unit_test(a_get_that_an_add_follows_counts_as_made),
      cmocka_unit_test(the_second_one_of_two_calls_is_not_missed),
      cmocka_unit_test(it_begins_at_the_latest_clock_and_all_servers_know),
      cmocka_unit_test(servers_that_agree_get_no_message),
  };
  return cmocka_run_group_tests_name("ps/late_worker", tests, nullptr, nullptr);
}
