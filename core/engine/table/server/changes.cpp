#include "engine/table/server/changes.hpp"

#include <cstring>

#include "engine/table/spec_wire.hpp"
#include "shard/updater/updater.hpp"

namespace mv::table {

void Changes::change(const rpc::Asked& asked, const wire::Change& request, std::span<const std::byte> payload,
                     const base::SinkRef& staged) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  base::Status wrong = table->check_range(request.first(), request.count(), request.rows());
  const bool erases = request.write() == wire::Write::Erase;
  if (wrong.ok() && erases && (request.count() > 0 || !table->spec.is_keyed()))
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": only rows of keyed tables can be erased", table->spec.name);
  const auto codec = table->codec_of(request.codec(), request.rows());
  if (wrong.ok() && !codec.ok()) wrong = codec.status();
  if (wrong.ok() && codec.value() != nullptr && request.write() != wire::Write::Add)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": only adds can be encoded", table->spec.name);
  if (!wrong.ok()) return rpc_.fail(asked, wrong);

  const auto piece = request.number() == 0 ? shard::ChangePart::kFirst : shard::ChangePart::kFurther;
  HeldChange held{request.first(), request.count(), request.rows(), payload, staged, request.write(), piece};
  held.codec = codec.value();
  const uint64_t bytes = table->bytes_of(held);
  const bool here = request.offered() == 0;
  if (wrong = check_times(*table, request, bytes); !wrong.ok()) return rpc_.fail(asked, wrong);
  // In a copy, the parts of a merged round come without values.
  const bool has_sum = withheld_.expected_sum() && table->gathers(request) && roster_.worker_id(asked.client) >= 0;
  if (!has_sum && (here ? payload.size() : request.offered()) != bytes * request.times())
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": a change of {} bytes has a payload of {}", table->spec.name, bytes, payload.size());
  if (wrong.ok() && here && held.codec != nullptr) wrong = held.codec->check(payload, held.count);
  const int64_t worker = roster_.worker_id(asked.client);
  const bool counted = table->consistency == shard::Consistency::kSync && request.write() == wire::Write::Add && worker >= 0;
  if (wrong.ok() && !here && !counted)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": a change offers values that the server would never request", table->spec.name);
  if (!wrong.ok()) return rpc_.fail(asked, wrong);

  if (table->consistency == shard::Consistency::kMerge && request.write() == wire::Write::Add && worker >= 0)
    return change_merged(asked, *table, static_cast<size_t>(worker), request.index(), request.chunks(), held);
  if (request.times() > 1) return apply_times(asked, *table, std::move(held), request.times(), bytes);
  if (!counted) return change_in_order(asked, *table, std::move(held));
  if (here && request.rows() > 0) {
    const auto rows = table->take_rows(payload, request.rows(), roster_);
    if (!rows.ok()) return rpc_.fail(asked, rows.status());
  }
  keep(held, payload, staged);
  held_.hold(asked, table->number, std::move(held));
  table->change_counted(static_cast<size_t>(worker), asked, {request.round(), request.index()}, request.chunks(), bytes, here);
}

/// `bytes`: of one of the changes.
base::Status Changes::check_times(const Table& table, const wire::Change& request, uint64_t bytes) const {
  if (request.times() == 1) return {};
  const bool waits = counts_calls(table.consistency);
  // A change without bytes would cost the sender nothing, however often it is repeated.
  if (request.times() == 0 || bytes == 0 || bytes > wire::kMaxPayloadBytes / request.times() || waits || request.codec() != nullptr || request.offered() != 0)
    return base::error(MV_EPROTOCOL, "table \"{}\": a message with {} changes of {} bytes is not allowed", table.spec.name, request.times(), bytes);
  return {};
}

/// Applies changes that came together. Like changes of a message each, one that fails leaves the others alone.
void Changes::apply_times(const rpc::Asked& asked, Table& table, HeldChange&& one, uint32_t times, uint64_t bytes) {
  const std::span<const std::byte> all = one.payload;
  base::Status failed;
  for (uint32_t i = 0; i < times; ++i) {
    one.payload = all.subspan(i * bytes, bytes);
    if (base::Status status = applier_.apply(table, asked.client, one); !status.ok() && failed.ok()) failed = std::move(status);
  }
  failed.ok() ? rpc_.finish(asked) : rpc_.fail(asked, failed);
}

