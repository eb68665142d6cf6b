// Version, status texts, the last error and the log level: functions that need no node.

#include <polyverso/polyverso.h>

#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/log.hpp"
#include "base/per_thread.hpp"
#include "boundary.hpp"
#include "settings.hpp"
#include "shard/on_device.hpp"

namespace mv::capi {
namespace {

/// The thread's last error: memory of last_text(), or a literal if there was no memory for a text.
thread_local const char* shown = "";
std::string& last_text() { return base::per_thread<std::string>(); }

void keep(std::string text) {
  last_text() = std::move(text);
  shown = last_text().c_str();
}

#define MV_TEXT_OF(number) #number
#define MV_VERSION_TEXT(major, minor, patch) MV_TEXT_OF(major) "." MV_TEXT_OF(minor) "." MV_TEXT_OF(patch)

}  // namespace

mv_status fail(mv_status code, const char* function, const char* text) noexcept {
  try {
    keep(std::string(function) + ": " + text);
  } catch (...) {
    shown = text;
  }
  return code;
}

mv_status finish_failed(const base::Status& status) noexcept {
  try {
    keep(status.text());
  } catch (...) {
    shown = mv_status_message(status.code());
  }
  return status.code();
}

mv_status fail_with_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(MV_ENOMEM, function, "out of memory");
  } catch (const shard::DeviceFailure& failure) {
    return fail(failure.status().code(), function, failure.what());
  } catch (const std::system_error& refused) {
    return fail(MV_ESYSTEM, function, refused.what());
  } catch (const std::exception& defect) {
    return fail(MV_EINTERNAL, function, defect.what());
  } catch (...) {
    return fail(MV_EINTERNAL, function, "an unknown exception");
  }
}

void note(std::string text) noexcept {
  try {
    keep(std::move(text));
  } catch (...) {
    shown = mv_status_message(MV_ENOMEM);
  }
}

}  // namespace mv::capi

int32_t mv_version(void) { return MV_VERSION_MAJOR * 10000 + MV_VERSION_MINOR * 100 + MV_VERSION_PATCH; }

const char* mv_version_text(void) { return MV_VERSION_TEXT(MV_VERSION_MAJOR, MV_VERSION_MINOR, MV_VERSION_PATCH); }

const char* mv_status_name(mv_status status) {
  switch (status) {
    case MV_OK:
      return "MV_OK";
#define XX(value, name, family, text) \
  case MV_##name:                     \
    return "MV_" #name;
      MV_STATUS_MAP(XX)
#undef XX
    default:
      return "MV_UNKNOWN";
  }
}

const char* mv_status_message(mv_status status) {
  switch (status) {
    case MV_OK:
      return "no error";
#define XX(value, name, family, text) \
  case MV_##name:                     \
    return text;
      MV_STATUS_MAP(XX)
#undef XX
    default:
      return "unknown mv_status";
  }
}

const char* mv_status_family(mv_status status) {
  switch (status) {
    case MV_OK:
      return "ok";
#define XX(value, name, family, text) \
  case MV_##name:                     \
    return #family;
      MV_STATUS_MAP(XX)
#undef XX
    default:
      return "unknown";
  }
}

const char* mv_last_error(void) { return mv::capi::shown; }

mv_status mv_log_level_set(int32_t level) {
  return mv::capi::guarded("mv_log_level_set", [&]() -> mv::base::Status {
    if (level < MV_LOG_TRACE || level > MV_LOG_OFF) {
      return mv::base::error(MV_EINVAL, "mv_log_level_set: {} is not an mv_log_level; levels go from {} to {}", level,
                             static_cast<int>(MV_LOG_TRACE), static_cast<int>(MV_LOG_OFF));
    }
    mv::capi::choose_log_level(level);
    return {};
  });
}
