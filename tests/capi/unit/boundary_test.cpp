// The C layer above a node that throws, is interrupted, or finishes calls at awkward moments.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fake_node.hpp"

#include "cpp_expect.hpp"

namespace {

using mv::base::error;
using mv::base::Status;
using mv::api::CallOptions;
using mv::api::CallRef;
using mv::api::Mode;
using mv::api::Started;
namespace fake = mv::fake;

int fresh(void**) {
  fake::reset();
  return 0;
}
/// Shuts down all nodes that a test left, with as many attempts as needed.
int all_shut(void**) {
  fake::script = fake::Script();
  while (mv_shutdown(0) == MV_OK) continue;
  assert_int_equal(fake::seen.alive, 0);
  assert_int_equal(fake::seen.tables, 0);
  return 0;
}

mv_table array_of(uint64_t elements) {
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.rows = elements;
  mv_table table = 0;
  expect_ok(mv_table_create(0, &spec, nullptr, 0, MV_F32, &table));
  return table;
}
mv_call_options async_into(mv_request* request) {
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = request;
  return options;
}
/// Makes asynchronous calls run until the test finishes them.
CallRef running;
void leave_calls_running() {
  fake::script.call = [](const CallOptions& options) {
    running = fake::begin_call(options.tag);
    return Started{{}, running};
  };
}

void exceptions_become_statuses(void**) {
  expect_ok(mv_init(nullptr));
  const mv_table table = array_of(1);
  const float one = 1;
  fake::script.call = [](const CallOptions&) -> Started { throw std::bad_alloc(); };
  expect_error(mv_table_add(table, &one, 1, MV_F32, nullptr), MV_ENOMEM, "mv_table_add: out of memory");
  fake::script.call = [](const CallOptions&) -> Started { throw std::runtime_error("the sky fell"); };
  expect_error(mv_table_add(table, &one, 1, MV_F32, nullptr), MV_EINTERNAL, "mv_table_add: the sky fell");
  fake::script.call = [](const CallOptions&) -> Started { throw 7; };
  expect_error(mv_table_erase_rows(table, nullptr, 0, nullptr), MV_EINTERNAL, "mv_table_erase_rows: an unknown");
  expect_error(mv_table_set_updater(table, "add", nullptr), MV_EINTERNAL, "mv_table_set_updater: an unknown");
  expect_error(mv_checkpoint_save(0, "/nowhere", 0, nullptr), MV_EINTERNAL, "mv_checkpoint_save: an unknown");
  fake::script.info = []() -> Status { throw std::bad_alloc(); };
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_error(mv_table_describe(table, &info), MV_ENOMEM, "mv_table_describe: out of memory");
  expect_error(mv_table_clock(table), MV_ENOMEM, "mv_table_clock: out of memory");
  expect_error(mv_barrier(0, nullptr), MV_EINTERNAL, "unknown");
  fake::script.call = nullptr;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, nullptr));
  assert_string_equal(mv_last_error(), "mv_barrier: an unknown exception");  // a success does not clear it
}

void what_the_node_tells_of_a_table_arrives(void**) {
  expect_ok(mv_init(nullptr));
  const mv_table table = array_of(2);
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(table, &info));
  assert_true(info.rows == 2 && info.servers == 1 && info.bytes == 8 && info.adds == 3 && info.gets == 4);
  assert_true(info.clock == 5 && info.stored == 6 && info.memory_bytes == 7 && info.state_bytes == 8 && info.updates == 9);
  fake::script.info = [] { return error(MV_EPEERLOST, "server 1 is gone"); };
  info.rows = 77;
  expect_error(mv_table_describe(table, &info), MV_EPEERLOST, "server 1 is gone");
  assert_int_equal(info.rows, 77);
  expect_ok(mv_table_set_updater(table, "sgd rate=0.5", nullptr));
  assert_string_equal(fake::seen.updater.c_str(), "sgd rate=0.5 decay=0");
  int64_t rows[3], next = 0;
  uint64_t found = 0;
  expect_ok(mv_table_scan(table, 41, rows, 3, nullptr, 0, MV_F32, &next, &found));
  assert_true(next == 42 && found == 3);
}

