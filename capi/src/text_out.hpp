#pragma once
// Texts that a caller asks for the length of first.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/result.hpp"

namespace mv::capi {

/// Whether there is somewhere to put a text.
inline base::Status check_text_out(const char* function, const char* text, uint64_t capacity, const uint64_t* length) {
  if (length == nullptr) return base::error(MV_EINVAL, "{}: length is NULL", function);
  if (text == nullptr && capacity != 0)
    return base::error(MV_EINVAL, "{}: text is NULL, but capacity is {}", function, capacity);
  return {};
}

/// MV_EINVAL for flags that are no mv_text_flag.
inline base::Status check_text_flags(const char* function, uint32_t flags) {
  constexpr uint32_t kKnown = MV_JSON;
  return (flags & ~kKnown) == 0 ? base::Status() : base::error(MV_EINVAL, "{}: {} is no mv_text_flag", function, flags);
}

/// Copies what fits, NUL-terminated, and tells how long it is.
inline void put_text(std::string_view from, char* text, uint64_t capacity, uint64_t* length) {
  if (capacity > 0) {
    const size_t fitting = static_cast<size_t>(std::min<uint64_t>(from.size(), capacity - 1));
    std::memcpy(text, from.data(), fitting);
    text[fitting] = '\0';
  }
  *length = from.size();
}

}  // namespace mv::capi
