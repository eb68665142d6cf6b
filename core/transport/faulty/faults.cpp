#include "transport/faulty/faults.hpp"

#include <charconv>
#include <cmath>

namespace mv::transport {

namespace {

constexpr std::string_view kSeparators = " \t\r\n,;";
constexpr const char* kKnown = "drop, duplicate, break (probabilities from 0 to 1), delay_ms (0 to 60000), rate (bytes per second), seed";

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [stopped, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && stopped == text.data() + text.size();
}

base::Status set(Faults& faults, std::string_view key, std::string_view value) {
  const auto wrong = [&](const char* expected) {
    return base::error(MV_EINVAL, "faults: {}=\"{}\" is not {}", key, value, expected);
  };
  if (key == "seed") return parse_number(value, faults.seed) ? base::Status() : wrong("an integer of at least 0");
  double number = 0;
  const bool is_number = parse_number(value, number) && std::isfinite(number);
  if (key == "delay_ms") {
    if (!is_number || number < 0 || number > 60'000) return wrong("a number from 0 to 60000");
    faults.delay = std::chrono::duration_cast<base::Nanos>(std::chrono::duration<double, std::milli>(number));
    return {};
  }
  if (key == "rate") {
    if (!is_number || (number != 0 && number < 1)) return wrong("0, or a number of at least 1");
    faults.rate = number;
    return {};
  }
  double* chance = key == "drop"        ? &faults.drop
                   : key == "duplicate" ? &faults.duplicate
                   : key == "break"     ? &faults.cut
                                        : nullptr;
  if (chance == nullptr) return base::error(MV_EINVAL, "faults: unknown key \"{}\"; known: {}", key, kKnown);
  if (!is_number || number < 0 || number > 1) return wrong("a probability from 0 to 1");
  *chance = number;
  return {};
}

}  // namespace

base::Result<Faults> parse_faults(std::string_view text) {
  Faults faults;
  while (!text.empty()) {
    const size_t start = text.find_first_not_of(kSeparators);
    if (start == std::string_view::npos) break;
    text.remove_prefix(start);
    const std::string_view item = text.substr(0, text.find_first_of(kSeparators));
    text.remove_prefix(item.size());
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      return base::error(MV_EINVAL, "faults: \"{}\" is not key=value; known keys: {}", item, kKnown);
    if (auto status = set(faults, item.substr(0, equals), item.substr(equals + 1)); !status.ok()) return status;
  }
  return faults;
}

}  // namespace mv::transport
