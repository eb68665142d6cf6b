#include "base/setting_text.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/similar.hpp"

namespace mv::base {
namespace {

std::string lowered(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int64_t> byte_count(std::string_view text) {
  int shift = 0;
  if (text.size() > 3) {
    const std::string suffix = lowered(text.substr(text.size() - 3));
    shift = suffix == "kib" ? 10 : suffix == "mib" ? 20 : suffix == "gib" ? 30 : 0;
    if (shift != 0) text.remove_suffix(3);
  }
  const auto number = whole_number(text);
  if (!number || *number < 0 || *number > INT64_MAX >> shift) return std::nullopt;
  return *number << shift;
}

std::optional<int64_t> truth(std::string_view text) {
  const std::string word = lowered(text);
  if (word == "1" || word == "true" || word == "yes" || word == "on") return 1;
  if (word == "0" || word == "false" || word == "no" || word == "off") return 0;
  return std::nullopt;
}

/// The names of all choices, each value once: "worker|server|all".
std::string choice_names(const SettingInfo& setting) {
  std::string names;
  std::vector<int64_t> seen;
  for (const SettingChoice& choice : setting.choices) {
    if (std::find(seen.begin(), seen.end(), choice.value) != seen.end()) continue;
    seen.push_back(choice.value);
    names += (names.empty() ? "" : "|") + std::string(choice.name);
  }
  return names;
}

Status bad(std::string what) { return Status(MV_EINVAL, std::move(what)); }
Status not_a_choice(const SettingInfo& setting, std::string_view text) {
  std::vector<std::string_view> names;
  for (const SettingChoice& choice : setting.choices) names.push_back(choice.name);
  return bad("is not one of " + choice_names(setting) + did_you_mean(text, names));
}

Result<int64_t> parse_choice(const SettingInfo& setting, std::string_view text) {
  const auto number = whole_number(text);
  for (const SettingChoice& choice : setting.choices) {
    if (number ? *number == choice.value : text == choice.name) return choice.value;
  }
  return not_a_choice(setting, text);
}

/// What users may set.
std::vector<std::string_view> keys_of(KnownSettings known) {
  std::vector<std::string_view> keys;
  for (const SettingInfo* setting : known)
    if (!setting->environment_only) keys.push_back(setting->key);
  return keys;
}

/// What the text must be instead: " in 1 .. 65535".
std::string allowed(const SettingInfo& setting) {
  if (setting.type == SettingType::kMillis) return ": use milliseconds, at least 1, or -1 for none";
  if (setting.most == INT64_MAX) return fmt::format(" of at least {}", setting.least);
  return fmt::format(" in {} .. {}", setting.least, setting.most);
}

const char* value_hint(const SettingInfo& setting) {
  switch (setting.type) {
    case SettingType::kBool:
      return "0|1";
    case SettingType::kInteger:
    case SettingType::kReal:
      return "number";
    case SettingType::kMillis:
      return "milliseconds, -1 = none";
    case SettingType::kBytes:
      return "bytes, 64KiB, 1GiB";
    default:
      return "text";
  }
}

}  // namespace

Result<SettingValue> parse_setting(const SettingInfo& setting, std::string_view text) {
  SettingValue value;
  switch (setting.type) {
    case SettingType::kBool: {
      const auto is = truth(text);
      if (!is) return bad("is not a boolean: use 0, 1, true, false, yes, no, on or off");
      value.number = *is;
      break;
    }
    case SettingType::kInteger:
    case SettingType::kMillis: {
      const auto number = whole_number(text);
      if (!number) return bad("is not a whole number" + allowed(setting));
      value.number = *number;
      break;
    }
    case SettingType::kReal: {
      double real = 0;
      const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), real);
      if (failure != std::errc() || end != text.data() + text.size()) return bad("is not a number");
      value.number = bits_of(real);
      break;
    }
    case SettingType::kBytes: {
      const auto bytes = byte_count(text);
      if (!bytes) return bad("is not a number of bytes such as 4096, 64KiB, 256MiB or 1GiB");
      value.number = *bytes;
      break;
    }
    case SettingType::kChoice: {
      const auto choice = parse_choice(setting, text);
      if (!choice.ok()) return choice.status();
      value.number = choice.value();
      break;
    }
    case SettingType::kText:
    case SettingType::kSecret:
      value.text = text;
      break;
  }
  if (auto status = check_setting(setting, value); !status.ok()) return status;
  return value;
}

Status check_setting(const SettingInfo& setting, const SettingValue& value) {
  const auto is_choice = [&](const SettingChoice& choice) {
    return setting.type == SettingType::kText ? value.text == choice.name : value.number == choice.value;
  };
  switch (setting.type) {
    case SettingType::kBool:
      return value.number == 0 || value.number == 1 ? Status() : bad("is neither 0 nor 1");
    case SettingType::kReal:
      return std::isfinite(real_of(value.number)) ? Status() : bad("is not finite");
    case SettingType::kMillis:
      return value.number == -1 || value.number >= 1 ? Status()
                                                     : bad("is not a valid timeout: use at least 1 ms, or -1 for none");
    case SettingType::kInteger:
    case SettingType::kBytes:
      if (value.number >= setting.least && value.number <= setting.most) return {};
      if (setting.most == INT64_MAX) return bad(fmt::format("is less than {}", setting.least));
      return bad(fmt::format("is outside {} .. {}", setting.least, setting.most));
    case SettingType::kChoice:
    case SettingType::kText:
      if (setting.choices.empty() || std::any_of(setting.choices.begin(), setting.choices.end(), is_choice)) return {};
      return not_a_choice(setting, value.text);
    case SettingType::kSecret:
      return {};
  }
  return {};
}

