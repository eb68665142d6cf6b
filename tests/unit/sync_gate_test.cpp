// engine/table/gates/sync_gate: the order of sync mode, one guarantee at a time. tests/sim runs whole clusters.

#include "engine/table/gates/sync_gate.hpp"  // first: CMocka has a macro called fail

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
class Written final : public table::SyncGate::Owner {
 public:
  explicit Written(size_t workers) : gate(*this, "t") {
    std::vector<std::string> names;
    for (size_t i = 0; i < workers; ++i) names.push_back(fmt::format("worker {}", i));
    gate.set_workers(std::move(names));
  }
  void add(size_t worker, uint64_t seq, uint64_t round, uint64_t index, uint32_t of = 1) {
    gate.change(worker, {worker + 1, seq}, {round, index}, of, 8, true);
  }
  void offer(size_t worker, uint64_t seq, uint64_t round, uint64_t index, uint32_t of = 1) {
    gate.change(worker, {worker + 1, seq}, {round, index}, of, 8, false);
  }
  void get(size_t worker, uint64_t seq, uint64_t round, uint64_t index) {
    gate.get(worker, {worker + 1, seq}, {round, index});
  }
  /// A set, an erase, or a change of the updater.
  void follow(size_t worker, uint64_t seq) {
    if (!gate.follow(worker, {worker + 1, seq})) write("now", {worker + 1, seq});
  }
  bool withdraw(size_t worker, uint64_t seq) { return gate.withdraw(worker, {worker + 1, seq}, &missing); }

  void apply_change(const rpc::Asked& asked) override { write("apply", asked); }
  void grant_change(const rpc::Asked& asked) override { write("grant", asked); }
  void serve_get(const rpc::Asked& asked) override { write("serve", asked); }
  void fail_gated(const rpc::Asked& asked, const base::Status& why) override {
    write("fail", asked);
    failure = why;
  }
  /// The decisions since the last call.
  std::string take() { return std::exchange(decisions_, ""); }

  table::SyncGate gate;
  base::Status failure;
  std::string missing;

 private:
  void write(const char* what, const rpc::Asked& asked) {
    decisions_ += fmt::format("{}{} {}.{}", decisions_.empty() ? "" : ", ", what, asked.client - 1, asked.seq);
  }
  std::string decisions_;
};

void adds_are_applied_by_index_then_by_worker(void**) {
  Written w(2);
  w.add(1, 1, 0, 0);
  w.add(1, 2, 0, 1);
  assert_string_equal(w.take().c_str(), "");
  w.add(0, 1, 0, 0);
  assert_string_equal(w.take().c_str(), "apply 0.1, apply 1.1");
  w.add(0, 2, 0, 1);
  assert_string_equal(w.take().c_str(), "apply 0.2, apply 1.2");
}

void a_get_waits_for_as_many_adds_of_everyone(void**) {
  Written w(2);
  w.add(0, 1, 0, 0);
  w.get(0, 2, 0, 1);
  assert_string_equal(w.take().c_str(), "apply 0.1");
  w.add(1, 1, 0, 0);
  assert_string_equal(w.take().c_str(), "apply 1.1, serve 0.2");
}

void adds_of_the_next_round_wait_until_everyone_holds_its_get(void**) {
  Written w(2);
  w.get(0, 1, 0, 0);
  w.get(1, 1, 0, 0);
  assert_string_equal(w.take().c_str(), "serve 0.1, serve 1.1");
  w.add(0, 2, 1, 0);
  w.gate.got(0, 0);
  assert_string_equal(w.take().c_str(), "");
  w.gate.got(1, 0);
  assert_string_equal(w.take().c_str(), "apply 0.2");
}

void a_later_get_does_not_speak_for_an_earlier_one(void**) {
  Written w(2);
  for (uint64_t round = 0; round < 2; ++round) w.get(0, 1 + round, round, 0);
  for (uint64_t round = 0; round < 2; ++round) w.get(1, 1 + round, round, 0);
  w.gate.got(1, 0);
  w.gate.got(1, 1);
  w.take();
  w.add(1, 3, 2, 0);
  w.add(0, 3, 2, 0);
  w.gate.got(0, 1);  // the answer to its get number 0 was lost
  assert_string_equal(w.take().c_str(), "");
  w.gate.got(0, 0);
  assert_string_equal(w.take().c_str(), "apply 0.3, apply 1.3");
}

