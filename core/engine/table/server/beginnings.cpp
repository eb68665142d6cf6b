#include "engine/table/server/beginnings.hpp"

namespace mv::table {

std::vector<wire::CreatedTable> created_tables(const Registry& registry, std::span<const uint32_t> numbers, int64_t worker) {
  std::vector<wire::CreatedTable> created;
  created.reserve(numbers.size());
  for (const uint32_t number : numbers) {
    const Table& table = *registry.at(number);
    const auto id = static_cast<size_t>(worker);
    const SyncGate::Count next = worker >= 0 ? table.count_of(id) : SyncGate::Count();
    created.emplace_back(worker >= 0 ? table.clock_of(id) : 0, next.round, next.index, number, table.complete, worker >= 0 && table.is_newcomer(id));
  }
  return created;
}

void Beginnings::begin(const rpc::Asked& asked, const wire::Begin& request) {
  if (!roster_.is_active(asked.client)) return rpc_.fail(asked, base::error(MV_ESTATE, "only workers begin"));
  const auto worker = static_cast<size_t>(roster_.worker_id(asked.client));
  if (const base::Status wrong = check(worker, request); !wrong.ok()) return rpc_.fail(asked, wrong);
  std::vector<uint32_t> known;  // another worker may have destroyed some
  for (uint32_t i = 0; i < request.tables()->size(); ++i) {
    Table* const table = registry_.at(request.tables()->Get(i));
    if (table == nullptr || !table->complete) continue;
    known.push_back(request.tables()->Get(i));
    if (request.clocks() == nullptr) table->begins_here(worker);
    else if (request.clocks()->Get(i) == UINT64_MAX) table->steps_back(worker);
    else table->begins(worker, request.clocks()->Get(i), {request.gets()->Get(i), request.adds()->Get(i)});
    table->moved = clock_.now();
  }
  if (request.clocks() != nullptr) return rpc_.answer(asked, builder_.answer({}));
  const auto tables = builder_.fbb().CreateVectorOfStructs(created_tables(registry_, known, static_cast<int64_t>(worker)));
  rpc_.answer(asked, builder_.finish(wire::Body::Created, wire::CreateCreated(builder_.fbb(), tables)));
}

/// Changes nothing.
base::Status Beginnings::check(size_t worker, const wire::Begin& request) const {
  const auto *const numbers = request.tables();
  const auto *const clocks = request.clocks(), *const gets = request.gets(), *const adds = request.adds();
  const auto fits = [&](const flatbuffers::Vector<uint64_t>* counts) { return counts != nullptr && counts->size() == numbers->size(); };
  if (numbers == nullptr || (clocks != nullptr && !(fits(clocks) && fits(gets) && fits(adds))))
    return base::error(MV_EPROTOCOL, "a beginning whose lists differ in length");
  for (uint32_t i = 0; clocks != nullptr && i < numbers->size(); ++i) {
    const Table* const table = registry_.at(numbers->Get(i));
    if (table == nullptr || !table->complete || clocks->Get(i) == UINT64_MAX) continue;
    if (!table->can_begin(worker, clocks->Get(i), {gets->Get(i), adds->Get(i)}))
      return base::error(MV_EDISAGREE, "table \"{}\": the others have passed the point where worker {} would begin", table->spec.name, worker);
  }
  return {};
}

}  // namespace mv::table
