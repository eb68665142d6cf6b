// schedules SCENARIO [--seeds FIRST..LAST] [--jobs N] [--twice] [--bug NAME --until-found]: see CMakeLists.txt.

#include <signal.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "scenarios.hpp"
#include "scheduler.hpp"

using namespace mv::schedules;

namespace {

std::string chosen_bug;

constexpr unsigned kMostSeconds = 60;  // of real time per seed; a longer run is a hang that the scheduler does not see

struct Options {
  const Scenario* scenario = nullptr;
  std::string name;
  uint64_t first = 1, last = 1;
  bool twice = false, until_found = false;
};

/// Runs in its own process, so that every seed starts from the same state and may end in any way. False if it failed.
bool run_seed(const Options& options, uint64_t seed, uint64_t* print) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMostSeconds);
    *print = run(seed, options.scenario->work);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  if (status == 0) return true;
  if (WIFSIGNALED(status)) fprintf(stderr, "ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return false;
}

int usage() {
  fprintf(stderr,
          "schedules SCENARIO [--seeds FIRST..LAST] [--twice] [--bug NAME] [--until-found]\n"
          "  --twice        each seed has to give the same schedule twice\n"
          "  --bug NAME     puts this bug in (schedules_with_bugs)\n"
          "  --until-found  succeeds at the first seed that fails; fails if none does\nscenarios:");
  for (const Scenario& scenario : kScenarios) fprintf(stderr, " %s", scenario.name);
  fprintf(stderr, "\n");
  return 2;
}

}  // namespace

namespace mv {
bool has_bug(const char* name);  // for the sources that have some: see cmake/bugs.cmake
bool has_bug(const char* name) { return chosen_bug == name; }
}  // namespace mv

int main(int argc, char** argv) {
  // Disables address randomization, because some containers are ordered by address.
  if ((personality(0xffffffff) & ADDR_NO_RANDOMIZE) == 0 && personality(ADDR_NO_RANDOMIZE) >= 0)
    execv("/proc/self/exe", argv);
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--twice")
      options.twice = true;
    else if (word == "--until-found")
      options.until_found = true;
    else if (word == "--bug" && i + 1 < argc)
      chosen_bug = argv[++i];
    else if (word == "--seeds" && i + 1 < argc) {
      char* rest = nullptr;
      options.first = options.last = strtoull(argv[++i], &rest, 10);
      if (strncmp(rest, "..", 2) == 0) options.last = strtoull(rest + 2, nullptr, 10);
    } else {
      options.name = word;
    }
  }
  for (const Scenario& scenario : kScenarios)
    if (options.name == scenario.name) options.scenario = &scenario;
  if (options.scenario == nullptr) return usage();
  auto* const print = static_cast<uint64_t*>(
      mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (uint64_t seed = options.first; seed <= options.last; ++seed) {
    bool held = run_seed(options, seed, print);
    if (held && options.twice) {
      const uint64_t before = *print;
      held = run_seed(options, seed, print) && *print == before;
      if (!held) fprintf(stderr, "its second run took another schedule\n");
    }
    if (held) continue;
    printf("seed %lu failed: %s %s%s --seeds %lu\n", seed, argv[0], options.name.c_str(), chosen_bug.empty() ? "" : (" --bug " + chosen_bug).c_str(), seed);
    return options.until_found ? 0 : 1;
  }
  printf("%s: %lu schedules, %s\n", options.name.c_str(), options.last - options.first + 1,
         options.until_found ? "the bug was not found" : "all held");
  return options.until_found ? 1 : 0;
}
