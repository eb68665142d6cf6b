// Two ranks, each with a queue of operations that two threads use, either blocking with a turn of their own, or through the queue's thread, which a caller that waits may precede.
// A call may be withdrawn, and a rank may leave, at any time; each call then ends at once, with the sum or with an error.

#include <thread>
#include <vector>

#include "../unit/intranode.hpp"
#include "api/group/shared_queue.hpp"
#include "engine/collective/group.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"
#include "scenarios.hpp"
#include "scheduler.hpp"

namespace mv::schedules {

namespace {

using namespace std::chrono_literals;
using api::Call;
using api::SharedQueue;

/// The message layer below the group. It is notified of the end and has no peer to notify.
class Silence final : base::Link, rpc::Service {
 public:
  Silence(transport::Loop& loop, int rank) : client_(loop, *this, {}), server_(*this, *this), sender_(client_) {
    collective::Setting setting;
    setting.rank = rank;
    setting.size = 2;
    group = std::make_shared<collective::Group>(loop, sender_, server_, pool_,
                                                collective::Members{1, {1, 2}, {"rank 0", "rank 1"}}, setting);
  }
  std::shared_ptr<collective::Group> group;

 private:
  void dial(const std::string&) override {}
  void send(base::Peer, const base::Frame&) override {}
  void close(base::Peer) override {}
  base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_request(const rpc::Asked&, const wire::Message&, std::span<const std::byte>, const base::SinkRef&) override {}
  void on_data(const rpc::Asked&, std::span<const std::byte>, const base::SinkRef&) override {}
  void on_cancel(const rpc::Asked&) override {}

  rpc::Client client_;
  rpc::Server server_;
  collective::Sender sender_;
  base::Pool pool_{size_t{64} << 10, 4};
};

struct Rank {
  Rank(size_t rank, const std::vector<intranode::Memory>& memory)
      : silence(loop, static_cast<int>(rank)),
        finished([this] { loop.wake_waiters(); }),
        context(std::make_shared<intranode::RankContext>(rank, memory, test::rank_names(2), 0us)),
        queue(std::make_shared<SharedQueue>(loop, context, silence.group, nullptr)) {  // nothing here goes by messages
    EXPECT(loop.start().ok());
  }
  transport::Loop loop;
  Silence silence;
  api::FinishedList finished;
  const std::shared_ptr<intranode::RankContext> context;
  std::shared_ptr<SharedQueue> queue;
};

class Queues {
 public:
  void work() {
    begin_here();
    std::vector<std::thread> threads;
    const uint64_t each = 1 + random_below(waits_at_once_ ? 12 : 3), users = waits_at_once_ ? 1 : 1 + random_below(2);
    for (auto& rank : ranks_)
      for (uint64_t user = 0; user < users; ++user) threads.emplace_back([this, &rank, each] { use(*rank, each); });
    if (ends_) {
      for (uint64_t steps = random_below(200); steps > 0; --steps) std::this_thread::yield();
      leave(*ranks_[random_below(2)]);
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& rank : ranks_) leave(*rank);
    for (auto& rank : ranks_) {
      rank->queue->end();
      rank->loop.stop();
    }
  }

 private:
  static void leave(Rank& rank) { rank.context->leave(); }

  /// All operations are alike, so it does not matter which of the other rank's operations each one meets.
  void use(Rank& rank, uint64_t times) {
    for (; times > 0; --times) {
      std::vector<float> values(10, 1);
      test::Operation operation;
      operation.kind = test::Kind::kAllreduce;
      operation.out.push_back({reinterpret_cast<std::byte*>(values.data()), values.size(), MV_F32});
      const base::Nanos until = rank.loop.now() + 1h;
      base::Status status;
      const bool is_prompt = waits_at_once_ && !one_in(6);
      if (!is_prompt && one_in(2)) {
        auto turn = rank.queue->turn(until);
        EXPECT(turn.ok());
        status = rank.queue->settle(rank.queue->carry_out(operation, until));
      } else {
        api::CallOptions options;
        options.mode = api::Mode::kAsync;
        options.tag = 1;
        const auto call = std::make_shared<Call>(rank.finished, options, until);
        rank.queue->push({operation, call, false, nullptr});
        if (ends_ && one_in(3)) {
          for (uint64_t steps = random_below(100); steps > 0; --steps) std::this_thread::yield();
          call->withdraw(MV_ECANCELED);
          EXPECT(call->done());
        }
        if (is_prompt || one_in(2)) EXPECT(call->help() == MV_OK);  // the caller's own thread carries it out if it is the next one
        EXPECT(rank.loop.drive_until([&] { return call->done(); }, base::kNever) == transport::Driven::kDone);
        status = call->status();
      }
      if (status.ok()) {
        for (const float value : values) EXPECT(value == 2);
      } else {
        EXPECT(ends_);
      }
    }
  }

  const std::vector<intranode::Memory> memory_ = test::make_regions(2);
  std::vector<std::unique_ptr<Rank>> ranks_ = [this] {
    std::vector<std::unique_ptr<Rank>> made;
    for (size_t rank = 0; rank < 2; ++rank) made.push_back(std::make_unique<Rank>(rank, memory_));
    return made;
  }();
  const bool ends_ = one_in(2);
  const bool waits_at_once_ = one_in(3);  ///< then the queue's thread soon looks at intervals
};

}  // namespace

void queue_scenario() {
  Queues queues;
  queues.work();
}

}  // namespace mv::schedules
