#pragma once
// The library's log on standard error. The process has one level. Nothing is registered with spdlog: its registry
// belongs to the embedding program.

#include <polyverso/polyverso.h>

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mv::base {

/// The last lines of the log are kept in memory, to be read from elsewhere (mv_cluster_log_text()), from this level on, or
/// from the log's own if that is lower.
inline constexpr int kKeptLogLevel = MV_LOG_INFO;

namespace detail {
extern std::atomic<int> log_level;
extern std::atomic<int> noted_level;  ///< the least level that is written or kept
/// Formats out of line: the formatter is large, and every file that logs would have its own copy. If memory runs out,
/// the line is dropped.
void write_log(int level, fmt::string_view format, fmt::format_args args) noexcept;

template <typename... Args>
void log_at(int level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (level >= noted_level.load(std::memory_order_relaxed)) write_log(level, format, fmt::make_format_args(args...));
}
}  // namespace detail

/// Sets the least mv_log_level that is written.
void set_log_level(int level) noexcept;
/// Hold the log's lock across a fork. A child that inherited the lock from a writing thread could never log.
void hold_log() noexcept;
void release_log() noexcept;
inline int log_level() noexcept { return detail::log_level.load(std::memory_order_relaxed); }

struct LogTail {
  std::vector<std::string> lines;  ///< with time and level, the oldest first; any bytes
  uint64_t left_out = 0;           ///< lines since the process began that were not kept, because there were too many in a second
};
/// The lines that are kept: at most kMostKeptLines, of kLongestKeptLine bytes.
LogTail log_tail();
inline constexpr size_t kMostKeptLines = 100, kLongestKeptLine = 2000;

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
