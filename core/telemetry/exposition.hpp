#pragma once
// Figures as Prometheus's text: https://prometheus.io/docs/instrumenting/exposition_formats/

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/histogram.hpp"

namespace mv::telemetry {

struct Label {
  std::string_view name;
  std::string_view value;
};
using Labels = std::initializer_list<Label>;

/// What every metric of ours begins with.
inline constexpr std::string_view kPrefix = "polyverso_";

/// Writes families, each with its samples behind it. Names are literals of ours; values of labels may be anything.
class Exposition {
 public:
  /// kPrefix comes in front. A counter's name ends in _total; units are seconds and bytes.
  void counter(std::string_view name, std::string_view help) { family(kPrefix, name, "counter", help); }
  void gauge(std::string_view name, std::string_view help) { family(kPrefix, name, "gauge", help); }
  void histogram(std::string_view name, std::string_view help) { family(kPrefix, name, "histogram", help); }
  /// The figures that all programs give alike: "process_…", without the prefix.
  void process(std::string_view name, std::string_view type, std::string_view help) { family("", name, type, help); }

  /// Of the last family.
  void sample(Labels labels, uint64_t value);
  void sample(Labels labels, double value);
  void sample(Labels labels, const base::Histogram& histogram);

  std::string take() { return std::move(text_); }

 private:
  void family(std::string_view prefix, std::string_view name, std::string_view type, std::string_view help);
  void line(std::string_view suffix, Labels labels, std::string_view limit, std::string_view value);

  std::string text_;
  std::string family_;
};

}  // namespace mv::telemetry
