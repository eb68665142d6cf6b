#include "base/json_writer.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include "base/utf8.hpp"

namespace mv::base {

void JsonWriter::quote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  text_ += '"';
  while (!text.empty()) {
    const char letter = text.front();
    const size_t length = utf8_length(text);
    if (length == 0) {
      text_ += kReplacementCharacter;
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
