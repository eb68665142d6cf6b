// Two to four ranks reduce small and large values through shared memory. Then one of them may leave, give up, learn that another one is
// lost, or be interrupted, at any time. The others get the sums, or learn at once that a rank has gone.

#include <signal.h>

#include <atomic>
#include <thread>
#include <vector>

#include "../unit/intranode.hpp"
#include "scenarios.hpp"
#include "scheduler.hpp"

namespace mv::schedules {

namespace {

using namespace std::chrono_literals;
using test::RankContext;

enum class End { kNone, kLeave, kGiveUp, kLose, kHearLeft, kSignal };

class Ranks {
 public:
  Ranks()
      : memory_(test::make_regions(2 + random_below(3))),
        end_(static_cast<End>(random_below(6))),
        ending_(random_below(memory_.size())),
        rounds_(1 + random_below(4)) {
    const base::Nanos look = one_in(2) ? 0us : one_in(2) ? 1us : 10us;
    intranode::Tuning tuning;  // a trial, or any algorithm
    if (const uint64_t algorithm = random_below(2 * intranode::kAlgorithms); algorithm < intranode::kAlgorithms)
      tuning.named = static_cast<uint8_t>(algorithm);
    for (size_t rank = 0; rank < size(); ++rank)
      seats_.push_back(std::make_unique<RankContext>(rank, memory_, test::rank_names(size()), look, tuning));
    constexpr uint64_t kCounts[] = {1, 1, 100, 2049, 20'000, 100'000};
    for (uint64_t round = 0; round < rounds_; ++round) counts_.push_back(kCounts[random_below(std::size(kCounts))]);
  }

  void work() {
    begin_here();
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < size(); ++rank) threads.emplace_back([this, rank] { reduce(rank); });
    const pthread_t one = threads[ending_].native_handle();
    for (uint64_t steps = random_below(end_ == End::kNone ? 1 : 150); steps > 0; --steps) std::this_thread::yield();
    const base::Status why(MV_ECANCELED, "a test");
    if (end_ == End::kGiveUp) seats_[ending_]->give_up(why);
    if (end_ == End::kLose) seats_[ending_]->lose((ending_ + 1) % size(), why);
    if (end_ == End::kHearLeft) seats_[ending_]->hear_left((ending_ + 1) % size());
    if (end_ == End::kSignal) pthread_kill(one, SIGUSR1);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  size_t size() const { return memory_.size(); }

  void reduce(size_t rank) {
    RankContext& context = *seats_[rank];
    for (uint64_t round = 0; round < rounds_; ++round) {
      if (end_ == End::kLeave && rank == ending_ && round + 1 == rounds_) return context.leave();
      std::vector<float> values(counts_[round], static_cast<float>(rank + 1));
      test::Operation operation;
      operation.kind = test::Kind::kAllreduce;
      operation.out.push_back({reinterpret_cast<std::byte*>(values.data()), values.size(), MV_F32});
      base::Status status = context.begin(operation);
      while (status.ok() || status.code() == MV_EINTR) {
        EXPECT(status.ok() || end_ == End::kSignal);
        status = context.finish(intranode::now() + 1h);
        if (status.ok()) break;
      }
      if (!status.ok()) {
        EXPECT(end_ != End::kNone && end_ != End::kSignal);
        EXPECT(status.code() == MV_EPEERLOST || status.code() == MV_ECANCELED);
        return;
      }
      const auto sum = static_cast<float>(size() * (size() + 1) / 2);
      for (const float value : values) EXPECT(value == sum);
    }
    // It stays: the others may still need its last values. Only a leaving rank announces that.
  }

  const std::vector<intranode::Memory> memory_;
  std::vector<std::unique_ptr<RankContext>> seats_;
  const End end_;
  const size_t ending_;
  const uint64_t rounds_;
  std::vector<uint64_t> counts_;
};

}  // namespace

void intranode_scenario() {
  Ranks ranks;
  ranks.work();
}

}  // namespace mv::schedules
