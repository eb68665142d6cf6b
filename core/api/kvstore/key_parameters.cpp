#include "api/kvstore/key_parameters.hpp"

#include <algorithm>
#include <charconv>

#include "base/setting_text.hpp"

namespace mv::kvstore {

base::Result<KeyParameters> parse_key_parameters(std::string_view text) {
  auto pairs = base::split_pairs(text);
  if (!pairs.ok()) return pairs.status();
  KeyParameters parameters;
  for (const base::TextPair& pair : pairs.value()) {
    if (pair.key != "lr_mult" && pair.key != "wd_mult")
      return base::error(MV_EINVAL, "a key has no parameter \"{}\"; it has lr_mult (multiplies the rate) and wd_mult (multiplies the weight decay)", pair.key);
    if (std::ranges::find(parameters, pair.key, &KeyParameters::value_type::first) != parameters.end()) return base::error(MV_EINVAL, "{} is given twice", pair.key);
    const std::string value = pair.value.value_or("");
    double number = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (problem != std::errc() || end != value.data() + value.size() || !(number >= 0 && number <= 1e30))
      return base::error(MV_EINVAL, "{}={} must be a finite number, at least 0", pair.key, value);
    parameters.emplace_back(pair.key, number);
  }
  return parameters;
}

base::Result<shard::UpdaterSpec> with_key_parameters(shard::UpdaterSpec optimizer, const KeyParameters& parameters) {
  for (const auto& [name, value] : parameters)
    if (const base::Status wrong = shard::set_parameter(optimizer, name, value); !wrong.ok()) return wrong;
  return optimizer;
}

}  // namespace mv::kvstore
