#pragma once
// Runs a call until its end, or until a request handle represents it.

#include <utility>

#include "options.hpp"
#include "state.hpp"

namespace mv::capi {

/// A request handle that is not visible to callers yet; released unless it is published.
class ReservedRequest {
 public:
  explicit ReservedRequest(RequestTable& requests) : requests_(requests), handle_(requests.reserve()) {}
  ReservedRequest(const ReservedRequest&) = delete;
  ReservedRequest& operator=(const ReservedRequest&) = delete;
  ~ReservedRequest() {
    if (handle_ != 0) requests_.abandon(handle_);
  }
  int64_t handle() const { return handle_; }
  int64_t publish(RequestEntry entry) {
    requests_.publish(handle_, std::move(entry));
    return std::exchange(handle_, 0);
  }

 private:
  RequestTable& requests_;
  int64_t handle_;
};

/// A handle for a blocking call that a signal interrupted. If there is no memory for one, the call is withdrawn.
int64_t keep_interrupted(State& state, const NodeRef& node, api::CallRef call);

/// Calls start(api::CallOptions) according to the plan; sets a handle if the call is still running.
template <typename Start>
base::Status run_call(State& state, const NodeRef& node, const CallPlan& plan, Start start) {
  if (plan.options.mode == api::Mode::kAsync) {
    // The handle is reserved first: mv_poll() reports the call by it, perhaps before start() has returned, and once the
    // call runs nothing may fail any more.
    ReservedRequest reserved(state.requests);
    api::CallOptions options = plan.options;
    options.tag = reserved.handle();
    api::Started started = start(options);
    if (started.call != nullptr) *plan.request = reserved.publish({node, std::move(started.call), plan.lends});
    return std::move(started.status);
  }
  api::Started started = start(plan.options);
  if (started.call != nullptr) *plan.request = keep_interrupted(state, node, std::move(started.call));
  return std::move(started.status);
}

}  // namespace mv::capi