void an_exception_leaves_no_request_behind(void**) {
  expect_ok(mv_init(nullptr));
  mv_request request = 99;
  mv_call_options options = async_into(&request);
  fake::script.call = [](const CallOptions&) -> Started { throw std::bad_alloc(); };
  expect_error(mv_barrier(0, &options), MV_ENOMEM, "");
  assert_int_equal(request, 0);
  expect_error(mv_request_wait(fake::seen.options.tag, 0), MV_EHANDLE, "is a request");
}

void a_failed_start_leaves_nothing_initialised(void**) {
  fake::script.start = [](const mv::runtime::Settings&) { return error(MV_EUNREACHABLE, "nobody at 127.0.0.1:1"); };
  expect_error(mv_init(nullptr), MV_EUNREACHABLE, "nobody at 127.0.0.1:1");
  int64_t rank = 0;
  expect_error(mv_rank(0, &rank), MV_ESTATE, "mv_init()");
  fake::script.start = nullptr;
  expect_ok(mv_init(nullptr));
}

void a_start_that_a_signal_ended_goes_on_with_the_next_call(void**) {
  int signals = 3;
  fake::script.start = [&](const mv::runtime::Settings&) { return signals-- > 0 ? error(MV_EINTR, "a signal came") : Status(); };
  mv_node opened = 0;
  expect_error(mv_init(nullptr), MV_EINTR, "signal");
  expect_error(mv_init(nullptr), MV_EINTR, "signal");
  expect_error(mv_node_open(nullptr, &opened), MV_EINTR, "signal");
  assert_int_equal(fake::seen.alive, 2);
  expect_ok(mv_init(nullptr));
  expect_ok(mv_node_open(nullptr, &opened));
  assert_int_equal(fake::seen.starts, 2);
  expect_ok(mv_shutdown(opened));
  expect_ok(mv_shutdown(0));
  assert_int_equal(fake::seen.alive, 0);
}

void a_start_that_a_signal_ended_can_be_given_up(void**) {
  fake::script.start = [](const mv::runtime::Settings&) { return error(MV_EINTR, "a signal came"); };
  expect_error(mv_init(nullptr), MV_EINTR, "signal");
  expect_error(mv_init_text("sync=1"), MV_EINTR, "signal");  // another node: the first has been given up
  assert_int_equal(fake::seen.starts, 2);
  assert_int_equal(fake::seen.alive, 1);
  expect_ok(mv_shutdown(0));
  assert_int_equal(fake::seen.alive, 0);
  expect_error(mv_shutdown(0), MV_ESTATE, "mv_init()");
  for (int i = 1; i <= 20; ++i) {
    mv_init_options options = MV_INIT_OPTIONS_INIT;
    options.timeout_ms = i;
    mv_node opened = 0;
    expect_error(mv_node_open(&options, &opened), MV_EINTR, "signal");
  }
  assert_in_range(fake::seen.alive, 0, 8);
  fake::script.start = nullptr;
  for (int i = 1; i <= 20; ++i) {  // remembered ones continue, the others start anew
    mv_init_options options = MV_INIT_OPTIONS_INIT;
    options.timeout_ms = i;
    mv_node opened = 0;
    expect_ok(mv_node_open(&options, &opened));
    expect_ok(mv_shutdown(opened));
  }
  assert_int_equal(fake::seen.alive, 0);
}

void init_and_shutdown_are_counted(void**) {
  for (int i = 0; i < 3; ++i) expect_ok(mv_init(nullptr));
  assert_int_equal(fake::seen.starts, 1);
  expect_ok(mv_shutdown(0));
  expect_ok(mv_shutdown(0));
  assert_int_equal(fake::seen.shutdowns, 0);
  expect_ok(mv_shutdown(0));
  assert_int_equal(fake::seen.shutdowns, 1);
  expect_error(mv_shutdown(0), MV_ESTATE, "has shut down its node");
}

void an_abort_ends_the_node_whatever_the_count(void**) {
  expect_ok(mv_abort(0, "nobody is there"));
  for (int i = 0; i < 3; ++i) expect_ok(mv_init(nullptr));
  mv_node opened = 0;
  expect_ok(mv_node_open(nullptr, &opened));
  const mv_table table = array_of(1);
  expect_ok(mv_abort(0, "ValueError:\n\t7"));
  expect_ok(mv_abort(0, "again"));
  expect_ok(mv_abort(opened, (std::string(999, 'a') + "\u00fc").c_str()));
  expect_ok(mv_abort(opened, "again"));
  expect_error(mv_abort(table, "not a node"), MV_EHANDLE, "table");
  const std::vector<std::string> told{"ValueError:  7", std::string(999, 'a')};
  assert_true(fake::seen.aborts == told);
  assert_int_equal(fake::seen.alive, 0);
  expect_error(mv_shutdown(0), MV_ESTATE, "has shut down its node");
  expect_ok(mv_init(nullptr));
  expect_ok(mv_abort(0, nullptr));
  assert_string_equal(fake::seen.aborts.back().c_str(), "it gave no reason");
}

