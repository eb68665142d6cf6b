#include "engine/table/server/state_transfers.hpp"

#include <utility>

#include "engine/table/client/inquiries.hpp"
#include "engine/table/spec_wire.hpp"
#include "shard/updater/updater.hpp"

namespace mv::table {

namespace {
base::Status not_dense(const shard::Spec& spec) {
  return base::error(MV_ENOSYS, "table \"{}\" is {}: the states of such tables are only in checkpoints", spec.name, spec.describe());
}
}  // namespace

void StateTransfers::read(const rpc::Asked& asked, const wire::States& request) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  if (table->spec.is_keyed()) return rpc_.fail(asked, not_dense(table->spec));
  const auto transfer = std::pair(asked.client, request.table());
  if (request.chunk() == kNoMoreStates) {
    reading_.erase(transfer);
    return rpc_.answer(asked, builder_.answer({}));
  }
  if (request.chunk() == 0) {
    reading_.erase(transfer);
    if (table->shard->has_snapshot()) return rpc_.fail(asked, base::error(kBeginAnew, "table \"{}\" is already being saved", table->spec.name));
    auto snapshot = table->shard->snapshot();
    if (!snapshot.ok()) return rpc_.fail(asked, snapshot.status());
    Reading& begun = reading_[transfer];
    begun.snapshot = std::move(snapshot).value();
    begun.rows = begun.snapshot->next();
  }
  const auto found = reading_.find(transfer);
  if (found == reading_.end() || found->second.chunk != request.chunk())
    return rpc_.fail(asked, base::error(kBeginAnew, "table \"{}\": chunk {} of its states was requested out of order", table->spec.name,
                                        request.chunk()));
  if (!answer(asked, *table, found->second)) reading_.erase(found);
}

bool StateTransfers::answer(const rpc::Asked& asked, Table& table, Reading& reading) {
  auto& fbb = builder_.fbb();
  const size_t states = reading.snapshot->states();
  if (states == 0) reading.rows = {};
  if (reading.rows.count == 0) {  // all were sent
    const auto updater = write_updater(fbb, table.shard->updater());
    const shard::Mark mark = table.shard->mark();
    const auto shared = fbb.CreateVector(mark.shared);
    rpc_.answer(asked, builder_.finish(wire::Body::StateRows, wire::CreateStateRows(fbb, 0, 0, 0, 0, 0, updater, mark.updates, shared)));
    return false;
  }
  const auto values = reading.rows.states[reading.state];
  if (values.size() > wire::kMaxPayloadBytes) {
    rpc_.fail(asked, base::error(MV_ENOSYS, "table \"{}\": the state of a row has {} bytes, at most {} can be sent", table.spec.name, values.size(),
                                 wire::kMaxPayloadBytes));
    return false;
  }
  const auto body = wire::CreateStateRows(fbb, reading.rows.first, reading.rows.count, 0, static_cast<uint32_t>(reading.state),
                                          static_cast<uint32_t>(states));
  rpc_.answer(asked, builder_.finish(wire::Body::StateRows, body, base::Payload::copy(values)));
  ++reading.chunk;
  if (++reading.state < states) return true;
  reading.state = 0;
  reading.rows = reading.snapshot->next();
  return true;
}

void StateTransfers::write(const rpc::Asked& asked, const wire::SetStates& request, std::span<const std::byte> payload) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  if (table->spec.is_keyed()) return rpc_.fail(asked, not_dense(table->spec));
  const auto transfer = std::pair(asked.client, request.table());
  if (request.states() == 0) {
    writing_.erase(transfer);
    shard::Mark mark{request.updates(), {}};
    if (request.shared() != nullptr) mark.shared.assign(request.shared()->begin(), request.shared()->end());
    table->shard->set_mark(mark);
    return rpc_.answer(asked, builder_.answer({}));
  }
  Writing& writing = writing_[transfer];
  if (request.state() == 0) writing = {request.first(), request.count(), {}};
  const uint64_t bytes = request.count() * table->spec.cols * tensor::dtype_bytes(tensor::storage_dtype(table->spec.dtype));
  const bool sound = request.state() == writing.states.size() && request.first() == writing.first && request.count() == writing.count &&
                     request.count() <= wire::kMaxPayloadBytes && payload.size() == bytes;
  if (!sound) {
    writing_.erase(transfer);
    return rpc_.fail(asked, base::error(MV_EPROTOCOL, "table \"{}\": {} bytes of state {} for {} rows", table->spec.name, payload.size(),
                                        request.state(), request.count()));
  }
  writing.states.emplace_back(payload.begin(), payload.end());
  if (writing.states.size() < request.states()) return rpc_.answer(asked, builder_.answer({}));
  shard::Restored rows{.first = writing.first, .count = writing.count, .ids = {}, .values = {}, .states = {}};
  for (const auto& state : writing.states) rows.states.emplace_back(state);
  const base::Status failed = table->shard->restore_states(rows);
  writing_.erase(transfer);
  failed.ok() ? rpc_.answer(asked, builder_.answer({})) : rpc_.fail(asked, failed);
}

void StateTransfers::forget(base::Peer worker) {
  std::erase_if(reading_, [&](const auto& transfer) { return transfer.first.first == worker; });
  std::erase_if(writing_, [&](const auto& transfer) { return transfer.first.first == worker; });
}

}  // namespace mv::table
