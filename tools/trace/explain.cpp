#include "trace/explain.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include <fmt/core.h>

namespace mv::tools {
namespace {

using Json = nlohmann::json;
using Rank = int64_t;
constexpr Rank kUnknown = -1;
constexpr double kLate = 300;  // microseconds to process a message, beyond which the receiver or the network is slow
constexpr double kMuch = 500;  // MB/s that explain slow messages

struct Span {
  double begin, end;
};

struct Claim {
  double begin, end;
  Rank who;  ///< the process waited for, or the server that works
};

/// A part of a process's time.
struct Share {
  double total = 0;
  std::map<Rank, double> of;  ///< by the process that causes it
  void add(double span, Rank who) { total += span, of[who] += span; }
};

struct Worker {
  std::vector<Span> blocked;
  std::vector<Claim> waits, applies;
  Share wait, apply;
  double transfer = 0, compute = 0, bytes = 0;
};

struct Trace {
  std::map<Rank, std::string> names;
  std::map<Rank, Worker> workers;
  double begin = 0, end = 0;
  double delivery = 0;  ///< the mean time from a message's start to its processing
};

/// Unions of spans, in order.
std::vector<Span> merged(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> merged;
  for (const Span& span : spans) {
    if (!merged.empty() && span.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, span.end);
    else
      merged.push_back(span);
  }
  return merged;
}

/// The messages of groups that came in during blocked times: until the last of each was sent, its sender was waited for.
struct Arrival {
  Rank from, at;
  double sent, came;
};

class Reader {
 public:
  explicit Reader(const Json& events) : events_(events) {}

  Trace read() {
    find_names();
    find_messages();
    for (size_t i = 0; i < events_.size(); ++i) {
      const Json& event = events_[i];
      const std::string phase = event.at("ph");
      if (phase == "b" && i + 1 < events_.size()) span(event, events_[i + 1]);
      if (phase == "X") slice(event);
    }
    find_window();
    if (deliveries_ > 0) trace_.delivery = std::max(0.0, delivered_after_ / deliveries_);
    return std::move(trace_);
  }
  const std::vector<Arrival>& arrivals() const { return arrivals_; }

 private:
  static double at(const Json& event) { return event.at("ts").get<double>(); }
  static Rank process(const Json& event) { return event.at("pid").get<Rank>(); }
  static Rank rank_in(const Json& event, const char* name) {
    const Json& arguments = event.at("args");
    return arguments.contains(name) && arguments.at(name).is_number() ? arguments.at(name).get<Rank>() : kUnknown;
  }

  void find_names() {
    for (const Json& event : events_) {
      if (event.at("ph") != "M") continue;
      const std::string what = event.at("name");
      if (what == "process_name") trace_.names[process(event)] = event.at("args").at("name").get<std::string>();
    }
  }

  /// The senders of the messages that each process received, by the arrows.
  void find_messages() {
    for (const Json& event : events_)
      if (event.at("ph") == "s" && event.at("cat") == "message") sent_[event.at("id").get<std::string>()] = {process(event), at(event)};
    for (size_t i = 0; i + 1 < events_.size(); ++i) {  // an arrow's end follows its slice
      const Json &slice = events_[i], &arrow = events_[i + 1];
      if (slice.at("ph") != "X" || arrow.at("ph") != "f" || arrow.at("cat") != "message") continue;
      const auto from = sent_.find(arrow.at("id").get<std::string>());
      if (from == sent_.end()) continue;
      senders_[&slice] = from->second.process;
      if (from->second.process != process(slice)) ++deliveries_, delivered_after_ += at(slice) - from->second.at;
      if (slice.at("name") == "Collect") arrivals_.push_back({from->second.process, process(slice), from->second.at, at(slice)});
    }
  }

  void cover(const Json& event, double end) {
    auto& [first, last] = spans_.try_emplace(process(event), Span{at(event), end}).first->second;
    first = std::min(first, at(event));
    last = std::max(last, end);
  }

