// MemberNode: sends commands to servers, and hands out those that wait for this server's controller.

#include "api/node/member_node.hpp"

namespace mv::api {

Started MemberNode::send_command(int64_t head, const std::string& body, const CallOptions& options) {
  if (identity().worker_id < 0) return {base::Status(MV_ESTATE, "only workers send commands; this process is only a server"), nullptr};
  if (body.size() > wire::kMaxPayloadBytes)
    return {base::error(MV_EINVAL, "a command of {} bytes; the limit is {}", body.size(), wire::kMaxPayloadBytes), nullptr};
  const CallRef call = calls_.make_call(options, false);
  return calls_.start(call, options, [this, head, body, call] { runtime_.member().tables().inquiries().command(head, body, call); });
}

void MemberNode::set_controller(bool executes, std::function<void(int64_t)> waiting) {
  using Controller = table::Commands::Controller;
  runtime_.on_loop([&] { runtime_.member().commands().set_controller(executes ? Controller::kHere : Controller::kNone, std::move(waiting)); });
}

std::optional<Command> MemberNode::next_command() {
  std::optional<table::Commands::Command> taken;
  runtime_.on_loop([&] { taken = runtime_.member().commands().take(); });
  if (!taken) return std::nullopt;
  return Command{taken->number, taken->head, std::move(taken->body)};
}

void MemberNode::command_done(uint64_t number, const base::Status& outcome) {
  runtime_.on_loop([&] { runtime_.member().commands().done(number, outcome); });
}

}  // namespace mv::api
