// A worker's commands for all servers.

#include "engine/table/gates/round.hpp"

namespace mv::table {

void Client::command(int64_t head, const std::string& body, base::OperationRef operation) {
  const auto round = std::make_shared<Round>(*this, servers_, Round::Each(), [operation](const base::Status& status) {
    if (!operation->done()) operation->complete(status);  // otherwise its caller has withdrawn it
  });
  // Servers that have not begun the command will not execute it. For the others the outcome is unknown.
  const auto work = std::make_shared<base::WithdrawnBy>([round = std::weak_ptr(round), held = std::weak_ptr(operation)](mv_status code) {
    if (const auto it = held.lock())
      it->complete(base::error(code, "outcome unknown: the command was withdrawn; servers that have started it will finish it"));
    if (const auto its = round.lock()) its->expire();
  });
  round->keep(work);
  operation->begin(work);
  const auto payload = body.empty() ? nullptr : base::Payload::copy(std::as_bytes(std::span(body)));
  round->ask(
      [head, payload](wire::FrameBuilder& builder, size_t) {
        return builder.finish(wire::Body::Command, wire::CreateCommand(builder.fbb(), head), payload);
      },
      operation->deadline());
}

}  // namespace mv::table
