#pragma once
// Settings as text: their descriptions, the syntax of their values, and the values given with their sources. Knows no
// particular setting: the caller passes a list of descriptions.

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mv::base {

enum class SettingType {
  kBool,     ///< 0/1, true/false, yes/no, on/off
  kInteger,  ///< a whole number
  kReal,     ///< a finite number; SettingValue::number holds its bits
  kMillis,   ///< a time-out in milliseconds, at least 1; -1: none
  kBytes,    ///< a size: a whole number, with an optional suffix KiB, MiB or GiB
  kChoice,   ///< one of a list of names, or the number of such a name
  kText,     ///< any text, or one of a list of names
  kSecret,   ///< any text; messages never show it
};

struct SettingChoice {
  const char* name;
  int64_t value;
};

/// The description of one setting.
struct SettingInfo {
  const char* key;
  SettingType type;
  const char* help;   ///< a clause for listings
  int64_t least = 0;  ///< for kInteger and kBytes
  int64_t most = INT64_MAX;
  std::span<const SettingChoice> choices = {};  ///< for kChoice and kText; if a value has several names, the first is shown
  const char* alias = nullptr;    ///< a second name, for scripts that use it
  bool environment_only = false;  ///< set by Polyverso's own launcher, not by users
};
using KnownSettings = std::span<const SettingInfo* const>;

/// A value in canonical form: "yes" equals "1", "1KiB" equals "1024". The setting's type says which member holds it.
struct SettingValue {
  int64_t number = 0;
  std::string text;
  bool operator==(const SettingValue&) const = default;
};

/// Conversions between the value of a kReal and its bits.
inline int64_t bits_of(double real) { return std::bit_cast<int64_t>(real == 0 ? 0.0 : real); }
inline double real_of(int64_t bits) { return std::bit_cast<double>(bits); }

/// Parses `text`. The error says what is wrong with the value, but not where it came from: "is not a whole number".
Result<SettingValue> parse_setting(const SettingInfo& setting, std::string_view text);
/// Checks a value that the program passed as a number or text. Errors as above.
Status check_setting(const SettingInfo& setting, const SettingValue& value);
/// The value as text that parse_setting() reads; "(secret)" for a secret.
std::string show_setting(const SettingInfo& setting, const SettingValue& value);
/// "sync, role (worker|server|all), …"
std::string list_settings(KnownSettings known);
/// One line per setting: key, values, default, help. `defaults` has the order of `known`.
std::string explain_settings(KnownSettings known, std::span<const SettingValue> defaults);

struct TextPair {
  std::string key;
  std::optional<std::string> value;  ///< empty if no "=" follows the key
};
/// Splits `key=value key="value with spaces"` at white space, commas and semicolons. In quotes, \" and \\ are escapes
/// for " and \.
Result<std::vector<TextPair>> split_pairs(std::string_view text);

/// The value given for each setting, with its source. Two sources that differ are an MV_EDISAGREE that names both.
class SaidSettings {
 public:
  explicit SaidSettings(KnownSettings known) : known_(known), said_(known.size()) {}

  /// `where` names the source and the value in messages: "mv_init_options.nodes=4".
  Status say(size_t index, SettingValue value, std::string where);
  /// "key=value …"; `source` names the text in messages.
  Status say_text(std::string_view text, std::string_view source);
  /// A program's arguments "-key=value" and "--key=value", and "-key" for booleans. Returns the indices of the
  /// arguments that it recognized.
  Result<std::vector<int>> say_arguments(std::span<const char* const> arguments);
  /// Variables <prefix><KEY>. Empty ones count as unset.
  Status say_environment(std::string_view prefix);

  struct Said {
    SettingValue value;
    std::string where;
  };
  /// The value given for the index-th setting, or null.
  const Said* find(size_t index) const { return said_[index] ? &*said_[index] : nullptr; }

 private:
  std::optional<size_t> index_of(std::string_view key) const;
  Status say_value(size_t index, std::string_view text, std::string_view name, std::string_view suffix);

  KnownSettings known_;
  std::vector<std::optional<Said>> said_;
};

}  // namespace mv::base
