// The text form of settings: key=value pairs and their quotes.

#include "base/setting_text.hpp"

namespace mv::base {
namespace {

bool separates(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v' || c == ',' || c == ';';
}

/// Reads a quoted value whose opening quote is at `at`; leaves `at` after the closing one.
Result<std::string> quoted(std::string_view text, size_t& at, std::string_view key) {
  std::string value;
  for (++at; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      ++at;
      if (at < text.size() && !separates(text[at])) {
        return error(MV_EINVAL, "a separator must follow the closing quote of \"{}\"", key);
      }
      return value;
    }
    if (c == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\')) ++at;
    value += text[at];
  }
  return error(MV_EINVAL, "the value of \"{}\" has no closing quote", key);
}

}  // namespace

Result<std::vector<TextPair>> split_pairs(std::string_view text) {
  std::vector<TextPair> pairs;
  size_t at = 0;
  const auto word = [&](bool stop_at_equals) {
    const size_t start = at;
    while (at < text.size() && !separates(text[at]) && !(stop_at_equals && text[at] == '=')) ++at;
    return text.substr(start, at - start);
  };
  while (true) {
    while (at < text.size() && separates(text[at])) ++at;
    if (at == text.size()) return pairs;
    TextPair pair{std::string(word(true)), std::nullopt};
    if (pair.key.empty()) return error(MV_EINVAL, "no key before the \"=\" at character {}", at + 1);
    if (at < text.size() && text[at] == '=') {
      ++at;
      if (at < text.size() && text[at] == '"') {
        auto value = quoted(text, at, pair.key);
        if (!value.ok()) return value.status();
        pair.value = std::move(value).value();
      } else {
        pair.value = std::string(word(false));
      }
    }
    pairs.push_back(std::move(pair));
  }
}

}  // namespace mv::base
