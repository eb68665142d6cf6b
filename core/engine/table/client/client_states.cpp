// The workers' side of updaters' states: read from one server, or written to it, chunk by chunk.

#include "engine/table/gates/round.hpp"
#include "engine/table/spec_wire.hpp"

namespace mv::table {

void Client::states(const TableViewRef& table, size_t server, uint64_t chunk, base::Nanos deadline,
                    std::function<void(base::Result<StatesChunk>)> told) {
  const auto got = std::make_shared<base::Result<StatesChunk>>(base::Status(MV_EPROTOCOL, "the answer holds no states"));
  const auto each = [got](size_t, const wire::Message& answer, std::span<const std::byte> payload) {
    const auto* rows = answer.body_as_StateRows();
    if (rows == nullptr) return;
    StatesChunk chunk{rows->first(), rows->count(), rows->state(), rows->states(), {payload.begin(), payload.end()}, {}, {}};
    if (rows->updater() != nullptr) chunk.updater = read_updater(rows->updater());
    chunk.mark.updates = rows->updates();
    if (rows->shared() != nullptr) chunk.mark.shared.assign(rows->shared()->begin(), rows->shared()->end());
    *got = std::move(chunk);
  };
  const auto done = [got, told = std::move(told)](const base::Status& status) { status.ok() ? told(std::move(*got)) : told(status); };
  std::make_shared<Round>(*this, std::vector{table->servers[server]}, each, done)
      ->ask(
          [table, server, chunk](wire::FrameBuilder& builder, size_t) {
            return builder.finish(wire::Body::States, wire::CreateStates(builder.fbb(), table->numbers[server], chunk));
          },
          deadline);
}

void Client::set_states(const TableViewRef& table, size_t server, const StatesChunk& chunk, base::Nanos deadline,
                        std::function<void(base::Result<bool>)> told) {
  const auto done = [told = std::move(told)](const base::Status& status) { status.ok() ? told(true) : told(status); };
  const auto payload = chunk.values.empty() ? nullptr : base::Payload::copy(chunk.values);
  std::make_shared<Round>(*this, std::vector{table->servers[server]}, Round::Each(), done)
      ->ask(
          [&](wire::FrameBuilder& builder, size_t) {
            const auto shared = builder.fbb().CreateVector(chunk.mark.shared);
            const auto body = wire::CreateSetStates(builder.fbb(), table->numbers[server], chunk.first, chunk.count, 0, chunk.state, chunk.states,
                                                    chunk.mark.updates, shared);
            return builder.finish(wire::Body::SetStates, body, payload);
          },
          deadline);
}

}  // namespace mv::table