void an_interrupted_shutdown_may_be_repeated(void**) {
  expect_ok(mv_init(nullptr));
  const mv_table table = array_of(1);
  fake::script.shutdown = [] { return error(MV_EINTR, "a signal interrupted mv_shutdown"); };
  expect_error(mv_shutdown(0), MV_EINTR, "signal");
  int64_t rank = -1;
  expect_ok(mv_rank(0, &rank));
  const float one = 1;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, nullptr));
  fake::script.shutdown = [] { return error(MV_EPEERLOST, "an add was lost"); };
  expect_error(mv_shutdown(0), MV_EPEERLOST, "an add was lost");
  expect_error(mv_rank(0, &rank), MV_ESTATE, "");
  assert_int_equal(fake::seen.alive, 0);
}

void handles_are_stale_after_the_nodes_end(void**) {
  expect_ok(mv_init(nullptr));
  const mv_table table = array_of(1);
  leave_calls_running();
  mv_request request = 0;
  mv_call_options options = async_into(&request);
  float one = 1;
  expect_ok(mv_table_get(table, &one, 1, MV_F32, &options));
  fake::finish(running, {});
  running.reset();
  expect_ok(mv_shutdown(0));
  expect_error(mv_table_get(table, &one, 1, MV_F32, nullptr), MV_EHANDLE, "closed table handle");
  expect_error(mv_request_wait(request, 0), MV_EHANDLE, "is a request");
  assert_int_equal(fake::seen.alive, 0);
}

void opened_nodes_are_their_own(void**) {
  mv_node first = 0, second = 0;
  expect_ok(mv_node_open(nullptr, &first));
  expect_ok(mv_node_open(nullptr, &second));
  assert_true(first != second);
  int64_t rank = -1;
  expect_error(mv_rank(0, &rank), MV_ESTATE, "mv_init()");
  expect_ok(mv_init(nullptr));
  expect_ok(mv_shutdown(first));
  expect_error(mv_shutdown(first), MV_EHANDLE, "closed node");
  expect_ok(mv_rank(second, &rank));
  expect_ok(mv_rank(0, &rank));
  expect_ok(mv_shutdown(second));
}

