#include "dashboard/history.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace mv::tools {
namespace {

using Json = nlohmann::json;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

const Json& list_of(const Json& object, const char* name) {
  static const Json kEmpty = Json::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : kEmpty;
}

Json value_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() ? *found : Json();
}

std::string text_of(const Json& object, const char* name) {
  const Json value = value_of(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

/// The sum of a number over the workers of a table.
double sum_of(const Json& table, const char* name) {
  double sum = 0;
  for (const Json& worker : list_of(table, "workers"))
    if (const Json value = value_of(worker, name); value.is_number()) sum += value.get<double>();
  return sum;
}

/// As `polyverso status` names members: "worker 3", or "server 0" without a worker.
std::string line_of(const Json& member) {
  for (const char* role : {"worker", "server"})
    if (const Json number = value_of(member, role); number.is_number_integer()) return fmt::format("{} {}", role, number.get<int64_t>());
  return "rank " + value_of(member, "rank").dump();
}

}  // namespace

void History::add(double seconds, const Json& status) {
  begin_slot(static_cast<int64_t>(seconds / kSlotSeconds));
  if (status.is_array()) {  // gossiping nodes
    for (const Json& node : status)
      for (const char* name : {"loss", "disagreement", "clock"}) add("gossip", name, text_of(node, "name"), value_of(node, name));
    return;
  }
  for (const Json& member : list_of(status, "members")) add_member(member);
  for (const Json& table : list_of(status, "tables")) {
    add("counter", "adds", text_of(table, "name"), sum_of(table, "adds"));
    add("counter", "gets", text_of(table, "name"), sum_of(table, "gets"));
  }
}

void History::add_member(const Json& member) {
  const std::string line = line_of(member);
  add("traffic", "sent", line, value_of(member, "sent_bytes_per_second"));
  add("traffic", "received", line, value_of(member, "received_bytes_per_second"));
  for (const Json& report : list_of(member, "reports")) add("report", text_of(report, "name"), line, value_of(report, "value"));
}

void History::add(std::string_view kind, std::string_view chart, std::string_view line, const Json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) return;
  Name name{std::string(kind), std::string(chart.substr(0, kLongestName)), std::string(line.substr(0, kLongestName))};
  auto found = series_.find(name);
  if (found == series_.end()) {
    if (series_.size() >= kMostSeries) {
      ++left_out_;
      return;
    }
    found = series_.emplace(std::move(name), Series{}).first;
    found->second.means.fill(kNone);
  }
  Series& series = found->second;
  series.last = slot_;
  series.sum += value.get<double>();
  ++series.count;
}

float History::Series::mean() const { return count > 0 ? static_cast<float>(sum / count) : kNone; }

void History::begin_slot(int64_t slot) {
  if (slot <= slot_) return;
  left_out_ = 0;
  for (auto& [name, series] : series_) {
    if (slot_ >= 0) series.means[slot_ % kSlots] = series.mean();
    for (int64_t skipped = std::max(slot_ + 1, slot - kSlots); skipped < slot; ++skipped) series.means[skipped % kSlots] = kNone;
    series.sum = 0;
    series.count = 0;
  }
  std::erase_if(series_, [&](const auto& one) { return one.second.last <= slot - kSlots; });
  slot_ = slot;
}

std::string History::to_json(int64_t since) const {
  const int64_t first = std::max<int64_t>({0, since, slot_ - kSlots});
  Json all = {{"slot_seconds", kSlotSeconds}, {"first", first}, {"left_out", left_out_}, {"series", Json::array()}};
  for (const auto& [name, series] : series_) {
    Json values = Json::array();
    // NaN becomes null.
    for (int64_t slot = first; slot <= slot_; ++slot) values.push_back(slot < slot_ ? series.means[slot % kSlots] : series.mean());
    all["series"].push_back({{"kind", name.kind}, {"chart", name.chart}, {"line", name.line}, {"values", std::move(values)}});
  }
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mv::tools
