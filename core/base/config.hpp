#pragma once
// Settings as text: what there is to set, how its values are written, and what was said about it where. Knows no
// particular setting; whoever has some brings a list of descriptions.

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
  kBytes,    ///< a size: a whole number, KiB, MiB and GiB may follow
  kChoice,   ///< one of some names, each of which stands for a number that is understood as well
  kText,     ///< any text, or one of some names
  kSecret,   ///< any text, which messages never show
};

struct SettingChoice {
  const char* name;
  int64_t value;
};

/// One thing that can be set.
struct SettingInfo {
  const char* key;
  SettingType type;
  const char* help;   ///< a clause for listings
  int64_t least = 0;  ///< kInteger and kBytes
  int64_t most = INT64_MAX;
  std::span<const SettingChoice> choices = {};  ///< kChoice, kText; the first of several names of a value is the one shown
  const char* alias = nullptr;    ///< a second name, for scripts that use it
  bool environment_only = false;  ///< passed on by our own launcher, not for people to write
};
using KnownSettings = std::span<const SettingInfo* const>;

/// A value in its one canonical form, so that "yes" equals "1" and "1KiB" equals "1024". Which member, the type tells.
struct SettingValue {
  int64_t number = 0;
  std::string text;
  bool operator==(const SettingValue&) const = default;
};

/// Between a kReal's value and its bits.
inline int64_t bits_of(double real) { return std::bit_cast<int64_t>(real == 0 ? 0.0 : real); }
inline double real_of(int64_t bits) { return std::bit_cast<double>(bits); }

/// The value that `text` writes. The error says what is wrong with it, not where it stood: "is not a whole number".
Result<SettingValue> parse_setting(const SettingInfo& setting, std::string_view text);
/// Whether a value that came as a number or text of the program's own is one the setting may have; errors as above.
Status check_setting(const SettingInfo& setting, const SettingValue& value);
/// The value as text that parse_setting() reads; "(secret)" for a secret.
std::string show_setting(const SettingInfo& setting, const SettingValue& value);
/// "sync, role (worker|server|all), …"
std::string list_settings(KnownSettings known);
/// A line each: key, values, default, help. `defaults` goes with `known`.
std::string explain_settings(KnownSettings known, std::span<const SettingValue> defaults);

struct TextPair {
  std::string key;
  std::optional<std::string> value;  ///< none where no "=" follows the key
};
/// Cuts `key=value key="value with spaces"` at white space, commas and semicolons. In quotes, \" and \\ stand for
/// themselves without the backslash.
Result<std::vector<TextPair>> split_pairs(std::string_view text);

/// What was said about each setting, and by whom. Two that say different things are an MV_EDISAGREE naming both.
class SaidSettings {
 public:
  explicit SaidSettings(KnownSettings known) : known_(known), said_(known.size()) {}

  /// `where` is how messages name the place, value included: "mv_init_options.nodes=4".
  Status say(size_t index, SettingValue value, std::string where);
  /// "key=value …"; `source` names the text in messages.
  Status say_text(std::string_view text, std::string_view source);
  /// A program's arguments "-key=value" and "--key=value", and "-key" for booleans. Returns where those it knew were.
  Result<std::vector<int>> say_arguments(std::span<const char* const> arguments);
  /// Variables <prefix><KEY>. Empty ones count as unset.
  Status say_environment(std::string_view prefix);

  struct Said {
    SettingValue value;
    std::string where;
  };
  /// What was said about the index-th setting; null for nothing.
  const Said* find(size_t index) const { return said_[index] ? &*said_[index] : nullptr; }

 private:
  std::optional<size_t> index_of(std::string_view key) const;
  Status say_value(size_t index, std::string_view text, std::string_view name, std::string_view suffix);

  KnownSettings known_;
  std::vector<std::optional<Said>> said_;
};

}  // namespace mv::base
