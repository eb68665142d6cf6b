// Adds to and gets from many small tables in one request. Each part of it waits at the gate of its table like any other
// request.

#include <algorithm>
#include <numeric>

#include "engine/table/server/server.hpp"

namespace mv::table {

namespace {
/// Checks the lists of such a request, which have one entry per table.
template <typename Request, typename Numbers>
base::Status check_lists(const Request& request, const Numbers* numbers) {
  const auto* tables = request.tables();
  const auto* bytes = request.bytes();
  if (tables == nullptr || bytes == nullptr || numbers == nullptr || tables->size() == 0 || bytes->size() != tables->size() ||
      numbers->size() != tables->size())
    return base::error(MV_EPROTOCOL, "the lists of a request for many tables differ in length");
  if (std::accumulate(bytes->begin(), bytes->end(), uint64_t{0}) > wire::kMaxPayloadBytes)
    return base::error(MV_EPROTOCOL, "a request for many tables is larger than {} bytes", wire::kMaxPayloadBytes);
  return {};
}
}  // namespace

/// Prefetches what the next tables need while this one is processed: many small tables are scattered over the memory.
void Server::expect(const flatbuffers::Vector<uint32_t>& numbers, uint32_t at) const {
  constexpr uint32_t kTable = 16, kFirst = 12, kSecond = 8, kThird = 4;
  constexpr size_t kLine = 64, kShardLines = 5;
  const auto fetch = [](const void* from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(static_cast<const std::byte*>(from) + at);
  };
  const auto table = [&](uint32_t ahead) -> const Table* {
    const uint32_t number = at + ahead < numbers.size() ? numbers.Get(at + ahead) : UINT32_MAX;
    return number < tables_.size() ? tables_[number].get() : nullptr;
  };
  if (const Table* const known = table(kTable)) fetch(known, known->hot_bytes());
  if (const Table* const known = table(kFirst)) {
    known->merge_gate.expect(0);
    fetch(&known->spec, sizeof known->spec.name + kLine);
    if (known->shard != nullptr) fetch(known->shard.get(), kShardLines * kLine);
  }
  if (const Table* const known = table(kSecond)) {
    known->merge_gate.expect(1);
    if (known->shard != nullptr) known->shard->expect();
  }
  if (const Table* const known = table(kThird)) known->merge_gate.expect(2);
}

void Server::change_many(const rpc::Asked& asked, const wire::ChangeMany& request, std::span<const std::byte> payload, const base::SinkRef& staged) {
  if (const base::Status wrong = check_lists(request, request.indexes()); !wrong.ok()) return rpc_.fail(asked, wrong);
  const auto& tables = *request.tables();
  const auto& bytes = *request.bytes();
  if (std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}) != payload.size())
    return rpc_.fail(asked, base::error(MV_EPROTOCOL, "adds to many tables have an invalid payload of {} bytes", payload.size()));
  rpc_.split(asked, tables.size());
  held_.expect_parts(asked, tables.size());
  const int64_t worker = worker_id(asked.client);
  const OneMoment moment(*this);
  for (uint32_t i = 0; i < tables.size(); ++i) {
    expect(tables, i);
    const rpc::Asked part{asked.client, asked.seq, i + 1};
    const auto values = payload.first(bytes.Get(i));
    payload = payload.subspan(values.size());
    Table* table = find_sound(part, tables.Get(i));
    if (table == nullptr) continue;
    const uint64_t elements = table->spec.is_keyed() || table->consistency == shard::Consistency::kSync ? 0 : table->shard->elements();
    if (elements == 0 || values.size() != elements * table->spec.element_bytes()) {
      rpc_.fail(part, base::error(MV_EPROTOCOL, "table \"{}\": an add to many tables has an invalid part of {} bytes", table->spec.name, values.size()));
      continue;
    }
    Held held{0, elements, 0, values, staged, wire::Write::Add, shard::ChangePart::kFirst};
    if (table->consistency == shard::Consistency::kMerge && worker >= 0)
      change_merged(part, *table, static_cast<size_t>(worker), request.indexes()->Get(i), 1, std::move(held));
    else
      change_in_order(part, *table, std::move(held));
  }
  held_.parts_came(asked);
}

void Server::get_many(const rpc::Asked& asked, const wire::GetMany& request) {
  if (const base::Status wrong = check_lists(request, request.clocks()); !wrong.ok()) return rpc_.fail(asked, wrong);
  const auto& tables = *request.tables();
  ManyGet& many = many_gets_[asked];
  many.at.assign(tables.size(), 0);
  std::exclusive_scan(request.bytes()->begin(), request.bytes()->end(), many.at.begin(), uint32_t{0});
  many.values = pool_.take(many.at.back() + request.bytes()->Get(tables.size() - 1));
  rpc_.split(asked, tables.size(), [this, asked](const base::Status& status) {
    const auto found = many_gets_.find(asked);
    if (found == many_gets_.end()) return;
    const base::Pool::Block values = std::move(found->second.values);
    many_gets_.erase(found);
    if (!status.ok()) return rpc_.fail(asked, status);
    rpc_.answer(asked, builder_.finish(wire::Body::Reply, wire::CreateReply(builder_.fbb()), base::Payload::kept(values.bytes, values.memory)));
  });
  const int64_t worker = worker_id(asked.client);
  wanted_.expect_parts(asked, tables.size());
  const OneMoment moment(*this);
  for (uint32_t i = 0; i < tables.size(); ++i) {
    expect(tables, i);
    const rpc::Asked part{asked.client, asked.seq, i + 1};
    Table* table = find_sound(part, tables.Get(i));
    if (table == nullptr) continue;
    const uint64_t elements = table->spec.is_keyed() || table->consistency == shard::Consistency::kSync ? 0 : table->shard->elements();
    if (elements == 0 || request.bytes()->Get(i) != elements * table->spec.element_bytes()) {
      rpc_.fail(part, base::error(MV_EPROTOCOL, "table \"{}\": a get of many tables has an invalid part of {} bytes", table->spec.name, request.bytes()->Get(i)));
      continue;
    }
    if (const auto lost = table->lost_rounds.extract(asked.client)) {
      rpc_.fail(part, lost.mapped());
      continue;
    }
    if (table->consistency == shard::Consistency::kAsync || !request.gated() || worker < 0) {
      give_part(part, *table);
      continue;
    }
    Wanted wanted{0, elements, {}};
    wanted.since = now();
    wanted.table = table->number;
    wanted_.insert(part, std::move(wanted));
    if (table->consistency == shard::Consistency::kStale)
      table->stale->get(part, request.clocks()->Get(i));
    else
      table->merge_gate.get(part, request.clocks()->Get(i));
  }
  wanted_.parts_came(asked);
}

/// Reads the values into their place in the answer.
void Server::give_part(const rpc::Asked& asked, Table& table) {
  const auto found = many_gets_.find({asked.client, asked.seq});
  if (found == many_gets_.end()) return;
  std::byte* const to = found->second.values.bytes.data() + found->second.at[asked.part - 1];
  table.shard->read(worker_id(asked.client), 0, table.shard->elements(), to);
  rpc_.finish(asked);
}

}  // namespace mv::table
