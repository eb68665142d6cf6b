// transport/shm: payloads that already lie in shared memory. Only their place is sent.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/shared_memory.hpp"
#include "node.hpp"

#include "cmocka.hpp"

namespace {

using namespace mv::test;
namespace base = mv::base;

constexpr size_t kBytes = 1 << 20;

/// Enlisted memory that holds pattern(seq, kBytes) at `offset`.
std::shared_ptr<base::SharedMemory> patterned(uint64_t seq, size_t offset = 0) {
  auto memory = base::SharedMemory::make("test", kBytes + 4096).value();
  base::SharedMemory::enlist(memory);
  const auto bytes = pattern(seq, kBytes);
  std::memcpy(memory->data() + offset, bytes.data(), bytes.size());
  return memory;
}

std::span<const std::byte> bytes_of(const base::SharedMemory& memory, size_t offset = 0) {
  return {memory.data() + offset, kBytes};
}

/// Expects `count` intact messages. A payload that the lender took back during the read is discarded and sent again.
void expect_intact(Pair& pair, size_t count) {
  const auto whole = [](const Record& record) {
    return static_cast<size_t>(std::ranges::count_if(record.messages, [](const Heard& m) { return !m.discarded; }));
  };
  assert_true(pair.a->wait([&](const Record& record) { return whole(record) >= count; }));
  for (const Heard& message : pair.a->record().messages) assert_true(message.intact || message.discarded);
  for (Node* node : {pair.a.get(), pair.b.get()}) assert_int_equal(node->record().violations.size(), 0);
}

/// Keeps a node's loop busy for the lifetime of this object.
class Standstill {
 public:
  explicit Standstill(Node& node) {
    node.loop().post([state = state_] {
      state->begun = true;
      while (!state->over) std::this_thread::sleep_for(1ms);
    });
    while (!state_->begun) std::this_thread::sleep_for(1ms);
  }
  ~Standstill() { state_->over = true; }

