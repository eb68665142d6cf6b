// engine/table/gates/merge_gate: rounds of a merging table, one guarantee at a time.

#include "engine/table/gates/merge_gate.hpp"  // first: CMocka has a macro called fail

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;

/// A gate of some workers that records its decisions. Requests are named by worker and sequence number.
class Written final : public table::MergeGate::Owner {
 public:
  explicit Written(size_t workers) : gate(*this, "t") {
    std::vector<std::string> names;
    for (size_t i = 0; i < workers; ++i) names.push_back(fmt::format("worker {}", i));
    gate.set_workers(std::make_shared<const std::vector<std::string>>(std::move(names)));
  }
  /// An add of one message.
  void add(size_t worker, uint64_t seq, uint64_t round) { gate.change(worker, {worker + 1, seq}, round, 0, 1); }
  void part(size_t worker, uint64_t seq, uint64_t round, uint64_t stripe, uint32_t of) {
    gate.change(worker, {worker + 1, seq}, round, stripe, of);
  }
  void get(size_t worker, uint64_t seq, uint64_t adds) { gate.get({worker + 1, seq}, adds); }

  void merge(std::span<const rpc::Asked> parts) override {
    std::string text = "merge";
    for (const rpc::Asked& asked : parts) text += fmt::format(" {}.{}", asked.client - 1, asked.seq);
    write(text);
  }
  void accept(const rpc::Asked&) override { ++accepted; }
  void serve_get(const rpc::Asked& asked) override { write(fmt::format("serve {}.{}", asked.client - 1, asked.seq)); }
  void fail_gated(const rpc::Asked& asked, const base::Status& why) override {
    write(fmt::format("fail {}.{}", asked.client - 1, asked.seq));
    failure = why;
  }
  void on_merged() override { ++rounds; }
  /// The decisions since the last call.
  std::string take() { return std::exchange(decisions_, ""); }

  table::MergeGate gate;
  base::Status failure;
  int accepted = 0, rounds = 0;

 private:
  void write(const std::string& what) { decisions_ += (decisions_.empty() ? "" : ", ") + what; }
  std::string decisions_;
};

void expect(Written& w, const char* decisions) { assert_string_equal(w.take().c_str(), decisions); }

void a_round_is_merged_once_in_the_order_of_ranks(void**) {
  Written w(3);
  w.add(2, 1, 0);
  w.add(0, 1, 0);
  expect(w, "");
  w.add(1, 1, 0);
  expect(w, "merge 0.1 1.1 2.1");
  assert_int_equal(w.gate.merged(), 1);
  assert_int_equal(w.accepted, 3);
  assert_int_equal(w.rounds, 1);
}

void two_adds_of_one_worker_are_two_rounds(void**) {
  Written w(2);
  w.add(0, 1, 0);
  w.add(0, 2, 1);
  w.add(0, 3, 2);
  expect(w, "");
  assert_int_equal(w.accepted, 1);  // the second one waits for its round
  const auto waits = w.gate.waits();
  assert_int_equal(waits.size(), 1);
  assert_true(waits[0].kind == cluster::WaitKind::kAdd && waits[0].asked.seq == 2 && waits[0].number == 2 && waits[0].missing.size() == 1);
  assert_string_equal(waits[0].missing[0].what.c_str(), "has not made add #1");
  w.add(1, 1, 0);
  expect(w, "merge 0.1 1.1");
  assert_int_equal(w.accepted, 3);
  w.add(1, 2, 1);
  expect(w, "merge 0.2 1.2");
}

void a_get_waits_for_the_rounds_of_its_own_adds(void**) {
  Written w(2);
  w.get(1, 1, 0);  // it has added nothing: its get waits for no round
  expect(w, "serve 1.1");
  w.add(0, 1, 0);
  w.get(0, 2, 1);
  w.get(1, 2, 0);
  expect(w, "serve 1.2");
  w.add(1, 3, 0);
  expect(w, "merge 0.1 1.3, serve 0.2");
}

void large_adds_are_merged_stripe_by_stripe(void**) {
  Written w(2);
  for (uint64_t stripe = 0; stripe < 3; ++stripe) w.part(0, 1 + stripe, 0, stripe, 3);
  w.part(1, 1, 0, 0, 3);
  expect(w, "merge 0.1 1.1");
  w.part(1, 2, 0, 2, 3);
  expect(w, "merge 0.3 1.2");
  w.get(1, 9, 1);
  expect(w, "");
  w.part(1, 3, 0, 1, 3);
  expect(w, "merge 0.2 1.3, serve 1.9");
}

void rows_are_merged_together(void**) {
  Written w(2);
  const uint64_t rows = table::MergeGate::kRows;
  w.part(0, 1, 0, rows, 2);
  w.part(1, 1, 0, rows, 1);
  expect(w, "");
  w.part(0, 2, 0, rows, 2);
  expect(w, "merge 0.1 0.2 1.1");
}

/// Rows longer than a message are sent as elements: of stripes in which only some workers have a part.
void a_stripe_waits_only_for_workers_with_a_part_in_it(void**) {
  Written w(2);
  w.part(0, 1, 0, 0, 1);
  expect(w, "");
  w.part(1, 1, 0, 3, 1);
  expect(w, "merge 0.1, merge 1.1");
  assert_int_equal(w.gate.merged(), 1);
}

