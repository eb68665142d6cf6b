// engine/table: a round whose adds were acknowledged but cannot be merged, and rounds without a lost worker. Every worker with a part in
// such a round gets the error from its next call.

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "codec/wire.hpp"
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

constexpr uint64_t kElements = 16;

struct Heard final : rpc::Pending {
  void finish(const base::Status& told, const wire::Message*, std::span<const std::byte>) override {
    over = true;
    status = told;
  }
  bool over = false;
  base::Status status;
};
struct Ending final : base::Operation {
  void ended(const base::Status&) override {}
};

struct Merging : unit::Cluster {
  Merging() {
    for (unit::Worker& worker : workers) {
      shard::Spec spec;
      spec.name = "t";
      spec.rows = kElements;
      spec.flags = MV_MERGE;
      worker.create({{std::make_shared<const shard::Spec>(spec), nullptr, false}});
    }
    carry();
    for (const unit::Worker& worker : workers) assert_true(worker.ended && worker.status.ok());
  }
  /// An add of the first `count` elements, all of them 1, encoded or not.
  std::shared_ptr<Heard> add(size_t worker, uint64_t count, uint64_t index, const codec::CodecRef& codec) {
    const std::vector<float> ones(count, 1);
    std::vector<float> residual(count);
    std::vector<std::byte> bytes(codec != nullptr ? codec->encoded_bytes(count) : count * sizeof(float));
    if (codec != nullptr)
      codec->encode(ones.data(), residual.data(), count, bytes.data());
    else
      std::memcpy(bytes.data(), ones.data(), bytes.size());
    wire::FrameBuilder builder;
    auto& fbb = builder.fbb();
    const auto written = codec::to_wire(fbb, codec.get());
    const auto body = wire::CreateChange(fbb, workers[worker].made.front()->numbers[0], wire::Write::Add, 0, count, 0, 0, index, 1, 0, 0, written);
    const auto heard = std::make_shared<Heard>();
    workers[worker].rpc.call(unit::kServer, {builder.finish(wire::Body::Change, body, base::Payload::copy(bytes)), heard, false, 0, nullptr});
    workers[worker].made.front()->clock = index + 1;
    return heard;
  }
  std::shared_ptr<Ending> get(size_t worker, bool of_many = false) {
    const auto ending = std::make_shared<Ending>();
    table::Request request;
    request.table = workers[worker].made.front();
    request.destination = std::as_writable_bytes(std::span(got));
    if (of_many) request.many = {{request.table, request.destination}};
    request.operation = ending;
    workers[worker].client.begin(std::move(request));
    return ending;
  }
  /// One worker encodes all elements, the other sends the first five: these cannot be summed.
  void lose_round() {
    const auto first = add(0, kElements, 0, codec::make({"2bit", {0.5}}));
    const auto second = add(1, 5, 0, nullptr);
    carry();
    assert_true(first->over && first->status.ok() && second->over && second->status.ok());  // acknowledged on arrival
  }
  std::array<float, kElements> got{};
};

void the_next_get_tells(bool of_many) {
  Merging cluster;
  cluster.lose_round();
  for (const size_t worker : {0, 1}) {
    const auto lost = cluster.get(worker, of_many), next = cluster.get(worker, of_many);
    cluster.carry();
    assert_true(lost->done() && next->done());
    assert_int_equal(lost->status().code(), MV_EPROTOCOL);
    assert_non_null(strstr(lost->status().text().c_str(), "earlier add is lost"));
    assert_true(next->status().ok());  // once
  }
}

void the_next_get_of_one_table_reports_it(void**) { the_next_get_tells(false); }
void the_next_get_of_many_tables_reports_it(void**) { the_next_get_tells(true); }

void the_next_add_reports_it_and_counts(void**) {
  Merging cluster;
  cluster.lose_round();
  const auto first = cluster.add(0, kElements, 1, nullptr), second = cluster.add(1, kElements, 1, nullptr);
  cluster.carry();
  for (const auto& add : {first, second}) {
    assert_true(add->over);
    assert_int_equal(add->status.code(), MV_EPROTOCOL);
    assert_non_null(strstr(add->status.text().c_str(), "this add was accepted"));
  }
  const auto ending = cluster.get(0);
  cluster.carry();
  assert_true(ending->done() && ending->status().ok());
  for (const float value : cluster.got) assert_true(value == 2);
}

/// Worker 1 is lost when no call waits for it, and worker 0 makes a round without it.
void a_loss_between_rounds_is_told_once(bool of_many) {
  Merging cluster;
  for (const size_t worker : {0, 1}) cluster.add(worker, kElements, 0, nullptr);
  cluster.carry();
  const std::shared_ptr<shard::Shard> shard = cluster.server.shard(0);
  assert_int_equal(shard->least_clock, 1);
  cluster.server.worker_lost(unit::kWorkers[1], base::Status(MV_EPEERLOST, "worker 1 is lost"));
  cluster.add(0, kElements, 1, nullptr);
  cluster.carry();
  assert_int_equal(shard->least_clock, 0);  // nothing is read without a request
  const auto told = cluster.get(0, of_many), next = cluster.get(0, of_many);
  cluster.carry();
  assert_true(told->done() && next->done());
  assert_int_equal(told->status().code(), MV_EPEERLOST);
  assert_non_null(strstr(told->status().text().c_str(), "worker 1 is lost"));
  assert_true(next->status().ok());
  for (const float value : cluster.got) assert_true(value == 3);
  assert_int_equal(shard->least_clock, 2);
}

void the_next_get_of_one_table_reports_a_loss(void**) { a_loss_between_rounds_is_told_once(false); }
void the_next_get_of_many_tables_reports_a_loss(void**) { a_loss_between_rounds_is_told_once(true); }

void a_worker_whose_get_waited_is_told_once(void**) {
  Merging cluster;
  cluster.add(0, kElements, 0, nullptr);
  const auto waiting = cluster.get(0);
  cluster.carry();
  cluster.server.worker_lost(unit::kWorkers[1], base::Status(MV_EPEERLOST, "worker 1 is lost"));
  const auto next = cluster.get(0);
  cluster.carry();
  assert_int_equal(waiting->status().code(), MV_EPEERLOST);
  assert_true(next->done() && next->status().ok());
}

void the_end_of_a_worker_is_no_loss(void**) {
  Merging cluster;
  cluster.server.worker_finished(unit::kWorkers[1]);
  cluster.add(0, kElements, 0, nullptr);
  const auto get = cluster.get(0);
  cluster.carry();
  assert_true(get->done() && get->status().ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_next_get_of_one_table_reports_it),
      cmocka_unit_test(the_next_get_of_many_tables_reports_it),
      cmocka_unit_test(the_next_add_reports_it_and_counts),
      cmocka_unit_test(the_next_get_of_one_table_reports_a_loss),
      cmocka_unit_test(the_next_get_of_many_tables_reports_a_loss),
      cmocka_unit_test(a_worker_whose_get_waited_is_told_once),
      cmocka_unit_test(the_end_of_a_worker_is_no_loss),
  };
  return cmocka_run_group_tests_name("ps/lost_round", tests, nullptr, nullptr);
}
