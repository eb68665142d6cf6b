// The counts of a worker's own calls, and what the calls wait for.

#include <algorithm>

#include "engine/table/client/chunk.hpp"

namespace mv::table {

std::vector<cluster::Wait> Client::waits(base::Peer self) const {
  const base::Nanos now = servers_.clock.now();
  std::vector<cluster::Wait> waits;
  for (const TableCallRef& op : waited_for_) {
    cluster::Wait wait{
        cluster::WaitKind::kAnswer, self, op->request.table->spec.name, 0, now - op->begun, now - op->begun, {}};
    std::vector<bool> named(op->request.table->servers.size());
    for (const auto& weak : op->chunks) {
      const auto chunk = weak.lock();
      if (chunk == nullptr || chunk->over || named[chunk->piece.server]) continue;
      named[chunk->piece.server] = true;
      const base::Peer host = entry_.keeps(*op->request.table) ? entry_.awaited() : base::kNobody;
      if (host != base::kNobody) named.assign(named.size(), true);
      wait.awaited.push_back(host != base::kNobody ? cluster::Awaited{host, "has not made the call with which this worker begins"}
                                                   : cluster::Awaited{op->request.table->servers[chunk->piece.server], "has not answered"});
    }
    waits.push_back(std::move(wait));
  }
  return waits;
}

std::vector<TableState> Client::states(uint32_t worker) const {
  std::vector<TableState> states;
  for (const auto& [name, table] : catalogue_.tables()) {
    const Used used = table->uses.total(table->spec);
    states.push_back({table->spec.name,
                         table->spec.describe(),
                         table->consistency,
                         true,
                         {{worker, used.calls(Use::kAdd), used.calls(Use::kGet), table->now()}}});
  }
  std::ranges::sort(states, {}, &TableState::name);
  return states;
}

}  // namespace mv::table
