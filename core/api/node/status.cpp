// How the cluster stands, for callers' threads.

#include <atomic>
#include <memory>

#include "api/group/tuning.hpp"
#include "api/node/member_node.hpp"

namespace mv::api {

base::Result<std::string> MemberNode::status(bool json) {
  struct Answer {
    std::atomic<bool> here{false};
    std::string text;
  };
  const auto answer = std::make_shared<Answer>();
  runtime_.loop().post([this, answer, json] {
    runtime_.member().status().ask(json, [answer](const std::string& text) {
      answer->text = text;
      answer->here.store(true, std::memory_order_release);
    });
  });
  const auto here = [&] { return answer->here.load(std::memory_order_acquire); };
  while (runtime_.loop().drive_until(here, base::kNever) == transport::Driven::kInterrupted) {  // it takes no longer than a few seconds
  }
  if (!here()) return runtime_.ended();
  return answer->text;
}

base::Result<Tuning> MemberNode::tune() { return api::tune(calls_); }

}  // namespace mv::api
