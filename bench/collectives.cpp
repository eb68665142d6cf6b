// Executes the schedules of up to 1,024 ranks on a simulated network, and compares the times with the cost model. Prints one line of JSON
// for each, which bench/plots/allreduce.py plots.
//
//     bench_collectives > allreduce.json

#include <fmt/core.h>

#include "timed_run.hpp"

namespace {

using namespace mv::collective;

constexpr const char* kNames[] = {"tree", "recursive doubling", "ring", "Rabenseifner"};

void print_row(Algorithm algorithm, uint64_t bytes, int32_t ranks, const Costs& costs) {
  const TransportCost& transport = costs.of(mv::base::TransportKind::kTcp);
  fmt::print("{{\"algorithm\": \"{}\", \"bytes\": {}, \"ranks\": {}, \"simulated\": {:.9g}, \"modelled\": {:.9g}}}\n",
             kNames[static_cast<size_t>(algorithm)], bytes, ranks, timed_allreduce(algorithm, bytes, ranks, transport, costs.gamma),
             cost_of(algorithm, bytes, ranks, transport, costs.gamma));
}

}  // namespace

int main() {
  const Costs costs;
  for (const uint64_t bytes : {uint64_t{1} << 10, uint64_t{1} << 20, uint64_t{64} << 20})
    for (const Algorithm algorithm : {Algorithm::kTree, Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kRabenseifner})
      for (int32_t ranks = 2; ranks <= 1024; ranks *= 2) print_row(algorithm, bytes, ranks, costs);
  return 0;
}
