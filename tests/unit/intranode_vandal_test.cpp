// core/intranode with a rank that writes arbitrary data into its own memory. The other ranks get errors or wrong values, but they never
// crash and never wait beyond their deadlines.
//   intranode_vandal_test [OPERATIONS [SEED]]

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "intranode.hpp"
#include "intranode/spin_policy.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::test;  // NOLINT: this file is one of its
namespace base = mv::base;
namespace math = mv::math;
namespace intranode = mv::intranode;

uint64_t operations = 20'000, seed = 1;

/// One rank's input and output of one operation: in memory that can be shared, or in private memory.
struct Values {
  Values() : shown(base::SharedMemory::make("polyverso-test", kBytes).value()), own(kBytes) { base::SharedMemory::enlist(shown); }
  static constexpr size_t kBytes = size_t{4} << 20;
  Memory shown;
  std::vector<std::byte> own;
  std::byte* at(bool is_shown, size_t from) { return (is_shown ? shown->data() : own.data()) + from; }
};

/// The same random operation on all ranks, except for the place of their values.
Operation draw(std::mt19937_64& random, Values& values, bool is_shown, size_t ranks) {
  constexpr Kind kKinds[] = {Kind::kAllreduce, Kind::kAllreduce, Kind::kAllreduce, Kind::kReduce,  Kind::kBroadcast,
                             Kind::kAllgather, Kind::kReduceScatter, Kind::kBarrier, Kind::kCustom};
  constexpr mv_dtype kDtypes[] = {MV_F32, MV_F64, MV_I8, MV_F16};
  Operation operation;
  operation.kind = kKinds[random() % std::size(kKinds)];
  operation.root = random() % ranks;
  operation.reduction = random() % 2 == 0 ? math::Reduction::kSum : math::Reduction::kMax;
  if (operation.kind == Kind::kBarrier) return operation;
  const size_t arrays = 1 + random() % 3, longest = random() % 4 == 0 ? 20'000 : 400;
  const bool has_in = operation.kind == Kind::kAllgather || operation.kind == Kind::kReduceScatter || random() % 2 == 0;
  size_t at = 0;
  for (size_t i = 0; i < arrays; ++i) {
    const mv_dtype dtype = kDtypes[random() % std::size(kDtypes)];
    const uint64_t count = random() % longest * (operation.kind == Kind::kAllgather ? ranks : 1);
    const size_t bytes = count * mv::tensor::dtype_bytes(dtype) * (operation.kind == Kind::kReduceScatter ? ranks : 1);
    operation.out.push_back({values.at(is_shown, at), count, dtype});
    at += (bytes + 63) / 64 * 64;
    if (!has_in) continue;
    operation.in.push_back(values.at(is_shown, at));
    at += (bytes + 63) / 64 * 64;
  }
  return operation;
}

