#include "engine/cluster/wait.hpp"

#include <fmt/core.h>

namespace mv::cluster {

std::string describe(const Wait& wait) {
  const std::string& table = wait.table;
  switch (wait.kind) {
    case WaitKind::kGet:
      return fmt::format("get #{} of \"{}\"", wait.number, table);
    case WaitKind::kAdd:
      return fmt::format("add #{} to \"{}\"", wait.number, table);
    case WaitKind::kStaleGet:
      return fmt::format("a get of \"{}\" at clock {}", table, wait.number);
    case WaitKind::kMergedGet:
      return fmt::format("a get of \"{}\" after {} adds", table, wait.number);
    case WaitKind::kCreation:
      return fmt::format("the creation of \"{}\"", table);
    case WaitKind::kBarrier:
      return "a barrier";
    case WaitKind::kCheckpoint:
      return "a checkpoint";
    case WaitKind::kCommand:
      return fmt::format("command {}", static_cast<int64_t>(wait.number));
    case WaitKind::kCollective:
      return wait.number == 0 ? table : fmt::format("{} (operation {} of a group)", table, wait.number);
    case WaitKind::kAnswer:
      break;
  }
  return fmt::format("a call on \"{}\"", table);
}

}  // namespace mv::cluster
