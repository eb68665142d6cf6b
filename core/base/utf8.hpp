#pragma once
// Text from programs and files may be of any encoding; names and messages are UTF-8.

#include <cstddef>
#include <string>
#include <string_view>

namespace mv::base {

/// The length in bytes of the UTF-8 sequence that `text` begins with; 0 if it is invalid. RFC 3629: no overlong forms,
/// no surrogates, nothing beyond Unicode.
size_t utf8_length(std::string_view text);

/// The position of the first byte that is not part of valid UTF-8; text.size() if there is none.
size_t utf8_end(std::string_view text);

/// The text with U+FFFD in place of each byte that is not part of valid UTF-8.
std::string as_utf8(std::string_view text);

/// U+FFFD, the replacement character.
inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

}  // namespace mv::base
