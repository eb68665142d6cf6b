// The server's side of merging tables: what the gate has collected becomes one add.

#include <cstring>
#include <new>

#include "base/log.hpp"
#include "codec/values.hpp"
#include "engine/ps/server.hpp"
#include "math/convert.hpp"
#include "math/kernels.hpp"
#include "table/combine.hpp"

namespace mv::ps {

void Server::change_merged(const rpc::Asked& asked, Table& table, size_t worker, const wire::Change& request, Held held) {
  if (held.rows > 0) {
    const auto rows = take_rows(table, held.payload, held.rows);
    if (!rows.ok()) return rpc_.fail(asked, rows.status());
  }
  const uint64_t stripe = table::stripe_elements(table.spec);
  if (held.count > 0 && held.first / stripe != (held.first + held.count - 1) / stripe)
    return rpc_.fail(asked, base::error(MV_EPROTOCOL, "table \"{}\": a part of an add that is not of one stripe", table.spec.name));
  const uint64_t lane = held.count > 0 ? held.first / stripe : MergeGate::kRows;
  // The last part of a lane is added where it lies; what waits for others needs memory of its own.
  held_back(table, asked, held);
  table.merge_gate.change(worker, asked, request.index(), lane, request.chunks());
  if (const auto waiting = table.held.find(asked); waiting != table.held.end()) hold(waiting->second, held.payload, held.keep);
}

void Server::Table::accept(const rpc::Asked& asked) { server.rpc_.finish(asked); }

void Server::Table::merge(std::span<const rpc::Asked> parts) {
  moved = server.clock_.now();
  const base::Status status = server.apply_merged(*this, parts);
  if (!status.ok()) base::log_error("{}; a round of adds is lost", status.text());
  for (const rpc::Asked& asked : parts) held.erase(asked);
}

/// Parts of the same elements, in their order, as their storage dtype.
base::Status Server::sum_up(const Table& table, std::span<const Held* const> parts, base::Pool::Block* sum) {
  const mv_dtype dtype = table.spec.dtype, storage = tensor::storage_dtype(dtype);
  const uint64_t first = parts.front()->first, count = parts.front()->count;
  *sum = pool_.take(count * tensor::dtype_bytes(storage));
  std::byte* const to = sum->bytes.data();
  for (const Held* part : parts) {
    if (part->first != first || part->count != count)
      return base::error(MV_EPROTOCOL, "table \"{}\": parts of a round do not fit", table.spec.name);
    const std::byte* const from = part->payload.data();
    const bool is_first = part == parts.front();
    if (part->codec != nullptr && is_first)
      codec::decode_values(*part->codec, storage, from, to, count);
    else if (part->codec != nullptr)
      codec::decode_add_values(*part->codec, dtype, from, to, count);
    else if (is_first)
      math::store_bytes(dtype, to, from, count);
    else
      math::add_bytes(dtype, to, from, count);
  }
  return {};
}

/// The sum of all parts, in their order, through the updater: once.
base::Status Server::apply_merged(Table& table, std::span<const rpc::Asked> parts) {
  std::vector<const Held*> some;
  for (const rpc::Asked& asked : parts)
    if (const auto held = table.held.find(asked); held != table.held.end() && held->second.rows + held->second.count > 0)
      some.push_back(&held->second);
  if (some.empty()) {  // rows of other servers only: a round all the same
    table.shard->change_rows(wire::Write::Add, table::kNoWorker, {}, nullptr);
    return {};
  }
  const table::Spec& spec = table.spec;
  if (some.size() == 1) return apply(table, 0, *some.front());
  try {
    if (some.front()->rows == 0) {
      const mv_dtype storage = tensor::storage_dtype(spec.dtype);
      const uint64_t first = some.front()->first, count = some.front()->count;
      base::Pool::Block sum;
      if (base::Status wrong = sum_up(table, some, &sum); !wrong.ok()) return wrong;
      base::Pool::Block added = sum;
      if (storage != spec.dtype) {  // halves were summed up as floats, and are rounded once
        added = pool_.take(count * spec.element_bytes());
        math::narrow_bytes(spec.dtype, added.bytes.data(), sum.bytes.data(), count);
      }
      table.shard->change(wire::Write::Add, table::kNoWorker, first, count, added.bytes.data(), some.front()->piece);
      return {};
    }
    std::vector<int64_t> rows;
    std::vector<std::byte> values;
    for (const Held* part : some) {
      const auto ids = take_rows(table, part->payload, part->rows);
      if (!ids.ok()) return ids.status();
      rows.insert(rows.end(), ids.value().begin(), ids.value().end());
      const auto theirs = part->payload.subspan(part->rows * sizeof(int64_t));
      values.insert(values.end(), theirs.begin(), theirs.end());
    }
    table::Combined combined;
    if (table::combine(spec, rows, values.data(), &combined))
      table.shard->change_rows(wire::Write::Add, table::kNoWorker, combined.rows, combined.values.data());
    else
      table.shard->change_rows(wire::Write::Add, table::kNoWorker, rows, values.data());
  } catch (const std::bad_alloc&) {
    return base::error(MV_ENOMEM, "table \"{}\": server {} has no memory to merge a round", spec.name, index_);
  }
  return {};
}

}  // namespace mv::ps
