#pragma once
// What the library tells on standard error. One level for the process; nothing is registered with spdlog, whose registry
// belongs to the program that embeds us.

#include <polyverso/polyverso.h>

#include <fmt/core.h>

#include <atomic>
#include <utility>

namespace mv::base {

namespace detail {
extern std::atomic<int> log_level;
/// Formats here, not in each caller: the formatter is large, and every file that logs would have its own copy. Without memory for the line
/// nothing is written.
void write_log(int level, fmt::string_view format, fmt::format_args args) noexcept;

template <typename... Args>
void log_at(int level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (level >= log_level.load(std::memory_order_relaxed)) write_log(level, format, fmt::make_format_args(args...));
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
  detail::log_at<Args...>(MV_LOG_TRACE, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at<Args...>(MV_LOG_DEBUG, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at<Args...>(MV_LOG_INFO, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at<Args...>(MV_LOG_WARN, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) noexcept {
  detail::log_at<Args...>(MV_LOG_ERROR, format, std::forward<Args>(args)...);
}

}  // namespace mv::base
