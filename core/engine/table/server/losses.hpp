#pragma once
// The losses of workers that the others have not been told of.

#include <map>
#include <optional>

#include "engine/table/server/registry.hpp"

namespace mv::table {

/// After a loss, the rounds of merging tables go on without the lost worker. Every other worker is told once, by its
/// first get of a merging table that includes such a round: no sum lacks a part without an error. Loop thread only.
class Losses {
 public:
  explicit Losses(const Registry& registry) : registry_(registry) {}

  /// A worker is lost on which merging tables wait. Call it before their gates go on.
  void note(const std::set<base::Peer>& others, const base::Status& why);
  /// The worker has been told, or makes no more gets.
  void told(base::Peer worker);
  /// The error for a gated get of a merging table by this worker; nullopt: it knows of all losses.
  std::optional<base::Status> take(const Table& table, base::Peer worker);

  /// The losses that these workers have not been told of, for a copy of the part; and in that copy, before it has tables.
  const std::map<base::Peer, base::Status>& untold() const { return untold_; }
  void restore(base::Peer worker, const base::Status& why) { untold_.insert_or_assign(worker, why); }

 private:
  void show_clocks(bool on) const;

  const Registry& registry_;
  std::map<base::Peer, base::Status> untold_;  ///< by worker
};

}  // namespace mv::table
