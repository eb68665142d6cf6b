#pragma once
// Ranks that share memory, for tests of core/intranode: threads of this process, or child processes.

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/shared_memory.hpp"
#include "intranode/rank_context.hpp"

namespace mv::test {

using collective::Array;
using collective::Kind;
using collective::Operation;
using intranode::Memory;
using intranode::RankContext;

inline std::vector<std::string> rank_names(size_t ranks) {
  std::vector<std::string> names;
  for (size_t rank = 0; rank < ranks; ++rank) names.push_back("rank " + std::to_string(rank));
  return names;
}

inline std::vector<Memory> make_regions(size_t ranks) {
  std::vector<Memory> memory;
  for (size_t rank = 0; rank < ranks; ++rank)
    memory.push_back(base::SharedMemory::make("polyverso-test", intranode::SharedRegion::bytes(ranks)).value());
  return memory;
}

/// A group in one process: the contexts of all ranks, which map each other's tensors like processes do.
class Ring {
 public:
  explicit Ring(size_t ranks, const intranode::Tuning& tuning = {}) : memory(make_regions(ranks)) {
    for (size_t rank = 0; rank < ranks; ++rank)
      contexts.push_back(std::make_unique<RankContext>(rank, memory, rank_names(ranks), std::chrono::microseconds(50), tuning));
  }
  size_t size() const { return contexts.size(); }

  /// Runs work(rank, context) on one thread per rank.
  void run(const std::function<void(size_t, RankContext&)>& work) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < size(); ++rank) threads.emplace_back([&, rank] { work(rank, *contexts[rank]); });
    for (std::thread& thread : threads) thread.join();
  }

  const std::vector<Memory> memory;
  std::vector<std::unique_ptr<RankContext>> contexts;
};

inline base::Status carry_out(RankContext& context, const Operation& operation, base::Nanos deadline = base::kNever) {
  base::Status status = context.begin(operation);
  if (status.ok()) status = context.finish(deadline);
  return status;
}

/// Numbers whose sums are exact in every order, so that an error is never rounding.
inline float value_of(size_t rank, size_t i) { return static_cast<float>((rank + 1) * 3 + i % 61); }

inline float sum_of(size_t ranks, size_t i) {
  float sum = 0;
  for (size_t rank = 0; rank < ranks; ++rank) sum += value_of(rank, i);
  return sum;
}

/// Floats in memory that can be shared, or in private memory.
class Floats {
 public:
  Floats(size_t count, bool is_shown) : count_(count) {
    if (is_shown) {
      memory_ = base::SharedMemory::make("polyverso-test", count * sizeof(float) + 64).value();
      base::SharedMemory::enlist(memory_);
    } else {
      own_.resize(count * sizeof(float) + 64);
    }
  }
  std::byte* bytes() { return (memory_ != nullptr ? memory_->data() : own_.data()) + 4; }
  float* data() { return reinterpret_cast<float*>(bytes()); }
  std::span<float> all() { return {data(), count_}; }
  void fill(size_t rank) {
    for (size_t i = 0; i < count_; ++i) data()[i] = value_of(rank, i);
  }

 private:
  size_t count_;
  Memory memory_;
  std::vector<std::byte> own_;
};

}  // namespace mv::test
