#pragma once
// Structs that callers fill: sizes, versions, reserved fields, time-outs and flags, checked before anything is done.

#include <polyverso/polyverso.h>

#include <algorithm>
#include <cstring>

#include "api/node/node.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::capi {

/// Copies a caller's struct. An older caller's is shorter, down to `first_size`, its size in the first release:
/// the rest keeps its initial value. A newer caller's is longer: fine as long as what we do not know is zero.
template <typename T>
base::Result<T> read_struct(const char* function, const char* name, const T* given, T initial, uint32_t first_size) {
  constexpr uint32_t kLongest = 4096;  // a larger size is no struct of any release, but memory nobody has set
  if (given->size < first_size || given->size > kLongest) {
    return base::error(MV_EINVAL, "{}: {}.size is {}, expected {}: start from its _INIT macro", function, name,
                       given->size, sizeof(T));
  }
  if (given->version != MV_STRUCT_VERSION) {
    return base::error(MV_EINVAL, "{}: {}.version is {}, this library knows {}", function, name, given->version,
                       MV_STRUCT_VERSION);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < given->size; ++i) {
    if (bytes[i] == 0) continue;
    return base::error(MV_EINVAL, "{}: {} sets a field that this library, {}, does not have yet", function, name,
                       mv_version_text());
  }
  std::memcpy(&initial, given, std::min<size_t>(sizeof(T), given->size));
  return initial;
}

// Sizes of the first release. They never change; fields are only ever added behind.
inline constexpr uint32_t kFirstInitOptions = 120;
inline constexpr uint32_t kFirstCallOptions = 32;
inline constexpr uint32_t kFirstTableSpec = 48;
inline constexpr uint32_t kFirstTableInfo = 320;

/// Milliseconds as a span: MV_FOREVER, and what is longer than a life, are never.
base::Nanos span_of_ms(int64_t ms);
/// Checks a time-out argument: 0, MV_FOREVER or positive.
base::Status check_timeout(const char* function, int64_t timeout_ms);

/// What a call's options come to.
struct CallPlan {
  api::CallOptions options;
  mv_request* request = nullptr;  ///< where a handle goes, 0 so far
  bool lends = true;              ///< asynchronous, it uses the caller's buffers until it is over
};

enum class MayForget { kNo, kYes };
/// Resolves mv_call_options; null means blocking. Sets *request to 0.
base::Status plan_call(const char* function, const mv_call_options* given, MayForget may_forget, CallPlan* plan);

}  // namespace mv::capi
