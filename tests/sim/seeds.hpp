#pragma once
// The command line of a simulator that runs one scenario for each seed.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/log.hpp"

namespace mv::sim {

/// run(seed, verbose) gives what is wrong, or ""; of the first failures describe(seed) is told beside the number.
template <typename Run, typename Describe>
int run_seeds(int argc, char** argv, const char* about, const Run& run, const Describe& describe) {
  std::string seeds = "1..1000";
  uint64_t seed = 0;
  bool verbose = false;
  CLI::App app(about);
  app.add_option("--seeds", seeds, "which: FROM..TO, both included")->capture_default_str();
  app.add_option("--seed", seed, "this one only");
  app.add_flag("--verbose", verbose, "tell everything that happens");
  CLI11_PARSE(app, argc, argv);
  base::set_log_level(verbose ? MV_LOG_DEBUG : MV_LOG_OFF);
  unsigned long long from = seed, to = seed;
  if (seed == 0 && (std::sscanf(seeds.c_str(), "%llu..%llu", &from, &to) != 2 || from > to)) return 2;
  uint64_t failed = 0;
  for (uint64_t each = from; each <= to; ++each) {
    const std::string wrong = run(each, verbose);
    if (wrong.empty() || ++failed > 5) continue;
    fmt::print("seed {}{}\n  {}\n  replay: {} --seed {} --verbose\n", each, describe(each), wrong, argv[0], each);
  }
  fmt::print("{} passed, {} failed\n", to - from + 1 - failed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace mv::sim
