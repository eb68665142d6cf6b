// engine/table: adds to and gets from many small tables share few messages, and each waits at the gate of its own table.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "two_workers.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using unit::Cluster;
using unit::Worker;
using unit::kServer;
using unit::kWorkers;

constexpr size_t kTables = 300, kCols = 4;

class Ending final : public base::Operation {
  void ended(const base::Status&) override {}
};

/// Merging tables, the keys of a store, which both workers have.
struct Store : Cluster {
  Store() {
    for (Worker& worker : workers) {
      std::vector<table::NewTable> tables;
      for (size_t i = 0; i < kTables; ++i) {
        shard::Spec spec;
        spec.name = "kv-0/" + std::to_string(i);
        spec.kind = MV_MATRIX;
        spec.rows = 1;
        spec.cols = kCols;
        spec.home = 1;
        spec.flags = MV_MERGE | shard::kStoreKey;
        tables.push_back({std::make_shared<const shard::Spec>(spec)});
      }
      worker.create(std::move(tables));
    }
    carry();
    requests.clear();
  }
  void add(size_t worker, float value) {
    const auto values = std::make_shared<std::vector<float>>(kTables * kCols, value);
    table::Client::ManyAdds adds;
    adds.tables = workers[worker].made;
    adds.values = base::Payload::kept(std::as_bytes(std::span(*values)), values);
    for (const table::TableViewRef& table : adds.tables) table->open_changes.fetch_add(1);
    workers[worker].client.add_many(std::move(adds));
  }
  std::shared_ptr<Ending> get(size_t worker, base::Nanos deadline = base::kNever) {
    const auto ending = std::make_shared<Ending>();
    got[worker].assign(kTables * kCols, -1);
    table::Request request;
    for (size_t i = 0; i < kTables; ++i)
      request.many.push_back({workers[worker].made[i], std::as_writable_bytes(std::span(got[worker]).subspan(i * kCols, kCols))});
    request.table = request.many.front().table;
    ending->set_deadline(deadline);
    request.operation = ending;
    workers[worker].client.begin(std::move(request));
    return ending;
  }
  bool all_are(size_t worker, float value) const {
    return std::ranges::all_of(got[worker], [value](float one) { return one == value; });
  }
  std::array<std::vector<float>, 2> got;
};

void a_round_takes_a_message_for_all_tables(void**) {
  Store store;
  store.add(0, 1);
  const auto first = store.get(0);
  store.carry();
  assert_false(first->done());  // the other worker's part is missing
  store.add(1, 2);
  const auto second = store.get(1);
  store.carry();
  assert_true(first->done() && first->status().ok() && store.all_are(0, 3));
  assert_true(second->done() && second->status().ok() && store.all_are(1, 3));
  assert_int_equal(store.requests[wire::Body::ChangeMany], 2);
  assert_int_equal(store.requests[wire::Body::GetMany], 2);
  assert_int_equal(store.requests.size(), 2);
  for (Worker& worker : store.workers)
    for (const table::TableViewRef& table : worker.made) assert_int_equal(table->open_changes, 0);
}

void a_message_that_comes_twice_counts_once(void**) {
  Store store;
  store.add(0, 1);
  const auto frames = store.workers[0].link.sent;
  store.carry();
  for (const base::Frame& frame : frames) store.rpc.on_message(kWorkers[0], unit::message_of(frame), unit::payload_of(frame), nullptr);
  store.add(1, 2);
  const auto ending = store.get(1);
  store.carry();
  assert_true(ending->done() && store.all_are(1, 3));
}

void a_get_whose_answer_got_lost_is_carried_out_again(void**) {
  Store store;
  store.add(0, 1);
  store.add(1, 2);
  store.carry();
  const auto ending = store.get(0);
  const auto frames = store.workers[0].link.sent;
  store.carry_to_server(0);
  store.link.sent.clear();  // lost
  for (const base::Frame& frame : frames) store.rpc.on_message(kWorkers[0], unit::message_of(frame), unit::payload_of(frame), nullptr);
  store.carry();
  assert_true(ending->done() && ending->status().ok() && store.all_are(0, 3));
}

void a_closed_table_fails_the_whole_message(void**) {
  Store store;
  const auto destroyed = std::make_shared<Ending>();
  store.workers[1].client.catalogue().destroy(store.workers[1].made[7], destroyed);
  store.carry();
  store.add(0, 1);
  store.add(1, 2);
  const auto ending = store.get(0);
  store.carry();
  assert_true(ending->done());
  assert_int_equal(ending->status().code(), MV_ENOTFOUND);
  assert_true(store.workers[0].made[8]->has_untold);
}

void a_get_that_is_withdrawn_leaves_nothing_behind(void**) {
  Store store;
  store.add(0, 1);
  const auto ending = store.get(0);
  store.carry();
  ending->withdraw(MV_ECANCELED);
  assert_true(ending->done());
  store.carry();
  assert_int_equal(store.server.held(), kTables);  // the adds, which wait for the other worker's adds; no get
  store.add(1, 2);
  const auto next = store.get(0);
  store.carry();
  assert_true(next->done() && next->status().ok() && store.all_are(0, 3));
  assert_int_equal(store.server.held(), 0);
}

void gets_that_wait_for_a_lost_worker_fail(void**) {
  Store store;
  store.add(0, 1);
  store.add(1, 2);
  const auto done = store.get(1);
  store.carry();
  assert_true(done->done());
  store.add(0, 1);
  const auto ending = store.get(0);
  store.carry();
  store.server.worker_lost(kWorkers[1], base::Status(MV_EPEERLOST, "worker 1 is lost"));
  store.carry();
  assert_true(ending->done());
  assert_int_equal(ending->status().code(), MV_EPEERLOST);
  const auto next = store.get(0);
  store.carry();
  assert_true(next->done() && next->status().ok() && store.all_are(0, 4));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_round_takes_a_message_for_all_tables),
      cmocka_unit_test(a_message_that_comes_twice_counts_once),
      cmocka_unit_test(a_get_whose_answer_got_lost_is_carried_out_again),
      cmocka_unit_test(a_closed_table_fails_the_whole_message),
      cmocka_unit_test(a_get_that_is_withdrawn_leaves_nothing_behind),
      cmocka_unit_test(gets_that_wait_for_a_lost_worker_fail),
  };
  return cmocka_run_group_tests_name("ps/many_calls", tests, nullptr, nullptr);
}
