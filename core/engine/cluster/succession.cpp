#include "engine/cluster/succession.hpp"

#include "base/log.hpp"

namespace mv::cluster {

Succession succeed(View& view, Member& lost, uint32_t replicas) {
  Succession after;
  lost.is_out = true;
  if (!lost.is_server()) return after;
  for (Member& other : view.members) {
    if (other.stand_in != lost.rank + 1) continue;
    other.stand_in = 0;
    after.changed.push_back(&other);
    after.loses_values = true;
  }
  const Member* const backup = replicas > 0 ? view.backup_of(lost.rank) : nullptr;
  if (backup != nullptr && backup->state != State::kLost && !backup->is_out && !view.workers_gone()) {
    lost.stand_in = backup->rank + 1;
    base::log_warn("{} serves the tables of {} from now on", view.name(backup->peer), view.name(lost.peer));
  }
  after.changed.push_back(&lost);
  after.loses_values |= lost.stand_in == 0;
  return after;
}

std::vector<const Member*> partners(const View& view, const Member& server) {
  std::vector<const Member*> partners;
  for (const Member* other : view.servers())
    if (other != &server && (view.backup_of(server.rank) == other || view.backup_of(other->rank) == &server)) partners.push_back(other);
  return partners;
}

}  // namespace mv::cluster