std::string show_setting(const SettingInfo& setting, const SettingValue& value) {
  if (setting.type == SettingType::kSecret) return value.text.empty() ? "" : "(secret)";
  if (setting.type == SettingType::kText) return value.text;
  if (setting.type == SettingType::kChoice) {
    for (const SettingChoice& choice : setting.choices) {
      if (choice.value == value.number) return choice.name;
    }
  }
  if (setting.type == SettingType::kReal) return fmt::format("{}", real_of(value.number));
  return std::to_string(value.number);
}

std::string list_settings(KnownSettings known) {
  std::string list;
  for (const SettingInfo* setting : known) {
    if (setting->environment_only) continue;
    list += (list.empty() ? "" : ", ") + std::string(setting->key);
    if (!setting->choices.empty()) list += fmt::format(" ({})", choice_names(*setting));
  }
  return list;
}

std::string explain_settings(KnownSettings known, std::span<const SettingValue> defaults) {
  std::string text;
  for (size_t i = 0; i < known.size(); ++i) {
    const SettingInfo& setting = *known[i];
    if (setting.environment_only) continue;
    const std::string hint = setting.choices.empty() ? value_hint(setting) : choice_names(setting);
    const std::string standard = show_setting(setting, defaults[i]);
    text += fmt::format("{:22} {}{}{} ({})\n", setting.key, setting.help, standard.empty() ? "" : "; default ",
                        standard, hint);
  }
  return text;
}

Status SaidSettings::say(size_t index, SettingValue value, std::string where) {
  const SettingInfo& setting = *known_[index];
  if (auto status = check_setting(setting, value); !status.ok()) return bad(fmt::format("{} {}", where, status.text()));
  std::optional<Said>& said = said_[index];
  if (said && said->value != value) return error(MV_EDISAGREE, "{} and {} disagree", said->where, where);
  if (!said) said = Said{std::move(value), std::move(where)};
  return {};
}

Status SaidSettings::say_value(size_t index, std::string_view text, std::string_view name, std::string_view suffix) {
  const SettingInfo& setting = *known_[index];
  const bool hidden = setting.type == SettingType::kSecret;
  std::string where = fmt::format("{}={}{}", name, hidden ? "(secret)" : text, suffix);
  auto value = parse_setting(setting, text);
  if (!value.ok()) return bad(fmt::format("{} {}", where, value.status().text()));
  return say(index, std::move(value).value(), std::move(where));
}

std::optional<size_t> SaidSettings::index_of(std::string_view key) const {
  for (size_t i = 0; i < known_.size(); ++i) {
    const SettingInfo& setting = *known_[i];
    if (!setting.environment_only && (key == setting.key || (setting.alias != nullptr && key == setting.alias))) return i;
  }
  return std::nullopt;
}

Status SaidSettings::say_text(std::string_view text, std::string_view source) {
  const auto pairs = split_pairs(text);
  if (!pairs.ok()) return bad(fmt::format("{}: {}", source, pairs.status().text()));
  for (const auto& [key, value] : pairs.value()) {
    const auto index = index_of(key);
    if (!index)
      return error(MV_EINVAL, "{}: unknown setting \"{}\"; known: {}{}", source, key, list_settings(known_), did_you_mean(key, keys_of(known_)));
    if (!value) return error(MV_EINVAL, "{}: \"{}\" has no value: write {}=...", source, key, key);
    if (auto status = say_value(*index, *value, key, fmt::format(" in {}", source)); !status.ok()) return status;
  }
  return {};
}

Result<std::vector<int>> SaidSettings::say_arguments(std::span<const char* const> arguments) {
  std::vector<int> used;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view argument = arguments[i] != nullptr ? arguments[i] : "";
    if (!argument.starts_with('-')) continue;
    argument.remove_prefix(argument.starts_with("--") ? 2 : 1);
    const size_t equals = argument.find('=');
    const std::string_view key = argument.substr(0, equals);
    const auto index = index_of(key);
    if (!index || (equals == std::string_view::npos && known_[*index]->type != SettingType::kBool)) continue;
    const std::string_view value = equals == std::string_view::npos ? "1" : argument.substr(equals + 1);
    auto status = say_value(*index, value, fmt::format("-{}", key), " among the arguments");
    if (!status.ok()) return status;
    used.push_back(static_cast<int>(i));
  }
  return used;
}

Status SaidSettings::say_environment(std::string_view prefix) {
  for (size_t i = 0; i < known_.size(); ++i) {
    for (const char* key : {known_[i]->key, known_[i]->alias}) {
      if (key == nullptr) continue;
      std::string name = std::string(prefix) + key;
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
      const char* value = std::getenv(name.c_str());
      if (value == nullptr || *value == '\0') continue;
      if (auto status = say_value(i, value, name, " in the environment"); !status.ok()) return status;
    }
  }
  return {};
}

}  // namespace mv::base
