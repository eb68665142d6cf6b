// core/intranode: all-reduce and the other operations on the memory that ranks of one machine share. Here the ranks are threads.

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>

#include "intranode.hpp"
#include "intranode/spin_policy.hpp"
#include "sanitized.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::test;
namespace base = mv::base;
namespace intranode = mv::intranode;  // NOLINT: this file is one of its
namespace math = mv::math;

mv::base::Nanos in(std::chrono::milliseconds span) { return mv::intranode::now() + span; }

struct Case {
  size_t ranks, count;
  bool is_shown, in_place;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const size_t ranks : {1, 2, 3, 5}) {
    for (const size_t count : {0, 1, 5, 2048, 2049, 50000, 200001}) {
      if ((ranks == 3 || ranks == 5) && count > 100000) continue;
      for (const bool is_shown : {false, true})
        for (const bool in_place : {false, true}) all.push_back({ranks, count, is_shown, in_place});
    }
  }
  return all;
}

/// Enough repetitions that shareable values have been mapped.
constexpr int kTurns = 3;

// ------------------------------------------------------------ results of every kind

void sums_are_those_of_all(void**) {
  for (const Case& each : cases()) {
    Ring ring(each.ranks);
    std::atomic<size_t> wrong{0};
    ring.run([&](size_t rank, RankContext& context) {
      Floats in(each.count, each.is_shown), out(each.count, each.is_shown);
      for (int turn = 0; turn < kTurns; ++turn) {
        Floats& first = each.in_place ? out : in;
        first.fill(rank);
        uint64_t contributors = 0;
        Operation sum{.kind = Kind::kAllreduce, .out = {{out.bytes(), each.count, MV_F32}}, .in = {}, .contributors = &contributors};
        if (!each.in_place) sum.in = {in.bytes()};
        if (!carry_out(context, sum).ok() || contributors != each.ranks) ++wrong;
        for (size_t i = 0; i < each.count; ++i) if (out.data()[i] != sum_of(each.ranks, i)) ++wrong;
        for (size_t i = 0; i < each.count && !each.in_place; ++i) if (in.data()[i] != value_of(rank, i)) ++wrong;
      }
    });
    assert_int_equal(wrong, 0);
  }
}

/// Each of two ranks computes the sum itself, independently of the other's choice of arrays and of its delay. There are more blocks than
/// slots, in irregular lengths.
void two_ranks_need_not_do_the_same_with_their_arrays(void**) {
  Ring ring(2);
  std::atomic<size_t> wrong{0};
  ring.run([&](size_t rank, RankContext& context) {
    std::mt19937 lengths(7), own(static_cast<unsigned>(rank));
    for (int turn = 0; turn < 60; ++turn) {
      const size_t longest = turn % 10 == 0 ? 1'200'000 : 60'000;
      const size_t count = 2'100 + lengths() % longest;
      const bool in_place = own() % 2 == 0;
      Floats in(count, own() % 2 == 0), out(count, own() % 2 == 0);
      (in_place ? out : in).fill(rank);
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
      Operation sum{.kind = Kind::kAllreduce, .out = {{out.bytes(), count, MV_F32}}, .in = {}};
      if (!in_place) sum.in = {in.bytes()};
      if (!carry_out(context, sum).ok()) ++wrong;
      for (size_t i = 0; i < count; ++i) if (out.data()[i] != sum_of(2, i)) ++wrong;
    }
  });
  assert_int_equal(wrong, 0);
}

