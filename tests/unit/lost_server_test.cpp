// engine/table: the outcome of a call to several servers if one of them is lost while the others have not answered, or has no memory.

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/pool.hpp"
#include "engine/table/client/client.hpp"
#include "two_workers.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;

constexpr base::Peer kSelf = 7, kServers[] = {1, 2};

/// The outcome of a call.
struct End final : base::Operation {
  explicit End(const End* whole = nullptr) : whole_(whole) {}
  void ended(const base::Status&) override { ++times; }
  const Operation* whole() const override { return whole_ != nullptr ? whole_ : this; }
  bool is_pointless() const override { return whole_ != nullptr && whole_->done() && !whole_->status().ok(); }

  const End* const whole_;
  int times = 0;
};

/// A worker with a table on two servers, which answer only when the test says so.
struct Worker {
  explicit Worker(shard::Consistency consistency) {
    for (const base::Peer server : kServers) unit::join(view, server, MV_ROLE_SERVER);
    unit::join(view, kSelf, MV_ROLE_WORKER);
    for (const base::Peer server : kServers) rpc.on_connected(server);
    client.start(view);
    table = table_of("t", consistency);
  }
  static table::TableViewRef table_of(const char* name, shard::Consistency consistency, uint32_t home = 0) {
    shard::Spec spec;
    spec.name = name;
    spec.rows = 10;
    spec.home = home;
    auto made = std::make_shared<table::TableView>(std::make_shared<const shard::Spec>(spec),
                                                   std::make_shared<std::vector<base::Peer>>(kServers, kServers + 2));
    made->consistency = consistency;
    made->numbers = {1, 1};
    return made;
  }
  std::shared_ptr<End> get(const End* whole = nullptr) {
    table::Request request;
    request.table = table;
    request.destination = std::as_writable_bytes(std::span(values));
    return begin(std::move(request), whole);
  }
  std::shared_ptr<End> add() {
    table::Request request;
    request.table = table;
    request.kind = table::OpKind::kChange;
    request.source = base::Payload::lent(std::as_bytes(std::span(values)));
    table->open_changes.fetch_add(1);
    return begin(std::move(request), nullptr);
  }
  std::shared_ptr<End> begin(table::Request request, const End* whole) {
    auto end = std::make_shared<End>(whole);
    request.operation = end;
    client.begin(std::move(request));
    return end;
  }
  void lose(base::Peer server) { rpc.on_lost(server, base::Status(MV_EPEERLOST, "server is gone")); }
  /// The server acknowledges all requests up to this one.
  void acknowledge(base::Peer server, uint64_t upto) {
    wire::FrameBuilder builder;
    auto frame = builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()));
    wire::stamp(frame, 0, upto);
    rpc.on_answer(server, unit::message_of(frame), {});
  }

  /// The server has no memory for this request.
  void refuse(base::Peer server, uint64_t request) {
    wire::FrameBuilder builder;
    auto frame = builder.answer(base::Status(MV_ENOMEM, "no memory for more rows"));
    wire::stamp(frame, request, 0);
    rpc.on_answer(server, unit::message_of(frame), {});
  }

  unit::StillClock time;
  unit::KeepingLink link;
  rpc::Client rpc{time, link, {}};
  base::Pool pool{4096, 1};
  cluster::View view;
  std::array<float, 10> values{};
  table::TableViewRef table;
  table::Client client{time, rpc, rpc, pool};
};

void expect_lost(const End& end) {
  assert_int_equal(end.times, 1);
  assert_int_equal(end.status().code(), MV_EPEERLOST);
}

void a_get_ends_at_once(void**) {
  Worker worker(shard::Consistency::kSync);
  const auto end = worker.get();
  assert_int_equal(end->times, 0);
  assert_int_equal(worker.table->round, 1);
  worker.lose(kServers[1]);
  expect_lost(*end);
  assert_int_equal(worker.table->round, 0);  // it may be repeated
  worker.lose(kServers[0]);
  expect_lost(*end);
}

void a_call_to_a_lost_server_ends_at_once(void**) {
  for (const base::Peer lost : kServers) {
    Worker worker(shard::Consistency::kMerge);
    worker.lose(lost);
    expect_lost(*worker.get());
    expect_lost(*worker.add());
  }
}

void an_add_ends_at_once_and_goes_on(void**) {
  Worker worker(shard::Consistency::kSync);
  const auto end = worker.add();
  worker.lose(kServers[1]);
  expect_lost(*end);
  assert_int_equal(worker.table->open_changes, 1);  // a flush waits for the other part
  worker.acknowledge(kServers[0], 1);
  assert_int_equal(worker.table->open_changes, 0);
  expect_lost(*end);
}

void all_parts_of_a_failed_call_end_with_it(void**) {
  Worker worker(shard::Consistency::kMerge);
  const auto whole = std::make_shared<End>();
  std::array<std::shared_ptr<End>, 2> parts;
  for (const uint32_t home : {1, 2}) {  // each table lies on one server
    worker.table = Worker::table_of("u", shard::Consistency::kMerge, home);
    parts[home - 1] = worker.get(whole.get());
  }
  worker.table = Worker::table_of("u", shard::Consistency::kMerge, 1);
  const auto alone = worker.get();
  worker.lose(kServers[1]);
  for (const auto& part : parts) expect_lost(*part);
  assert_int_equal(alone->times, 0);
  whole->complete(parts[1]->status());
  const auto late = worker.get(whole.get());
  assert_int_equal(late->times, 1);
  assert_false(late->status().ok());
}

void a_partial_add_is_completed(void**) {
  Worker worker(shard::Consistency::kAsync);
  const auto end = worker.add();
  worker.refuse(kServers[1], 1);
  worker.acknowledge(kServers[0], 1);
  assert_int_equal(end->times, 0);  // sent again
  worker.acknowledge(kServers[1], 2);
  assert_int_equal(end->times, 1);
  assert_true(end->status().ok());
  assert_int_equal(worker.table->open_changes, 0);
}

void a_permanent_lack_of_memory_is_reported(void**) {
  Worker worker(shard::Consistency::kAsync);
  const auto end = worker.add();
  worker.acknowledge(kServers[0], 1);
  for (const uint64_t request : {1, 2, 3, 4}) worker.refuse(kServers[1], request);
  assert_int_equal(end->times, 1);
  assert_int_equal(end->status().code(), MV_ENOMEM);
  assert_non_null(strstr(end->status().text().c_str(), "the other servers have applied their part"));
}

void an_add_that_all_refuse_has_changed_nothing(void**) {
  Worker worker(shard::Consistency::kAsync);
  const auto end = worker.add();
  for (const base::Peer server : kServers) worker.refuse(server, 1);
  assert_int_equal(end->times, 1);
  assert_int_equal(end->status().code(), MV_ENOMEM);
  assert_null(strstr(end->status().text().c_str(), "other servers"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_get_ends_at_once),
      cmocka_unit_test(a_call_to_a_lost_server_ends_at_once),
      cmocka_unit_test(an_add_ends_at_once_and_goes_on),
      cmocka_unit_test(all_parts_of_a_failed_call_end_with_it),
      cmocka_unit_test(a_partial_add_is_completed),
      cmocka_unit_test(a_permanent_lack_of_memory_is_reported),
      cmocka_unit_test(an_add_that_all_refuse_has_changed_nothing),
  };
  return cmocka_run_group_tests_name("ps/lost_server", tests, nullptr, nullptr);
}
