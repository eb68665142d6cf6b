// Two nodes over transport/shm: messages of all sizes both ways, payloads in shared memory that their lender takes back at any time, and an
// end in the middle. Received messages are whole and in order; all of them arrive unless a node ends the connection.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "../transport/node.hpp"
#include "base/shared_memory.hpp"
#include "scenarios.hpp"
#include "scheduler.hpp"

namespace mv::schedules {

namespace {

using namespace std::chrono_literals;
using test::Heard;
using test::Node;
using test::Record;

enum class End { kNone, kGoodbye, kCut, kClose };

class Talk {
 public:
  void work() {
    EXPECT(pair_.connected);
    begin_here();
    const auto end = one_in(2) ? End::kNone : static_cast<End>(1 + random_below(3));
    const bool waits = end == End::kNone && !one_in(4);
    std::thread back([&] { send_all(*pair_.a, 22, back_, waits ? pair_.b.get() : nullptr); });
    std::thread ending([&] {
      for (uint64_t steps = random_below(end == End::kNone ? 1 : 150); steps > 0; --steps) std::this_thread::yield();
      if (end == End::kGoodbye) pair_.a->stop();
      if (end == End::kCut) pair_.a->cut(22);
      if (end == End::kClose) pair_.b->close(11);
    });
    send_all(*pair_.b, 11, forth_, waits ? pair_.a.get() : nullptr);
    back.join();
    ending.join();
    if (end == End::kNone) {
      EXPECT(pair_.a->wait([&](const Record& record) { return has(record, forth_); }));
      EXPECT(pair_.b->wait([&](const Record& record) { return has(record, back_); }));
    }
    for (Node* node : {pair_.a.get(), pair_.b.get()}) {
      const Record record = node->record();
      if (!record.violations.empty()) fail("%s", record.violations.front().c_str());
      uint64_t last = 0;
      for (const Heard& message : record.messages) {
        EXPECT(message.intact || message.discarded);
        EXPECT(message.seq >= last || revokes_);  // a payload that was taken back comes again, after later messages
        last = message.seq;
      }
    }
  }

 private:
  /// Whether all messages up to this one have arrived.
  static bool has(const Record& record, uint64_t last) {
    for (uint64_t seq = 1; seq <= last; ++seq)
      if (std::ranges::none_of(record.messages,
                               [seq](const Heard& heard) { return heard.seq == seq && !heard.discarded; }))
        return false;
    return true;
  }

  /// With a receiver, waits for each message to arrive, so that no later message can hide a missed wake-up.
  void send_all(Node& from, base::Peer to, uint64_t count, Node* receiver) {
    constexpr uint64_t kSizes[] = {0, 100, 5000, 70'000, 300'000};
    for (uint64_t seq = 1; seq <= count; ++seq) {
      if (receiver != nullptr) EXPECT(receiver->wait([seq](const Record& record) { return has(record, seq - 1); }));
      const uint64_t bytes = kSizes[random_below(std::size(kSizes))];
      if (bytes < 70'000 || one_in(2)) {
        from.send(to, seq, bytes);
        continue;
      }
      const auto values = test::pattern(seq, bytes);
      const auto memory = base::SharedMemory::make("test", bytes).value();
      base::SharedMemory::enlist(memory);
      std::memcpy(memory->data(), values.data(), bytes);
      revokes_ = true;
      const auto payload = base::Payload::lent({memory->data(), bytes});
      from.send(to, seq, payload);
      for (uint64_t steps = random_below(60); steps > 0; --steps) std::this_thread::yield();
      from.run([&] {
        payload->make_owned();
        std::memset(memory->data(), 0x55, bytes);
      });
    }
  }

  test::Pair pair_{test::Kind::kShm};
  const uint64_t forth_ = 1 + random_below(5), back_ = one_in(2) ? 0 : random_below(5);  // messages
  std::atomic<bool> revokes_{false};
};

}  // namespace

void shm_scenario() {
  Talk talk;
  talk.work();
}

}  // namespace mv::schedules
