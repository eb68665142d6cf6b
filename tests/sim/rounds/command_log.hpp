#pragma once
// The workers' commands on one server: each is executed once, in its sender's order.

#include <cstdint>
#include <map>
#include <string>

#include "engine/table/server/commands.hpp"

namespace mv::sim {

class CommandLog {
 public:
  /// The head of a worker's n-th command.
  static int64_t head(size_t worker, uint64_t n) { return static_cast<int64_t>(worker * 1000 + n); }
  /// Some fail, depending on their number.
  static mv_status outcome(int64_t head) { return head % 5 == 3 ? MV_EINVAL : MV_OK; }

  /// Executes the oldest waiting command. Returns what is wrong with it, or "".
  std::string execute(table::Commands& commands) {
    const auto command = commands.take();
    if (!command) return "";
    const auto worker = static_cast<size_t>(command->head / 1000);
    if (command->head != head(worker, executed_[worker]++) || command->body != body(command->head))
      return fmt::format("executes command {} \"{}\"; the next of worker {} was {}", command->head, command->body, worker, executed_[worker] - 1);
    commands.done(command->number, base::Status(outcome(command->head), "not that"));
    return "";
  }
  static std::string body(int64_t head) { return std::string(static_cast<size_t>(head % 90), 'x'); }
  uint64_t executed(size_t worker) const {
    const auto known = executed_.find(worker);
    return known != executed_.end() ? known->second : 0;
  }

 private:
  std::map<size_t, uint64_t> executed_;
};

}  // namespace mv::sim