void threads_that_init_at_once_start_one_node(void**) {
  fake::script.start = [](const mv::runtime::Settings&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return Status();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([] { expect_ok(mv_init(nullptr)); });
  for (auto& thread : threads) thread.join();
  assert_int_equal(fake::seen.starts, 1);
  for (int i = 0; i < 4; ++i) expect_ok(mv_shutdown(0));
  expect_error(mv_shutdown(0), MV_ESTATE, "");
}

void a_timed_out_wait_leaves_the_request(void**) {
  expect_ok(mv_init(nullptr));
  leave_calls_running();
  mv_request request = 0;
  mv_call_options options = async_into(&request);
  expect_ok(mv_barrier(0, &options));
  expect_error(mv_request_wait(request, 1), MV_ETIMEOUT, "the request continues");
  expect_error(mv_request_error(request), MV_EPENDING, "not finished");
  int32_t done = 7;
  expect_ok(mv_request_test(request, &done));
  assert_int_equal(done, 0);
  fake::finish(running, error(MV_EPEERLOST, "server 1 is gone"));
  expect_error(mv_request_error(request), MV_EPEERLOST, "server 1");
  expect_error(mv_request_test(request, &done), MV_EPEERLOST, "server 1");
  assert_int_equal(done, 1);
  expect_error(mv_request_test(request, &done), MV_EHANDLE, "already");
}

void an_interrupted_call_goes_on_under_its_handle(void**) {
  expect_ok(mv_init(nullptr));
  fake::script.call = [](const CallOptions& options) {
    assert_true(options.mode == Mode::kBlocking && options.keep_on_interrupt);
    running = fake::begin_call(0);
    return Started{error(MV_EINTR, "a signal interrupted the barrier; it goes on"), running};
  };
  mv_request request = 5;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.request = &request;
  expect_error(mv_barrier(0, &options), MV_EINTR, "goes on");
  assert_true(request != 0);
  fake::finish(running, {});
  expect_ok(mv_request_wait(request, 0));
  fake::script.call = nullptr;
  expect_ok(mv_barrier(0, &options));
  assert_int_equal(request, 0);
  expect_ok(mv_barrier(0, nullptr));
  assert_false(fake::seen.options.keep_on_interrupt);
}

void cancel_tells_and_releases(void**) {
  expect_ok(mv_init(nullptr));
  leave_calls_running();
  mv_request request = 0;
  mv_call_options options = async_into(&request);
  expect_ok(mv_barrier(0, &options));
  std::thread waiter([&] {
    const mv_status status = mv_request_wait(request, 0);
    assert_true(status == MV_ECANCELED || status == MV_EHANDLE);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  expect_ok(mv_request_cancel(request));
  assert_non_null(std::strstr(mv_last_error(), "outcome unknown"));
  waiter.join();
  expect_error(mv_request_cancel(request), MV_EHANDLE, "already");
  expect_error(mv_request_error(request), MV_EHANDLE, "already");
}

void one_of_two_waiters_gets_the_status(void**) {
  expect_ok(mv_init(nullptr));
  leave_calls_running();
  for (int round = 0; round < 100; ++round) {
    mv_request request = 0;
    mv_call_options options = async_into(&request);
    expect_ok(mv_barrier(0, &options));
    std::atomic<int> ok{0}, stale{0};
    const auto wait = [&] {
      const mv_status status = mv_request_wait(request, 0);
      ++(status == MV_OK ? ok : stale);
      assert_true(status == MV_OK || status == MV_EHANDLE);
    };
    std::thread first(wait), second(wait);
    fake::finish(running, {});
    first.join();
    second.join();
    assert_int_equal(ok, 1);
    assert_int_equal(stale, 1);
  }
}

void poll_hands_each_request_out_once_and_skips_released_ones(void**) {
  expect_ok(mv_init(nullptr));
  leave_calls_running();
  mv_request requests[3];
  std::vector<CallRef> calls;
  for (auto& request : requests) {
    mv_call_options options = async_into(&request);
    expect_ok(mv_barrier(0, &options));
    calls.push_back(running);
  }
  mv_request finished[4];
  uint64_t count = 9;
  expect_ok(mv_poll(0, finished, 4, &count, 1));
  assert_int_equal(count, 0);
  for (auto& call : calls) fake::finish(call, {});
  expect_ok(mv_request_wait(requests[1], 0));
  expect_ok(mv_poll(0, finished, 4, &count, MV_FOREVER));
  assert_int_equal(count, 2);
  assert_int_equal(finished[0], requests[0]);
  assert_int_equal(finished[1], requests[2]);
  expect_ok(mv_poll(0, finished, 4, &count, 0));
  assert_int_equal(count, 0);
  expect_ok(mv_request_wait(requests[0], 0));
  expect_ok(mv_request_wait(requests[2], 0));
}

void a_poll_may_see_a_call_end_before_its_caller_has_the_handle(void**) {
  expect_ok(mv_init(nullptr));
  std::atomic<bool> polling{true};
  std::atomic<int> heard{0};
  std::thread poller([&] {
    while (polling || heard < 500) {
      mv_request finished[8];
      uint64_t count = 0;
      expect_ok(mv_poll(0, finished, 8, &count, 1));
      for (uint64_t i = 0; i < count; ++i) {
        expect_ok(mv_request_wait(finished[i], 0));
        ++heard;
      }
    }
  });
  fake::script.call = [](const CallOptions& options) {
    auto call = fake::begin_call(options.tag);
    fake::finish(call, {});
    std::this_thread::yield();
    return Started{{}, call};
  };
  for (int i = 0; i < 500; ++i) {
    mv_request request = 0;
    mv_call_options options = async_into(&request);
    expect_ok(mv_barrier(0, &options));
  }
  polling = false;
  poller.join();
  assert_int_equal(heard, 500);
}

void an_interrupted_close_keeps_the_handle(void**) {
  expect_ok(mv_init(nullptr));
  const mv_table table = array_of(1);
  fake::script.close = [] { return error(MV_EINTR, "interrupted"); };
  expect_error(mv_table_close(table), MV_EINTR, "");
  fake::script.destroy = [] { return error(MV_EPEERLOST, "a server is gone"); };
  expect_error(mv_table_destroy(table), MV_EPEERLOST, "");
  fake::script.close = [] { return error(MV_EPEERLOST, "an add was lost"); };
  expect_error(mv_table_close(table), MV_EPEERLOST, "an add was lost");
  expect_error(mv_table_close(table), MV_EHANDLE, "closed table handle");
}

void names_are_escaped_in_the_list(void**) {
  expect_ok(mv_init(nullptr));
  fake::script.list = [] {
    mv::api::TableSpec odd{"a\"b\\c\n\x01\xC3\xA9", MV_MATRIX, MV_F64, 2, 3, 0};
    return std::vector<mv::api::TableSpec>{odd, {"w", MV_ARRAY, MV_F32, 9, 1, 0}};
  };
  char text[512];
  uint64_t length = 0;
  expect_ok(mv_table_list(0, text, sizeof(text), &length));
  assert_string_equal(
      text,
      R"([{"name": "a\"b\\c\u000a\u0001é", "kind": "matrix", "dtype": "f64", "rows": 2, "cols": 3, "updater": "add", )"
      R"("staleness": -1, "merge": false}, {"name": "w", "kind": "array", "dtype": "f32", "rows": 9, "cols": 1, "updater": "add", )"
      R"("staleness": -1, "merge": false}])");
  assert_int_equal(length, strlen(text));
}

void a_forked_child_abandons_its_parents_nodes(void**) {
  expect_ok(mv_init(nullptr));
  mv_node other = 0;
  expect_ok(mv_node_open(nullptr, &other));
  const pid_t child = fork();
  if (child == 0) {
    int64_t rank = 0;
    const bool forgotten = fake::seen.abandoned == 2 && mv_rank(0, &rank) == MV_EFORK && mv_shutdown(0) == MV_EFORK;
    const bool anew = mv_init(nullptr) == MV_OK && mv_rank(0, &rank) == MV_OK && mv_rank(other, &rank) == MV_EHANDLE;
    _exit(forgotten && anew && mv_shutdown(0) == MV_OK ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(fake::seen.abandoned, 0);
  expect_ok(mv_shutdown(other));
}

void times_are_passed_down(void**) {
  expect_ok(mv_init(nullptr));
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  expect_ok(mv_barrier(0, &options));
  assert_true(fake::seen.options.timeout == mv::base::Nanos(0));
  options.timeout_ms = 1500;
  expect_ok(mv_barrier(0, &options));
  assert_true(fake::seen.options.timeout == std::chrono::milliseconds(1500));
  for (const int64_t never : {int64_t{MV_FOREVER}, INT64_MAX, INT64_MAX / 1000}) {
    options.timeout_ms = never;
    expect_ok(mv_barrier(0, &options));
    assert_true(fake::seen.options.timeout == mv::base::kNever);
  }
}

}  // namespace

int main() {
#define TEST(function) cmocka_unit_test_setup_teardown(function, fresh, all_shut)
  const CMUnitTest tests[] = {
      TEST(exceptions_become_statuses),
      TEST(what_the_node_tells_of_a_table_arrives),
      TEST(an_exception_leaves_no_request_behind),
      TEST(a_failed_start_leaves_nothing_initialised),
      TEST(a_start_that_a_signal_ended_goes_on_with_the_next_call),
      TEST(a_start_that_a_signal_ended_can_be_given_up),
      TEST(init_and_shutdown_are_counted),
      TEST(an_abort_ends_the_node_whatever_the_count),
      TEST(an_interrupted_shutdown_may_be_repeated),
      TEST(handles_are_stale_after_the_nodes_end),
      TEST(opened_nodes_are_their_own),
      TEST(threads_that_init_at_once_start_one_node),
      TEST(a_timed_out_wait_leaves_the_request),
      TEST(an_interrupted_call_goes_on_under_its_handle),
      TEST(cancel_tells_and_releases),
      TEST(one_of_two_waiters_gets_the_status),
      TEST(poll_hands_each_request_out_once_and_skips_released_ones),
      TEST(a_poll_may_see_a_call_end_before_its_caller_has_the_handle),
      TEST(an_interrupted_close_keeps_the_handle),
      TEST(names_are_escaped_in_the_list),
      TEST(a_forked_child_abandons_its_parents_nodes),
      TEST(times_are_passed_down),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