void a_finished_worker_blocks_no_other(void**) {
  Written w(2);
  w.add(0, 1, 0, 0);
  w.get(0, 2, 0, 1);
  w.take();
  w.gate.finished(1);
  assert_string_equal(w.take().c_str(), "serve 0.2");
}

void a_loss_fails_all_calls_and_names_the_lost_worker(void**) {
  Written w(2);
  w.add(0, 1, 0, 0);
  w.get(0, 2, 0, 1);
  w.take();
  w.gate.lost(1, base::error(MV_EPEERLOST, "worker 1 is gone"));
  assert_string_equal(w.take().c_str(), "fail 0.2");
  assert_int_equal(w.failure.code(), MV_EPEERLOST);
  assert_non_null(strstr(w.failure.text().c_str(), "worker 1 is gone"));
  w.add(0, 3, 0, 1);
  assert_string_equal(w.take().c_str(), "fail 0.3");
}

void a_worker_that_makes_other_calls_gets_an_error(void**) {
  Written w(2);
  w.add(0, 1, 0, 0);
  w.get(0, 2, 0, 1);
  w.get(1, 1, 0, 0);
  assert_string_equal(w.take().c_str(), "apply 0.1, fail 0.2, fail 1.1");
  assert_int_equal(w.failure.code(), MV_EOUTOFSTEP);
}

void the_sender_whose_turn_it_is_and_the_next_hold_grants(void**) {
  Written w(3);
  for (size_t worker = 3; worker-- > 0;) w.offer(worker, 1, 0, 0);
  const std::string granted = w.take();
  assert_non_null(strstr(granted.c_str(), "grant 0.1"));
  assert_null(strstr(granted.c_str(), "apply"));
  w.gate.data(0, {1, 1});
  assert_non_null(strstr(w.take().c_str(), "apply 0.1"));
}

void an_add_counts_when_all_its_chunks_are_applied(void**) {
  Written w(1);
  w.add(0, 1, 0, 0, 2);
  w.get(0, 2, 0, 1);
  assert_string_equal(w.take().c_str(), "apply 0.1");
  w.add(0, 3, 0, 0, 2);
  assert_string_equal(w.take().c_str(), "apply 0.3, serve 0.2");
}

void a_withdrawn_add_keeps_its_place(void**) {
  Written w(2);
  w.offer(0, 1, 0, 0);
  w.add(0, 2, 0, 1);
  assert_true(w.withdraw(0, 1));
  assert_non_null(strstr(w.missing.c_str(), "worker"));
  w.take();
  w.add(1, 1, 0, 0);
  assert_string_equal(w.take().c_str(), "");  // neither worker 0's second add, nor another worker's
  w.add(0, 3, 0, 0);
  assert_string_equal(w.take().c_str(), "apply 0.3, apply 1.1, apply 0.2");
}

void what_is_here_is_not_given_back(void**) {
  Written w(2);
  w.add(1, 1, 0, 0);
  assert_false(w.withdraw(1, 1));
  w.get(1, 2, 0, 1);
  assert_true(w.withdraw(1, 2));
  w.take();
  w.add(0, 1, 0, 0);
  assert_string_equal(w.take().c_str(), "apply 0.1, apply 1.1");
}

void uncounted_calls_still_follow_their_workers_adds(void**) {
  Written w(2);
  w.follow(1, 1);
  assert_string_equal(w.take().c_str(), "now 1.1");
  w.add(1, 2, 0, 0);
  w.follow(1, 3);
  w.follow(1, 4);
  w.add(1, 5, 0, 1);
  w.follow(0, 1);  // does not depend on others' adds
  assert_string_equal(w.take().c_str(), "now 0.1");
  w.add(0, 2, 0, 0);
  assert_string_equal(w.take().c_str(), "apply 0.2, apply 1.2, apply 1.3, apply 1.4");
  w.follow(1, 6);
  w.add(0, 3, 0, 1);
  assert_string_equal(w.take().c_str(), "apply 0.3, apply 1.5, apply 1.6");
}

