#include "seeds.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>
#include <thread>
#include <vector>

#include "base/log.hpp"

namespace mv {
namespace {

std::string chosen_bug;

}  // namespace

bool has_bug(const char* name);  // for the sources that have some: see cmake/bugs.cmake
bool has_bug(const char* name) { return chosen_bug == name; }

namespace sim {
namespace {

constexpr uint64_t kMostTold = 5;
constexpr uint64_t kNoSeed = UINT64_MAX;
constexpr size_t kMostJobs = 256;

/// What the processes share.
struct Board {
  std::atomic<uint64_t> next{0}, passed{0}, failed{0};
  std::atomic<uint64_t> found{kNoSeed};
  std::atomic<uint64_t> at[kMostJobs];  ///< the seed that each is at
};

class Runner {
 public:
  using Run = std::function<std::string(const SeedRun&)>;
  Runner(std::string program, SeedRun asked, const Run& run, const Run& describe)
      : program_(std::move(program)), asked_(asked), run_(run), describe_(describe) {}

  int one(uint64_t seed) const {
    const std::string wrong = run_(of(seed));
    if (!wrong.empty()) fmt::print("seed {}: {}\n  {}\n{}", seed, describe_(of(seed)), wrong, asked_.verbose ? "" : "  " + replay(seed) + "\n");
    fmt::print("{} passed, {} failed\n", wrong.empty() ? 1 : 0, wrong.empty() ? 0 : 1);
    return wrong.empty() ? 0 : 1;
  }

  /// Whether some seed fails with this in its text.
  int until_found(uint64_t begin, uint64_t end, size_t most_jobs, const std::string& text) {
    wanted_ = &text;
    range(begin, end, most_jobs);
    const uint64_t seed = board_->found;
    fmt::print("{}\n", seed != kNoSeed ? fmt::format("seed {} finds it", seed) : fmt::format("no seed fails with \"{}\"", text));
    return seed != kNoSeed ? 0 : 1;
  }

  int range(uint64_t begin, uint64_t end, size_t most_jobs) {
    void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return std::perror("mmap"), 2;
    board_ = new (shared) Board;
    board_->next = begin;
    end_ = end;
    const bool tty = isatty(STDOUT_FILENO) != 0;
    std::vector<pid_t> jobs(std::max<uint64_t>(1, std::min<uint64_t>({most_jobs, kMostJobs, end - begin})));
    for (size_t job = 0; job < jobs.size(); ++job) jobs[job] = start(job);
    while (std::ranges::any_of(jobs, [](pid_t job) { return job > 0; })) {
      if (tty) fmt::print("\r{} of {} seeds, {} failed ", board_->passed + board_->failed, end - begin, board_->failed.load()), std::fflush(stdout);
      bool ended = false;
      for (size_t job = 0; job < jobs.size(); ++job) ended |= jobs[job] > 0 && look_after(job, jobs[job]);
      if (!ended) usleep(20'000);
    }
    fmt::print("{}{} passed, {} failed\n", tty ? "\r\033[K" : "", board_->passed.load(), board_->failed.load());
    return board_->failed == 0 ? 0 : 1;
  }

 private:
  SeedRun of(uint64_t seed) const {
    SeedRun run = asked_;
    run.seed = seed;
    return run;
  }

  std::string replay(uint64_t seed) const {
    const auto option = [](const char* name, size_t value) { return value != 0 ? fmt::format(" --{} {}", name, value) : ""; };
    return fmt::format("replay: {}{} --seed {}{}{}{}{}{}{} --verbose", program_, chosen_bug.empty() ? "" : " --bug " + chosen_bug, seed, option("nodes", asked_.nodes), option("replicas", asked_.replicas),
                       asked_.drains ? " --drains" : "", asked_.masters ? " --masters" : "", asked_.grows ? " --grows" : "", asked_.elastic ? " --elastic" : "");
  }

  void tell(uint64_t seed, const std::string& wrong) {
    ++board_->failed;
    if (wanted_ != nullptr) {
      if (wrong.find(*wanted_) == std::string::npos) return;
      board_->found = seed;
      board_->next = end_;  // no others
    } else if (board_->failed > kMostTold) {
      return;
    }
    fmt::print("\nseed {}: {}\n  {}\n  {}\n", seed, describe_(of(seed)), wrong, replay(seed));
    std::fflush(stdout);
  }

  pid_t start(size_t job) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child != 0) return child;
    for (uint64_t seed; (seed = board_->next++) < end_;) {
      board_->at[job] = seed;
      const std::string wrong = run_(of(seed));
      if (wrong.empty())
        ++board_->passed;
      else
        tell(seed, wrong);
    }
    std::fflush(stdout);
    _exit(0);
  }

