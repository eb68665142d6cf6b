#include "base/log.hpp"

#include <fmt/format.h>
#include <spdlog/details/console_globals.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>

namespace mv::base {
namespace detail {

std::atomic<int> log_level{MV_LOG_WARN};
std::atomic<int> noted_level{kKeptLogLevel};

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

/// The lines of log_tail(). Any thread.
class Tail {
 public:
  void add(int level, std::string_view text) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::scoped_lock lock(mutex);
    if (now.tv_sec != second_) second_ = now.tv_sec, in_second_ = 0;
    if (++in_second_ > kMostInSecond) {
      ++left_out_;
      return;
    }
    if (lines_.size() >= kMostKeptLines) lines_.pop_front();
    tm local{};
    localtime_r(&now.tv_sec, &local);
    constexpr std::array kNames = {"trace", "debug", "info", "warning", "error"};
    lines_.push_back(fmt::format("{:02}:{:02}:{:02}.{:03} {}: {}", local.tm_hour, local.tm_min, local.tm_sec, now.tv_nsec / 1'000'000,
                                 kNames.at(static_cast<size_t>(level)), text.substr(0, kLongestKeptLine)));
  }
  LogTail copy() {
    const std::scoped_lock lock(mutex);
    return {{lines_.begin(), lines_.end()}, left_out_};
  }

  std::mutex mutex;

 private:
  /// A program that logs in a loop would otherwise replace the lines that say why.
  static constexpr int kMostInSecond = 20;
  std::deque<std::string> lines_;
  time_t second_ = 0;
  int in_second_ = 0;
  uint64_t left_out_ = 0;
};

/// Never destroyed, as logger().
Tail& tail() {
  static auto* const kTail = new Tail;
  return *kTail;
}

}  // namespace

void write_log(int level, fmt::string_view format, fmt::format_args args) noexcept {
  try {
    fmt::memory_buffer line;
    fmt::vformat_to(std::back_inserter(line), format, args);
    if (level >= log_level.load(std::memory_order_relaxed))
      logger().log(static_cast<spdlog::level::level_enum>(level), spdlog::string_view_t(line.data(), line.size()));
    tail().add(level, {line.data(), line.size()});
  } catch (...) {  // no memory for a log line: the line is dropped
  }
}

}  // namespace detail

void hold_log() noexcept {
  spdlog::details::console_mutex::mutex().lock();
  detail::tail().mutex.lock();
}
void release_log() noexcept {
  detail::tail().mutex.unlock();
  spdlog::details::console_mutex::mutex().unlock();
}

void set_log_level(int level) noexcept {
  detail::log_level.store(level, std::memory_order_relaxed);
  detail::noted_level.store(std::min(level, kKeptLogLevel), std::memory_order_relaxed);
}

LogTail log_tail() { return detail::tail().copy(); }

}  // namespace mv::base
