#include "engine/table/server/commands.hpp"

#include <algorithm>
#include <utility>

namespace mv::table {

void Commands::start(const cluster::View& view, base::Peer self) {
  peer_ = self;
  self_ = view.name(self);
}

base::Status Commands::nobody() const {
  return base::error(MV_ESTATE, "{} has no controller: call kv_run_server() in a server process, or kv_set_controller() in a worker that is also a server", self_);
}

void Commands::set_controller(Controller controller, std::function<void(int64_t)> waiting) {
  const auto count = static_cast<int64_t>(waiting_.size());
  if (waiting_changed_ && count > 0) waiting_changed_(-count);
  controller_ = controller;
  waiting_changed_ = std::move(waiting);
  if (waiting_changed_ && count > 0) waiting_changed_(count);
  if (controller != Controller::kNone) return;
  for (const WaitingCommand& refused : std::exchange(waiting_, {})) rpc_.fail(refused.asked, nobody());
}

void Commands::on_request(const rpc::Asked& asked, const wire::Command& request, std::span<const std::byte> payload) {
  if (controller_ == Controller::kNone) return rpc_.fail(asked, nobody());
  waiting_.push_back({asked, {next_++, request.head(), {reinterpret_cast<const char*>(payload.data()), payload.size()}}, clock_.now()});
  if (waiting_changed_) waiting_changed_(1);
}

void Commands::on_cancel(const rpc::Asked& asked) {
  const auto found = std::ranges::find(waiting_, asked, &WaitingCommand::asked);
  if (found == waiting_.end()) return;  // it was taken: its outcome will be reported
  const int64_t head = found->command.head;
  waiting_.erase(found);
  if (waiting_changed_) waiting_changed_(-1);
  rpc_.fail(asked, base::error(MV_ETIMEOUT, "command {}: {} has not executed it, and will not: its controller's thread has not picked it up", head, self_));
}

std::optional<Commands::Command> Commands::take() {
  if (waiting_.empty()) return std::nullopt;
  WaitingCommand next = std::move(waiting_.front());
  waiting_.pop_front();
  taken_.emplace(next.command.number, Taken{next.asked, next.command.head, next.since});
  if (waiting_changed_) waiting_changed_(-1);
  return std::move(next.command);
}

void Commands::done(uint64_t number, const base::Status& outcome) {
  const auto found = taken_.find(number);
  if (found == taken_.end()) return;
  const rpc::Asked asked = found->second.asked;
  taken_.erase(found);
  if (outcome.ok()) return rpc_.answer(asked, builder_.answer({}));
  rpc_.fail(asked, base::error(outcome.code(), "{}: {}", self_, outcome.text()));
}

cluster::Wait Commands::wait_of(const rpc::Asked& asked, int64_t head, base::Nanos since, std::string what) const {
  const base::Nanos age = clock_.now() - since;
  return {cluster::WaitKind::kCommand, asked.client, "", static_cast<uint64_t>(head), age, age, {{peer_, std::move(what)}}};
}

std::vector<cluster::Wait> Commands::waits() const {
  std::vector<cluster::Wait> waits;
  for (const auto& [number, taken] : taken_) waits.push_back(wait_of(taken.asked, taken.head, taken.since, "is executing it"));
  const char* const what = controller_ == Controller::kHere ? "its controller's thread has not picked it up" : "has no controller yet";
  for (const WaitingCommand& waiting : waiting_) waits.push_back(wait_of(waiting.asked, waiting.command.head, waiting.since, what));
  return waits;
}

}  // namespace mv::table
