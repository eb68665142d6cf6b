#pragma once
// The losses of workers that were not reported to all other workers yet.

#include <map>
#include <optional>

#include "engine/table/server/registry.hpp"

namespace mv::table {

/// After a loss, the rounds of merging tables continue without the lost worker. Every other worker gets one error, from
/// its first get of a merging table that includes such a round. So no worker gets a sum without the lost worker's part
/// unless it has seen the error. Loop thread only.
class UntoldLosses {
 public:
  explicit UntoldLosses(const Registry& registry) : registry_(registry) {}

  /// A worker is lost for which merging tables wait. To be called before their gates continue.
  void note(const std::set<base::Peer>& others, const base::Status& why);
  /// The worker has got its error, or makes no more gets.
  void told(base::Peer worker);
  /// The error for this worker's gated get of a merging table; nullopt if all losses were reported to it.
  std::optional<base::Status> take(const Table& table, base::Peer worker);

  /// The losses that were not reported to these workers, for a copy of the part; and sets them in that copy, before it
  /// has tables.
  const std::map<base::Peer, base::Status>& untold() const { return untold_; }
  void restore(base::Peer worker, const base::Status& why) { untold_.insert_or_assign(worker, why); }

 private:
  void show_clocks(bool on) const;

  const Registry& registry_;
  std::map<base::Peer, base::Status> untold_;  ///< by worker
};

}  // namespace mv::table
