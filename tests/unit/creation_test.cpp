// engine/table: the creation of many tables is one atomic operation.

#include <cstring>
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
using unit::kWorkers;

constexpr size_t kMany = 2000, kCols = 4;

shard::Spec spec_of(const std::string& name, uint64_t cols = kCols) {
  shard::Spec spec;
  spec.name = name;
  spec.kind = MV_MATRIX;
  spec.rows = 1;
  spec.cols = cols;
  spec.flags = MV_MERGE;
  return spec;
}

shard::SpecRef described(const std::string& name) { return std::make_shared<const shard::Spec>(spec_of(name)); }

std::vector<table::NewTable> many(std::vector<std::vector<float>>* values) {
  std::vector<table::NewTable> tables;
  if (values != nullptr) values->resize(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    base::PayloadRef initial;
    if (values != nullptr) {
      (*values)[i].assign(kCols, static_cast<float>(i));
      initial = base::Payload::lent(std::as_bytes(std::span((*values)[i])));
    }
    tables.push_back({described("t" + std::to_string(i)), initial, true});
  }
  return tables;
}

void many_tables_take_few_messages(void**) {
  Cluster cluster;
  std::vector<std::vector<float>> values;
  cluster.workers[0].create(many(&values));
  cluster.workers[1].create(many(nullptr));
  cluster.carry();
  for (const Worker& worker : cluster.workers) {
    assert_true(worker.ended && worker.status.ok());
    assert_int_equal(worker.made.size(), kMany);
  }
  // For each of two workers: four messages with specs and small initial values, and one that waits for the other worker.
  assert_int_equal(cluster.requests[wire::Body::Create], 2 * 4);
  assert_int_equal(cluster.requests[wire::Body::Ready], 2 * 1);
  assert_int_equal(cluster.requests.size(), 2);
  for (const size_t i : {size_t{0}, size_t{511}, size_t{512}, kMany - 1}) {
    const auto number = cluster.workers[0].made[i]->numbers.front();
    assert_int_equal(number, cluster.workers[1].made[i]->numbers.front());
    for (const float value : cluster.values(number)) assert_true(value == static_cast<float>(i));
  }
}

void a_spec_that_differs_leaves_nothing(void**) {
  Cluster cluster;
  auto other = many(nullptr);
  shard::Spec differs = spec_of("t1000");  // in the second of four messages
  differs.cols = kCols + 1;
  other[1000].spec = std::make_shared<const shard::Spec>(differs);
  cluster.workers[0].create(many(nullptr));
  cluster.carry_to_server(0);
  cluster.workers[1].create(std::move(other));
  cluster.carry();
  for (const Worker& worker : cluster.workers) {
    assert_true(worker.ended);
    assert_int_equal(worker.status.code(), MV_EDISAGREE);
    assert_non_null(std::strstr(worker.status.text().c_str(), "table \"t1000\""));
  }
  assert_true(cluster.server.parts().empty());
  for (Worker& worker : cluster.workers) worker.create(many(nullptr));  // the names are free again
  cluster.carry();
  for (const Worker& worker : cluster.workers) assert_true(worker.ended && worker.status.ok());
  assert_int_equal(cluster.server.parts().size(), kMany);
}

/// A worker that has the error creates its tables again at once, while the messages of the others may be slow.
void names_are_free_when_all_workers_have_the_error(void**) {
  Cluster cluster;
  auto other = many(nullptr);
  other[1000].spec = std::make_shared<const shard::Spec>(spec_of("t1000", kCols + 1));
  cluster.workers[0].create(many(nullptr));
  cluster.carry_to_server(0);
  cluster.workers[1].create(std::move(other));
  for (size_t step = 0; !cluster.workers[0].ended || !cluster.workers[1].ended; ++step) {
    assert_true(step < 20);
    for (size_t worker : {0, 1})
      if (!cluster.workers[worker].ended) cluster.carry_to_server(worker);
    cluster.carry_back();
  }
  for (Worker& worker : cluster.workers) {
    assert_int_equal(worker.status.code(), MV_EDISAGREE);
    worker.create(many(nullptr));
  }
  cluster.carry();
  for (const Worker& worker : cluster.workers) assert_true(worker.ended && worker.status.ok());
}

void lists_of_workers_may_be_cut_differently(void**) {
  Cluster cluster;
  cluster.workers[0].create({{described("a")}, {described("b")}});
  cluster.workers[1].create({{described("a")}});
  cluster.carry();
  assert_false(cluster.workers[0].ended);
  assert_true(cluster.workers[1].ended && cluster.workers[1].status.ok());
  cluster.workers[1].create({{described("b")}});
  cluster.carry();
  for (const Worker& worker : cluster.workers) assert_true(worker.ended && worker.status.ok());
}

void a_call_that_was_given_up_can_be_made_again(void**) {
  Cluster cluster;
  std::vector<std::vector<float>> values;
  cluster.workers[0].create(many(&values));
  cluster.carry();
  assert_false(cluster.workers[0].ended);
  cluster.workers[0].client.catalogue().give_up_creation("t7");
  cluster.carry();
  assert_true(cluster.workers[0].ended);
  assert_int_equal(cluster.workers[0].status.code(), MV_ETIMEOUT);
  cluster.workers[1].create(many(nullptr));
  cluster.carry();
  assert_false(cluster.workers[1].ended);
  cluster.workers[0].create(many(&values));
  cluster.carry();
  for (const Worker& worker : cluster.workers) assert_true(worker.ended && worker.status.ok());
  assert_true(cluster.values(cluster.workers[1].made[7]->numbers.front()).front() == 7);
}

void a_worker_that_is_lost_ends_the_creation(void**) {
  Cluster cluster;
  cluster.workers[0].create(many(nullptr));
  cluster.carry();
  cluster.server.worker_lost(kWorkers[1], base::Status(MV_EPEERLOST, "worker 1 is lost"));
  cluster.carry();
  assert_true(cluster.workers[0].ended);
  assert_int_equal(cluster.workers[0].status.code(), MV_EPEERLOST);
  assert_true(cluster.server.parts().empty());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(many_tables_take_few_messages),
      cmocka_unit_test(a_spec_that_differs_leaves_nothing),
      cmocka_unit_test(names_are_free_when_all_workers_have_the_error),
      cmocka_unit_test(lists_of_workers_may_be_cut_differently),
      cmocka_unit_test(a_call_that_was_given_up_can_be_made_again),
      cmocka_unit_test(a_worker_that_is_lost_ends_the_creation),
  };
  return cmocka_run_group_tests_name("ps/creation", tests, nullptr, nullptr);
}
