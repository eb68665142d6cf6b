#include "base/json_writer.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace mv::base {

namespace {

/// The length in bytes of the UTF-8 sequence that `text` begins with; 0 if it is invalid. RFC 3629: no overlong forms,
/// no surrogates.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  const unsigned lead = byte(0), second = byte(1);
  const auto follows = [&](size_t at) { return (byte(at) & 0xc0) == 0x80; };
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  if (lead < 0xe0) return follows(1) ? 2 : 0;
  if (lead < 0xf0) {
    const bool in_range = lead == 0xe0 ? second >= 0xa0 : lead == 0xed ? second < 0xa0 : true;
    return follows(1) && in_range && follows(2) ? 3 : 0;
  }
  const bool in_range = lead == 0xf0 ? second >= 0x90 : lead == 0xf4 ? second < 0x90 : true;
  return follows(1) && in_range && follows(2) && follows(3) ? 4 : 0;
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

void JsonWriter::quote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  text_ += '"';
  while (!text.empty()) {
    const char letter = text.front();
    const size_t length = sequence_length(text);
    if (length == 0) {
      text_ += kReplacement;
    } else if (length > 1) {
      text_ += text.substr(0, length);
    } else if (letter == '"' || letter == '\\') {
      text_ += '\\';
      text_ += letter;
    } else if (static_cast<unsigned char>(letter) >= 0x20) {
      text_ += letter;
    } else if (const size_t known = std::string_view("\b\f\n\r\t").find(letter); known != std::string_view::npos) {
      text_ += '\\';
      text_ += "bfnrt"[known];
    } else {
      text_ += "\\u00";
      text_ += kHex[static_cast<unsigned char>(letter) >> 4];
      text_ += kHex[static_cast<unsigned char>(letter) & 15];
    }
    text.remove_prefix(length > 0 ? length : 1);
  }
  text_ += '"';
}

void JsonWriter::new_line() {
  text_ += '\n';
  text_.append(2 * depth_, ' ');
}

void JsonWriter::begin_value() {
  if (std::exchange(has_key_, false) || depth_ == 0) return;
  if (!std::exchange(empty_, false)) text_ += ',';
  if (indented_) new_line();
}

void JsonWriter::key(std::string_view name) {
  begin_value();
  quote(name);
  text_ += indented_ ? ": " : ":";
  has_key_ = true;
}

void JsonWriter::raw(std::string_view written) {
  begin_value();
  text_ += written;
}

void JsonWriter::value(std::string_view text) {
  begin_value();
  quote(text);
}

/// Writes the shortest digits that parse to the same number, and never in the form of an integer.
void JsonWriter::value(double number) {
  if (!std::isfinite(number)) return value(nullptr);
  std::array<char, 32> digits;
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  const std::string_view shortest(digits.data(), static_cast<size_t>(end - digits.data()));
  raw(shortest);
  if (shortest.find_first_of(".e") == std::string_view::npos) text_ += ".0";
}

std::string json_quoted(std::string_view text) {
  JsonWriter json;
  json.value(text);
  return json.take();
}

}  // namespace mv::base
