// The registry of codecs: parses, checks and prints their specs.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ranges>

#include "base/similar.hpp"
#include "codec/kind.hpp"

namespace mv::codec {

namespace {

constexpr std::string_view kNone = "none";

const auto& kinds() {
  static const std::array known{&kTwoBit, &kOneBit, &kHalf, &kBrainHalf, &kInt8, &kTopK};
  return known;
}

const Kind* find(std::string_view name) {
  const auto found = std::ranges::find_if(kinds(), [&](const Kind* kind) { return name == kind->name; });
  return found != kinds().end() ? *found : nullptr;
}

base::Status unknown(std::string_view name) {
  std::string known(kNone);
  std::vector<std::string_view> names{kNone};
  for (const Kind* kind : kinds()) {
    known += fmt::format(", {}", kind->name);
    names.push_back(kind->name);
  }
  return base::error(MV_EINVAL, "unknown gradient compression \"{}\"; known: {}{}", name, known, base::did_you_mean(name, names));
}

std::string list_parameters(const Kind& kind) {
  std::string known;
  for (const Parameter& one : kind.parameters)
    known += fmt::format("{}{}={} ({})", known.empty() ? "" : ", ", one.name, one.fallback, one.help);
  return known.empty() ? "it has none" : "it has " + known;
}

base::Status check_value(const Kind& kind, const Parameter& parameter, double value) {
  const bool fits = value >= parameter.least && value <= parameter.most;  // false for a NaN
  if (fits && (!parameter.is_whole || value == std::floor(value))) return {};
  const std::string least = parameter.least == kLeastStep ? "above 0" : fmt::format("at least {}", parameter.least);
  const std::string most = parameter.most == kLargest ? "finite" : fmt::format("at most {}", parameter.most);
  return base::error(MV_EINVAL, "gradient compression {}: {}={} must be {}{}, {}", kind.name, parameter.name, value,
                     parameter.is_whole ? "a whole number, " : "", least, most);
}

base::Status read_parameter(const Kind& kind, const base::TextPair& pair, Spec* spec, std::vector<bool>* said) {
  const auto known = std::ranges::find_if(kind.parameters, [&](const Parameter& one) { return pair.key == one.name; });
  if (known == kind.parameters.end())
    return base::error(MV_EINVAL, "gradient compression {} has no parameter \"{}\"; {}{}", kind.name, pair.key, list_parameters(kind),
                       base::did_you_mean(pair.key, kind.parameters | std::views::transform([](const Parameter& one) { return std::string_view(one.name); })));
  const auto index = static_cast<size_t>(known - kind.parameters.begin());
  const std::string text = pair.value.value_or("");
  double& number = spec->parameters[index];
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size())
    return base::error(MV_EINVAL, "gradient compression {}: {}={} is not a number", kind.name, pair.key, text);
  if ((*said)[index]) return base::error(MV_EINVAL, "gradient compression {}: {} is given twice", kind.name, pair.key);
  (*said)[index] = true;
  return check_value(kind, *known, number);
}

}  // namespace

base::Status Codec::check(std::span<const std::byte> encoded, size_t count) const {
  if (encoded.size() != encoded_bytes(count))
    return base::error(MV_EPROTOCOL, "{} encoded values in {} bytes, {} needed", count, encoded.size(),
                       encoded_bytes(count));
  if (is_sound(encoded.data(), count)) return {};
  return base::error(MV_EPROTOCOL, "{} encoded values are invalid: no encoder produces them", count);
}

CodecRef make(const Spec& spec) {
  const Kind* kind = find(spec.name);
  return kind != nullptr ? CodecRef(kind->make(spec)) : nullptr;
}

base::Status check(const Spec& spec) {
  if (spec.is_none()) return {};
  const Kind* kind = find(spec.name);
  if (kind == nullptr) return unknown(spec.name);
  if (spec.parameters.size() != kind->parameters.size())
    return base::error(MV_EINVAL, "gradient compression {}: {} parameters given, {} needed", spec.name,
                       spec.parameters.size(), kind->parameters.size());
  for (size_t i = 0; i < spec.parameters.size(); ++i)
    if (auto wrong = check_value(*kind, kind->parameters[i], spec.parameters[i]); !wrong.ok()) return wrong;
  return {};
}

base::Result<Spec> parse(std::span<const base::TextPair> pairs) {
  const auto names_it = [](const base::TextPair& pair) { return !pair.value || pair.key == "type"; };
  const auto name = std::ranges::find_if(pairs, names_it);
  if (name == pairs.end()) return unknown(pairs.empty() ? "" : pairs.front().key);
  Spec spec;
  spec.name = name->value.value_or(name->key);
  const Kind* kind = find(spec.name);
  if (kind == nullptr && spec.name != kNone) return unknown(spec.name);
  if (kind == nullptr) {
    if (pairs.size() == 1) return Spec();
    return base::error(MV_EINVAL, "gradient compression none has no parameters");
  }
  for (const Parameter& parameter : kind->parameters) spec.parameters.push_back(parameter.fallback);
  std::vector<bool> said(kind->parameters.size());
  for (const base::TextPair& pair : pairs) {
    if (&pair == &*name) continue;
    if (auto wrong = read_parameter(*kind, pair, &spec, &said); !wrong.ok()) return wrong;
  }
  return spec;
}

base::Result<Spec> parse(std::string_view text) {
  const auto pairs = base::split_pairs(text);
  if (!pairs.ok()) return base::error(MV_EINVAL, "gradient compression \"{}\": {}", text, pairs.status().text());
  return parse(pairs.value());
}

std::string to_text(const Spec& spec) {
  const Kind* kind = find(spec.name);
  if (kind == nullptr) return std::string(kNone);
  std::string text = spec.name;
  for (size_t i = 0; i < std::min(spec.parameters.size(), kind->parameters.size()); ++i)
    text += fmt::format(" {}={}", kind->parameters[i].name, spec.parameters[i]);
  return text;
}

}  // namespace mv::codec