  void span(const Json& begin, const Json& end) {
    const std::string kind = begin.at("cat");
    const Rank rank = process(begin);
    // A wait that has not ended was seen by the process that holds it up, and may be older than that process's kept
    // events.
    if (kind != "open wait" && kind != "wait") cover(begin, at(end));
    if (begin.at("args").contains("part")) return;  // of an operation, which counts as a whole
    if (kind == "blocked" || kind == "group") trace_.workers[rank].blocked.push_back({at(begin), at(end)});
    if (kind == "gate" || kind == "open wait") {
      const Rank of = rank_in(begin, "of_rank"), by = rank_in(begin, "by_rank");
      if (of != kUnknown && of != by) trace_.workers[of].waits.push_back({at(begin), at(end), by});
    }
    if (kind == "group" && rank_in(begin, "for_rank") != kUnknown)
      trace_.workers[rank].waits.push_back(
          {at(begin), std::min(at(end), at(begin) + begin.at("args").at("waited_us").get<double>()), rank_in(begin, "for_rank")});
  }

  /// A slice of a message that has come: the time in which it was processed.
  void slice(const Json& event) {
    const double end = at(event) + event.at("dur").get<double>();
    cover(event, end);
    const auto sender = senders_.find(&event);
    if (sender == senders_.end()) return;
    const std::string what = event.at("name");
    if (what == "Change" || what == "Get" || what == "ChangeMany" || what == "GetMany" || what == "Command")
      trace_.workers[sender->second].applies.push_back({at(event), end, process(event)});
    if (sender->second != process(event)) trace_.workers[sender->second].bytes += event.at("args").value("bytes", 0.0);
  }

  /// The time that the traces of all workers cover.
  void find_window() {
    std::erase_if(trace_.workers, [](const auto& entry) { return entry.second.blocked.empty(); });
    if (trace_.workers.empty()) return;
    trace_.begin = -1e300, trace_.end = 1e300;
    for (const auto& [rank, worker] : trace_.workers) {
      trace_.begin = std::max(trace_.begin, spans_.at(rank).begin);
      trace_.end = std::min(trace_.end, spans_.at(rank).end);
    }
  }

  struct Sent {
    Rank process;
    double at;
  };
  const Json& events_;
  Trace trace_;
  std::unordered_map<std::string, Sent> sent_;
  std::unordered_map<const Json*, Rank> senders_;
  std::map<Rank, Span> spans_;
  std::vector<Arrival> arrivals_;
  double deliveries_ = 0, delivered_after_ = 0;
};

/// The length of claims within a span, of which each moment counts once, for the first claim that covers it.
double take(std::vector<Span>& left, const std::vector<Claim>& claims, Share& share) {
  double taken = 0;
  for (const Claim& claim : claims) {
    std::vector<Span> rest;
    for (const Span& span : left) {
      const double begin = std::max(span.begin, claim.begin), end = std::min(span.end, claim.end);
      if (begin >= end) {
        rest.push_back(span);
        continue;
      }
      share.add(end - begin, claim.who);
      taken += end - begin;
      if (span.begin < begin) rest.push_back({span.begin, begin});
      if (end < span.end) rest.push_back({end, span.end});
    }
    left = std::move(rest);
  }
  return taken;
}

/// The claims that overlap this span; claims are in the order of their beginnings.
std::vector<Claim> within(const std::vector<Claim>& claims, const Span& span, double longest) {
  const auto before = [](const Claim& claim, double time) { return claim.begin < time; };
  auto from = std::lower_bound(claims.begin(), claims.end(), span.begin - longest, before);
  std::vector<Claim> found;
  for (; from != claims.end() && from->begin < span.end; ++from)
    if (from->end > span.begin) found.push_back(*from);
  return found;
}

/// The process that ends the chain of waits: while the awaited process waits for a third one, that is the third. Waits for
/// this worker itself are not followed.
void follow(Rank self, const Trace& trace, const Claim& claim, const std::map<Rank, double>& longest, size_t hops, std::vector<Claim>& found) {
  const auto next = trace.workers.find(claim.who);
  std::vector<Span> left{{claim.begin, claim.end}};
  if (next != trace.workers.end() && hops > 0) {
    for (const Claim& wait : within(next->second.waits, left.front(), longest.at(claim.who))) {
      if (wait.who == claim.who || wait.who == self) continue;
      Share taken;
      const Claim both{std::max(claim.begin, wait.begin), std::min(claim.end, wait.end), wait.who};
      if (take(left, {both}, taken) > 0) follow(self, trace, both, longest, hops - 1, found);
    }
  }
  for (const Span& span : left) found.push_back({span.begin, span.end, claim.who});
}

double sorted(std::vector<Claim>& claims) {
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) { return a.begin < b.begin; });
  double longest = 0;
  for (const Claim& claim : claims) longest = std::max(longest, claim.end - claim.begin);
  return longest;
}

