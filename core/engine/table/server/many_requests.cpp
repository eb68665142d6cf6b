#include "engine/table/server/many_requests.hpp"

#include <numeric>
#include <utility>

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
void ManyRequests::expect(const flatbuffers::Vector<uint32_t>& numbers, uint32_t at) const {
  const auto table = [&](uint32_t ahead) -> const Table* { return at + ahead < numbers.size() ? registry_.at(numbers.Get(at + ahead)) : nullptr; };
  if (const Table* const known = table(16)) known->expect_itself();
  if (const Table* const known = table(12)) known->expect_parts();
  if (const Table* const known = table(8)) known->expect_round();
  if (const Table* const known = table(4)) known->expect_stripe();
}

void ManyRequests::change(const rpc::Asked& asked, const wire::ChangeMany& request, std::span<const std::byte> payload, const base::SinkRef& staged) {
  if (const base::Status wrong = check_lists(request, request.indexes()); !wrong.ok()) return rpc_.fail(asked, wrong);
  const auto& tables = *request.tables();
  const auto& bytes = *request.bytes();
  if (std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}) != payload.size())
    return rpc_.fail(asked, base::error(MV_EPROTOCOL, "adds to many tables have an invalid payload of {} bytes", payload.size()));
  rpc_.split(asked, tables.size());
  held_.changes().expect_parts(asked, tables.size());
  const int64_t worker = roster_.worker_id(asked.client);
  const RequestClock::Moment moment(clock_);
  for (uint32_t i = 0; i < tables.size(); ++i) {
    expect(tables, i);
    const rpc::Asked part{asked.client, asked.seq, i + 1};
    const auto values = payload.first(bytes.Get(i));
    payload = payload.subspan(values.size());
    Table* table = registry_.find_sound(part, tables.Get(i));
    if (table == nullptr) continue;
    const uint64_t elements = table->elements_of_many();
    if (elements == 0 || values.size() != elements * table->spec.element_bytes()) {
      rpc_.fail(part, base::error(MV_EPROTOCOL, "table \"{}\": an add to many tables has an invalid part of {} bytes", table->spec.name,
                                  values.size()));
      continue;
    }
    HeldChange held{0, elements, 0, values, staged, wire::Write::Add, shard::ChangePart::kFirst};
    if (table->consistency == shard::Consistency::kMerge && worker >= 0)
      changes_.change_merged(part, *table, static_cast<size_t>(worker), request.indexes()->Get(i), 1, held);
    else
      changes_.change_in_order(part, *table, std::move(held));
  }
  held_.changes().parts_came(asked);
}

void ManyRequests::get(const rpc::Asked& asked, const wire::GetMany& request) {
  if (const base::Status wrong = check_lists(request, request.clocks()); !wrong.ok()) return rpc_.fail(asked, wrong);
  const auto& tables = *request.tables();
  answers_.begin_many(asked, *request.bytes());
  const int64_t worker = roster_.worker_id(asked.client);
  held_.gets().expect_parts(asked, tables.size());
  const RequestClock::Moment moment(clock_);
  for (uint32_t i = 0; i < tables.size(); ++i) {
    expect(tables, i);
    const rpc::Asked part{asked.client, asked.seq, i + 1};
    Table* table = registry_.find_sound(part, tables.Get(i));
    if (table == nullptr) continue;
    const uint64_t elements = table->elements_of_many();
    if (elements == 0 || request.bytes()->Get(i) != elements * table->spec.element_bytes()) {
      rpc_.fail(part, base::error(MV_EPROTOCOL, "table \"{}\": a get of many tables has an invalid part of {} bytes", table->spec.name,
                                  request.bytes()->Get(i)));
      continue;
    }
    if (const auto lost = table->take_lost_round(asked.client)) {
      rpc_.fail(part, *lost);
      continue;
    }
    if (table->consistency == shard::Consistency::kAsync || !request.gated() || worker < 0) {
      answers_.answer_part(part, *table);
      continue;
    }
    if (const auto loss = losses_.take(*table, asked.client)) {
      rpc_.fail(part, *loss);
      continue;
    }
    held_.hold(part, table->number, HeldGet{0, elements, {}});
    table->get(static_cast<size_t>(worker), part, request.clocks()->Get(i), {});
  }
  held_.gets().parts_came(asked);
}

}  // namespace mv::table
