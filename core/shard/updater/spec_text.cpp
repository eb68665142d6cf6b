// Parses, checks and prints the specs of updaters.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/setting_text.hpp"
#include "base/similar.hpp"
#include "shard/updater/optimizer/traits.hpp"
#include "shard/updater/registry.hpp"

namespace mv::shard {

namespace {

/// The parameters of a kind, in the order of a spec, without the steps of a schedule.
std::vector<const Parameter*> parameters_of(const Kind& kind) {
  std::vector<const Parameter*> all;
  for (const Parameter& one : kind.parameters) all.push_back(&one);
  if (kind.optimizer == nullptr) return all;
  for (const Parameter& one : optimizer::kCommonParameters) all.push_back(&one);
  return all;
}

std::string write_value(const Parameter& parameter, double value) {
  const bool is_word = value >= 0 && value < static_cast<double>(parameter.choices.size());
  return is_word ? parameter.choices[static_cast<size_t>(value)] : fmt::format("{}", value);
}

std::string write_steps(std::span<const double> steps) {
  std::string text;
  for (const double step : steps) text += fmt::format("{}{}", text.empty() ? "" : ":", step);
  return text;
}

std::string list_parameters(const Kind& kind) {
  std::string known;
  for (const Parameter* one : parameters_of(kind)) {
    known +=
        fmt::format("{}{}={} ({})", known.empty() ? "" : ", ", one->name, write_value(*one, one->fallback), one->help);
    for (const char* choice : one->choices)
      known += fmt::format("{}{}", choice == one->choices.front() ? ": " : "|", choice);
  }
  if (kind.optimizer != nullptr)
    known += fmt::format(
        ", {} (factor: updates between reductions of the rate; multifactor: updates at which it is reduced)",
        optimizer::kSteps);
  return known.empty() ? "it has none" : "it has " + known;
}

base::Status no_parameter(const Kind& kind, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Parameter* one : parameters_of(kind)) names.push_back(one->name);
  if (kind.optimizer != nullptr) names.push_back(optimizer::kSteps);
  // Programs for MXNet mean its sgd, which is mx.sgd here.
  const Kind* of_mxnet = kind.optimizer == nullptr ? find_kind(fmt::format("mx.{}", kind.name)) : nullptr;
  const bool has_it = of_mxnet != nullptr && std::ranges::any_of(parameters_of(*of_mxnet), [&](const Parameter* one) {
                        return name == one->name;
                      });
  const std::string hint = has_it ? fmt::format("; {} has it", of_mxnet->name) : base::did_you_mean(name, names);
  return base::error(MV_EINVAL, "updater {} has no parameter \"{}\"; {}{}", kind.name, name, list_parameters(kind),
                     hint);
}

base::Status check_value(const Kind& kind, const Parameter& parameter, double value) {
  const bool is_whole = !parameter.is_whole && parameter.choices.empty() ? true : value == std::floor(value);
  if (value >= parameter.least && value <= parameter.most && is_whole) return {};  // false for a NaN
  const std::string_view number = parameter.is_whole ? "whole number" : "finite number";
  std::string range = fmt::format("between {} and {}", parameter.least, parameter.most);
  if (parameter.is_whole) range = fmt::format("a whole number, at least {}", parameter.least);
  if (parameter.most == kBelowOne) range = "at least 0 and below 1";
  if (parameter.most == kAnySize)
    range = parameter.least == -kAnySize ? fmt::format("a {}", number)
            : parameter.least == 0       ? fmt::format("a {}, at least 0", number)
                                         : fmt::format("a {} above 0", number);
  return base::error(MV_EINVAL, "updater {}: {}={} must be {}", kind.name, parameter.name, value, range);
}

bool parse_number(std::string_view text, double* number) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return problem == std::errc() && end == text.data() + text.size();
}

/// "100:200:300"
bool parse_steps(std::string_view text, std::vector<double>* steps) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    steps->push_back(0);
    if (!parse_number(text.substr(begin, end - begin), &steps->back())) return false;
    begin = end + 1;
  }
  return true;
}

/// Builds a spec from the parameters of a text.
class Reader {
 public:
  explicit Reader(const Kind& kind) : kind_(kind), parameters_(parameters_of(kind)), said_(parameters_.size()) {
    spec_.name = kind.name;
    for (const Parameter* parameter : parameters_) spec_.parameters.push_back(parameter->fallback);
  }

  base::Status read(const base::TextPair& pair) {
    const std::string value = pair.value.value_or("");
    if (kind_.optimizer != nullptr && pair.key == optimizer::kSteps) {
      if (!steps_.empty()) return twice(pair.key);
      return parse_steps(value, &steps_) ? base::Status() : no_number(pair.key, value);
    }
    const auto known = std::ranges::find_if(parameters_, [&](const Parameter* one) {
      return pair.key == one->name || (one->alias != nullptr && pair.key == one->alias);
    });
    if (known == parameters_.end()) return no_parameter(kind_, pair.key);
    const Parameter& parameter = **known;
    const auto index = static_cast<size_t>(known - parameters_.begin());
    double& number = spec_.parameters[index];
    const auto word =
        std::ranges::find(parameter.choices, value, [](const char* choice) { return std::string_view(choice); });
    if (word != parameter.choices.end())
      number = static_cast<double>(word - parameter.choices.begin());
    else if (!parse_number(value, &number))
      return parameter.choices.empty() ? no_number(pair.key, value) : no_choice(parameter, value);
    if (said_[index]) return twice(pair.key);
    said_[index] = true;
    return check_value(kind_, parameter, number);
  }