/// Adds the waits for the messages of groups: until the last message before the end of a blocked time was sent.
void add_arrivals(Worker& worker, std::vector<Arrival> arrivals) {
  std::sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) { return a.came < b.came; });
  for (const Span& span : worker.blocked) {
    const auto after = std::upper_bound(arrivals.begin(), arrivals.end(), span.end, [](double time, const Arrival& a) { return time < a.came; });
    if (after == arrivals.begin()) continue;
    const Arrival& last = *std::prev(after);
    if (last.came > span.begin && last.sent > span.begin) worker.waits.push_back({span.begin, std::min(last.sent, span.end), last.from});
  }
}

void account(Rank rank, Worker& worker, const Trace& trace, const std::map<Rank, double>& longest) {
  const double longest_apply = sorted(worker.applies);
  double blocked = 0;
  for (Span span : worker.blocked) {
    span = {std::max(span.begin, trace.begin), std::min(span.end, trace.end)};
    if (span.begin >= span.end) continue;
    blocked += span.end - span.begin;
    std::vector<Claim> waits;
    for (const Claim& claim : within(worker.waits, span, longest.at(rank))) follow(rank, trace, claim, longest, trace.workers.size(), waits);
    std::vector<Span> left{span};
    take(left, waits, worker.wait);
    take(left, within(worker.applies, span, longest_apply), worker.apply);
    for (const Span& rest : left) worker.transfer += rest.end - rest.begin;
  }
  worker.compute = trace.end - trace.begin - blocked;
}

std::string name_of(const Trace& trace, Rank rank) {
  const auto name = trace.names.find(rank);
  return name != trace.names.end() ? name->second : rank == kUnknown ? "others" : fmt::format("rank {}", rank);
}

/// The largest causes: "38 % for worker 2 (rank 2), 4 % for ...".
std::string causes(const Trace& trace, const Share& share, double whole, const char* word) {
  std::vector<std::pair<double, Rank>> largest;
  for (const auto& [rank, span] : share.of) largest.emplace_back(span, rank);
  std::sort(largest.rbegin(), largest.rend());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, largest.size()); ++i) {
    if (largest[i].first < 0.005 * whole) break;
    text += fmt::format("{}{:.1f} % {} {}", text.empty() ? "" : ", ", 100 * largest[i].first / whole, word, name_of(trace, largest[i].second));
  }
  return text;
}

struct Sums {
  Share wait, apply;
  double transfer = 0, compute = 0, bytes = 0, whole = 0;
};

std::string time_text(double microseconds) {
  return microseconds < 1000 ? fmt::format("{:.0f} us", microseconds) : fmt::format("{:.3g} ms", microseconds / 1000);
}