/// A rank that completes an operation overwrites its tensor at once: no other rank may still read it. Short operations, to hit the moments
/// between two checks of the others.
void no_rank_continues_while_others_read_its_tensor(void**) {
  constexpr size_t kCount = 2100, kRanks = 3;
  Ring ring(kRanks);
  std::atomic<size_t> wrong{0};
  ring.run([&](size_t rank, RankContext& context) {
    Floats values(kCount, true);
    for (size_t turn = 0; turn < turns(40'000, 6000); ++turn) {
      values.fill(rank);
      if (!carry_out(context, {.kind = Kind::kAllreduce, .out = {{values.bytes(), kCount, MV_F32}}, .in = {}}).ok()) ++wrong;
      for (size_t i = 0; i < kCount; i += 100) if (values.data()[i] != sum_of(kRanks, i)) ++wrong;
    }
  });
  assert_int_equal(wrong, 0);
}

void the_faster_way_to_the_other_is_taken(void**) {
  constexpr size_t kBytes = 64 << 10;
  mv::intranode::Distance distance;
  // Nanoseconds per block through the caches and with streaming stores; returns how many of 1,000 blocks used streaming stores.
  const auto past = [&](int64_t by_caches, int64_t past_caches) {
    int count = 0;
    for (int i = 0; i < 1000; ++i) {
      const bool is_past = distance.past_caches();
      count += is_past ? 1 : 0;
      if (distance.timed()) distance.took(kBytes, mv::base::Nanos(is_past ? past_caches : by_caches));
    }
    return count;
  };
  assert_in_range(past(2'600, 2'300), 0, 40);
  assert_in_range(past(29'000, 1'300), 500, 1000);  // the ranks no longer share a cache
  assert_in_range(past(29'000, 1'300), 980, 995);   // the other way is still sampled
  assert_in_range(past(2'600, 2'300), 0, 700);      // and back again
  assert_in_range(past(2'600, 2'300), 5, 20);
  distance.past_caches();
  while (!distance.timed()) distance.past_caches();
  distance.took(kBytes, std::chrono::seconds(1));  // a rank was stopped
  assert_in_range(past(2'600, 2'300), 0, 40);
}

/// If a wait spins in vain but succeeds as soon as it sleeps, it shares a processor with the thread it waits for.
void a_wait_that_shares_a_processor_does_not_spin(void**) {
  using std::chrono::microseconds;
  mv::intranode::SpinPolicy patience(1, microseconds(50));
  const auto wait = [&](microseconds asleep) {
    const bool looks = patience.budget().count() > 0;
    if (looks) patience.failed();
    patience.slept(asleep);
    return looks;
  };
  for (int i = 0; i < 20; ++i) assert_true(wait(microseconds(100)));
  assert_true(wait(microseconds(5)));
  assert_true(wait(microseconds(100)));  // a single case proves nothing
  assert_true(wait(microseconds(5)));
  assert_true(wait(microseconds(5)));
  int without = 0;
  while (!wait(microseconds(5))) ++without;
  assert_in_range(without, 100, 1000);
  assert_true(wait(microseconds(100)));
}

/// Yielding to the other ranks of a processor is far cheaper than a sleep and a wake-up, so failures do not end it. They
/// shorten it, until a wait is short again.
void ranks_that_outnumber_processors_always_spin(void**) {
  constexpr std::chrono::microseconds kLook(50);
  mv::intranode::SpinPolicy policy(100'000, kLook);
  assert_true(policy.is_crowded());
  const auto most = policy.budget();
  assert_true(most == 8 * kLook);
  for (int i = 0; i < 100; ++i) {
    policy.failed();
    policy.slept(std::chrono::microseconds(1000));
    assert_true(policy.budget() >= most / 4);
  }
  assert_true(policy.budget() == most / 4);
  policy.failed();
  policy.slept(std::chrono::microseconds(5));
  assert_true(policy.budget() == most);
  assert_true(mv::intranode::SpinPolicy(100'000, std::chrono::microseconds(0)).budget().count() == 0);
}

void roots_reduce_and_broadcast(void**) {
  for (const Case& each : cases()) {
    Ring ring(each.ranks);
    std::atomic<size_t> wrong{0};
    ring.run([&](size_t rank, RankContext& context) {
      Floats in(each.count, each.is_shown), out(each.count, each.is_shown);
      for (int turn = 0; turn < kTurns; ++turn) {
        const size_t root = static_cast<size_t>(turn) % each.ranks;
        Floats& first = each.in_place ? out : in;
        first.fill(rank);
        Operation reduce{.kind = Kind::kReduce, .root = root, .out = {{out.bytes(), each.count, MV_F32}}, .in = {}};
        if (!each.in_place) reduce.in = {in.bytes()};
        if (!carry_out(context, reduce).ok()) ++wrong;
        for (size_t i = 0; i < each.count && rank == root; ++i) if (out.data()[i] != sum_of(each.ranks, i)) ++wrong;
        Operation broadcast{.kind = Kind::kBroadcast, .root = root, .out = {{out.bytes(), each.count, MV_F32}}, .in = {}};
        if (!carry_out(context, broadcast).ok()) ++wrong;
        for (size_t i = 0; i < each.count; ++i) if (out.data()[i] != sum_of(each.ranks, i)) ++wrong;
      }
    });
    assert_int_equal(wrong, 0);
  }
}

void parts_are_gathered_and_scattered(void**) {
  for (const Case& each : cases()) {
    const size_t count = each.count / each.ranks, all = count * each.ranks;
    Ring ring(each.ranks);
    std::atomic<size_t> wrong{0};
    ring.run([&](size_t rank, RankContext& context) {
      Floats whole(all, each.is_shown), part(count, each.is_shown), gathered(all, each.is_shown);
      for (int turn = 0; turn < kTurns; ++turn) {
        whole.fill(rank);
        Operation scatter{.kind = Kind::kReduceScatter, .out = {{part.bytes(), count, MV_F32}}, .in = {whole.bytes()}};
        if (!carry_out(context, scatter).ok()) ++wrong;
        for (size_t i = 0; i < count; ++i) if (part.data()[i] != sum_of(each.ranks, rank * count + i)) ++wrong;
        Operation gather{.kind = Kind::kAllgather, .out = {{gathered.bytes(), all, MV_F32}}, .in = {}};
        if (each.in_place) {
          std::memcpy(gathered.data() + rank * count, part.data(), count * sizeof(float));
        } else {
          gather.in = {part.bytes()};
        }
        if (!carry_out(context, gather).ok()) ++wrong;
        for (size_t i = 0; i < all; ++i) if (gathered.data()[i] != sum_of(each.ranks, i)) ++wrong;
        if (!carry_out(context, Operation{.kind = Kind::kBarrier, .out = {}, .in = {}}).ok()) ++wrong;
      }
    });
    assert_int_equal(wrong, 0);
  }
}

void many_arrays_go_together(void**) {
  constexpr size_t kRanks = 3, kArrays = 150;
  for (const size_t longest : {20, 3000}) {
    Ring ring(kRanks);
    std::atomic<size_t> wrong{0};
    ring.run([&](size_t rank, RankContext& context) {
      std::mt19937_64 random(11);  // the same everywhere
      for (int turn = 0; turn < kTurns; ++turn) {
        std::vector<std::vector<float>> floats(kArrays);
        std::vector<std::vector<int64_t>> numbers(kArrays);
        Operation sum{.kind = Kind::kAllreduce, .out = {}, .in = {}};
        for (size_t array = 0; array < kArrays; ++array) {
          floats[array].resize(random() % longest);
          numbers[array].resize(random() % longest / 7);
          for (size_t i = 0; i < floats[array].size(); ++i) floats[array][i] = value_of(rank, i + array);
          for (size_t i = 0; i < numbers[array].size(); ++i) numbers[array][i] = static_cast<int64_t>(rank * i + array);
          sum.out.push_back({reinterpret_cast<std::byte*>(floats[array].data()), floats[array].size(), MV_F32});
          sum.out.push_back({reinterpret_cast<std::byte*>(numbers[array].data()), numbers[array].size(), MV_I64});
        }
        if (!carry_out(context, sum).ok()) ++wrong;
        for (size_t array = 0; array < kArrays; ++array) {
          for (size_t i = 0; i < floats[array].size(); ++i) if (floats[array][i] != sum_of(kRanks, i + array)) ++wrong;
          for (size_t i = 0; i < numbers[array].size(); ++i) if (numbers[array][i] != static_cast<int64_t>(3 * i + 3 * array)) ++wrong;
        }
      }
    });
    assert_int_equal(wrong, 0);
  }
}

void bits_are_equal_everywhere(void**) {
  constexpr size_t kRanks = 4, kCount = 100003;
  Ring ring(kRanks);
  std::vector<std::vector<float>> values(kRanks, std::vector<float>(kCount));
  std::vector<float> expected(kCount);
  std::mt19937 random(5);
  std::uniform_real_distribution<float> between(-1.0f, 1.0f);
  for (auto& each : values)
    for (float& value : each) value = between(random);
  for (size_t i = 0; i < kCount; ++i) expected[i] = (((values[0][i] + values[1][i]) + values[2][i]) + values[3][i]) / 3.0f;
  ring.run([&](size_t rank, RankContext& context) {
    Operation mean{.kind = Kind::kAllreduce, .reduction = math::Reduction::kAverage, .draining = rank == 2,
                   .out = {{reinterpret_cast<std::byte*>(values[rank].data()), kCount, MV_F32}}, .in = {}};
    (void)carry_out(context, mean);
  });
  for (const auto& each : values) assert_memory_equal(each.data(), expected.data(), kCount * sizeof(float));
}

/// Freed memory is not requested again; its replacement is.
void tensors_come_and_go(void**) {
  constexpr size_t kRanks = 2, kCount = 20000;
  Ring ring(kRanks);
  std::atomic<size_t> wrong{0};
  ring.run([&](size_t rank, RankContext& context) {
    for (size_t round = 0; round < mv::intranode::kExports + 20; ++round) {
      Floats values(kCount, true);
      for (int turn = 0; turn < 3; ++turn) {
        values.fill(rank);
        if (!carry_out(context, {.kind = Kind::kAllreduce, .out = {{values.bytes(), kCount, MV_F32}}, .in = {}}).ok()) ++wrong;
        for (size_t i = 0; i < kCount; i += 100) if (values.data()[i] != sum_of(kRanks, i)) ++wrong;
      }
    }
  });
  assert_int_equal(wrong, 0);
}

// ------------------------------------------------------------ errors

void a_disagreeing_rank_is_named_and_the_group_continues(void**) {
  Ring ring(3);
  std::array<mv::base::Status, 3> statuses;
  std::atomic<size_t> wrong{0};
  ring.run([&](size_t rank, RankContext& context) {
    std::vector<float> values(40000, 1.0f);
    const auto sum_of_first = [&](size_t count) {
      return Operation{.kind = Kind::kAllreduce, .out = {{reinterpret_cast<std::byte*>(values.data()), count, MV_F32}}, .in = {}};
    };
    statuses[rank] = carry_out(context, sum_of_first(rank == 2 ? 39999 : 40000));
    if (!carry_out(context, sum_of_first(40000)).ok()) ++wrong;
    for (const float value : values) if (value != 3.0f) ++wrong;
  });
  assert_int_equal(wrong, 0);
  for (const mv::base::Status& status : statuses) {
    assert_int_equal(status.code(), MV_EDISAGREE);
    assert_non_null(strstr(status.text().c_str(), "rank 0 calls allreduce (sum) of 40000 f32"));
    assert_non_null(strstr(status.text().c_str(), "rank 2 calls allreduce (sum) of 39999 f32"));
  }
}

/// The arrays are not touched: they may be anywhere.
void ranks_agree_on_an_operation_that_is_carried_out_elsewhere(void**) {
  Ring ring(3);
  std::atomic<size_t> wrong{0};
  ring.run([&](size_t rank, RankContext& context) {
    auto* const nowhere = reinterpret_cast<std::byte*>(uintptr_t{64});
    const auto vote = [&](int64_t mine, size_t count, mv::math::Reduction reduction, bool drains) {
      uint64_t contributors = 0;
      const Operation operation{.kind = Kind::kAllreduce, .reduction = reduction, .draining = drains, .out = {{nowhere, count, MV_F32}},
                                .in = {}, .contributors = &contributors, .vote = &mine};
      const mv::base::Status status = carry_out(context, operation);
      if (status.ok() && contributors != 3) return mine + 10 * static_cast<int64_t>(contributors);
      return status.ok() ? mine : static_cast<int64_t>(status.code());
    };
    using mv::math::Reduction;
    for (const size_t count : {size_t{100}, size_t{40000}}) {
      if (vote(1, count, Reduction::kAverage, false) != 1) ++wrong;
      if (vote(rank == 1 ? 0 : 1, count, Reduction::kSum, false) != 0) ++wrong;
      if (vote(rank == 1 ? 0 : 1, count, Reduction::kSum, rank == 2) != 20) ++wrong;
      if (vote(1, count + rank, Reduction::kSum, false) != MV_EDISAGREE) ++wrong;
    }
    // One that is carried out here is another operation.
    std::vector<float> values(40000, 1.0f);
    int64_t mine = 1;
    Operation operation{.kind = Kind::kAllreduce, .out = {{reinterpret_cast<std::byte*>(values.data()), values.size(), MV_F32}}, .in = {}};
    if (rank == 0) operation.vote = &mine;
    if (carry_out(context, operation).code() != MV_EDISAGREE) ++wrong;
    operation.vote = nullptr;
    if (!carry_out(context, operation).ok() || values[7] != 3) ++wrong;
  });
  assert_int_equal(wrong, 0);
}

void a_late_rank_is_named(void**) {
  Ring ring(3);
  std::array<mv::base::Status, 3> statuses;
  const Operation barrier{.kind = Kind::kBarrier, .out = {}, .in = {}};
  statuses[0] = carry_out(*ring.contexts[0], barrier, in(std::chrono::milliseconds(30)));
  assert_int_equal(statuses[0].code(), MV_ETIMEOUT);
  assert_non_null(strstr(statuses[0].text().c_str(), "rank 1, rank 2"));
  // It has given up: neither it nor the others wait any longer.
  ring.run([&](size_t rank, RankContext& context) { statuses[rank] = carry_out(context, barrier); });
  assert_int_equal(statuses[1].code(), MV_EPEERLOST);
  assert_non_null(strstr(statuses[1].text().c_str(), "rank 0"));
  assert_int_equal(statuses[0].code(), MV_ETIMEOUT);
}

void a_lost_rank_ends_every_wait(void**) {
  for (const size_t count : {1, 500000}) {
    for (const int late_us : {0, 20, 200, 5000}) {
      Ring ring(3);
      std::array<mv::base::Status, 3> statuses;
      ring.run([&](size_t rank, RankContext& context) {
        std::vector<float> values(count);
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::microseconds(late_us));
          ring.contexts[0]->lose(2, mv::base::Status(MV_EPEERLOST, "it was killed"));
          return;  // rank 1 learns of it from rank 0 alone
        }
        statuses[rank] = carry_out(context, {.kind = Kind::kAllreduce,
                                             .out = {{reinterpret_cast<std::byte*>(values.data()), count, MV_F32}},
                                             .in = {}});
      });
      for (const size_t survivor : {0, 1}) {
        assert_int_equal(statuses[survivor].code(), MV_EPEERLOST);
        assert_non_null(strstr(statuses[survivor].text().c_str(), "rank 2 is lost"));
      }
    }
  }
}

void a_rank_reported_to_have_left_is_not_waited_for(void**) {
  Ring ring(3);
  std::array<mv::base::Status, 3> statuses;
  const Operation barrier{.kind = Kind::kBarrier, .out = {}, .in = {}};
  ring.run([&](size_t rank, RankContext& context) {
    if (!carry_out(context, barrier).ok()) return;
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ring.contexts[0]->hear_left(2);  // rank 1 learns of it from rank 0 alone
      return;
    }
    statuses[rank] = carry_out(context, barrier);
  });
  for (const size_t other : {0, 1}) {
    assert_int_equal(statuses[other].code(), MV_EPEERLOST);
    assert_non_null(strstr(statuses[other].text().c_str(), "rank 2"));
  }
}

void a_signal_ends_a_wait_and_the_operation_goes_on(void**) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR1, &action, nullptr);
  Ring ring(2);
  std::atomic<size_t> wrong{0}, interrupted{0};
  std::atomic<bool> waits{false};
  pthread_t waiter{};
  ring.run([&](size_t rank, RankContext& context) {
    float value = 2;
    const Operation sum{.kind = Kind::kAllreduce, .out = {{reinterpret_cast<std::byte*>(&value), 1, MV_F32}}, .in = {}};
    if (rank == 0) {
      waiter = pthread_self();
      waits = true;
      mv::base::Status status = context.begin(sum);
      while ((status = context.finish(mv::base::kNever)).code() == MV_EINTR) ++interrupted;
      if (!status.ok()) ++wrong;
    } else {
      while (!waits) std::this_thread::yield();
      while (interrupted == 0) {
        pthread_kill(waiter, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (!carry_out(context, sum).ok()) ++wrong;
    }
    if (value != 4) ++wrong;
  });
  assert_int_equal(wrong, 0);
  signal(SIGUSR1, SIG_DFL);
}

// ------------------------------------------------------------ ranks with different numbers of steps

void a_finished_rank_takes_part_until_all_are_finished(void**) {
  constexpr size_t kRanks = 4;
  Ring ring(kRanks);
  std::atomic<size_t> wrong{0};
  ring.run([&](size_t rank, RankContext& context) {
    const size_t steps = rank * 3;  // rank 0 makes none at all
    for (size_t step = 0; step < steps; ++step) {
      std::vector<float> values(1 + step * 900, 1.0f);
      uint64_t contributors = 0;
      Operation sum{.kind = Kind::kAllreduce,
                    .out = {{reinterpret_cast<std::byte*>(values.data()), values.size(), MV_F32}},
                    .in = {},
                    .contributors = &contributors};
      if (!carry_out(context, sum).ok()) ++wrong;
      const size_t others = static_cast<size_t>(std::ranges::count_if(
          std::array{0, 1, 2, 3}, [&](int each) { return static_cast<size_t>(each) * 3 > step; }));
      if (contributors != others) ++wrong;
      for (const float value : values) if (value != static_cast<float>(others)) ++wrong;
    }
    size_t drained = 0;
    while (true) {
      const auto next = context.drain(mv::base::kNever);
      if (!next.ok()) ++wrong;
      if (!next.ok() || next.value().finished) break;
      const size_t count = next.value().arrays.at(0).count;
      if (count != 1 + (steps + drained) * 900) ++wrong;
      std::vector<float> zeros(count);
      if (!carry_out(context, {.kind = Kind::kAllreduce,
                               .draining = true,
                               .out = {{reinterpret_cast<std::byte*>(zeros.data()), count, MV_F32}},
                               .in = {}})
               .ok())
        ++wrong;
      ++drained;
    }
    if (drained != 9 - steps) ++wrong;
    if (!carry_out(context, {.kind = Kind::kBarrier, .out = {}, .in = {}}).ok()) ++wrong;
  });
  assert_int_equal(wrong, 0);
}

void the_parts_of_a_large_operation_are_measured(void**) {
  using intranode::Slices;
  Ring ring(3);
  ring.run([](size_t rank, RankContext& context) {
    context.measure();
    for (const size_t count : {size_t{3'000'000}, size_t{30'000}, size_t{10}}) {
      std::vector<float> values(count, static_cast<float>(rank));
      Operation operation;
      operation.kind = Kind::kAllreduce;
      operation.out.push_back({reinterpret_cast<std::byte*>(values.data()), count, MV_F32});
      const base::Nanos begun = intranode::now();
      assert_true(carry_out(context, operation).ok() && values[count - 1] == 3);
      const base::Nanos ended = intranode::now();
      const auto slices = context.slices(ended);
      if (count == 10) {
        assert_int_equal(slices.size(), 0);
        continue;
      }
      assert_true(slices.size() >= 3 && slices.size() <= Slices::kMostOfAll);
      base::Nanos at = begun;
      for (const Slices::Slice& slice : slices) {  // in order, without overlaps, within the operation
        assert_true(slice.begin >= at && slice.end >= slice.begin);
        at = slice.end;
      }
      assert_true(at <= ended);
      for (const auto part : {base::TracePart::kCopyIn, base::TracePart::kReduce, base::TracePart::kCopyOut})
        assert_true(std::ranges::any_of(slices, [part](const Slices::Slice& slice) { return slice.part == part; }));
    }
  });
}

void many_slices_are_the_first_ones_and_the_rest(void**) {
  using intranode::Slices;
  Slices slices;
  slices.turn_on();
  for (int operation = 0; operation < 2; ++operation) {
    slices.begin_operation();
    slices.begin_steps(base::Nanos{0});
    for (int64_t i = 0; i < 1000; i += 2) {
      if (slices.wants_steps()) slices.step(base::TracePart::kReduce, base::Nanos(10 * i + 10));
      slices.wait(base::Nanos(10 * i + 11), base::Nanos(10 * i + 20));
    }
    const auto all = slices.all(base::Nanos(10'000));
    assert_int_equal(all.size(), Slices::kMost + 2);
    assert_true(all[2].part == base::TracePart::kReduce && all[2].begin.count() == 20 && all[2].end.count() == 30);
    const Slices::Slice &waits = all[Slices::kMost], &rest = all[Slices::kMost + 1];
    assert_true(waits.part == base::TracePart::kWait && waits.begin.count() == 120 && (waits.end - waits.begin).count() == 494 * 9);
    assert_true(rest.part == base::TracePart::kMore && rest.begin == waits.end && rest.end.count() == 10'000);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sums_are_those_of_all),
      cmocka_unit_test(two_ranks_need_not_do_the_same_with_their_arrays),
      cmocka_unit_test(no_rank_continues_while_others_read_its_tensor),
      cmocka_unit_test(the_faster_way_to_the_other_is_taken),
      cmocka_unit_test(a_wait_that_shares_a_processor_does_not_spin),
      cmocka_unit_test(ranks_that_outnumber_processors_always_spin),
      cmocka_unit_test(roots_reduce_and_broadcast),
      cmocka_unit_test(parts_are_gathered_and_scattered),
      cmocka_unit_test(many_arrays_go_together),
      cmocka_unit_test(bits_are_equal_everywhere),
      cmocka_unit_test(tensors_come_and_go),
      cmocka_unit_test(a_disagreeing_rank_is_named_and_the_group_continues),
      cmocka_unit_test(ranks_agree_on_an_operation_that_is_carried_out_elsewhere),
      cmocka_unit_test(the_parts_of_a_large_operation_are_measured),
      cmocka_unit_test(many_slices_are_the_first_ones_and_the_rest),
      cmocka_unit_test(a_late_rank_is_named),
      cmocka_unit_test(a_lost_rank_ends_every_wait),
      cmocka_unit_test(a_rank_reported_to_have_left_is_not_waited_for),
      cmocka_unit_test(a_signal_ends_a_wait_and_the_operation_goes_on),
      cmocka_unit_test(a_finished_rank_takes_part_until_all_are_finished),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
