#include "export/otlp.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace mv::tools {
namespace {

using Json = nlohmann::json;
using Labels = std::map<std::string, std::string>;

struct Sample {
  std::string name;
  Labels labels;
  double value;
};

struct Family {
  std::string type, help;
  std::vector<Sample> samples;
};

std::optional<double> number(std::string_view text) {
  if (text == "+Inf" || text == "Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::nan("");
  double value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// A label's value up to its closing quote; moves `text` behind it.
std::optional<std::string> quoted(std::string_view& text) {
  std::string value;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return value;
    }
    if (text[i] == '\\' && ++i < text.size())
      value += text[i] == 'n' ? '\n' : text[i];
    else
      value += text[i];
  }
  return std::nullopt;
}

/// name{label="value",...} value
std::optional<Sample> sample_of(std::string_view line) {
  const size_t end = line.find_first_of("{ ");
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  Sample sample{std::string(line.substr(0, end)), {}, 0};
  line.remove_prefix(end);
  if (line.front() == '{') {
    line.remove_prefix(1);
    while (!line.empty() && line.front() != '}') {
      const size_t equals = line.find("=\"");
      if (equals == std::string_view::npos) return std::nullopt;
      const std::string name(line.substr(0, equals));
      line.remove_prefix(equals + 2);
      auto value = quoted(line);
      if (!value) return std::nullopt;
      sample.labels[name] = std::move(*value);
      if (!line.empty() && line.front() == ',') line.remove_prefix(1);
    }
    if (line.empty()) return std::nullopt;
    line.remove_prefix(1);
  }
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  const auto value = number(line);
  if (!value) return std::nullopt;
  sample.value = *value;
  return sample;
}

/// By name, in the order of the text.
std::vector<std::pair<std::string, Family>> families_of(std::string_view text) {
  std::vector<std::pair<std::string, Family>> families;
  std::map<std::string, std::string> helps;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const bool help = line.starts_with("# HELP "), type = line.starts_with("# TYPE ");
    if (help || type) {
      const std::string_view rest = line.substr(7);
      const size_t space = rest.find(' ');
      if (space == std::string_view::npos) continue;
      const std::string name(rest.substr(0, space)), said(rest.substr(space + 1));
      if (help) helps[name] = said;
      if (type) families.push_back({name, {said, helps[name], {}}});
    } else if (!families.empty() && !line.empty() && line.front() != '#') {
      auto sample = sample_of(line);
      if (sample && sample->name.starts_with(families.back().first)) families.back().second.samples.push_back(std::move(*sample));
    }
  }
  return families;
}

Json attributes_of(const Labels& labels) {
  Json attributes = Json::array();
  for (const auto& [name, value] : labels) attributes.push_back({{"key", name}, {"value", {{"stringValue", value}}}});
  return attributes;
}

/// JSON has no words for these; protobuf's JSON has strings.
Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string unit_of(const std::string& name) {
  for (const auto& [part, unit] : {std::pair("_seconds", "s"), std::pair("_bytes", "By")})
    if (name.ends_with(part) || name.ends_with(std::string(part) + "_total")) return unit;
  return "1";
}

class Points {
 public:
  Points(int64_t start, int64_t now) : start_(std::to_string(start)), now_(std::to_string(now)) {}

  Json numbers(const Family& family, bool cumulative) const {
    Json points = Json::array();
    for (const Sample& sample : family.samples) {
      points.push_back({{"attributes", attributes_of(sample.labels)}, {"timeUnixNano", now_}, {"asDouble", json_number(sample.value)}});
      if (cumulative) points.back()["startTimeUnixNano"] = start_;
    }
    return points;
  }

  /// Prometheus counts all values up to a limit, OpenTelemetry those between two limits.
  Json histograms(const std::string& name, const Family& family) const {
    struct Histogram {
      std::map<double, double> up_to;
      double sum = 0, count = 0;
    };
    std::map<Labels, Histogram> histograms;
    for (const Sample& sample : family.samples) {
      Labels labels = sample.labels;
      const auto limit = labels.extract("le");
      Histogram& histogram = histograms[labels];
      if (sample.name == name + "_sum") histogram.sum = sample.value;
      if (sample.name == name + "_count") histogram.count = sample.value;
      if (limit && sample.name == name + "_bucket")
        if (const auto bound = number(limit.mapped())) histogram.up_to[*bound] = sample.value;
    }
    Json points = Json::array();
    for (const auto& [labels, histogram] : histograms) {
      Json bounds = Json::array(), counts = Json::array();
      double before = 0;
      for (const auto& [limit, count] : histogram.up_to) {
        if (std::isfinite(limit)) bounds.push_back(limit);
        counts.push_back(std::to_string(static_cast<uint64_t>(count - before)));
        before = count;
      }
      points.push_back({{"attributes", attributes_of(labels)}, {"startTimeUnixNano", start_}, {"timeUnixNano", now_},
                        {"count", std::to_string(static_cast<uint64_t>(histogram.count))}, {"sum", histogram.sum},
                        {"bucketCounts", std::move(counts)}, {"explicitBounds", std::move(bounds)}});
    }
    return points;
  }

 private:
  const std::string start_, now_;
};

constexpr int kCumulative = 2;  // AGGREGATION_TEMPORALITY_CUMULATIVE

}  // namespace

Json resource_metrics(std::string_view exposition, int64_t now) {
  const auto families = families_of(exposition);
  double up = 0;
  std::string rank, version;
  for (const auto& [name, family] : families) {
    if (family.samples.empty()) continue;
    const Sample& first = family.samples.front();
    if (name == "polyverso_uptime_seconds") up = first.value;
    if (name == "polyverso_node_info" && first.labels.contains("rank")) rank = first.labels.at("rank");
    if (name == "polyverso_build_info" && first.labels.contains("version")) version = first.labels.at("version");
  }
  const Points points(now - static_cast<int64_t>(up * 1e9), now);
  Json metrics = Json::array();
  for (const auto& [name, family] : families) {
    Json metric = {{"name", name}, {"description", family.help}, {"unit", unit_of(name)}};
    if (family.type == "counter")
      metric["sum"] = {{"aggregationTemporality", kCumulative}, {"isMonotonic", true}, {"dataPoints", points.numbers(family, true)}};
    else if (family.type == "histogram")
      metric["histogram"] = {{"aggregationTemporality", kCumulative}, {"dataPoints", points.histograms(name, family)}};
    else
      metric["gauge"] = {{"dataPoints", points.numbers(family, false)}};
    metrics.push_back(std::move(metric));
  }
  const Labels resource = {{"service.name", "polyverso"}, {"service.instance.id", rank}, {"service.version", version}};
  return {{"resource", {{"attributes", attributes_of(resource)}}},
          {"scopeMetrics", {{{"scope", {{"name", "polyverso"}, {"version", version}}}, {"metrics", std::move(metrics)}}}}};
}

}  // namespace mv::tools
