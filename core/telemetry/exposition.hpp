#pragma once
// A writer for Prometheus's text format: https://prometheus.io/docs/instrumenting/exposition_formats/

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

/// The prefix of all metric names of Polyverso.
inline constexpr std::string_view kPrefix = "polyverso_";

/// Writes metric families, each followed by its samples. Names are literals of this library; label values are
/// arbitrary.
class Exposition {
 public:
  /// Adds kPrefix to the name. A counter's name ends in _total; units are seconds and bytes.
  void counter(std::string_view name, std::string_view help) { family(kPrefix, name, "counter", help); }
  void gauge(std::string_view name, std::string_view help) { family(kPrefix, name, "gauge", help); }
  void histogram(std::string_view name, std::string_view help) { family(kPrefix, name, "histogram", help); }
  /// A standard process metric, "process_…", without the prefix.
  void process(std::string_view name, std::string_view type, std::string_view help) { family("", name, type, help); }

  /// A sample of the last family.
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
