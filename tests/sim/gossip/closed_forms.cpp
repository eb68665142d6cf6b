// sim_gossip_closed_forms: compares rounds of gossip on the simulator's network with their closed forms. Means of random rounds may differ
// by five of their standard errors, with random numbers from the seed; exact results are compared exactly.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "codec/codec.hpp"
#include "gossip/lockstep.hpp"
#include "seeds.hpp"

namespace {

using namespace mv;
using namespace mv::sim;

constexpr size_t kElements = 16;
constexpr int kRounds = 600;

/// The mean model.
Model mean(Lockstep& swarm) {
  Model sum(kElements);
  for (size_t i = 0; i < swarm.size(); ++i)
    for (size_t e = 0; e < kElements; ++e) sum[e] += swarm.model(i)[e] / static_cast<double>(swarm.size());
  return sum;
}

double spread(Lockstep& swarm, const Model& round) {
  double sum = 0;
  for (size_t i = 0; i < swarm.size(); ++i)
    for (size_t e = 0; e < kElements; ++e) sum += std::pow(swarm.model(i)[e] - round[e], 2);
  return sum;
}

double apart(const Model& a, const Model& b) {
  double most = 0;
  for (size_t e = 0; e < kElements; ++e) most = std::max(most, std::abs(a[e] - b[e]));
  return most;
}

void shuffle_values(Lockstep& swarm, Random& random) {
  for (size_t i = 0; i < swarm.size(); ++i) {
    swarm.model(i).resize(kElements);
    for (double& value : swarm.model(i)) value = static_cast<double>(random.between(-1'000'000, 1'000'000)) * 1e-6;
  }
}

/// Samples of one quantity.
class Samples {
 public:
  void add(double sample) { sum_ += sample, squares_ += sample * sample, ++count_; }
  /// "" if their mean is `expected`, within the accuracy of this many samples.
  std::string compare(const std::string& what, double expected) const {
    const double average = sum_ / count_, error = std::sqrt(std::max(squares_ / count_ - average * average, 0.0) / count_);
    fmt::print("{}: {:.5f} +- {:.5f}, expected {:.5f}\n", what, average, error, expected);
    return std::abs(average - expected) <= 5 * error + 1e-12
               ? ""
               : fmt::format("{} is {}, not {} (standard error {})", what, average, expected, error);
  }

