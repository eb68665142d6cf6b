// The updaters that there are, and how their specs are read, checked and written.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/config.hpp"
#include "table/updater/kind.hpp"

namespace mv::table {

namespace {

const Kind* const kKinds[] = {&kAdd, &kAssign, &kSgd, &kMomentum, &kAdagrad, &kFtrl, &kDcasgd};

const Kind* find(std::string_view name) {
  const auto found = std::ranges::find(kKinds, name, [](const Kind* kind) { return std::string_view(kind->name); });
  return found != std::end(kKinds) ? *found : nullptr;
}

base::Status unknown_updater(std::string_view name) {
  std::string known;
  for (const Kind* kind : kKinds) known += fmt::format("{}{}", known.empty() ? "" : ", ", kind->name);
  return base::error(MV_EINVAL, "there is no updater \"{}\"; known: {}", name, known);
}

std::string list_parameters(const Kind& kind) {
  std::string known;
  for (const Parameter& one : kind.parameters)
    known += fmt::format("{}{}={} ({})", known.empty() ? "" : ", ", one.name, one.fallback, one.help);
  return known.empty() ? "it has none" : "it has " + known;
}

base::Status check_value(const Kind& kind, const Parameter& parameter, double value) {
  if (value >= parameter.least && value <= parameter.most) return {};  // a NaN is neither
  const std::string range = parameter.most == kAnySize
                                ? (parameter.least == 0 ? "a finite number, at least 0" : "a finite number above 0")
                                : fmt::format("between {} and {}", parameter.least, parameter.most);
  return base::error(MV_EINVAL, "updater {}: {}={} must be {}", kind.name, parameter.name, value, range);
}

/// One that does what its kind says.
class KindUpdater final : public Updater {
 public:
  KindUpdater(const Kind& kind, std::vector<double> parameters, mv_dtype storage)
      : kind_(kind), parameters_(std::move(parameters)), storage_(storage) {}
  size_t states() const override { return kind_.states(parameters_); }
  bool keeps_backups() const override { return kind_.keeps_backups; }
  void apply(const Block& block) const override { kind_.apply(parameters_, storage_, block); }

 private:
  const Kind& kind_;
  const std::vector<double> parameters_;
  const mv_dtype storage_;
};

}  // namespace

std::unique_ptr<Updater> make_updater(const UpdaterSpec& spec, mv_dtype storage) {
  return std::make_unique<KindUpdater>(*find(spec.name), spec.parameters, storage);
}

base::Result<UpdaterSpec> parse_updater(std::string_view text) {
  auto pairs = base::split_pairs(text);
  if (!pairs.ok()) return base::error(MV_EINVAL, "updater \"{}\": {}", text, pairs.status().text());
  if (pairs.value().empty()) return UpdaterSpec();
  UpdaterSpec spec;
  spec.name = pairs.value().front().key;
  const Kind* kind = find(spec.name);
  if (kind == nullptr || pairs.value().front().value) return unknown_updater(spec.name);
  for (const Parameter& parameter : kind->parameters) spec.parameters.push_back(parameter.fallback);
  std::vector<bool> said(spec.parameters.size());
  for (const base::TextPair& pair : std::span(pairs.value()).subspan(1)) {
    const auto known =
        std::ranges::find(kind->parameters, pair.key, [](const Parameter& one) { return std::string_view(one.name); });
    if (known == kind->parameters.end())
      return base::error(MV_EINVAL, "updater {} has no parameter \"{}\"; {}", kind->name, pair.key,
                         list_parameters(*kind));
    const auto index = static_cast<size_t>(known - kind->parameters.begin());
    const std::string value = pair.value.value_or("");
    double& number = spec.parameters[index];
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (problem != std::errc() || end != value.data() + value.size())
      return base::error(MV_EINVAL, "updater {}: {}={} is not a number", kind->name, pair.key, value);
    if (said[index]) return base::error(MV_EINVAL, "updater {}: {} is said twice", kind->name, pair.key);
    said[index] = true;
    if (auto status = check_value(*kind, *known, number); !status.ok()) return status;
  }
  return spec;
}

base::Status check_updater(const UpdaterSpec& spec, mv_dtype dtype) {
  const Kind* kind = find(spec.name);
  if (kind == nullptr) return unknown_updater(spec.name);
  if (spec.parameters.size() != kind->parameters.size())
    return base::error(MV_EINVAL, "updater {}: {} parameters given, it has {}", spec.name, spec.parameters.size(),
                       kind->parameters.size());
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    if (auto status = check_value(*kind, kind->parameters[i], spec.parameters[i]); !status.ok()) return status;
  }
  if (kind->floating_only && !tensor::is_floating(dtype))
    return base::error(MV_EINVAL, "updater {} wants a floating-point dtype, not {}", spec.name,
                       tensor::dtype_name(dtype));
  return {};
}

std::string to_text(const UpdaterSpec& spec) {
  std::string text = spec.name;
  const Kind* kind = find(spec.name);
  for (size_t i = 0; kind != nullptr && i < std::min(spec.parameters.size(), kind->parameters.size()); ++i)
    text += fmt::format(" {}={}", kind->parameters[i].name, spec.parameters[i]);
  return text;
}

bool keeps_backups(const UpdaterSpec& spec) {
  const Kind* kind = find(spec.name);
  return kind != nullptr && kind->keeps_backups;
}

}  // namespace mv::table
