// engine/replica/journal: what a server has written while the back-up's gate was open, the back-up finds, whatever the ring holds besides.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/replica/journal.hpp"
#include "wire/frame.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;

constexpr base::Peer kServer = 1, kBackup = 2;

/// An input with this many bytes, which all depend on its number.
base::Frame frame_of(uint64_t number, size_t bytes) {
  wire::FrameBuilder builder;
  std::vector<std::byte> payload(bytes, static_cast<std::byte>(number * 7));
  const auto body = wire::CreateReplicate(builder.fbb(), 1, wire::ReplicaEvent::Asked, 5, number, 0, 0, 0, 0, 0, nullptr, nullptr, 0, number);
  auto kept = std::make_shared<std::vector<std::byte>>(std::move(payload));
  return builder.finish(wire::Body::Replicate, body, bytes == 0 ? nullptr : base::Payload::kept({kept->data(), kept->size()}, kept));
}

struct Pair {
  explicit Pair(uint64_t id = 1) : writer(replica::JournalWriter::make(kBackup, id).value()), reader(replica::JournalReader::make(kServer, writer->memory()).value()) {
    assert_true(writer->set_gate(reader->gate()));
  }
  std::shared_ptr<replica::JournalWriter> writer;
  std::shared_ptr<replica::JournalReader> reader;
};

void check(const std::vector<replica::JournalReader::Record>& records, uint64_t first, uint64_t last) {
  assert_int_equal(records.size(), last + 1 - first);
  for (const auto& record : records) {
    assert_int_equal(record.number, first);
    assert_int_equal(record.message->body_as_Replicate()->number(), first);
    for (const std::byte each : record.payload) assert_int_equal(static_cast<int>(each), static_cast<uint8_t>(first * 7));
    ++first;
  }
}

void test_inputs_are_found_in_their_order(void**) {
  Pair pair;
  for (uint64_t number = 1; number <= 10; ++number) assert_true(pair.writer->append(number, frame_of(number, number * 1000)));
  check(pair.reader->close(3), 4, 10);
  check(pair.reader->close(10), 11, 10);
}

void test_an_unused_journal_is_empty(void**) { assert_true(Pair().reader->close(0).empty()); }

void test_nothing_is_held_without_a_gate_or_behind_a_closed_one(void**) {
  const auto writer = replica::JournalWriter::make(kBackup, 1).value();
  assert_false(writer->append(1, frame_of(1, 8)));
  Pair pair;
  assert_true(pair.writer->append(1, frame_of(1, 8)));
  assert_true(pair.writer->is_open());
  check(pair.reader->close(0), 1, 1);
  assert_false(pair.writer->is_open());
  assert_false(pair.writer->append(2, frame_of(2, 8)));
}

void test_a_reader_that_is_gone_has_closed_its_gate(void**) {
  Pair pair;
  pair.reader.reset();
  assert_false(pair.writer->append(1, frame_of(1, 8)));
}

void test_a_gate_belongs_to_one_journal(void**) {
  const Pair old(1);
  const auto writer = replica::JournalWriter::make(kBackup, 2).value();
  assert_false(writer->set_gate(old.reader->gate()));
  assert_false(writer->has_gate());
  assert_false(writer->set_gate(old.writer->memory()));  // no gate at all
  assert_false(replica::JournalReader::make(kServer, old.reader->gate()).ok());
}

void test_a_full_journal_holds_no_more_until_inputs_are_processed(void**) {
  Pair pair;
  uint64_t number = 0;
  while (pair.writer->append(number + 1, frame_of(number + 1, 10'000))) ++number;
  assert_true(number > 50);
  pair.writer->release(number - 2);
  assert_true(pair.writer->append(number + 2, frame_of(number + 2, 10'000)));  // the one that had no room went another way
  const auto records = pair.reader->close(number - 2);
  assert_int_equal(records.size(), 3);
  assert_int_equal(records.back().number, number + 2);
}

void test_the_ring_is_used_again_and_again(void**) {
  for (const size_t bytes : {size_t{0}, size_t{40}, size_t{3000}, size_t{5000}, size_t{60'000}}) {
    Pair pair;
    constexpr uint64_t kInputs = 3000, kLag = 5;
    for (uint64_t number = 1; number <= kInputs; ++number) {
      if (number > kLag) pair.writer->release(number - kLag);
      assert_true(pair.writer->append(number, frame_of(number, bytes + number % 64)));
    }
    check(pair.reader->close(kInputs - kLag), kInputs - kLag + 1, kInputs);
  }
}

void test_large_inputs_go_another_way(void**) {
  Pair pair;
  assert_false(pair.writer->append(1, frame_of(1, 65 << 10)));
  assert_true(pair.writer->append(2, frame_of(2, 60 << 10)));
}

/// The server's memory is not to be trusted.
void test_damage_hides_what_follows_it(void**) {
  constexpr size_t kRing = 4096;
  for (size_t at = 0; at < 600; ++at) {
    Pair pair;
    for (uint64_t number = 1; number <= 3; ++number) assert_true(pair.writer->append(number, frame_of(number, 100)));
    pair.writer->memory()->data()[kRing + at] = static_cast<std::byte>(0xff);
    for (const auto& record : pair.reader->close(0)) assert_true(record.payload.size() <= 100);
  }
  for (const uint64_t end : {uint64_t{8}, uint64_t{1} << 40, UINT64_MAX}) {
    Pair pair;
    assert_true(pair.writer->append(1, frame_of(1, 100)));
    reinterpret_cast<replica::JournalPage*>(pair.writer->memory()->data())->end.store(end);
    assert_true(pair.reader->close(0).size() <= 1);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_inputs_are_found_in_their_order),
      cmocka_unit_test(test_an_unused_journal_is_empty),
      cmocka_unit_test(test_nothing_is_held_without_a_gate_or_behind_a_closed_one),
      cmocka_unit_test(test_a_reader_that_is_gone_has_closed_its_gate),
      cmocka_unit_test(test_a_gate_belongs_to_one_journal),
      cmocka_unit_test(test_a_full_journal_holds_no_more_until_inputs_are_processed),
      cmocka_unit_test(test_the_ring_is_used_again_and_again),
      cmocka_unit_test(test_large_inputs_go_another_way),
      cmocka_unit_test(test_damage_hides_what_follows_it),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
