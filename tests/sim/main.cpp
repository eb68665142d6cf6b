// sim_test: runs seeds, in as many processes as there are processors, and tells how to replay the first ones that fail.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <atomic>
#include <cstdio>
#include <new>
#include <thread>

#include "base/log.hpp"
#include "cluster.hpp"

namespace mv::sim {
namespace {

constexpr uint64_t kMostTold = 5;
constexpr uint64_t kNoSeed = UINT64_MAX;
constexpr size_t kMostJobs = 256;

struct Options {
  std::string program;
  std::string seeds = "1..1000";
  uint64_t seed = kNoSeed;
  size_t nodes = 0;
  size_t jobs = std::thread::hardware_concurrency();
  bool verbose = false;
  bool twice = false;
};

/// What the processes share.
struct Board {
  std::atomic<uint64_t> next{0}, passed{0}, failed{0};
  std::atomic<uint64_t> at[kMostJobs];  ///< the seed that each is at
};

std::string replay(const Options& options, uint64_t seed) {
  return fmt::format("replay: {} --seed {}{} --verbose", options.program, seed,
                     options.nodes != 0 ? fmt::format(" --nodes {}", options.nodes) : "");
}

Outcome run_seed(const Options& options, uint64_t seed) {
  const Scenario scenario = make_scenario(seed, options.nodes);
  if (options.verbose) fmt::print("seed {}: {}\n", seed, scenario.describe());
  Outcome outcome = SimCluster(scenario, options.verbose).run();
  if (!options.twice || !outcome.violation.empty()) return outcome;
  const Outcome again = SimCluster(make_scenario(seed, options.nodes), false).run();
  if (again.hash != outcome.hash || again.steps != outcome.steps)
    outcome.violation = fmt::format("a second run went another way: {:016x} after {} steps, {:016x} after {}",
                                    outcome.hash, outcome.steps, again.hash, again.steps);
  return outcome;
}

void tell_failure(const Options& options, uint64_t seed, const std::string& what, uint64_t count) {
  if (count > kMostTold) return;
  const std::string text = fmt::format("\nseed {} ({})\n  {}\n  {}\n", seed,
                                       make_scenario(seed, options.nodes).describe(), what, replay(options, seed));
  fwrite(text.data(), 1, text.size(), stdout);
  fflush(stdout);
}

void work(const Options& options, Board& board, size_t job, uint64_t end) {
  for (uint64_t seed; (seed = board.next++) < end;) {
    board.at[job] = seed;
    const Outcome outcome = run_seed(options, seed);
    if (outcome.violation.empty())
      ++board.passed;
    else
      tell_failure(options, seed, outcome.violation, ++board.failed);
  }
}

pid_t start_job(const Options& options, Board& board, size_t job, uint64_t end) {
  fflush(stdout);
  const pid_t child = fork();
  if (child != 0) return child;
  work(options, board, job, end);
  fflush(stdout);
  _exit(0);
}

int run_range(const Options& options, uint64_t begin, uint64_t end) {
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return std::perror("mmap"), 2;
  Board& board = *new (shared) Board;
  board.next = begin;
  std::vector<pid_t> jobs(std::max<size_t>(1, std::min({options.jobs, kMostJobs, static_cast<size_t>(end - begin)})));
  for (size_t job = 0; job < jobs.size(); ++job) jobs[job] = start_job(options, board, job, end);
  const bool tty = isatty(STDOUT_FILENO) != 0;
  for (size_t open = jobs.size(); open > 0;) {
    if (tty)
      fmt::print("\r{} of {} seeds, {} failed ", board.passed + board.failed, end - begin, board.failed.load()),
          fflush(stdout);
    bool ended = false;
    for (size_t job = 0; job < jobs.size(); ++job) {
      int status = 0;
      if (jobs[job] <= 0 || waitpid(jobs[job], &status, WNOHANG) != jobs[job]) continue;
      ended = true;
      jobs[job] = 0;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        --open;
        continue;
      }
      tell_failure(options, board.at[job], fmt::format("the simulator died (wait status {:#x})", status),
                   ++board.failed);
      jobs[job] = start_job(options, board, job, end);  // the others' sake: go on with the next seed
    }
    if (!ended) usleep(tty ? 100'000 : 20'000);
  }
  fmt::print("{}{} passed, {} failed\n", tty ? "\r\033[K" : "", board.passed.load(), board.failed.load());
  return board.failed == 0 ? 0 : 1;
}

int run_one(const Options& options) {
  const Outcome outcome = run_seed(options, options.seed);
  fmt::print("seed {}: {} steps in {:.3f} s of virtual time, hash {:016x}\n", options.seed, outcome.steps,
             static_cast<double>(outcome.span.count()) / 1e9, outcome.hash);
  if (!outcome.violation.empty()) {
    fmt::print("  {}\n", outcome.violation);
    if (!options.verbose) fmt::print("  {}\n", replay(options, options.seed));
  }
  fmt::print("{} passed, {} failed\n", outcome.violation.empty() ? 1 : 0, outcome.violation.empty() ? 0 : 1);
  return outcome.violation.empty() ? 0 : 1;
}

int run(int argc, char** argv) {
  Options options;
  options.program = argv[0];
  CLI::App app("Whole clusters on virtual time and a network that misbehaves by seeded dice.");
  app.add_option("--seeds", options.seeds, "which: FROM..TO, both included")->capture_default_str();
  app.add_option("--seed", options.seed, "this one only");
  app.add_option("--nodes", options.nodes, "nodes of each cluster; by default the seed decides, 2 to 9");
  app.add_option("--jobs", options.jobs, "processes")->capture_default_str();
  app.add_flag("--verbose", options.verbose, "tell everything that happens");
  app.add_flag("--twice", options.twice, "run each seed twice and compare all that happened");
  CLI11_PARSE(app, argc, argv);
  base::set_log_level(options.verbose ? MV_LOG_DEBUG : MV_LOG_OFF);
  if (options.seed != kNoSeed) return run_one(options);
  unsigned long long from = 0, to = 0;
  if (std::sscanf(options.seeds.c_str(), "%llu..%llu", &from, &to) != 2 || from > to)
    return fmt::print(stderr, "--seeds {}: expected FROM..TO, as in 1..1000\n", options.seeds), 2;
  return run_range(options, from, to + 1);
}

}  // namespace
}  // namespace mv::sim

int main(int argc, char** argv) { return mv::sim::run(argc, argv); }
