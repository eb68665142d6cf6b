// Commands to servers, from callers' threads, and those that wait for this one's controller.

#include "node/member_node.hpp"

namespace mv::node {

Started MemberNode::send_command(int64_t head, const std::string& body, const CallOptions& options) {
  if (identity_.worker_id < 0) return {base::Status(MV_ESTATE, "only workers send commands; this process is only a server"), nullptr};
  if (body.size() > wire::kMaxPayloadBytes)
    return {base::error(MV_EINVAL, "a command of {} bytes; its body may have {}", body.size(), wire::kMaxPayloadBytes), nullptr};
  const CallRef call = make_call(options, false);
  return start(call, options, [this, head, body, call] { member_->tables().command(head, body, call); });
}

void MemberNode::set_controller(Controller controller, std::function<void(int64_t)> waiting) {
  using Known = ps::Commands::Controller;
  const Known known = controller == Controller::kHere ? Known::kHere : controller == Controller::kAwaited ? Known::kAwaited : Known::kNone;
  on_loop([&] { member_->commands().set_controller(known, std::move(waiting)); });
}

std::optional<Command> MemberNode::next_command() {
  std::optional<ps::Commands::Command> taken;
  on_loop([&] { taken = member_->commands().take(); });
  if (!taken) return std::nullopt;
  return Command{taken->number, taken->head, std::move(taken->body)};
}

void MemberNode::command_done(uint64_t number, const base::Status& outcome) {
  on_loop([&] { member_->commands().done(number, outcome); });
}

}  // namespace mv::node
