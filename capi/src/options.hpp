#pragma once
// Checks the structs that callers fill: sizes, versions, reserved fields, time-outs and flags, before a call does
// anything.

#include <polyverso/polyverso.h>

#include <algorithm>
#include <cstring>

#include "api/node/node.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::capi {

/// Copies a caller's struct. The struct of an older caller is shorter, down to `first_size`, its size in the first
/// release: the missing fields keep their initial value. That of a newer caller is longer, which is valid if the
/// unknown fields are zero.
template <typename T>
base::Result<T> read_struct(const char* function, const char* name, const T* given, T initial, uint32_t first_size) {
  constexpr uint32_t kLongest = 4096;  // a larger size is not a struct of any release, but uninitialised memory
  if (given->size < first_size || given->size > kLongest) {
    return base::error(MV_EINVAL, "{}: {}.size is {}, expected {}: initialise it with its _INIT macro", function, name,
                       given->size, sizeof(T));
  }
  if (given->version != MV_STRUCT_VERSION) {
    return base::error(MV_EINVAL, "{}: {}.version is {}, this library supports {}", function, name, given->version,
                       MV_STRUCT_VERSION);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < given->size; ++i) {
    if (bytes[i] == 0) continue;
    return base::error(MV_EINVAL, "{}: {} sets a field that is newer than this library, {}", function, name,
                       mv_version_text());
  }
  std::memcpy(&initial, given, std::min<size_t>(sizeof(T), given->size));
  return initial;
}

// Sizes of the first release. They never change; fields are only added at the end.
inline constexpr uint32_t kFirstInitOptions = 120;
inline constexpr uint32_t kFirstCallOptions = 32;
inline constexpr uint32_t kFirstTableSpec = 48;
inline constexpr uint32_t kFirstTableInfo = 320;
inline constexpr uint32_t kFirstMembershipEvent = 560;

/// Milliseconds as a duration: MV_FOREVER, and durations beyond a lifetime, become kNever.
base::Nanos span_of_ms(int64_t ms);
/// Checks a time-out argument: 0, MV_FOREVER or positive.
base::Status check_timeout(const char* function, int64_t timeout_ms);

/// The result of checking a call's options.
struct CallPlan {
  api::CallOptions options;
  mv_request* request = nullptr;  ///< receives the handle; 0 until then
  bool lends = true;              ///< if asynchronous, the call uses the caller's buffers until it ends
};

enum class MayForget { kNo, kYes };
enum class MayLabel { kNo, kYes };
/// Resolves mv_call_options; null means blocking. Sets *request to 0.
base::Status plan_call(const char* function, const mv_call_options* given, MayForget may_forget, CallPlan* plan, MayLabel may_label = MayLabel::kNo);

}  // namespace mv::capi
