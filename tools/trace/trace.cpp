#include "trace/trace.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <stdexcept>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "fetch.hpp"
#include "metrics_addresses.hpp"
#include "trace/clocks.hpp"
#include "trace/explain.hpp"

namespace mv::tools {
namespace {

using Json = nlohmann::json;

/// Nanoseconds since 1970 at the trace's zero.
int64_t origin_of(const Json& trace) { return std::stoll(trace.at("otherData").at("origin_nanoseconds_since_1970").get<std::string>()); }

bool is_metadata(const Json& event) { return event.at("ph") == "M"; }

double end_of(const Json& event) { return event.at("ts").get<double>() + event.value("dur", 0.0); }

std::string process_name(const Json& trace) {
  for (const Json& event : trace.at("traceEvents"))
    if (event.at("ph") == "M" && event.at("name") == "process_name") return event.at("args").at("name").get<std::string>();
  return "a process";
}

/// Puts the events of all processes on the clock of the first. Says how far the machines' clocks were apart.
void align(Json& merged, const std::map<int64_t, std::string>& hosts, const std::map<int64_t, std::string>& names) {
  const auto clocks = clocks_of(hosts, merged["traceEvents"]);
  for (Json& event : merged["traceEvents"])
    if (!is_metadata(event)) event["ts"] = clocks.at(event.at("pid").get<int64_t>()).common(event.at("ts").get<double>());
  const std::string& first = hosts.begin()->second;
  for (const auto& [process, clock] : clocks) {
    if (hosts.at(process) == first) continue;
    const std::string &host = hosts.at(process), &name = names.at(process);
    const double ppm = clock.drift * 1e6;
    merged["otherData"]["clocks"].push_back({{"rank", process}, {"host", host}, {"known", clock.known}, {"offset_us", clock.offset},
                                             {"error_us", clock.error}, {"drift_ppm", ppm}});
    if (clock.known)
      fmt::print(stderr, "clocks: that of {} on {} is {:.0f} us {} (+- {:.0f} us, drift {:.1f} ppm): corrected\n", name, host,
                 std::abs(clock.offset), clock.offset < 0 ? "behind" : "ahead", clock.error, ppm);
    else
      fmt::print(stderr, "clocks: no messages compare {} on {} with {}: its times are as its machine says\n", name, host, first);
  }
}

/// Traces of several processes on one time, which begins with the earliest of them.
Json merge(std::vector<Json> traces) {
  int64_t first = INT64_MAX;
  for (const Json& trace : traces) first = std::min(first, origin_of(trace));
  Json merged = {{"displayTimeUnit", "ns"}, {"traceEvents", Json::array()}, {"otherData", {{"origin_nanoseconds_since_1970", std::to_string(first)}}}};
  std::map<int64_t, std::string> hosts, names;
  for (Json& trace : traces) {
    const auto rank = trace.at("otherData").at("rank").get<int64_t>();
    hosts[rank] = trace.at("otherData").value("host", "");
    names[rank] = process_name(trace);
    const double later = static_cast<double>(origin_of(trace) - first) / 1000;
    for (Json& event : trace.at("traceEvents")) {
      if (!is_metadata(event)) event["ts"] = event.at("ts").get<double>() + later;
      merged["traceEvents"].push_back(std::move(event));
    }
  }
  align(merged, hosts, names);
  return merged;
}

/// Leaves what ended in the last seconds that all processes cover, names of tracks aside: their traces were not taken at the same moment. Both
/// ends of a call or wait go together.
void keep_last(Json& trace, double seconds) {
  Json& events = trace["traceEvents"];
  std::map<int64_t, double> ends;
  for (const Json& event : events)
    if (!is_metadata(event)) {
      double& end = ends.try_emplace(event.at("pid").get<int64_t>(), end_of(event)).first->second;
      end = std::max(end, end_of(event));
    }
  if (ends.empty()) return;
  const auto sooner = [](const auto& a, const auto& b) { return a.second < b.second; };
  const double from = std::min_element(ends.begin(), ends.end(), sooner)->second - seconds * 1e6;
  Json kept = Json::array();
  for (size_t i = 0; i < events.size(); ++i) {
    const bool begins = events[i].at("ph") == "b" && i + 1 < events.size();  // its end follows it
    if (is_metadata(events[i]) || end_of(events[begins ? i + 1 : i]) >= from) kept.push_back(events[i]);
  }
  events = std::move(kept);
}

/// Writes beside the file and renames, so that a full disk leaves the old file as it was. Devices and pipes are written to.
void replace(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  const bool beside = !fs::exists(path, unknown) || fs::is_regular_file(path, unknown);
  const fs::path linked = beside ? fs::weakly_canonical(path, unknown) : fs::path();
  const std::string target = linked.empty() ? path : linked.string(), written = beside ? fmt::format("{}.{}.part", target, getpid()) : target;
  std::FILE* const file = std::fopen(written.c_str(), "wb");
  int wrong = file == nullptr ? errno : 0;
  if (file != nullptr) {
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0) wrong = errno;
    if (std::fclose(file) != 0 && wrong == 0) wrong = errno;
  }
  if (wrong == 0 && beside && std::rename(written.c_str(), target.c_str()) != 0) wrong = errno;
  if (wrong == 0) return;
  if (beside && file != nullptr) std::remove(written.c_str());
  throw std::runtime_error(fmt::format("can't write {}: {}", path, std::strerror(wrong)));
}

void write(const Json& trace, const std::string& path) {
  const std::string text = trace.dump() + "\n";
  if (path.empty()) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      throw std::runtime_error(fmt::format("can't write the trace: {}", std::strerror(errno)));
    return;
  }
  replace(path, text);
  fmt::print(stderr, "{}: open it at https://ui.perfetto.dev or chrome://tracing\n", path);
}

Json trace_at(const std::string& where) {
  Json trace = Json::parse(fetch(where, "/trace"), nullptr, /*allow_exceptions=*/false);
  if (trace.is_discarded() || !trace.contains("traceEvents") || !trace.contains("otherData"))
    throw std::runtime_error(fmt::format("{}: not a trace of Polyverso", where));
  return trace;
}

/// The traces of all processes that answer; of the others standard error tells. All are asked at once, so that their traces end at nearly the
/// same moment.
std::vector<Json> fetch_all(const std::vector<std::string>& addresses) {
  std::vector<std::future<Json>> coming;
  for (const std::string& where : addresses) coming.push_back(std::async(std::launch::async, trace_at, where));
  std::vector<Json> traces;
  for (std::future<Json>& trace : coming) {
    try {
      traces.push_back(trace.get());
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "polyverso trace: left out: {}\n", error.what());
    }
  }
  if (traces.empty()) throw std::runtime_error("trace: no process has given its events");
  return traces;
}

}  // namespace

int show_trace(const TraceOptions& options) {
  Json merged = merge(fetch_all(metrics_addresses("trace", options.cluster, options.http)));
  if (options.seconds > 0) keep_last(merged, options.seconds);
  if (options.explain) fmt::print("{}", explain(merged["traceEvents"]));
  if (!options.explain || !options.output.empty()) write(merged, options.output);
  return 0;
}

}  // namespace mv::tools