 private:
  double sum_ = 0, squares_ = 0;
  int count_ = 0;
};

std::string pulls(size_t nodes, uint64_t seed) {
  gossip::Config config;
  config.seed = seed;
  Lockstep swarm(config, nodes, seed);
  Random random(seed + 1);
  Samples round_new, round_old;
  for (int i = 0; i < kRounds && swarm.violation().empty(); ++i) {
    shuffle_values(swarm, random);
    const Model before = mean(swarm);
    const double whole = spread(swarm, before);
    swarm.round();
    if (swarm.averaged() != nodes) return "some node got no version";
    round_new.add(spread(swarm, mean(swarm)) / whole);
    round_old.add(spread(swarm, before) / whole);
  }
  if (!swarm.violation().empty()) return swarm.violation();
  const auto n = static_cast<double>(nodes);
  const std::string wrong = round_new.compare(fmt::format("{} nodes, a pull each, variance around the new mean", nodes),
                                              (n - 2) * (2 * n - 3) / (4 * (n - 1) * (n - 1)));
  return wrong.empty() ? round_old.compare(fmt::format("{} nodes, a pull each, variance around the old mean", nodes),
                                           (n - 2) / (2 * (n - 1)))
                       : wrong;
}

std::string single_pairs(size_t nodes, uint64_t seed) {
  gossip::Config config;
  config.seed = seed;
  config.exchange = gossip::Exchange::kSymmetric;
  Lockstep swarm(config, nodes, seed);
  Random random(seed + 1);
  Samples ratio;
  for (int i = 0; i < kRounds && swarm.violation().empty(); ++i) {
    shuffle_values(swarm, random);
    const Model before = mean(swarm);
    const double whole = spread(swarm, before);
    swarm.pair(random.below(nodes));
    if (swarm.averaged() != 2) return fmt::format("{} nodes have averaged, not two", swarm.averaged());
    if (apart(mean(swarm), before) > 1e-15 * static_cast<double>(nodes)) return "an exchange changed the mean";
    ratio.add(spread(swarm, before) / whole);
  }
  if (!swarm.violation().empty()) return swarm.violation();
  return ratio.compare(fmt::format("{} nodes, one pair, variance", nodes), 1 - 1 / static_cast<double>(nodes - 1));
}

/// Exact: sums of few bits.
std::string powers_of_two(gossip::Topology topology, gossip::Exchange exchange, size_t nodes, uint64_t seed) {
  gossip::Config config;
  config.seed = seed;
  config.topology = topology;
  config.exchange = exchange;
  Lockstep swarm(config, nodes, seed);
  for (size_t i = 0; i < nodes; ++i) swarm.model(i).assign(kElements, static_cast<double>(i));
  for (size_t left = nodes; left > 1; left /= 2) swarm.round();
  const double expected = (static_cast<double>(nodes) - 1) / 2;
  for (size_t i = 0; i < nodes && swarm.violation().empty(); ++i)
    if (swarm.model(i) != Model(kElements, expected))
      return fmt::format("{} of {} nodes: node {} is at {}, not {}", topology_name(topology), nodes, i, swarm.model(i).front(), expected);
  return swarm.violation();
}

/// The mean is preserved, for any exchange, factor and codec.
std::string conserved(gossip::Topology topology, const std::string& compression, size_t nodes, uint64_t seed) {
  gossip::Config config;
  config.seed = seed;
  config.topology = topology;
  config.exchange = gossip::Exchange::kSymmetric;
  config.interpolation.constant = 0.3;
  config.compression = codec::parse(compression).value();
  Lockstep swarm(config, nodes, seed);
  Random random(seed + 1);
  shuffle_values(swarm, random);
  const Model before = mean(swarm);
  const double whole = spread(swarm, before);
  size_t averaged = 0;
  for (int i = 0; i < 60 && swarm.violation().empty(); ++i) {
    swarm.round();
    if (swarm.averaged() % 2 != 0) return fmt::format("{} nodes have averaged: an exchange was half applied", swarm.averaged());
    averaged += swarm.averaged();
  }
  if (!swarm.violation().empty()) return swarm.violation();
  if (averaged < 60 * nodes / 4) return fmt::format("in 60 rounds of {} nodes {} have averaged", nodes, averaged);
  if (topology == gossip::Topology::kMatching && averaged != 60 * (nodes / 2 * 2)) return fmt::format("of matched pairs {} nodes averaged", averaged);
  if (const double moved = apart(mean(swarm), before); moved > 60 * 1e-15)
    return fmt::format("compression {}: the mean changed by {}", compression, moved);
  // int8 steps are a 127th of a block's maximum, which decreases from 1 as the models converge.
  if (spread(swarm, before) > 1e-3 * whole)
    return fmt::format("compression {}: {} of the variance remains", compression, spread(swarm, before) / whole);
  return "";
}

/// Fetched bytes equal the codec's formula, to the byte.
std::string metered(const std::string& compression, uint64_t seed) {
  gossip::Config config;
  config.seed = seed;
  config.compression = codec::parse(compression).value();
  Lockstep swarm(config, 3, seed);
  constexpr size_t kLong = 300'000;  // three chunks of f64
  for (size_t i = 0; i < swarm.size(); ++i) swarm.model(i).assign(kLong, static_cast<double>(i));
  constexpr int kTurns = 4;
  for (int i = 0; i < kTurns; ++i) swarm.round();
  const auto codec = codec::make(config.compression);
  uint64_t expected = 0;
  constexpr size_t kChunk = gossip::kChunkBytes / sizeof(double);
  for (size_t first = 0; first < kLong; first += kChunk) {
    const size_t count = std::min(kChunk, kLong - first);
    expected += codec != nullptr ? codec->encoded_bytes(count) : count * sizeof(double);
  }
  expected *= kTurns * swarm.size();
  if (swarm.fetched_bytes() != expected || swarm.served_bytes() != expected)
    return fmt::format("compression {}: {} bytes fetched, {} served, {} by the formula", compression,
                       swarm.fetched_bytes(), swarm.served_bytes(), expected);
  return swarm.violation();
}

std::string all(uint64_t seed) {
  using gossip::Exchange, gossip::Topology;
  std::vector<std::string> wrong;
  for (const size_t nodes : {4, 8, 16}) {
    wrong.push_back(pulls(nodes, seed));
    wrong.push_back(single_pairs(nodes, seed));
  }
  for (size_t nodes = 2; nodes <= 64; nodes *= 2) {
    wrong.push_back(powers_of_two(Topology::kHypercube, Exchange::kPull, nodes, seed));
    wrong.push_back(powers_of_two(Topology::kExponential, Exchange::kPull, nodes, seed));
    wrong.push_back(powers_of_two(Topology::kHypercube, Exchange::kSymmetric, nodes, seed));
  }
  for (const char* compression : {"none", "bf16", "fp16", "int8"}) {
    wrong.push_back(conserved(Topology::kRandom, compression, 8, seed));
    wrong.push_back(conserved(Topology::kMatching, compression, 9, seed));
    wrong.push_back(metered(compression, seed));
  }
  const auto first = std::ranges::find_if(wrong, [](const std::string& each) { return !each.empty(); });
  return first == wrong.end() ? "" : *first;
}

}  // namespace

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "compares gossip with its closed forms", [](const mv::sim::SeedRun& asked) { return all(asked.seed); },
                            [](const mv::sim::SeedRun&) { return std::string(); });
}