/// The last rank. It has no context: it repeats rank 0's announcements, so that operations go on, and writes random data at random moments.
class Vandal {
 public:
  Vandal(const std::vector<Memory>& memory, uint64_t seed)
      : memory_(memory), ranks_(memory.size()), theirs_(memory[0], ranks_), own_(memory.back(), ranks_), dice_(seed), thread_([this] { run(); }) {}
  ~Vandal() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    while (!stop_) {
      follow();
      for (uint64_t times = dice_() % 4; times > 0; --times) scribble();
      if (dice_() % 8 == 0) std::this_thread::yield();
    }
  }

  void follow() {
    const uint64_t even = theirs_.header(0).posted.load(), odd = theirs_.header(1).posted.load(), number = std::max(even, odd);
    own_.words().draining.store(theirs_.words().draining.load());
    if (number == 0 || own_.header(number).posted.load() == number) return;
    const auto behind_number = [number](const intranode::SharedRegion& region) {
      return reinterpret_cast<std::byte*>(&region.header(number)) + sizeof(uint64_t);
    };
    std::memcpy(behind_number(own_), behind_number(theirs_), sizeof(intranode::Header) - sizeof(uint64_t));
    std::memcpy(static_cast<void*>(own_.items(number)), static_cast<const void*>(theirs_.items(number)), 4 * sizeof(intranode::Item));
    for (std::atomic<uint64_t>* word : {&own_.words().staged, &own_.words().merged, &own_.words().copied})
      word->store(intranode::progress(number, 1 << 20));
    own_.header(number).posted.store(number);
  }

  /// Mostly writes to words that are not values; rarely to words that end the group at once.
  void scribble() {
    std::byte* const header = reinterpret_cast<std::byte*>(&own_.header(dice_() % 2));
    std::byte* const items = reinterpret_cast<std::byte*>(own_.items(dice_() % 2));
    switch (dice_() % 16) {
      case 0: return put(header + sizeof(uint64_t), sizeof(intranode::Header) - sizeof(uint64_t));
      case 1: return put(header, dice_() % 64 == 0 ? sizeof(intranode::Header) : 1);
      case 2: case 3: case 4: return put(header + 28, 8);  // fields such as the one that says which values can be read in place
      case 5: case 6: return put(items, 4 * sizeof(intranode::Item));
      case 7: return put(items + dice_() % 4 * sizeof(intranode::Item), sizeof(intranode::Item));
      case 8: return put(reinterpret_cast<std::byte*>(own_.exports()), 8 * sizeof(intranode::Export));
      case 9: return own_.words().exports.fetch_add(1), void();
      case 10: return own_.mapped(dice_() % ranks_)[dice_() % 4].store(theirs_.exports()[dice_() % 4].number.load());
      case 11: {
        std::atomic<uint64_t>* const words[] = {&own_.words().staged, &own_.words().merged, &own_.words().copied, &own_.words().draining};
        const uint64_t number = std::max(theirs_.header(0).posted.load(), theirs_.header(1).posted.load());
        words[dice_() % 4]->store(dice_() % 2 == 0 ? dice_() : intranode::progress(number, dice_() % 64));
        return;
      }
      case 12: return own_.words().asleep_on.store(static_cast<uint32_t>(dice_() % 2 == 0 ? dice_() : dice_() % (ranks_ + 2)));
      case 13: return own_.words().bell.store(static_cast<uint32_t>(dice_()));
      case 14: return put(memory_.back()->data(), memory_.back()->bytes());
      default: if (dice_() % 256 == 0) own_.words().left.store(static_cast<uint32_t>(dice_() % 2 == 0 ? dice_() : dice_() % (ranks_ + 4)));
    }
  }

  void put(std::byte* at, size_t bytes) {
    if (dice_() % 4 != 0) return void(at[dice_() % bytes] = static_cast<std::byte>(dice_()));
    const uint64_t value = dice_() % 2 == 0 ? dice_() : dice_() % 3;
    if (bytes >= sizeof value) std::memcpy(at + dice_() % (bytes / sizeof value) * sizeof value, &value, sizeof value);
  }

  const std::vector<Memory>& memory_;
  const size_t ranks_;
  const intranode::SharedRegion theirs_, own_;
  std::mt19937_64 dice_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Runs one group until it is broken, or for a while. Counts the outcomes of its operations.
void run_group(uint64_t number, std::atomic<uint64_t>& done, std::atomic<uint64_t>& failed) {
  std::mt19937_64 random(number);
  const size_t ranks = 2 + random() % 3;
  const bool drains = random() % 4 == 0;
  const auto memory = make_regions(ranks);
  std::vector<std::unique_ptr<RankContext>> contexts;
  for (size_t rank = 0; rank + 1 < ranks; ++rank)
    contexts.push_back(std::make_unique<RankContext>(rank, memory, rank_names(ranks), std::chrono::microseconds(20)));
  const uint64_t draws = random();
  static std::array<Values, 3> all_values;
  std::vector<std::thread> threads;
  Vandal vandal(memory, number);
  for (size_t rank = 0; rank + 1 < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Values& values = all_values[rank];
      std::mt19937_64 same(draws), own(draws + rank);
      for (int turn = 0; turn < 100; ++turn) {
        const auto deadline = intranode::now() + std::chrono::milliseconds(5);
        base::Status status;
        Operation operation = draw(same, values, own() % 2 == 0, ranks);
        if (drains && rank == 0 && own() % 4 == 0) {
          operation.draining = true;
          auto shape = contexts[rank]->drain(deadline);
          status = shape.ok() ? base::Status() : shape.status();
          for (const auto& array : shape.ok() ? shape.value().arrays : std::vector<Array>())
            if (mv::tensor::dtype_bytes(array.dtype) == 0 || array.note > mv::collective::kMostNote) std::abort();
        }
        if (status.ok()) status = carry_out(*contexts[rank], operation, deadline);
        ++done;
        failed += !status.ok();
        if (!status.ok() && status.code() != MV_EDISAGREE) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void others_survive_a_rank_that_scribbles_over_its_memory(void**) {
  std::atomic<uint64_t> done{0}, failed{0};
  uint64_t groups = 0;
  while (done < operations) run_group(seed + groups++, done, failed);
  std::printf("%llu operations in %llu groups, %llu failed\n", static_cast<unsigned long long>(done.load()), static_cast<unsigned long long>(groups),
              static_cast<unsigned long long>(failed.load()));
  assert_true(failed < done);
}

}  // namespace

int main(int argc, char** argv) {
#if defined(__SANITIZE_THREAD__)
  return 0;  // the vandal's writes are deliberate data races
#endif
  if (argc > 1) operations = std::strtoull(argv[1], nullptr, 10);
  if (argc > 2) seed = std::strtoull(argv[2], nullptr, 10);
  const CMUnitTest tests[] = {cmocka_unit_test(others_survive_a_rank_that_scribbles_over_its_memory)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
