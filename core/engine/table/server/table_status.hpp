#pragma once
// What a server reports about its tables and the requests that wait there.

#include <vector>

#include "engine/table/server/creations.hpp"
#include "engine/table/server/registry.hpp"

namespace mv::table {

/// Loop thread only.
class TableStatus {
 public:
  TableStatus(const RequestClock& clock, const Roster& roster, const Registry& registry, const HeldRequests& held, const Creations& creations)
      : clock_(clock), roster_(roster), registry_(registry), held_(held), creations_(creations) {}

  /// The requests that wait here, and the workers that they wait for.
  std::vector<cluster::Wait> waits() const;
  std::vector<TableState> states() const;

 private:
  void add_gate_waits(const Table& table, std::vector<cluster::Wait>& waits) const;

  const RequestClock& clock_;
  const Roster& roster_;
  const Registry& registry_;
  const HeldRequests& held_;
  const Creations& creations_;
};

}  // namespace mv::table
