#include "engine/table/server/applier.hpp"

#include <new>

#include "codec/values.hpp"
#include "shard/on_device.hpp"

namespace mv::table {

base::Status Applier::apply(Table& table, base::Peer client, const HeldChange& change) {
  const bool has_copy = roster_.has_copy(table.spec);
  if (has_copy && refusals_.is_refused())
    return base::error(MV_ENOMEM, "table \"{}\": server {} has no memory for the change", table.spec.name, roster_.index());
  base::Status status = try_to_apply(table, client, change);
  if (!has_copy || status.ok()) return status;
  if (status.code() == MV_ESYSTEM) throw shard::DeviceFailure(status);  // the copies may make this change
  if (status.code() == MV_ENOMEM && !refusals_.refuse()) throw std::bad_alloc();
  return status;
}

base::Status Applier::try_to_apply(Table& table, base::Peer client, const HeldChange& change) {
  shard::Shard& shard = *table.shard;
  if (change.updater != nullptr) return shard.set_updater(*change.updater);
  const wire::Write write = change.write;
  const shard::Worker worker = roster_.worker_id(client);
  try {
    if (change.rows > 0) {
      const auto rows = table.take_rows(change.payload, change.rows, roster_);
      if (!rows.ok()) return rows.status();
      const std::byte* values = write == wire::Write::Erase ? nullptr : change.payload.data() + change.rows * sizeof(int64_t);
      shard.change_rows(write, worker, rows.value(), values, change.piece);
    } else if (change.count > 0 && change.codec != nullptr) {
      apply_encoded(table, worker, change);
    } else if (change.count > 0) {
      shard.change(write, worker, change.first, change.count, change.payload.data(), change.piece);
    } else if (write == wire::Write::Add) {
      shard.change_rows(write, worker, {}, nullptr, change.piece);
    }
  } catch (const shard::Halfway&) {
    throw;  // breaks the node down: the content of the table is unknown
  } catch (const shard::DeviceFailure& failure) {
    return failure.status();
  } catch (const std::bad_alloc&) {
    if (!table.spec.is_keyed()) throw;
    // A keyed table grows with its input. The server continues without these rows.
    return base::error(MV_ENOMEM, "table \"{}\": server {} has no memory for more rows", table.spec.name, roster_.index());
  }
  return {};
}

void Applier::apply_encoded(const Table& table, shard::Worker worker, const HeldChange& change) {
  const base::Pool::Block values = pool_.take(change.count * table.spec.element_bytes());
  codec::decode_values(*change.codec, table.spec.dtype, change.payload.data(), values.bytes.data(), change.count);
  table.shard->change(change.write, worker, change.first, change.count, values.bytes.data(), change.piece);
}

}  // namespace mv::table
