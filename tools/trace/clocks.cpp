#include "trace/clocks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

namespace mv::tools {
namespace {

using Json = nlohmann::json;

/// A message: when it left, and how much later it arrived by the receiver's clock; microseconds.
struct Trip {
  double left, took;
};
using Trips = std::vector<Trip>;
using Pair = std::pair<std::string, std::string>;  ///< the sender's machine, the receiver's

struct Bound {
  double time, offset, error;
};

constexpr int kParts = 16;            // of a trace's time: each gives an estimate of the offset
constexpr double kWorstDrift = 5e-4;  // of quartz clocks that nothing corrects, with a margin

std::map<Pair, Trips> trips_of(const std::map<int64_t, std::string>& hosts, const Json& events) {
  struct Left {
    int64_t process;
    double time;
  };
  std::unordered_map<std::string, Left> left;
  for (const Json& event : events)
    if (event.at("ph") == "s" && event.at("cat") == "message")
      left[event.at("id").get<std::string>()] = {event.at("pid").get<int64_t>(), event.at("ts").get<double>()};
  std::map<Pair, Trips> trips;
  for (const Json& event : events) {
    if (event.at("ph") != "f" || event.at("cat") != "message") continue;
    const auto from = left.find(event.at("id").get<std::string>());
    if (from == left.end()) continue;
    const std::string &sender = hosts.at(from->second.process), &receiver = hosts.at(event.at("pid").get<int64_t>());
    if (sender != receiver) trips[{sender, receiver}].push_back({from->second.time, event.at("ts").get<double>() - from->second.time});
  }
  return trips;
}

/// The fastest trip of each part of the time; infinity where there is none.
std::vector<double> fastest(const Trips& trips, double begin, double part) {
  std::vector<double> fastest(kParts, std::numeric_limits<double>::infinity());
  for (const Trip& trip : trips) {
    const auto at = static_cast<size_t>(std::clamp((trip.left - begin) / part, 0.0, kParts - 1.0));
    fastest[at] = std::min(fastest[at], trip.took);
  }
  return fastest;
}

/// A line through the bounds; a good bound has more weight.
Clock line(const std::vector<Bound>& bounds) {
  double weights = 0, time = 0, offset = 0;
  for (const Bound& bound : bounds) {
    const double weight = 1 / (bound.error * bound.error);
    weights += weight, time += weight * bound.time, offset += weight * bound.offset;
  }
  Clock clock;
  clock.origin = time / weights;
  clock.offset = offset / weights;
  double spread = 0, slope = 0;
  for (const Bound& bound : bounds) {
    const double weight = 1 / (bound.error * bound.error), away = bound.time - clock.origin;
    spread += weight * away * away, slope += weight * away * (bound.offset - clock.offset);
  }
  // The slope is trusted once the trace is long enough for a drift to exceed the bounds' errors.
  const double best = std::min_element(bounds.begin(), bounds.end(), [](const Bound& a, const Bound& b) { return a.error < b.error; })->error;
  const double span = bounds.back().time - bounds.front().time;
  if (bounds.size() > 2 && span * kWorstDrift > 2 * best) clock.drift = std::clamp(slope / spread, -kWorstDrift, kWorstDrift);
  clock.error = best;
  for (const Bound& bound : bounds) {
    const double expected = clock.offset + clock.drift * (bound.time - clock.origin);
    clock.error = std::max(clock.error, std::abs(bound.offset - expected) - bound.error);  // outside of what is possible
  }
  return clock;
}

/// The receiver's clock against the sender's, if there are messages both ways at about the same time.
std::optional<Clock> between(const Trips& there, const Trips& back) {
  const auto earlier = [](const Trip& a, const Trip& b) { return a.left < b.left; };
  const auto [first, last] = std::minmax_element(there.begin(), there.end(), earlier);
  const double begin = first->left, part = std::max(1.0, (last->left - begin) / kParts);
  const std::vector<double> out = fastest(there, begin, part);
  // The other machine's times are off by the offset, so the parts of the way back begin where its first message left.
  const double back_begin = std::min_element(back.begin(), back.end(), earlier)->left;
  const std::vector<double> home = fastest(back, back_begin, part);
  std::vector<Bound> bounds;
  for (int i = 0; i < kParts; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!std::isfinite(out[at]) || !std::isfinite(home[at])) continue;
    const double error = std::max(0.5, (out[at] + home[at]) / 2);
    bounds.push_back({back_begin + (i + 0.5) * part, (out[at] - home[at]) / 2, error});
  }
  if (bounds.empty()) return std::nullopt;
  return line(bounds);
}

}  // namespace

std::map<int64_t, Clock> clocks_of(const std::map<int64_t, std::string>& hosts, const Json& events) {
  const std::map<Pair, Trips> trips = trips_of(hosts, events);
  std::map<std::string, Clock> of_host;
  const std::string& first = hosts.begin()->second;
  of_host[first] = {};
  // The nearest machine next, as in Dijkstra's search: errors add up on the way.
  while (true) {
    std::optional<std::pair<std::string, Clock>> best;
    for (const auto& [pair, there] : trips) {
      const auto& [from, to] = pair;
      const auto known = of_host.find(from);
      const auto back = trips.find({to, from});
      if (known == of_host.end() || of_host.contains(to) || back == trips.end()) continue;
      std::optional<Clock> clock = between(there, back->second);
      if (!clock) continue;
      const double at = clock->origin - clock->offset;  // the same moment on the sender's clock
      clock->offset += known->second.offset + known->second.drift * (at - known->second.origin);
      clock->drift += known->second.drift;
      clock->error += known->second.error;
      if (!best || clock->error < best->second.error) best = {to, *clock};
    }
    if (!best) break;
    of_host.insert(*best);
  }
  std::map<int64_t, Clock> clocks;
  for (const auto& [process, host] : hosts) {
    const auto known = of_host.find(host);
    clocks[process] = known != of_host.end() ? known->second : Clock{0, 0, 0, 0, false};
  }
  return clocks;
}

}  // namespace mv::tools
