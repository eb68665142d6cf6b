// sim_gossip: swarms whose nodes are cut off, stopped, killed and restarted. No node waits longer than timeout_ms per step, no torn version
// is averaged, and once the faults end, every node takes part again and the models converge. --consensus N: prints how many steps N
// undisturbed nodes need to converge; --consensus-data FILE: the same for 2 to 1000 nodes, as CSV.

#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "gossip/swarm.hpp"
#include "seeds.hpp"

namespace {

using namespace mv;
using namespace mv::sim;
using namespace std::chrono_literals;

constexpr Nanos kStorm = 4s, kFair = 12s;

class Storm {
 public:
  explicit Storm(uint64_t seed, bool verbose)
      : random_(Random::mix(seed)), network_(timeline_, random_.fork(), conditions()), swarm_(timeline_, network_, random_.fork(), habits()) {
    network_.verbose = verbose;
  }

  /// Runs one seed; returns what went wrong, or "".
  std::string run() {
    const auto count = static_cast<size_t>(random_.between(2, large_ ? 4 : 16));
    swarm_.start(topology_ == gossip::Topology::kHypercube ? std::bit_floor(count) : count);
    const size_t times = random_.below(12);
    for (size_t i = 0; i < times; ++i) timeline_.after(Nanos(random_.between(0, kStorm.count())), [this] { disturb(); });
    run_until(kStorm);
    for (size_t i = 0; i < swarm_.size(); ++i) swarm_.restart(i);
    run_until(kStorm + kFair / 2);
    std::vector<uint64_t> before;
    for (size_t i = 0; i < swarm_.size(); ++i) before.push_back(swarm_.served(i));
    run_until(kStorm + kFair);
    if (timeline_.violation().empty()) check(before);
    return timeline_.violation();
  }

 private:
  Conditions conditions() {
    Conditions conditions;
    conditions.latency = Nanos(random_.between(20'000, 500'000));
    conditions.jitter = Nanos(random_.between(0, 3'000'000));
    conditions.lossy = lossy_ = random_.chance(0.3);
    if (conditions.lossy) conditions.drop = 0.01 * static_cast<double>(random_.between(0, 5));
    return conditions;
  }

  Habits habits() {
    Habits habits;
    constexpr gossip::Topology kAll[] = {gossip::Topology::kRandom, gossip::Topology::kRing, gossip::Topology::kExponential,
                                         gossip::Topology::kHypercube, gossip::Topology::kTorus};
    habits.config.topology = topology_ = kAll[random_.below(std::size(kAll))];
    habits.config.timeout = timeout_ = Nanos(random_.between(50'000'000, 900'000'000));
    if (random_.chance(0.4)) {
      habits.config.exchange = gossip::Exchange::kSymmetric;
      if (random_.chance(0.5)) topology_ = habits.config.topology = gossip::Topology::kMatching;
      habits.config.seed = random_.next();
    }
    constexpr const char* kCodes[] = {"none", "none", "fp16", "bf16", "int8"};
    habits.config.compression = codec::parse(kCodes[random_.below(std::size(kCodes))]).value();
    if (random_.chance(0.3)) habits.config.interpolation.method = gossip::Method::kClock;
    large_ = random_.chance(0.1);
    habits.elements = large_ ? 600'000 : static_cast<size_t>(random_.between(1, 4000));  // several chunks; one small frame
    habits.step = Nanos(random_.between(20'000'000, 100'000'000) * (large_ ? 4 : 1));
    if (habits.config.exchange == gossip::Exchange::kPull && random_.chance(0.5)) habits.again = habits.step / random_.between(2, 16);
    habits.same_machine = random_.chance(0.5) ? 0 : 0.7;
    return habits;
  }