std::string advice(const Trace& trace, const Sums& sums) {
  const double most = std::max({sums.wait.total, sums.transfer, sums.apply.total});
  if (most < 0.1 * sums.whole) return "Sharing costs little: to get faster, make the program's own work faster.";
  if (most == sums.wait.total) {
    const auto slowest = std::max_element(sums.wait.of.begin(), sums.wait.of.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const bool one = slowest->second > 0.6 * sums.wait.total && slowest->first != kUnknown;
    if (!one)
      return "The workers wait for each other in turn: let them (staleness=, or async tables), or share less often (several batches, local steps).";
    const auto worker = trace.workers.find(slowest->first);
    const double compute = worker != trace.workers.end() ? 100 * worker->second.compute / (trace.end - trace.begin) : 0;
    return fmt::format(
        "{} holds up the others{}: give it less work, look at its machine (`polyverso doctor`), or let the others go ahead (staleness=).",
        name_of(trace, slowest->first), compute > 0 ? fmt::format(", and computes {:.0f} % of the time", compute) : "");
  }
  if (most == sums.transfer && trace.delivery > kLate && sums.bytes / (trace.end - trace.begin) < kMuch)
    return "Messages wait until their receivers run, and there are few bytes: are there more busy threads than cores, or a slow network?";
  if (most == sums.transfer)
    return "Bytes and round trips cost most: compress (codec=), share larger arrays in one call, or use asynchronous calls and compute meanwhile.";
  return "The servers' work costs most: use more servers, a cheaper updater, or rows instead of whole tables.";
}

}  // namespace

std::string explain(const Json& events) {
  Reader reader(events);
  Trace trace = reader.read();
  const double window = trace.end - trace.begin;
  if (trace.workers.empty() || window <= 0)
    return "No thread of the program has waited in a call that the trace keeps: there is nothing to explain.\n";
  Sums sums;
  std::optional<std::pair<double, Rank>> least, most;
  std::map<Rank, double> longest;
  for (auto& [rank, worker] : trace.workers) {
    std::vector<Arrival> arrivals;
    for (const Arrival& arrival : reader.arrivals())
      if (arrival.at == rank) arrivals.push_back(arrival);
    worker.blocked = merged(std::move(worker.blocked));
    add_arrivals(worker, std::move(arrivals));
    longest[rank] = sorted(worker.waits);
  }
  for (auto& [rank, worker] : trace.workers) {
    account(rank, worker, trace, longest);
    sums.whole += window;
    sums.compute += worker.compute;
    sums.transfer += worker.transfer;
    sums.bytes += worker.bytes;
    for (const auto& [who, span] : worker.wait.of) sums.wait.add(span, who);
    for (const auto& [who, span] : worker.apply.of) sums.apply.add(span, who);
    if (!least || worker.compute < least->first) least = {worker.compute, rank};
    if (!most || worker.compute > most->first) most = {worker.compute, rank};
  }
  const auto line = [&](const char* name, double part, const std::string& text) {
    return fmt::format("  {:<9}{:5.1f} %  {}\n", name, 100 * part / sums.whole, text);
  };
  const std::string range = trace.workers.size() < 2
                                ? ""
                                : fmt::format("{} {:.0f} %, {} {:.0f} %", name_of(trace, least->second), 100 * least->first / window,
                                              name_of(trace, most->second), 100 * most->first / window);
  return fmt::format("{:.3g} s of {} process{}, on average:\n", window / 1e6, trace.workers.size(), trace.workers.size() == 1 ? "" : "es") +
         line("compute", sums.compute, range) + line("wait", sums.wait.total, causes(trace, sums.wait, sums.whole, "for")) +
         line("transfer", sums.transfer,
              fmt::format("{:.3g} MB/s; a message is processed {} after it was sent, on average", sums.bytes / window, time_text(trace.delivery))) +
         line("apply", sums.apply.total, causes(trace, sums.apply, sums.whole, "by")) + advice(trace, sums) + "\n";
}

}  // namespace mv::tools
