#include "telemetry/exposition.hpp"

#include <fmt/core.h>

#include <cmath>

namespace mv::telemetry {

namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// Escapes a label value for use in quotes.
void append_escaped(std::string& text, std::string_view value) {
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
}

}  // namespace

void Exposition::family(std::string_view prefix, std::string_view name, std::string_view type, std::string_view help) {
  family_ = fmt::format("{}{}", prefix, name);
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family_, help, family_, type);
}

void Exposition::line(std::string_view suffix, Labels labels, std::string_view limit, std::string_view value) {
  text_ += family_;
  text_ += suffix;
  char before = '{';
  const auto append = [&](std::string_view name, std::string_view of) {
    text_ += before;
    text_ += name;
    text_ += "=\"";
    append_escaped(text_, of);
    text_ += '"';
    before = ',';
  };
  for (const Label& label : labels) append(label.name, label.value);
  if (!limit.empty()) append("le", limit);
  if (before == ',') text_ += '}';
  text_ += ' ';
  text_ += value;
  text_ += '\n';
}

void Exposition::sample(Labels labels, uint64_t value) { line("", labels, "", std::to_string(value)); }
void Exposition::sample(Labels labels, double value) { line("", labels, "", number(value)); }

void Exposition::sample(Labels labels, const base::Histogram& histogram) {
  uint64_t so_far = 0;
  for (size_t i = 0; i < base::Histogram::kClasses; ++i) {
    so_far += histogram.counts[i];
    line("_bucket", labels, number(base::Histogram::limit(i)), std::to_string(so_far));
  }
  const std::string all = std::to_string(histogram.count());
  line("_bucket", labels, "+Inf", all);
  line("_sum", labels, "", number(std::chrono::duration<double>(histogram.sum).count()));
  line("_count", labels, "", all);
}

}  // namespace mv::telemetry
