// engine/table/gates/stale_gate: when workers may read a stale-synchronous table, one guarantee at a time. tests/sim runs whole clusters.

#include "engine/table/gates/stale_gate.hpp"  // first: CMocka has a macro called fail

#include <cstdint>
#include <cstring>
#include <functional>
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
class Written final : public table::StaleGate::Owner {
 public:
  Written(size_t workers, uint64_t staleness) : gate(*this, "t", staleness) {
    std::vector<std::string> names;
    for (size_t i = 0; i < workers; ++i) names.push_back(fmt::format("worker {}", i));
    gate.set_workers(std::make_shared<const std::vector<std::string>>(std::move(names)));
  }
  void get(size_t worker, uint64_t seq, uint64_t clock) { gate.get({worker + 1, seq}, clock); }
  bool withdraw(size_t worker, uint64_t seq) { return gate.withdraw({worker + 1, seq}, &missing); }

  void serve_stale(const rpc::Asked& asked) override {
    write("serve", asked);
    if (on_serve) std::exchange(on_serve, nullptr)();
  }
  void fail_gated(const rpc::Asked& asked, const base::Status& why) override {
    write("fail", asked);
    failure = why;
  }
  /// The decisions since the last call.
  std::string take() { return std::exchange(decisions_, ""); }

  table::StaleGate gate;
  base::Status failure;
  std::string missing;
  std::function<void()> on_serve;

 private:
  void write(const char* what, const rpc::Asked& asked) {
    decisions_ += fmt::format("{}{} {}.{}", decisions_.empty() ? "" : ", ", what, asked.client - 1, asked.seq);
  }
  std::string decisions_;
};

void a_get_waits_for_workers_more_than_s_behind(void**) {
  for (uint64_t staleness = 1; staleness <= 3; ++staleness) {
    Written w(2, staleness);
    for (uint64_t clock = 0; clock <= staleness; ++clock) {
      w.gate.clock(0, clock);
      w.get(0, clock, clock);
      assert_string_equal(w.take().c_str(), fmt::format("serve 0.{}", clock).c_str());
    }
    w.gate.clock(0, staleness + 1);
    w.get(0, 99, staleness + 1);
    assert_string_equal(w.take().c_str(), "");
    w.gate.clock(1, 1);
    assert_string_equal(w.take().c_str(), "serve 0.99");
  }
}

void the_slowest_is_never_held_up(void**) {
  Written w(3, 1);
  w.gate.clock(0, 7);
  w.gate.clock(1, 9);
  w.get(2, 1, 0);
  w.get(2, 2, 1);
  assert_string_equal(w.take().c_str(), "serve 2.1, serve 2.2");
}

void a_tick_serves_only_the_gets_that_it_satisfies(void**) {
  Written w(3, 1);
  w.get(0, 1, 3);
  w.get(1, 1, 2);
  w.get(1, 2, 3);
  w.gate.clock(0, 3);
  w.gate.clock(1, 3);
  assert_string_equal(w.take().c_str(), "");
  w.gate.clock(2, 1);
  assert_string_equal(w.take().c_str(), "serve 1.1");
  w.gate.clock(2, 2);
  assert_string_equal(w.take().c_str(), "serve 0.1, serve 1.2");
}

void clocks_never_go_back(void**) {
  Written w(1, 1);
  w.gate.clock(0, 5);
  w.gate.clock(0, 3);
  assert_int_equal(w.gate.clock_of(0), 5);
  assert_int_equal(w.gate.least(), 5);
}

void a_finished_worker_is_not_waited_for(void**) {
  Written w(3, 1);
  w.get(0, 1, 4);
  w.gate.clock(0, 4);
  w.gate.clock(1, 4);
  w.gate.finished(2);
  assert_string_equal(w.take().c_str(), "serve 0.1");
  w.gate.finished(0);
  w.gate.finished(1);
  assert_true(w.gate.least() == UINT64_MAX);
}

void a_loss_fails_only_the_gets_that_waited_for_the_lost_worker(void**) {
  Written w(3, 1);
  w.gate.clock(0, 4);
  w.gate.clock(1, 2);
  w.get(0, 1, 4);  // needs 3: waits for both others
  w.gate.clock(2, 1);
  w.get(1, 1, 2);
  assert_string_equal(w.take().c_str(), "serve 1.1");
  w.get(0, 2, 3);  // needs 2: waits for worker 2
  w.gate.lost(2, base::error(MV_EPEERLOST, "worker 2 is gone"));
  assert_string_equal(w.take().c_str(), "fail 0.1, fail 0.2");
  assert_int_equal(w.failure.code(), MV_EPEERLOST);
  assert_non_null(strstr(w.failure.text().c_str(), "worker 2 is gone"));
  w.get(0, 3, 3);
  assert_string_equal(w.take().c_str(), "serve 0.3");
  w.get(0, 4, 4);  // worker 1 is still there
  assert_string_equal(w.take().c_str(), "");
  w.gate.lost(2, base::error(MV_EPEERLOST, "again"));
  assert_string_equal(w.take().c_str(), "");
  w.gate.clock(1, 3);
  assert_string_equal(w.take().c_str(), "serve 0.4");
}

