#include "base/utf8.hpp"

#include <algorithm>

namespace mv::base {

size_t utf8_length(std::string_view text) {
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

size_t utf8_end(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return std::min(at, text.size());
}

std::string as_utf8(std::string_view text) {
  std::string valid;
  for (;;) {
    const size_t end = utf8_end(text);
    valid += text.substr(0, end);
    if (end == text.size()) return valid;
    valid += kReplacementCharacter;
    text.remove_prefix(end + 1);
  }
}

}  // namespace mv::base
