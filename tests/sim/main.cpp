// sim_test: whole clusters on virtual time and a network that misbehaves.

#include "cluster.hpp"
#include "seeds.hpp"

namespace mv::sim {
namespace {

Scenario scenario_of(const SeedRun& asked) { return make_scenario(asked.seed, asked.nodes, static_cast<uint32_t>(asked.replicas), asked.drains, asked.masters, asked.grows, asked.elastic); }

std::string run_seed(const SeedRun& asked) {
  const Scenario scenario = scenario_of(asked);
  if (asked.verbose) fmt::print("seed {}: {}\n", asked.seed, scenario.describe());
  const Outcome outcome = SimCluster(scenario, asked.verbose).run();
  if (asked.verbose)
    fmt::print("seed {}: {} steps in {:.3f} s of virtual time, hash {:016x}\n", asked.seed, outcome.steps,
               static_cast<double>(outcome.span.count()) / 1e9, outcome.hash);
  if (!asked.twice || !outcome.violation.empty()) return outcome.violation;
  const Outcome again = SimCluster(scenario_of(asked), false).run();
  if (again.hash == outcome.hash && again.steps == outcome.steps) return "";
  return fmt::format("a second run differed: {:016x} after {} steps, {:016x} after {}", outcome.hash, outcome.steps, again.hash, again.steps);
}

}  // namespace
}  // namespace mv::sim

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "Whole clusters on virtual time, with network faults from the seed.", mv::sim::run_seed,
                            [](const mv::sim::SeedRun& of) { return mv::sim::scenario_of(of).describe(); });
}
