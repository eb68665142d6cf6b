// capi/handles: old handles never refer to new objects, pins keep objects alive, only one close succeeds.

#include "handles.hpp"

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "cpp_expect.hpp"

namespace {

using mv::capi::Fate;
using mv::capi::HandleTable;
using mv::capi::HandleKind;

using Table = HandleTable<std::shared_ptr<int>>;

void handles_fit_a_double_and_say_their_kind(void**) {
  static_assert(mv::capi::join_handle({static_cast<HandleKind>(mv::capi::kLastKind), mv::capi::kLastGeneration, (1u << mv::capi::kIndexBits) - 1}) <
                int64_t{1} << 53);
  Table table(HandleKind::kTable, 1);
  const int64_t handle = table.insert(std::make_shared<int>(7));
  mv::capi::HandleParts parts;
  assert_true(mv::capi::split_handle(handle, &parts));
  assert_true(parts.kind == HandleKind::kTable);
  assert_int_equal(**table.pin(handle), 7);
  assert_int_equal(static_cast<int64_t>(static_cast<double>(handle)), handle);
}

void a_closed_handle_never_finds_the_slots_next_object(void**) {
  Table table(HandleKind::kTable, 1);
  std::vector<int64_t> old;
  for (int i = 0; i < 1000; ++i) {
    old.push_back(table.insert(std::make_shared<int>(i)));
    assert_true(table.close(table.pin(old.back())));
  }
  const int64_t now = table.insert(std::make_shared<int>(-1));
  for (const int64_t handle : old) {
    assert_false(static_cast<bool>(table.pin(handle)));
    assert_true(table.fate(handle) == Fate::kClosed);
  }
  assert_true(table.fate(now) == Fate::kOpen);
  assert_true(table.fate(now + (int64_t{1} << mv::capi::kIndexBits)) == Fate::kNever);  // of a future generation
}

void hostile_integers_find_nothing(void**) {
  Table table(HandleKind::kTable, 1);
  const int64_t handle = table.insert(std::make_shared<int>(1));
  for (const int64_t bad :
       {int64_t{0}, int64_t{-1}, int64_t{1}, handle + 1, handle - 1, -handle, handle | int64_t{1} << 60, INT64_MIN,
        INT64_MAX, handle ^ int64_t{3} << 50, handle + 0xFFFFFF}) {
    assert_false(static_cast<bool>(table.pin(bad)));
    assert_true(table.fate(bad) == Fate::kNever);
  }
}

void a_pin_outlives_the_closing(void**) {
  Table table(HandleKind::kTable, 1);
  auto object = std::make_shared<int>(5);
  const int64_t handle = table.insert(object);
  {
    auto pin = table.pin(handle);
    assert_true(table.close(pin));
    assert_false(table.close(pin));
    assert_false(static_cast<bool>(table.pin(handle)));
    assert_int_equal(object.use_count(), 2);
    assert_int_equal(**pin, 5);
  }
  assert_int_equal(object.use_count(), 1);
}

void a_reserved_handle_is_invalid_until_published(void**) {
  Table table(HandleKind::kRequest, 1);
  const int64_t handle = table.reserve();
  assert_true(table.fate(handle) == Fate::kReserved);
  assert_false(static_cast<bool>(table.pin(handle)));
  table.publish(handle, std::make_shared<int>(3));
  assert_int_equal(**table.pin(handle), 3);
  const int64_t other = table.reserve();
  table.abandon(other);
  assert_true(table.fate(other) == Fate::kClosed);
}

void closing_can_be_taken_back(void**) {
  Table table(HandleKind::kTable, 1);
  const int64_t handle = table.insert(std::make_shared<int>(1));
  auto pin = table.pin(handle);
  assert_true(table.begin_close(pin));
  assert_false(table.begin_close(pin));
  assert_false(static_cast<bool>(table.pin(handle)));
  table.reopen(pin);
  assert_true(static_cast<bool>(table.pin(handle)));
}

void a_later_life_does_not_know_the_handles_of_the_former(void**) {
  Table before(HandleKind::kTable, 1);
  int64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    last = before.insert(std::make_shared<int>(i));
    before.close(before.pin(last));
  }
  Table after(HandleKind::kTable, before.newest_generation() + 1);
  const int64_t fresh = after.insert(std::make_shared<int>(0));
  assert_true(after.fate(last) == Fate::kClosed);
  assert_false(static_cast<bool>(after.pin(last)));
  assert_true(fresh != last);
}

void a_worn_out_slot_is_not_used_again(void**) {
  Table table(HandleKind::kTable, mv::capi::kLastGeneration);
  const int64_t last = table.insert(std::make_shared<int>(1));
  table.close(table.pin(last));
  assert_true(table.fate(last) == Fate::kClosed);
  const int64_t next = table.insert(std::make_shared<int>(2));
  assert_true((next & 0xFFFFFF) != (last & 0xFFFFFF));
}

void many_handles_live_at_once(void**) {
  Table table(HandleKind::kRequest, 1);
  std::set<int64_t> handles;
  for (int i = 0; i < 10'000; ++i) handles.insert(table.insert(std::make_shared<int>(i)));
  assert_int_equal(handles.size(), 10'000);
  for (const int64_t handle : handles) assert_true(static_cast<bool>(table.pin(handle)));
}

void threads_that_race_to_close_have_one_winner(void**) {
  constexpr int kThreads = 4, kRounds = 2000;
  Table table(HandleKind::kTable, 1);
  std::atomic<int64_t> handle{0};
  std::atomic<int> winners{0}, arrived{0};
  auto object = std::make_shared<int>(9);
  const auto round_of = [&](int i) {
    while (arrived.load() < i * kThreads) std::this_thread::yield();
  };
  std::vector<std::thread> threads;
  handle = table.insert(object);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        round_of(i);
        if (auto pin = table.pin(handle.load()); pin && **pin == 9 && table.close(pin)) {
          ++winners;
          handle = table.insert(object);
        }
        ++arrived;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  assert_true(winners.load() >= kRounds);
  auto last = table.pin(handle.load());
  assert_true(static_cast<bool>(last));
  assert_int_equal(object.use_count(), 2);  // this test's and the open handle's: all others were dropped once
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(handles_fit_a_double_and_say_their_kind),
      cmocka_unit_test(a_closed_handle_never_finds_the_slots_next_object),
      cmocka_unit_test(hostile_integers_find_nothing),
      cmocka_unit_test(a_pin_outlives_the_closing),
      cmocka_unit_test(a_reserved_handle_is_invalid_until_published),
      cmocka_unit_test(closing_can_be_taken_back),
      cmocka_unit_test(a_later_life_does_not_know_the_handles_of_the_former),
      cmocka_unit_test(a_worn_out_slot_is_not_used_again),
      cmocka_unit_test(many_handles_live_at_once),
      cmocka_unit_test(threads_that_race_to_close_have_one_winner),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