  void disturb() {
    const size_t i = random_.below(swarm_.size());
    const Nanos span(random_.between(10'000'000, 2'000'000'000));
    switch (random_.below(4)) {
      case 0:
        return swarm_.part(i, random_.below(swarm_.size()), span, random_.chance(0.5));
      case 1:
        return swarm_.pause(i, span);
      case 2:
        return swarm_.restart(i);
      default:
        return swarm_.kill(i);
    }
  }

  void run_until(Nanos end) {
    while (timeline_.violation().empty() && timeline_.step(end)) {
    }
  }

  void check(const std::vector<uint64_t>& before) {
    for (size_t i = 0; i < swarm_.size(); ++i) {
      if (swarm_.served(i) <= before[i]) return timeline_.violated(fmt::format("no node fetches from node {} any more", i));
      if (swarm_.averaged(i) == 0) return timeline_.violated(fmt::format("node {} never got a version", i));
    }
    if (const size_t halves = swarm_.unexplained_halves(); halves > 0)
      return timeline_.violated(fmt::format("{} exchanges were averaged by one side only without a recorded reason", halves));
    // At least half of all pulls succeed, and each of them shrinks the spread.
    if (swarm_.spread() > 0.05 * static_cast<double>(swarm_.size() - 1))
      timeline_.violated(fmt::format("the values of {} nodes differ by {} after {}s without faults", swarm_.size(), swarm_.spread(), kFair / 1s));
  }

  Timeline timeline_;
  Random random_;
  bool lossy_ = false, large_ = false;
  gossip::Topology topology_ = gossip::Topology::kRandom;
  Nanos timeout_{0};
  Network network_;
  Swarm swarm_;
};

/// One pull by every node halves the variance (around the old mean, at least). Reaching (n/1000)^2 from n^2/12 takes log2(10^6/12)
/// halvings, and the largest of n values lies about sqrt(2 ln n) deviations from the mean. Twice as many steps are allowed.
uint64_t steps_allowed(size_t nodes) { return static_cast<uint64_t>(2 * (std::log2(1e6) + std::log2(static_cast<double>(nodes)))); }

/// Steps until the values of all nodes, 0 … n - 1 at first, differ by less than a thousandth of that range; calls `told` with the spread
/// after each step.
template <typename Told>
std::string consensus(size_t nodes, uint64_t seed, gossip::Exchange exchange, const Told& told) {
  Timeline timeline;
  Network network(timeline, Random(seed), {});
  Habits habits;
  habits.config.timeout = 1s;
  habits.config.exchange = exchange;
  Swarm swarm(timeline, network, Random(seed + 1), habits);
  swarm.start(nodes);
  uint64_t steps = 0;
  for (; swarm.spread() > 1e-3 * static_cast<double>(nodes) && steps <= steps_allowed(nodes) && timeline.violation().empty(); ++steps) {
    told(steps, swarm.spread());
    while (timeline.step(habits.step * static_cast<int64_t>(steps + 1))) {
    }
  }
  told(steps, swarm.spread());
  if (!timeline.violation().empty()) return timeline.violation();
  fmt::print("{} nodes: {} steps\n", nodes, steps);
  return steps <= steps_allowed(nodes) ? "" : fmt::format("the values of {} nodes differ by {} after {} steps", nodes, swarm.spread(), steps);
}

/// The same for increasing numbers of nodes, with both kinds of exchange, as rows for a plot: tests/sim/gossip/plot.py.
std::string consensus_data(const std::string& path, uint64_t seed) {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "we"), close);
  if (file == nullptr) return fmt::format("can't write {}", path);
  fmt::print(file.get(), "exchange,nodes,step,spread\n");
  for (const gossip::Exchange exchange : {gossip::Exchange::kPull, gossip::Exchange::kSymmetric}) {
    for (const size_t nodes : {2, 4, 8, 16, 32, 64, 125, 250, 500, 1000}) {
      const char* const name = exchange == gossip::Exchange::kPull ? "pull" : "symmetric";
      const std::string wrong = consensus(nodes, seed, exchange, [&](uint64_t step, double spread) {
        fmt::print(file.get(), "{},{},{},{:.6g}\n", name, nodes, step, spread / static_cast<double>(nodes - 1));
      });
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);  // each node's snapshots need a descriptor
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const auto nothing = [](const mv::sim::SeedRun&) { return std::string(); };
  const std::string mode = argc > 2 ? argv[1] : "";
  if (mode == "--consensus") {
    const size_t nodes = std::stoul(argv[2]);
    const auto run = [&](const mv::sim::SeedRun& asked) { return consensus(nodes, asked.seed, gossip::Exchange::kPull, [](uint64_t, double) {}); };
    return mv::sim::run_seeds(argc - 2, argv + 2, "how fast gossip converges", run, nothing);
  }
  if (mode == "--consensus-data") {
    const std::string path = argv[2];
    const auto run = [&](const mv::sim::SeedRun& asked) { return consensus_data(path, asked.seed); };
    return mv::sim::run_seeds(argc - 2, argv + 2, "how fast increasing numbers of nodes converge", run, nothing);
  }
  return mv::sim::run_seeds(argc, argv, "gossip with faults from the seed", [](const mv::sim::SeedRun& asked) { return Storm(asked.seed, asked.verbose).run(); }, nothing);
}
