// MemberNode: the state of the cluster and tuning, for callers' threads.

#include "api/call/wait_for.hpp"
#include "api/group/tuning.hpp"
#include "api/node/member_node.hpp"

namespace mv::api {

base::Result<std::string> MemberNode::status(const status::Form& form) {
  // Takes a few seconds at most, even if other members do not answer.
  return wait_for<std::string>(calls_, [this, form](auto told) {
    runtime_.member().status().ask(form, [told](const std::string& text) { told(text); });
  });
}

base::Status MemberNode::report(const std::string& name, double value) {
  return runtime_.member().status().reported().note(name, value, calls_.loop().now());
}

base::Result<Tuning> MemberNode::tune() { return api::tune(calls_); }

}  // namespace mv::api