void calls_after_a_withdrawn_add_do_not_wait_for_it(void**) {
  Written w(2);
  w.offer(1, 1, 0, 0);
  w.follow(1, 2);
  w.take();
  assert_true(w.withdraw(1, 1));
  assert_string_equal(w.take().c_str(), "apply 1.2");
}

void a_loss_fails_calls_that_follow_adds_too(void**) {
  Written w(3);
  w.add(1, 1, 0, 0);
  w.follow(1, 2);
  w.gate.lost(0, base::error(MV_EPEERLOST, "worker 0 is gone"));
  assert_string_equal(w.take().c_str(), "fail 1.1, fail 1.2");
}

void a_worker_that_joins_begins_behind_the_last_get(void**) {
  Written w(3);
  w.gate.finished(2);
  for (size_t worker = 0; worker < 2; ++worker) w.add(worker, 1, 0, 0);
  for (size_t worker = 0; worker < 2; ++worker) w.get(worker, 2, 0, 1);
  for (size_t worker = 0; worker < 2; ++worker) w.gate.got(worker, 0);
  w.add(0, 3, 1, 1);
  w.take();
  w.gate.joined(2);
  assert_int_equal(w.gate.count_of(2).round, 1);
  assert_int_equal(w.gate.count_of(2).index, 1);
  w.add(1, 3, 1, 1);
  w.get(0, 4, 1, 2);
  assert_string_equal(w.take().c_str(), "apply 1.3");  // the get waits for the newcomer's add
  w.add(2, 1, 1, 1);
  assert_string_equal(w.take().c_str(), "apply 2.1, serve 0.4");
}

void a_worker_that_joins_later_elsewhere_begins_later_here(void**) {
  Written w(2);
  w.gate.finished(1);
  w.gate.joined(1);
  w.add(0, 1, 0, 0);
  w.add(0, 2, 0, 1);
  w.get(0, 3, 0, 2);
  assert_string_equal(w.take().c_str(), "apply 0.1");
  w.gate.begins(1, {1, 2});
  assert_string_equal(w.take().c_str(), "apply 0.2, serve 0.3");
  w.gate.got(0, 0);
  w.get(0, 4, 1, 2);
  assert_string_equal(w.take().c_str(), "serve 0.4");
  w.gate.begins(1, {0, 0});  // the clock of a worker that takes part already changes nothing
  assert_int_equal(w.gate.count_of(1).round, 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(adds_are_applied_by_index_then_by_worker),
      cmocka_unit_test(a_get_waits_for_as_many_adds_of_everyone),
      cmocka_unit_test(adds_of_the_next_round_wait_until_everyone_holds_its_get),
      cmocka_unit_test(a_later_get_does_not_speak_for_an_earlier_one),
      cmocka_unit_test(a_finished_worker_blocks_no_other),
      cmocka_unit_test(a_loss_fails_all_calls_and_names_the_lost_worker),
      cmocka_unit_test(a_worker_that_makes_other_calls_gets_an_error),
      cmocka_unit_test(the_sender_whose_turn_it_is_and_the_next_hold_grants),
      cmocka_unit_test(an_add_counts_when_all_its_chunks_are_applied),
      cmocka_unit_test(a_withdrawn_add_keeps_its_place),
      cmocka_unit_test(what_is_here_is_not_given_back),
      cmocka_unit_test(uncounted_calls_still_follow_their_workers_adds),
      cmocka_unit_test(calls_after_a_withdrawn_add_do_not_wait_for_it),
      cmocka_unit_test(a_loss_fails_calls_that_follow_adds_too),
      cmocka_unit_test(a_worker_that_joins_begins_behind_the_last_get),
      cmocka_unit_test(a_worker_that_joins_later_elsewhere_begins_later_here),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
