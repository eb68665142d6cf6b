#include "engine/gossip/topology.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "base/mix.hpp"
#include "engine/gossip/rng.hpp"

namespace mv::gossip {

namespace {

constexpr std::array<std::pair<std::string_view, Topology>, 6> kNames{{{"random", Topology::kRandom},
                                                                      {"ring", Topology::kRing},
                                                                      {"exponential", Topology::kExponential},
                                                                      {"hypercube", Topology::kHypercube},
                                                                      {"matching", Topology::kMatching},
                                                                      {"torus", Topology::kTorus}}};

void add(std::vector<size_t>& places, size_t place, size_t self) {
  if (place != self && std::ranges::find(places, place) == places.end()) places.push_back(place);
}

/// Rows of the rectangle: the largest divisor up to the square root.
size_t torus_rows(size_t count) {
  size_t rows = 1;
  for (size_t i = 2; i * i <= count; ++i)
    if (count % i == 0) rows = i;
  return rows;
}

Neighbours one_a_round(const std::vector<size_t>& steps, size_t self, uint64_t round) {
  Neighbours found;
  if (steps.empty()) return found;
  add(found.first, steps[round % steps.size()], self);
  for (const size_t place : steps)
    if (place != found.first.front()) add(found.rest, place, self);
  return found;
}

}  // namespace

std::optional<Topology> parse_topology(std::string_view name) {
  if (name == "one-peer-exponential") return Topology::kExponential;
  for (const auto& [known, topology] : kNames)
    if (known == name) return topology;
  return std::nullopt;
}

std::string_view topology_name(Topology topology) {
  return std::ranges::find(kNames, topology, [](const auto& name) { return name.second; })->first;
}

std::string topology_names() {
  std::string all;
  for (const auto& [name, topology] : kNames) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

base::Status check_topology(Topology topology, size_t count) {
  if (topology != Topology::kHypercube || std::has_single_bit(count)) return {};
  return base::error(MV_EINVAL, "a hypercube needs 2, 4, 8, 16, … nodes, but there are {}: choose another topology", count);
}

Neighbours neighbours(Topology topology, size_t self, size_t count, uint64_t round, uint64_t seed) {
  std::vector<size_t> places;
  switch (topology) {
    case Topology::kRandom:
      for (size_t place = 0; place < count; ++place)
        if (place != self) places.push_back(place);
      break;
    case Topology::kRing:
      add(places, (self + 1) % count, self);
      add(places, (self + count - 1) % count, self);
      break;
    case Topology::kExponential:
      for (size_t step = 1; step < count; step *= 2) add(places, (self + step) % count, self);
      return one_a_round(places, self, round);
    case Topology::kHypercube:
      for (size_t bit = 1; bit < count; bit *= 2)
        if ((self ^ bit) < count) add(places, self ^ bit, self);  // nodes that come and go leave gaps
      return one_a_round(places, self, round);
    case Topology::kMatching: {
      Neighbours found;
      add(found.first, pairs(count, seed, round)[self], self);
      for (size_t place = 0; place < count; ++place)
        if (std::ranges::find(found.first, place) == found.first.end()) add(found.rest, place, self);
      return found;
    }
    case Topology::kTorus: {
      const size_t rows = torus_rows(count), cols = count / rows, row = self / cols, col = self % cols;
      add(places, row * cols + (col + 1) % cols, self);
      add(places, row * cols + (col + cols - 1) % cols, self);
      add(places, (row + 1) % rows * cols + col, self);
      add(places, (row + rows - 1) % rows * cols + col, self);
      break;
    }
  }
  return {std::move(places), {}};
}

std::vector<size_t> pairs(size_t count, uint64_t seed, uint64_t round) {
  std::vector<size_t> order(count), partner(count);
  std::iota(order.begin(), order.end(), size_t{0});
  Rng rng(base::mix(seed) ^ base::mix(round + 1));
  for (size_t left = count; left > 1; --left) std::swap(order[left - 1], order[rng.below(left)]);
  for (size_t i = 0; i < count; ++i) partner[order[i]] = order[(i ^ 1) < count ? i ^ 1 : i];
  return partner;
}

}  // namespace mv::gossip
