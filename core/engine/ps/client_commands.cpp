// A worker's words for all servers.

#include "engine/ps/round.hpp"

namespace mv::ps {

void Client::command(int64_t head, const std::string& body, base::Nanos deadline, CompletionRef completion) {
  const auto done = [this, completion](const base::Status& status) {
    if (commands_.erase(completion.get()) > 0) completion->complete(status);
  };
  const auto round = std::make_shared<Round>(*this, servers_, Round::Each(), done);
  commands_[completion.get()] = {completion, round};
  const auto payload = body.empty() ? nullptr : base::Payload::copy(std::as_bytes(std::span(body)));
  round->ask(
      [head, payload](wire::FrameBuilder& builder, size_t) {
        return builder.finish(wire::Body::Command, wire::CreateCommand(builder.fbb(), head), payload);
      },
      deadline);
}

/// The servers that have not begun it will not; of the others nobody knows.
bool Client::withdraw_command(const Completion* completion, mv_status code) {
  const auto found = commands_.find(completion);
  if (found == commands_.end()) return false;
  const CommandCall call = std::move(found->second);
  commands_.erase(found);
  call.completion->complete(base::error(code, "outcome unknown: the command was withdrawn; servers that had begun it go on"));
  if (const auto round = call.round.lock()) round->expire();
  return true;
}

}  // namespace mv::ps
