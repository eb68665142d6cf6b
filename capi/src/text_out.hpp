#pragma once
// Returns texts to callers, which first ask for the length.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/per_thread.hpp"
#include "base/result.hpp"

namespace mv::capi {

/// Checks the buffer for a text.
inline base::Status check_text_out(const char* function, const char* text, uint64_t capacity, const uint64_t* length) {
  if (length == nullptr) return base::error(MV_EINVAL, "{}: length is NULL", function);
  if (text == nullptr && capacity != 0)
    return base::error(MV_EINVAL, "{}: text is NULL, but capacity is {}", function, capacity);
  return {};
}

/// MV_EINVAL for flags other than mv_text_flag, and others that are allowed here.
inline base::Status check_text_flags(const char* function, uint32_t flags, uint32_t others = 0) {
  return (flags & ~(uint32_t{MV_JSON} | others)) == 0 ? base::Status() : base::error(MV_EINVAL, "{}: {} is not an mv_text_flag", function, flags);
}

/// Copies what fits, NUL-terminated, and sets the full length.
inline void put_text(std::string_view from, char* text, uint64_t capacity, uint64_t* length) {
  if (capacity > 0) {
    const size_t fitting = static_cast<size_t>(std::min<uint64_t>(from.size(), capacity - 1));
    std::memcpy(text, from.data(), fitting);
    text[fitting] = '\0';
  }
  *length = from.size();
}

/// The answer that did not fit into this thread's last buffer. The same question, repeated soon with more room, gets
/// this answer: asking for a length and then for the text costs one answer, and the second can't be longer than the
/// first.
struct Unread {
  static constexpr std::chrono::seconds kKeptFor{2};
  std::string question, answer;
  std::chrono::steady_clock::time_point until{};
};

/// put_text() of the result of `ask()`, a base::Result<std::string>. Equal questions must have equal answers, except
/// for changes over time.
template <typename Ask>
base::Status answer(std::string question, char* text, uint64_t capacity, uint64_t* length, Ask&& ask) {
  Unread& unread = base::per_thread<Unread>();
  const Unread kept = std::exchange(unread, {});
  const bool fresh = kept.question == question && std::chrono::steady_clock::now() < kept.until;
  base::Result<std::string> told = fresh ? base::Result<std::string>(kept.answer) : ask();
  if (!told.ok()) return told.status();
  put_text(told.value(), text, capacity, length);
  if (*length >= capacity) unread = {std::move(question), std::move(told).value(), std::chrono::steady_clock::now() + Unread::kKeptFor};
  return {};
}

}  // namespace mv::capi
