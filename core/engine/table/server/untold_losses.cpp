#include "engine/table/server/untold_losses.hpp"

namespace mv::table {

void UntoldLosses::note(const std::set<base::Peer>& others, const base::Status& why) {
  for (const base::Peer other : others) {
    const auto [untold, is_first] = untold_.try_emplace(other, why);
    if (!is_first) untold->second = base::error(why.code(), "{}; {}", untold->second.text(), why.text());
  }
  show_clocks(untold_.empty());
}

void UntoldLosses::told(base::Peer worker) {
  if (untold_.erase(worker) > 0 && untold_.empty()) show_clocks(true);
}

std::optional<base::Status> UntoldLosses::take(const Table& table, base::Peer worker) {
  const auto found = untold_.find(worker);
  if (found == untold_.end() || table.consistency != shard::Consistency::kMerge) return std::nullopt;
  const base::Status loss = base::error(MV_EPEERLOST, "table \"{}\": {}; its sums lack that worker's part from now on", table.spec.name, found->second.text());
  told(worker);
  return loss;
}

/// Without a clock, workers on this host do not read the values directly, but ask for them.
void UntoldLosses::show_clocks(bool on) const {
  registry_.for_each([on](Table& table) { table.show_clock(on); });
}

}  // namespace mv::table