  /// Whether the job has ended. One that died has failed its seed; another goes on with the next seed.
  bool look_after(size_t job, pid_t& child) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) != child) return false;
    const bool died = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (died) tell(board_->at[job], fmt::format("the simulator died (wait status {:#x})", status));
    child = died ? start(job) : 0;
    return true;
  }

  const std::string program_;
  const SeedRun asked_;
  const Run& run_;
  const Run& describe_;
  const std::string* wanted_ = nullptr;  ///< in the text of what is wrong: looks for a bug
  Board* board_ = nullptr;
  uint64_t end_ = 0;
};

}  // namespace

int run_seeds(int argc, char** argv, const char* about, const std::function<std::string(const SeedRun&)>& run,
              const std::function<std::string(const SeedRun&)>& describe) {
  SeedRun asked;
  asked.seed = kNoSeed;
  std::string seeds = "1..1000";
  size_t jobs = std::thread::hardware_concurrency();
  std::string wanted;
  CLI::App app(about);
  app.add_option("--seeds", seeds, "which: FROM..TO, both included")->capture_default_str();
  app.add_option("--seed", asked.seed, "this one only");
  app.add_option("--nodes", asked.nodes, "nodes of each cluster; by default the seed decides");
  app.add_option("--replicas", asked.replicas, "back-ups of each server; the clusters then lose servers (sim_test, sim_checkpoints, sim_rounds)")
      ->check(CLI::Range(0, 4));
  app.add_flag("--drains", asked.drains, "servers end, and hand their tables over (sim_test)");
  app.add_flag("--grows", asked.grows, "there are vacant places for servers, which come, and end (sim_test)");
  app.add_flag("--elastic", asked.elastic, "there are vacant places for workers, which come while others work (sim_test)");
  app.add_flag("--masters", asked.masters, "with --replicas 1: the master is lost, perhaps the one after it, too (sim_test)");
  app.add_option("--jobs", jobs, "processes")->capture_default_str();
  app.add_flag("--verbose", asked.verbose, "print all events");
  app.add_flag("--twice", asked.twice, "run each seed twice and compare all that happened (sim_test)");
  app.add_option("--bug", chosen_bug, "put this bug in (the programs that end in _with_bugs)");
  app.add_option("--until-found", wanted, "stop at the first seed that fails with this in its text, and succeed: some bug was put in");
  CLI11_PARSE(app, argc, argv);
  base::set_log_level(asked.verbose ? MV_LOG_DEBUG : MV_LOG_OFF);
  Runner runner(argv[0], asked, run, describe);
  if (asked.seed != kNoSeed) return runner.one(asked.seed);
  unsigned long long from = 0, to = 0;
  if (std::sscanf(seeds.c_str(), "%llu..%llu", &from, &to) != 2 || from > to)
    return fmt::print(stderr, "--seeds {}: expected FROM..TO, as in 1..1000\n", seeds), 2;
  return wanted.empty() ? runner.range(from, to + 1, jobs) : runner.until_found(from, to + 1, jobs, wanted);
}

}  // namespace sim
}  // namespace mv
