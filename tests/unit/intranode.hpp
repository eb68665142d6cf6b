#pragma once
// Ranks that share memory, for tests of core/intranode: threads of this process, or child processes.

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
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
  explicit Ring(size_t ranks) : memory(make_regions(ranks)) {
    for (size_t rank = 0; rank < ranks; ++rank)
      contexts.push_back(std::make_unique<RankContext>(rank, memory, rank_names(ranks)));
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

}  // namespace mv::test
