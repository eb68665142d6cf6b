#pragma once
// What the library tells on standard error. One level for the process; nothing is registered with spdlog, whose registry
// belongs to the program that embeds us.

#include <polyverso/polyverso.h>

#include <fmt/format.h>

#include <atomic>
#include <string_view>
#include <utility>

namespace mv::base {

namespace detail {
extern std::atomic<int> log_level;
void write_log(int level, std::string_view line) noexcept;

template <typename... Args>
void log_at(int level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (level < log_level.load(std::memory_order_relaxed)) return;
  try {
    fmt::memory_buffer line;
    fmt::format_to(std::back_inserter(line), format, std::forward<Args>(args)...);
    write_log(level, {line.data(), line.size()});
  } catch (...) {  // no memory for a log line: the line is what we can do without
  }
}
}  // namespace detail

/// Sets the least mv_log_level that is written.
void set_log_level(int level) noexcept;
/// Round a fork, so that no other thread is writing a line meanwhile: a child could never write one.
void hold_log() noexcept;
void release_log() noexcept;
inline int log_level() noexcept { return detail::log_level.load(std::memory_order_relaxed); }
inline bool logs(int level) noexcept { return level >= log_level(); }

template <typename... Args>
void log_trace(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at(MV_LOG_TRACE, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at(MV_LOG_DEBUG, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at(MV_LOG_INFO, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at(MV_LOG_WARN, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at(MV_LOG_ERROR, format, std::forward<Args>(args)...);
}

}  // namespace mv::base