  base::Result<UpdaterSpec> finish() {
    if (kind_.optimizer == nullptr) return spec_;
    // If only one of learning_rate and base_lr is given, the other takes its value.
    const size_t base_lr = kind_.parameters.size() + optimizer::kBaseLr;
    if (!said_[base_lr]) spec_.parameters[base_lr] = spec_.parameters[0];
    if (said_[base_lr] && !said_[0]) spec_.parameters[0] = spec_.parameters[base_lr];
    spec_.parameters.insert(spec_.parameters.end(), steps_.begin(), steps_.end());
    if (auto wrong = optimizer::check_schedule(kind_, spec_.parameters); !wrong.ok()) return wrong;
    return spec_;
  }

 private:
  base::Status no_number(std::string_view key, std::string_view value) const {
    return base::error(MV_EINVAL, "updater {}: {}={} is not a number", kind_.name, key, value);
  }
  base::Status no_choice(const Parameter& parameter, std::string_view value) const {
    std::string known;
    for (const char* choice : parameter.choices) known += fmt::format("{}{}", known.empty() ? "" : ", ", choice);
    return base::error(MV_EINVAL, "updater {}: {}={} is not one of {}", kind_.name, parameter.name, value, known);
  }
  base::Status twice(std::string_view key) const {
    return base::error(MV_EINVAL, "updater {}: {} is given twice", kind_.name, key);
  }

  const Kind& kind_;
  const std::vector<const Parameter*> parameters_;
  std::vector<bool> said_;
  std::vector<double> steps_;
  UpdaterSpec spec_;
};

}  // namespace

base::Result<UpdaterSpec> parse_updater(std::string_view text) {
  auto pairs = base::split_pairs(text);
  if (!pairs.ok()) return base::error(MV_EINVAL, "updater \"{}\": {}", text, pairs.status().text());
  if (pairs.value().empty()) return UpdaterSpec();
  const base::TextPair& name = pairs.value().front();
  const Kind* kind = find_kind(name.key);
  if (kind == nullptr || name.value) return unknown_updater(name.key);
  Reader reader(*kind);
  for (const base::TextPair& pair : std::span(pairs.value()).subspan(1))
    if (auto wrong = reader.read(pair); !wrong.ok()) return wrong;
  return reader.finish();
}

base::Status set_parameter(UpdaterSpec& spec, std::string_view name, double value) {
  const Kind* kind = find_kind(spec.name);
  if (kind == nullptr) return unknown_updater(spec.name);
  const auto parameters = parameters_of(*kind);
  const auto known = std::ranges::find_if(parameters, [&](const Parameter* one) { return name == one->name; });
  const auto index = static_cast<size_t>(known - parameters.begin());
  if (known == parameters.end() || index >= spec.parameters.size()) return no_parameter(*kind, name);
  if (auto wrong = check_value(*kind, **known, value); !wrong.ok()) return wrong;
  spec.parameters[index] = value;
  return {};
}

base::Status check_updater(const UpdaterSpec& spec, mv_dtype dtype) {
  const Kind* kind = find_kind(spec.name);
  if (kind == nullptr) return unknown_updater(spec.name);
  const auto parameters = parameters_of(*kind);
  const size_t given = spec.parameters.size();
  if (given < parameters.size() || (given > parameters.size() && kind->optimizer == nullptr))
    return base::error(MV_EINVAL, "updater {}: {} parameters given, {} needed", spec.name, given, parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    if (auto wrong = check_value(*kind, *parameters[i], spec.parameters[i]); !wrong.ok()) return wrong;
  if (kind->optimizer != nullptr)
    if (auto wrong = optimizer::check_schedule(*kind, spec.parameters); !wrong.ok()) return wrong;
  if (kind->floating_only && !tensor::is_floating(dtype))
    return base::error(MV_EINVAL, "updater {} needs a floating-point dtype, not {}", spec.name,
                       tensor::dtype_name(dtype));
  return {};
}

std::string to_text(const UpdaterSpec& spec) {
  const Kind* kind = find_kind(spec.name);
  if (kind == nullptr) return spec.name;
  const auto parameters = parameters_of(*kind);
  const auto is_common = [&](size_t i) { return i >= kind->parameters.size(); };
  std::string text = spec.name;
  for (size_t i = 0; i < std::min(spec.parameters.size(), parameters.size()); ++i) {
    // An omitted base_lr is read as learning_rate.
    const bool is_base = is_common(i) && i - kind->parameters.size() == optimizer::kBaseLr;
    const double usual = is_base ? spec.parameters[0] : parameters[i]->fallback;
    if (is_common(i) && spec.parameters[i] == usual) continue;
    text += fmt::format(" {}={}", parameters[i]->name, write_value(*parameters[i], spec.parameters[i]));
  }
  if (spec.parameters.size() > parameters.size())
    text +=
        fmt::format(" {}={}", optimizer::kSteps, write_steps(std::span(spec.parameters).subspan(parameters.size())));
  return text;
}

}  // namespace mv::shard
