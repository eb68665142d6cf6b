// sim_checkpoints: clusters that save and load on an unreliable network and disk, and successor clusters that load their checkpoints. By
// seed.

#include <cstdio>
#include <string>

#include "checkpoints/world.hpp"
#include "seeds.hpp"

namespace {

using namespace mv::sim;

/// What went wrong; "" if nothing did.
std::string run_seed(const SeedRun& asked) {
  const uint64_t seed = asked.seed;
  const bool verbose = asked.verbose;
  Promises promises;
  Timeline timeline, later;
  Disk disk(timeline, Random(seed ^ 0x6469736b));
  run_cluster(timeline, disk, make_plan(seed, asked.replicas), promises, false, verbose);
  if (!timeline.violation().empty()) return timeline.violation();
  for (const auto& [number, checkpoint] : disk.checkpoints) {
    if (!checkpoint.manifest) continue;
    if (const std::string wrong = promises.wrong_with(content_of(checkpoint)); !wrong.empty())
      return fmt::format("checkpoint {}: {}", number, wrong);
  }
  if (verbose) std::printf("successors: %s\n", make_successors(seed, asked.replicas).describe().c_str());
  run_cluster(later, disk, make_successors(seed, asked.replicas), promises, true, verbose);
  return later.violation();
}

}  // namespace

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "Checkpoints on virtual time, with network and disk faults from the seed.", run_seed,
                            [](const mv::sim::SeedRun& of) { return make_plan(of.seed, of.replicas).describe(); });
}
