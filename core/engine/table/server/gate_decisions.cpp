#include "engine/table/server/gate_decisions.hpp"

#include <utility>

#include "base/log.hpp"

namespace mv::table {

void GateDecisions::apply_change(Table& table, const rpc::Asked& asked) {
  const HeldChange* const found = held_.changes().find(asked);
  if (found == nullptr) return;
  const base::Status status = applier_.apply(table, asked.client, *found);
  table.moved = clock_.now();
  held_.log().released(wire::Body::Change, asked.client, found->since, table.moved);
  held_.changes().erase(asked);
  status.ok() ? rpc_.finish(asked) : rpc_.fail(asked, status);
}

void GateDecisions::serve_get(Table& table, const rpc::Asked& asked) {
  HeldGet* const found = held_.gets().find(asked);
  if (found == nullptr) return;
  const HeldGet get = std::move(*found);
  held_.gets().erase(asked);
  table.moved = clock_.now();
  held_.log().released(wire::Body::Get, asked.client, get.since, table.moved);
  answers_.answer(asked, table, get);
}

void GateDecisions::merge(Table& table, std::span<const rpc::Asked> parts) {
  table.moved = clock_.now();
  if (withheld_.notes()) withheld_.note(table.number, parts, held_);
  // The parts were acknowledged on arrival. An exception here breaks the node down, so all workers are notified.
  const base::Status status = merger_.apply(table, parts);
  if (!status.ok()) base::log_error("{}; a round of adds is lost", status.text());
  for (const rpc::Asked& asked : parts) {
    if (!status.ok())
      table.lose_round(asked.client, base::error(status.code(), "{}; the round with this worker's earlier add is lost", status.text()));
    held_.changes().erase(asked);
  }
}

void GateDecisions::accept(Table& table, const rpc::Asked& asked) {
  if (withheld_.keeps_acceptance(asked, table.number)) return;
  if (const auto lost = table.take_lost_round(asked.client))
    return rpc_.fail(asked, base::error(lost->code(), "{}; this add was accepted", lost->text()));
  rpc_.finish(asked);
}

void GateDecisions::fail(Table& table, const rpc::Asked& asked, const base::Status& why) {
  held_.erase(asked);
  table.moved = clock_.now();
  rpc_.fail(asked, why);
}

}  // namespace mv::table
