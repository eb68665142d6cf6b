// sim_checkpoints: clusters that save and load on a bad network and a bad disk, and heirs that load what they left.
// By seed.

#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>

#include "base/log.hpp"
#include "checkpoints/world.hpp"

namespace {

using namespace mv::sim;

/// What went wrong; "" if nothing did.
std::string run_seed(uint64_t seed, bool verbose) {
  Promises promises;
  Timeline timeline, later;
  Disk disk(timeline, Random(seed ^ 0x6469736b));
  run_cluster(timeline, disk, make_plan(seed), promises, false, verbose);
  if (!timeline.violation().empty()) return timeline.violation();
  for (const auto& [number, checkpoint] : disk.checkpoints) {
    if (!checkpoint.manifest) continue;
    if (const std::string wrong = promises.wrong_with(content_of(checkpoint)); !wrong.empty())
      return fmt::format("checkpoint {}: {}", number, wrong);
  }
  if (verbose) std::printf("the heirs come: %s\n", make_heirs(seed).describe().c_str());
  run_cluster(later, disk, make_heirs(seed), promises, true, verbose);
  return later.violation();
}

}  // namespace

int main(int argc, char** argv) {
  std::string seeds = "1..1000";
  uint64_t seed = 0;
  bool verbose = false;
  CLI::App app("Checkpoints on virtual time, a network and a disk that misbehave by seeded dice.");
  app.add_option("--seeds", seeds, "which: FROM..TO, both included")->capture_default_str();
  app.add_option("--seed", seed, "this one only");
  app.add_flag("--verbose", verbose, "tell everything that happens");
  CLI11_PARSE(app, argc, argv);
  mv::base::set_log_level(verbose ? MV_LOG_DEBUG : MV_LOG_OFF);
  unsigned long long from = seed, to = seed;
  if (seed == 0 && (std::sscanf(seeds.c_str(), "%llu..%llu", &from, &to) != 2 || from > to)) return 2;
  uint64_t failed = 0;
  for (uint64_t each = from; each <= to; ++each) {
    const std::string wrong = run_seed(each, verbose);
    if (wrong.empty()) continue;
    if (++failed <= 5)
      fmt::print("seed {} ({})\n  {}\n  replay: {} --seed {} --verbose\n", each, make_plan(each).describe(), wrong,
                 argv[0], each);
  }
  fmt::print("{} passed, {} failed\n", to - from + 1 - failed, failed);
  return failed == 0 ? 0 : 1;
}
