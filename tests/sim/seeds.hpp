#pragma once
// The command line of each simulator: which seeds, in how many processes, and how to replay the first ones that fail.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace mv::sim {

/// One seed's run, as the command line asks for it.
struct SeedRun {
  uint64_t seed = 0;
  size_t nodes = 0;  ///< 0: the seed decides; what is meant is the simulator's business
  size_t replicas = 0;  ///< of each server's tables (sim_test, sim_checkpoints, sim_rounds)
  bool masters = false;  ///< with replicas, the master is lost (sim_test)
  bool drains = false;  ///< servers end, and hand their tables over (sim_test)
  bool grows = false;   ///< there are vacant places; servers come, and end (sim_test)
  bool elastic = false; ///< workers come while others work (sim_test)
  bool verbose = false;
  bool twice = false;  ///< compare everything that happens with a second run, where a simulator can
};

/// Runs the seeds that the command line names. @return the exit status of main()
/// @param about     the simulator, for --help
/// @param run       gives what is wrong, or ""; called in a child process unless --seed names one seed
/// @param describe  what is told beside the number of a seed that failed, or ""
int run_seeds(int argc, char** argv, const char* about, const std::function<std::string(const SeedRun&)>& run,
              const std::function<std::string(const SeedRun&)>& describe);

}  // namespace mv::sim