void Changes::change_in_order(const rpc::Asked& asked, Table& table, HeldChange&& held) {
  const int64_t worker = roster_.worker_id(asked.client);
  if (table.follow(worker, asked)) {
    keep(held, held.payload, held.keep);
    return held_.hold(asked, table.number, std::move(held));
  }
  const base::Status status = applier_.apply(table, asked.client, held);
  status.ok() ? rpc_.finish(asked) : rpc_.fail(asked, status);
}

void Changes::change_merged(const rpc::Asked& asked, Table& table, size_t worker, uint64_t index, uint32_t chunks, const HeldChange& held) {
  if (held.rows > 0) {
    const auto rows = table.take_rows(held.payload, held.rows, roster_);
    if (!rows.ok()) return rpc_.fail(asked, rows.status());
  }
  const uint64_t each = shard::stripe_elements(table.spec);
  if (held.count > 0 && held.first / each != (held.first + held.count - 1) / each)
    return rpc_.fail(asked, base::error(MV_EPROTOCOL, "table \"{}\": a part of an add spans several stripes", table.spec.name));
  // Rows longer than a stripe come as elements, each row cut by itself. They are a stripe together, like other rows.
  const bool in_stripes = held.count > 0 && table.spec.row_bytes() <= shard::stripe_bytes(table.spec);
  const uint64_t stripe = in_stripes ? held.first / each : MergeGate::kRows;
  // The last part of a stripe is added from where it lies. Parts that wait for others need memory of their own.
  held_.hold(asked, table.number, HeldChange(held));
  table.change_merged(worker, asked, index, stripe, chunks);
  if (HeldChange* const waiting = held_.changes().find(asked)) keep(*waiting, held.payload, held.keep);
}

void Changes::data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) {
  HeldChange* const found = held_.changes().find(asked);
  if (found == nullptr) return;
  HeldChange& held = *found;
  Table& table = *registry_.at(held.table);
  const bool sound = payload.size() == table.bytes_of(held) && (held.rows == 0 || table.take_rows(payload, held.rows, roster_).ok()) &&
                     (held.codec == nullptr || held.codec->check(payload, held.count).ok());
  if (!sound) held.rows = held.count = 0;  // the client breaks the protocol: its add counts as nothing, and the others continue
  keep(held, sound ? payload : std::span<const std::byte>(), sound ? staged : nullptr);
  table.data(static_cast<size_t>(roster_.worker_id(asked.client)), asked);
}

/// Keeps a payload until its turn comes. Copies it if its memory is only valid during the call.
void Changes::keep(HeldChange& held, std::span<const std::byte> payload, const std::shared_ptr<const void>& staged) {
  held.payload = payload;
  held.keep = staged;
  if (staged != nullptr || payload.empty()) return;
  const base::Pool::Block copy = pool_.take(payload.size());
  std::memcpy(copy.bytes.data(), payload.data(), payload.size());
  held.payload = copy.bytes;
  held.keep = copy.memory;
}

void Changes::set_updater(const rpc::Asked& asked, const wire::SetUpdater& request) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  const shard::UpdaterSpec updater = read_updater(request.updater());
  if (const base::Status wrong = shard::check_updater(updater, table->spec.dtype); !wrong.ok()) return rpc_.fail(asked, wrong);
  HeldChange held{0, 0, 0, {}, nullptr};
  held.updater = std::make_shared<const shard::UpdaterSpec>(updater);
  change_in_order(asked, *table, std::move(held));
}

void Changes::clock(const rpc::Asked& asked, const wire::Clock& request) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  rpc_.finish(asked);
  const int64_t worker = roster_.worker_id(asked.client);
  if (worker < 0) return;
  table->begin_clock(static_cast<size_t>(worker), request.clock());
  table->moved = clock_.now();
}

}  // namespace mv::table