 private:
  struct State {
    std::atomic<bool> begun{false}, over{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

void a_payload_in_shared_memory_is_shown_where_it_lies(void**) {
  Pair pair(Kind::kShm);
  const auto memory = patterned(1);
  {
    Standstill standstill(*pair.a);
    pair.b->send(11, 1, base::Payload::kept(bytes_of(*memory), memory));
    pair.b->send(11, 3, 100);
    // The peer sees bytes that were written after the send: the payload was not copied.
    const auto other = pattern(2, kBytes);
    std::memcpy(memory->data(), other.data(), kBytes);
  }
  assert_true(pair.a->wait([](const Record& record) { return record.messages.size() == 2; }));
  const Record record = pair.a->record();
  assert_int_equal(record.messages[0].bytes, kBytes);
  assert_false(record.messages[0].intact);
  assert_true(record.messages[1].intact);
}

void memory_is_introduced_once_and_forgotten_at_its_end(void**) {
  Pair pair(Kind::kShm);
  for (uint64_t seq = 1; seq <= 40; ++seq) {
    const auto memory = patterned(seq, 8 * seq);
    for (int i = 0; i < 3; ++i) pair.b->send(11, seq, base::Payload::kept(bytes_of(*memory, 8 * seq), memory));
  }
  expect_intact(pair, 120);
}

void misaligned_payloads_are_copied(void**) {
  Pair pair(Kind::kShm);
  const auto memory = patterned(1, 3);
  pair.b->send(11, 1, base::Payload::kept(bytes_of(*memory, 3), memory));
  expect_intact(pair, 1);
}

void a_lender_has_its_memory_back_at_once(void**) {
  Pair pair(Kind::kShm);
  const auto memory = patterned(1);
  const auto payload = base::Payload::lent(bytes_of(*memory));
  {
    Standstill standstill(*pair.a);
    for (int i = 0; i < 2; ++i) pair.b->send(11, 1, payload);  // the peer cannot have begun to read
    pair.b->run([&] {
      payload->make_owned();
      std::memset(memory->data(), 0x55, kBytes);
    });
  }
  expect_intact(pair, 2);
}

/// A reader that stops in the middle of a payload costs its own copy, but not the lender's time: before the reader continues, the lender
/// owns the memory again and its loop goes on.
void a_reader_stopped_half_way_delays_no_other(void**) {
  Pair pair(Kind::kShm);
  std::atomic<int> reads{0};
  std::atomic<bool> goes_on{false};
  pair.a->before_payload = [&](uint64_t) {
    for (++reads; !goes_on; std::this_thread::sleep_for(1ms)) {
    }
  };
  constexpr int kLent = 3;
  std::vector<std::shared_ptr<base::SharedMemory>> memory;
  std::vector<base::PayloadRef> payloads;
  for (uint64_t seq = 1; seq <= kLent; ++seq) {
    memory.push_back(patterned(seq));
    payloads.push_back(base::Payload::lent(bytes_of(*memory.back())));
    pair.b->send(11, seq, payloads.back());
  }
  while (reads == 0) std::this_thread::sleep_for(1ms);
  pair.b->run([&] {
    for (int i = 0; i < kLent; ++i) {
      payloads[static_cast<size_t>(i)]->make_owned();
      std::memset(memory[static_cast<size_t>(i)]->data(), 0x55, kBytes);
    }
  });
  pair.b->send(11, kLent + 1, 100);  // the loop goes on
  pair.b->run([] {});
  assert_int_equal(reads, 1);
  goes_on = true;
  expect_intact(pair, kLent + 1);
}

void lenders_and_readers_at_once(void**) {
  Pair pair(Kind::kShm);
  const auto memory = base::SharedMemory::make("test", kBytes).value();
  base::SharedMemory::enlist(memory);
  uint64_t random = 7;
  for (uint64_t seq = 1; seq <= 300; ++seq) {
    const auto bytes = pattern(seq, kBytes);
    std::memcpy(memory->data(), bytes.data(), kBytes);
    const auto payload = base::Payload::lent(bytes_of(*memory));
    pair.b->send(11, seq, payload);
    random = random * 6364136223846793005u + 1442695040888963407u;
    if ((random >> 60) < 8) std::this_thread::sleep_for(std::chrono::microseconds(random >> 56));
    pair.b->run([&] { payload->make_owned(); });
    std::memset(memory->data(), 0x55, kBytes);  // a reader of this memory would see it
  }
  assert_true(pair.a->wait([](const Record& record) {
    return !record.messages.empty() &&
           std::any_of(record.messages.begin(), record.messages.end(), [](const Heard& m) { return m.seq == 300 && !m.discarded; });
  }));
  expect_intact(pair, 300);
}

/// The reader stood still for so long that the sender has given it up, and uses the memory for something else.
void payloads_of_a_sender_that_has_given_up_are_not_shown(void**) {
  Pair pair(Kind::kShm);
  const base::Peer sender = pair.b->self();
  const auto memory = patterned(2);
  {
    Standstill standstill(*pair.a);
    pair.b->send(pair.a->self(), 1, 100);
    pair.b->send(pair.a->self(), 2, base::Payload::kept(bytes_of(*memory), memory));
    pair.b->send(pair.a->self(), 3, 100);
    pair.b->run([] {});  // all of it is published
    pair.b.reset();
    std::memset(memory->data(), 0x55, kBytes);
  }
  assert_true(pair.a->wait([&](const Record& record) { return record.has_lost(sender); }));
  const Record record = pair.a->record();
  assert_int_equal(record.messages.size(), 1);
  assert_true(record.messages[0].seq == 1 && record.messages[0].intact);
  assert_int_equal(record.violations.size(), 0);
}

/// While the reader's loop is busy, more than one turn's budget piles up in the ring; drain() reads all of it.
void a_ring_is_drained_to_its_end(void**) {
  constexpr size_t kMessages = 50, kEach = 60 << 10;
  Pair pair(Kind::kShm);
  std::atomic<bool> begun{false}, sent{false}, over{false};
  size_t heard = 0;
  pair.a->loop().post([&] {
    for (begun = true; !sent;) std::this_thread::sleep_for(1ms);
    static_cast<mv::transport::ShmTransport&>(pair.a->transport()).drain(pair.b->self());
    heard = pair.a->record().messages.size();
    over = true;
  });
  while (!begun) std::this_thread::sleep_for(1ms);
  for (size_t i = 0; i < kMessages; ++i) pair.b->send(pair.a->self(), i, kEach);
  pair.b->run([] {});  // all earlier sends are published
  sent = true;
  while (!over) std::this_thread::sleep_for(1ms);
  assert_int_equal(heard, kMessages);
  expect_intact(pair, kMessages);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_payload_in_shared_memory_is_shown_where_it_lies),
      cmocka_unit_test(memory_is_introduced_once_and_forgotten_at_its_end),
      cmocka_unit_test(misaligned_payloads_are_copied),
      cmocka_unit_test(a_lender_has_its_memory_back_at_once),
      cmocka_unit_test(a_reader_stopped_half_way_delays_no_other),
      cmocka_unit_test(lenders_and_readers_at_once),
      cmocka_unit_test(payloads_of_a_sender_that_has_given_up_are_not_shown),
      cmocka_unit_test(a_ring_is_drained_to_its_end),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
