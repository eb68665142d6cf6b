// core/intranode between processes: each writes its own memory and only reads the others'; some are stopped, or killed, at any moment.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <random>

#include "intranode.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::test;  // NOLINT: this file is one of its

constexpr size_t kRanks = 4;
constexpr unsigned kSeconds = 100;  // also on a busy machine: nothing here waits for ever
enum Exit { kWell = 0, kWrong = 1, kToldOfLoss = 10 };

/// The children of one group, and a pipe to each that tells it of losses.
struct Family {
  std::array<pid_t, kRanks> children{};
  std::array<int, kRanks> pipes{};

  /// A rank that has learned of the loss from another rank may have ended.
  void tell_all_but(size_t lost) const {
    const auto rank = static_cast<unsigned char>(lost);
    for (size_t each = 0; each < kRanks; ++each)
      if (each != lost && write(pipes[each], &rank, 1) != 1) assert_int_equal(errno, EPIPE);
  }
  int exit_of(size_t rank) {
    int status = 0;
    assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
    close(pipes[rank]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
};

/// The arrays of a step: short and long ones, in private or in shared memory.
struct Step {
  size_t count;
  bool is_shown;
};

Step draw(std::mt19937& random, size_t longest) {
  const size_t below = random() % 3 == 0 ? longest : 600;
  return {1 + random() % below, random() % 2 == 0};
}

int work(size_t rank, RankContext& context, size_t steps, size_t longest, int lost) {
  const Memory shown = mv::base::SharedMemory::make("polyverso-test", longest * sizeof(float)).value();
  mv::base::SharedMemory::enlist(shown);
  std::vector<float> own(longest);
  std::mt19937 random(3);  // the same on every rank
  for (size_t step = 0; step < steps; ++step) {
    const Step next = draw(random, longest);
    auto* const values = next.is_shown ? reinterpret_cast<float*>(shown->data()) : own.data();
    for (size_t i = 0; i < next.count; ++i) values[i] = static_cast<float>(rank + step % 7 + i % 13);
    const mv::base::Status status = carry_out(
        context,
        {.kind = Kind::kAllreduce, .out = {{reinterpret_cast<std::byte*>(values), next.count, MV_F32}}, .in = {}});
    if (status.code() == MV_EPEERLOST && strstr(status.text().c_str(), ("rank " + std::to_string(lost)).c_str()) != nullptr) return kToldOfLoss;
    if (!status.ok()) {
      print_error("rank %zu: %s\n", rank, status.text().c_str());
      return kWrong;
    }
    for (size_t i = 0; i < next.count; ++i) {
      if (values[i] == static_cast<float>(6 + kRanks * (step % 7 + i % 13))) continue;
      print_error("rank %zu: step %zu, element %zu of %zu is %g\n", rank, step, i, next.count, static_cast<double>(values[i]));
      return kWrong;
    }
  }
  return kWell;
}

int live(size_t rank, const std::vector<Memory>& regions, int pipe_end, size_t steps, size_t longest, int lost) {
  alarm(kSeconds);
  std::vector<Memory> memory(kRanks);
  for (size_t each = 0; each < kRanks; ++each)
    memory[each] = each == rank ? regions[each] : mv::base::SharedMemory::adopt(dup(regions[each]->fd()), 1).value();
  RankContext& context = *new RankContext(rank, memory, rank_names(kRanks));  // the listener thread may use it until the process ends
  std::thread listener([&context, pipe_end] {
    unsigned char who = 0;
    if (read(pipe_end, &who, 1) == 1) context.lose(who, mv::base::Status(MV_EPEERLOST, "its process has ended"));
  });
  listener.detach();
  return work(rank, context, steps, longest, lost);
}

Family bear(size_t steps, size_t longest, int lost = -1) {
  Family family;
  const std::vector<Memory> regions = make_regions(kRanks);
  for (const Memory& region : regions) madvise(region->data(), region->bytes(), MADV_DOFORK);  // a rank is a child here
  for (size_t rank = 0; rank < kRanks; ++rank) {
    std::array<int, 2> ends{};
    assert_int_equal(pipe(ends.data()), 0);
    family.pipes[rank] = ends[1];
    family.children[rank] = fork();
    assert_true(family.children[rank] >= 0);
    if (family.children[rank] == 0) {
      for (size_t elder = 0; elder <= rank; ++elder) close(family.pipes[elder]);
      _exit(live(rank, regions, ends[0], steps, longest, lost));
    }
    close(ends[0]);
  }
  return family;
}

void processes_reduce_together(void**) {
  Family family = bear(400, 30000);
  for (size_t rank = 0; rank < kRanks; ++rank) assert_int_equal(family.exit_of(rank), kWell);
}

void a_rank_stopped_for_a_while_only_delays_the_others(void**) {
  Family family = bear(300, 30000);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    usleep(3000);
    kill(family.children[rank], SIGSTOP);
    usleep(20000);
    kill(family.children[rank], SIGCONT);
  }
  for (size_t rank = 0; rank < kRanks; ++rank) assert_int_equal(family.exit_of(rank), kWell);
}

void survivors_learn_which_rank_was_killed(void**) {
  std::mt19937 random(17);
  for (size_t round = 0; round < 12; ++round) {
    const size_t victim = round % kRanks;
    Family family = bear(100'000'000, round % 2 == 0 ? 600 : 100000, static_cast<int>(victim));
    usleep(1000 + random() % 60000);
    kill(family.children[victim], round % 3 == 0 ? SIGSTOP : SIGKILL);  // a silent rank, which somebody has to declare lost, or a dead one
    usleep(random() % 3000);
    family.tell_all_but(victim);
    for (size_t rank = 0; rank < kRanks; ++rank)
      if (rank != victim) assert_int_equal(family.exit_of(rank), kToldOfLoss);
    kill(family.children[victim], SIGKILL);
    assert_int_equal(family.exit_of(victim), -SIGKILL);
  }
}

}  // namespace

int main() {
  std::signal(SIGPIPE, SIG_IGN);
  const CMUnitTest tests[] = {
      cmocka_unit_test(processes_reduce_together),
      cmocka_unit_test(a_rank_stopped_for_a_while_only_delays_the_others),
      cmocka_unit_test(survivors_learn_which_rank_was_killed),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