void rows_and_whole_values_may_meet(void**) {
  Written w(2);
  w.part(0, 1, 0, table::MergeGate::kRows, 1);
  w.part(1, 1, 0, 0, 2);
  w.part(1, 2, 0, 1, 2);
  assert_int_equal(w.gate.merged(), 1);
}

void a_finished_worker_is_not_waited_for(void**) {
  Written w(3);
  w.add(0, 1, 0);
  w.add(2, 1, 0);
  w.gate.finished(2);  // its earlier adds count
  expect(w, "");
  w.add(1, 1, 0);
  expect(w, "merge 0.1 1.1 2.1");
  w.add(0, 2, 1);
  w.gate.finished(1);
  expect(w, "merge 0.2");
}

void the_last_ones_rest_is_merged_too(void**) {
  Written w(2);
  w.add(0, 1, 0);
  w.add(0, 2, 1);
  w.gate.finished(0);
  w.gate.finished(1);
  expect(w, "merge 0.1, merge 0.2");
}

void a_loss_fails_the_gets_that_waited_for_the_lost_worker(void**) {
  Written w(2);
  w.add(0, 1, 0);
  w.get(0, 2, 1);
  w.gate.lost(1, base::Status(MV_EPEERLOST, "worker 1 is gone"));
  expect(w, "fail 0.2, merge 0.1");
  assert_non_null(std::strstr(w.failure.text().c_str(), "worker 1 is gone"));
  w.add(0, 3, 1);
  w.get(0, 4, 2);
  expect(w, "merge 0.3, serve 0.4");
}

void a_loss_does_not_fail_gets_that_wait_for_other_workers(void**) {
  Written w(3);
  w.add(0, 1, 0);
  w.add(1, 1, 0);
  w.get(0, 2, 1);
  w.gate.lost(1, base::Status(MV_EPEERLOST, "gone"));
  expect(w, "");
  w.add(2, 1, 0);
  expect(w, "merge 0.1 1.1 2.1, serve 0.2");
}

void a_replacement_begins_with_its_own_round(void**) {
  Written w(2);
  w.add(1, 1, 0);
  w.gate.lost(1, base::Status(MV_EPEERLOST, "gone"));
  w.gate.joined(1);
  assert_int_equal(w.gate.next_round(1), 1);
  w.add(0, 1, 0);
  expect(w, "merge 0.1 1.1");
  w.add(0, 2, 1);
  expect(w, "");
  w.add(1, 2, 1);
  expect(w, "merge 0.2 1.2");
}

void a_withdrawn_get_names_the_missing_workers(void**) {
  Written w(3);
  w.add(0, 1, 0);
  w.add(1, 1, 0);
  w.get(0, 2, 1);
  std::string missing;
  assert_true(w.gate.withdraw({1, 2}, &missing));
  assert_non_null(std::strstr(missing.c_str(), "worker 2"));
  assert_null(std::strstr(missing.c_str(), "worker 1"));
  assert_false(w.gate.withdraw({1, 2}, &missing));
  w.add(2, 1, 0);
  expect(w, "merge 0.1 1.1 2.1");
}

void protocol_violations_are_refused(void**) {
  Written w(2);
  w.add(0, 1, 0);
  w.add(0, 2, 0);  // twice in one round
  expect(w, "fail 0.2");
  w.add(1, 1, 0);
  expect(w, "merge 0.1 1.1");
  w.add(1, 2, 0);  // too late
  expect(w, "fail 1.2");
  w.add(1, 3, UINT64_MAX);
  expect(w, "fail 1.3");
  w.part(1, 4, 1, 0, 2);
  w.part(1, 5, 1, 1, 3);  // with another count of parts
  expect(w, "fail 1.5");
}

void all_begin_again_at_a_checkpoints_round(void**) {
  Written w(2);
  w.add(0, 1, 0);
  w.gate.restart(7);
  expect(w, "fail 0.1");
  w.add(0, 2, 7);
  w.add(1, 1, 7);
  expect(w, "merge 0.2 1.1");
  assert_int_equal(w.gate.merged(), 8);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_round_is_merged_once_in_the_order_of_ranks),
      cmocka_unit_test(two_adds_of_one_worker_are_two_rounds),
      cmocka_unit_test(a_get_waits_for_the_rounds_of_its_own_adds),
      cmocka_unit_test(large_adds_are_merged_stripe_by_stripe),
      cmocka_unit_test(rows_are_merged_together),
      cmocka_unit_test(a_stripe_waits_only_for_workers_with_a_part_in_it),
      cmocka_unit_test(rows_and_whole_values_may_meet),
      cmocka_unit_test(a_finished_worker_is_not_waited_for),
      cmocka_unit_test(the_last_ones_rest_is_merged_too),
      cmocka_unit_test(a_loss_fails_the_gets_that_waited_for_the_lost_worker),
      cmocka_unit_test(a_loss_does_not_fail_gets_that_wait_for_other_workers),
      cmocka_unit_test(a_replacement_begins_with_its_own_round),
      cmocka_unit_test(a_withdrawn_get_names_the_missing_workers),
      cmocka_unit_test(protocol_violations_are_refused),
      cmocka_unit_test(all_begin_again_at_a_checkpoints_round),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
