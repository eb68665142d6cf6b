#include "base/log.hpp"

#include <fmt/format.h>
#include <spdlog/details/console_globals.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>

namespace mv::base {
namespace detail {

std::atomic<int> log_level{MV_LOG_WARN};

namespace {

static_assert(MV_LOG_TRACE == static_cast<int>(spdlog::level::trace) &&
              MV_LOG_ERROR == static_cast<int>(spdlog::level::err));

/// Never destroyed: threads may log while static objects are destroyed.
spdlog::logger& logger() {
  static auto* const kLogger = [] {
    auto* made = new spdlog::logger("polyverso", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_level(spdlog::level::trace);  // log_at() has already filtered
    made->set_pattern("%H:%M:%S.%e %P %n %^%l%$: %v");
    made->set_error_handler([](const std::string&) {});
    return made;
  }();
  return *kLogger;
}

}  // namespace

void write_log(int level, fmt::string_view format, fmt::format_args args) noexcept {
  try {
    fmt::memory_buffer line;
    fmt::vformat_to(std::back_inserter(line), format, args);
    logger().log(static_cast<spdlog::level::level_enum>(level), spdlog::string_view_t(line.data(), line.size()));
  } catch (...) {  // no memory for a log line: the line is dropped
  }
}

}  // namespace detail

void hold_log() noexcept { spdlog::details::console_mutex::mutex().lock(); }
void release_log() noexcept { spdlog::details::console_mutex::mutex().unlock(); }

void set_log_level(int level) noexcept { detail::log_level.store(level, std::memory_order_relaxed); }

}  // namespace mv::base