void a_loss_does_not_fail_gets_that_wait_for_other_workers(void**) {
  Written w(3, 1);
  w.gate.clock(0, 5);
  w.gate.clock(2, 9);
  w.get(0, 1, 5);
  w.gate.lost(2, base::error(MV_EPEERLOST, "worker 2 is gone"));
  assert_string_equal(w.take().c_str(), "");
  w.gate.clock(1, 4);
  assert_string_equal(w.take().c_str(), "serve 0.1");
}

void a_replacement_starts_at_the_clock_of_the_slowest(void**) {
  Written w(3, 1);
  w.gate.clock(0, 6);
  w.gate.clock(1, 4);
  w.gate.clock(2, 9);
  w.gate.lost(2, base::error(MV_EPEERLOST, "gone"));
  w.gate.joined(2);
  assert_int_equal(w.gate.clock_of(2), 4);
  w.gate.lost(1, base::error(MV_EPEERLOST, "gone"));
  w.gate.clock(2, 5);
  w.gate.joined(1);
  assert_int_equal(w.gate.clock_of(1), 5);
  w.gate.joined(1);  // reported twice
  assert_int_equal(w.gate.clock_of(1), 5);
  assert_int_equal(w.gate.least(), 5);
}

/// Another server has told it this clock, before the others went on here.
void a_newcomer_begins_at_the_clock_that_it_was_told(void**) {
  Written w(3, 1);
  w.gate.finished(2);
  w.gate.clock(0, 9);
  w.gate.clock(1, 9);
  w.gate.begins(2, 4);
  assert_int_equal(w.gate.clock_of(2), 4);
  w.get(0, 1, 9);
  assert_int_equal(w.gate.waits().size(), 1);
  w.gate.begins(2, 6);  // it takes part already
  assert_int_equal(w.gate.clock_of(2), 4);
  w.gate.clock(2, 8);
  assert_int_equal(w.gate.waits().size(), 0);
}

void a_replacement_of_the_only_worker_continues_at_its_clock(void**) {
  Written w(2, 1);
  w.gate.clock(0, 3);
  w.gate.clock(1, 3);
  w.gate.finished(0);
  w.gate.lost(1, base::error(MV_EPEERLOST, "gone"));
  w.gate.joined(1);
  assert_int_equal(w.gate.clock_of(1), 3);
}

void a_withdrawn_get_is_not_served_and_names_the_workers_behind(void**) {
  Written w(3, 1);
  w.gate.clock(0, 4);
  w.gate.clock(1, 3);
  w.get(0, 1, 4);
  const auto waits = w.gate.waits();
  assert_int_equal(waits.size(), 1);
  assert_int_equal(waits[0].missing.size(), 1);
  assert_int_equal(waits[0].missing[0].worker, 2);
  assert_true(w.withdraw(0, 1));
  assert_string_equal(w.missing.c_str(), "worker 2 is at clock 0, 3 is needed");
  assert_true(w.gate.waits().empty());
  w.gate.clock(2, 4);
  assert_string_equal(w.take().c_str(), "");
  assert_false(w.withdraw(0, 1));
}

void all_begin_again_at_a_checkpoints_clock(void**) {
  Written w(2, 2);
  w.gate.restart(10);
  w.get(0, 1, 12);
  assert_string_equal(w.take().c_str(), "serve 0.1");
  w.get(0, 2, 13);
  assert_string_equal(w.take().c_str(), "");
}

void serving_may_lead_to_the_next_get(void**) {
  Written w(2, 1);
  w.get(0, 1, 2);
  w.get(0, 2, 2);
  w.on_serve = [&] { w.get(0, 3, 2); };
  w.gate.clock(0, 2);
  w.gate.clock(1, 1);
  assert_string_equal(w.take().c_str(), "serve 0.1, serve 0.2, serve 0.3");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_get_waits_for_workers_more_than_s_behind),
      cmocka_unit_test(the_slowest_is_never_held_up),
      cmocka_unit_test(a_tick_serves_only_the_gets_that_it_satisfies),
      cmocka_unit_test(clocks_never_go_back),
      cmocka_unit_test(a_finished_worker_is_not_waited_for),
      cmocka_unit_test(a_loss_fails_only_the_gets_that_waited_for_the_lost_worker),
      cmocka_unit_test(a_loss_does_not_fail_gets_that_wait_for_other_workers),
      cmocka_unit_test(a_replacement_starts_at_the_clock_of_the_slowest),
      cmocka_unit_test(a_newcomer_begins_at_the_clock_that_it_was_told),
      cmocka_unit_test(a_replacement_of_the_only_worker_continues_at_its_clock),
      cmocka_unit_test(a_withdrawn_get_is_not_served_and_names_the_workers_behind),
      cmocka_unit_test(all_begin_again_at_a_checkpoints_clock),
      cmocka_unit_test(serving_may_lead_to_the_next_get),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
