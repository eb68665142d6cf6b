#include "options.hpp"

#include <chrono>
#include <cstddef>

namespace mv::capi {

// A struct whose first-release part shrank would be misread by programs that were built before.
static_assert(sizeof(mv_init_options) >= kFirstInitOptions && sizeof(mv_call_options) >= kFirstCallOptions);
static_assert(sizeof(mv_table_spec) >= kFirstTableSpec && sizeof(mv_table_info) >= kFirstTableInfo);

base::Nanos span_of_ms(int64_t ms) {
  constexpr int64_t kCentury = int64_t{100} * 366 * 24 * 3600 * 1000;
  return ms < 0 || ms > kCentury ? base::kNever : base::Nanos(std::chrono::milliseconds(ms));
}

base::Status check_timeout(const char* function, int64_t timeout_ms) {
  if (timeout_ms >= MV_FOREVER) return {};
  return base::error(MV_EINVAL, "{}: timeout_ms is {}: expected 0, MV_FOREVER (-1) or a positive number", function,
                     timeout_ms);
}

base::Status plan_call(const char* function, const mv_call_options* given, MayForget may_forget, CallPlan* plan, MayLabel may_label) {
  if (given == nullptr) return {};
  mv_call_options copy;
  if (given->size != sizeof copy || given->version != MV_STRUCT_VERSION) {  // of another release
    auto read = read_struct(function, "mv_call_options", given, mv_call_options MV_CALL_OPTIONS_INIT, kFirstCallOptions);
    if (!read.ok()) return read.status();
    copy = read.value();
  }
  const mv_call_options& options = given->size != sizeof copy ? copy : *given;

  const uint32_t flags = options.flags;
  if ((flags & ~uint32_t{MV_ASYNC | MV_FORGET}) != 0) {
    return base::error(MV_EINVAL, "{}: flags {:#x}: some bits are not in mv_call_flag", function, flags);
  }
  if (flags == (MV_ASYNC | MV_FORGET)) {
    return base::error(MV_EINVAL, "{}: MV_ASYNC and MV_FORGET exclude each other", function);
  }
  if (flags == MV_FORGET && may_forget == MayForget::kNo) {
    return base::error(MV_EINVAL, "{}: MV_FORGET is for adds only", function);
  }
  if (flags == MV_ASYNC && options.request == nullptr) {
    return base::error(MV_EINVAL, "{}: MV_ASYNC needs mv_call_options.request for the handle", function);
  }
  if (options.reserved != 0) {
    return base::error(MV_EINVAL, "{}: mv_call_options.reserved is {}; it must be 0", function, options.reserved);
  }
  if (options.label != 0 && may_label == MayLabel::kNo) {
    return base::error(MV_EINVAL, "{}: mv_call_options.label is for operations of groups only", function);
  }
  if (auto status = check_timeout(function, options.timeout_ms); !status.ok()) return status;

  plan->options.label = static_cast<uint32_t>(options.label ^ options.label >> 32);
  plan->options.mode = flags == MV_ASYNC    ? api::Mode::kAsync
                       : flags == MV_FORGET ? api::Mode::kOneWay
                                            : api::Mode::kBlocking;
  plan->options.timeout = span_of_ms(options.timeout_ms);
  plan->options.keep_on_interrupt = plan->options.mode == api::Mode::kBlocking && options.request != nullptr;
  plan->request = options.request;
  if (plan->request != nullptr) *plan->request = 0;
  return {};
}

}  // namespace mv::capi
