#pragma once
// From a call to its end, or to the request that stands for it.

#include <utility>

#include "options.hpp"
#include "state.hpp"

namespace mv::capi {

/// A request handle that nobody knows yet; given back unless it is published.
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

/// A handle for a blocking call that a signal interrupted. Without memory for one the call is withdrawn.
int64_t keep_interrupted(State& state, const NodeRef& node, api::CallRef call);

/// start(api::CallOptions) as the plan says, with a handle where a call is left running.
template <typename Start>
base::Status run_call(State& state, const NodeRef& node, const CallPlan& plan, Start start) {
  if (plan.options.mode == api::Mode::kAsync) {
    // The handle comes first: it is the tag under which mv_poll() tells of the call, perhaps before start() has
    // returned, and once the call runs nothing may fail any more.
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
