#include "engine/table/server/registry.hpp"

#include <algorithm>
#include <new>

namespace mv::table {

Table* Registry::find(const rpc::Asked& asked, uint32_t number) const {
  if (Table* const table = at(number)) return table;
  rpc_.fail(asked, base::error(MV_ENOTFOUND, "the table was destroyed"));
  return nullptr;
}

Table* Registry::find_sound(const rpc::Asked& asked, uint32_t number) const {
  Table* table = find(asked, number);
  if (table == nullptr || (table->broken.ok() && table->gone.ok() && table->shard != nullptr)) return table;
  rpc_.fail(asked, table->gone.ok() ? table->broken : table->gone);
  return nullptr;
}

Table* Registry::find(const std::string& name) const {
  const auto known = by_name_.find(name);
  return known != by_name_.end() ? tables_[known->second].get() : nullptr;
}

uint32_t Registry::number_of(std::string_view name) {
  if (const uint32_t next = last_named_ + 1; next < tables_.size() && tables_[next] != nullptr && tables_[next]->spec.name == name)
    return last_named_ = next;
  const auto known = by_name_.find(name);
  if (known == by_name_.end()) return kNoTable;
  return last_named_ = known->second;
}

/// MV_ENOMEM: here and in the copies.
base::Result<std::shared_ptr<shard::Shard>> Registry::make_or_refuse(const shard::SpecRef& spec) const {
  if (!roster_.has_copy(*spec)) return make_shard(spec);
  if (refusals_.is_refused()) return base::error(MV_ENOMEM, "table \"{}\": server {} has no memory for it", spec->name, roster_.index());
  auto made = make_shard(spec);
  if (!made.ok() && made.status().code() == MV_ENOMEM && !refusals_.refuse()) throw std::bad_alloc();
  return made;
}

std::unique_ptr<Table> Registry::make(uint32_t number, shard::SpecRef spec, std::shared_ptr<shard::Shard> shard) const {
  const shard::Consistency consistency = spec->consistency(roster_.is_sync(), roster_.workers());
  auto table = std::make_unique<Table>(decisions_, number, spec, consistency);
  auto made = shard != nullptr ? base::Result(std::move(shard)) : make_or_refuse(spec);
  if (made.ok())
    table->shard = std::move(made).value();
  else
    table->broken = made.status();
  table->set_workers(roster_.worker_names());
  for (size_t id = 0; id < roster_.workers(); ++id)
    if (!roster_.is_active(roster_.worker(id))) table->finished(id);
  return table;
}

uint32_t Registry::add(shard::SpecRef spec, std::shared_ptr<shard::Shard> shard) {
  std::unique_ptr<Table> table = make(size(), std::move(spec), std::move(shard));
  if (tables_.size() == tables_.capacity()) tables_.reserve(std::max<size_t>(16, 2 * tables_.size()));  // nothing may fail after emplace()
  const auto [named, is_new] = by_name_.emplace(table->spec.name, table->number);
  if (is_new) tables_.push_back(std::move(table));
  return named->second;
}

base::Result<Table*> Registry::add_copy(uint32_t number, shard::SpecRef spec) {
  if (at(number) != nullptr || find(spec->name) != nullptr)
    return base::error(MV_EPROTOCOL, "table {} (\"{}\") of a copied part comes twice", number, spec->name);
  give_numbers(number + 1);
  tables_[number] = make(number, std::move(spec), nullptr);
  by_name_.emplace(tables_[number]->spec.name, number);
  return tables_[number].get();
}

void Registry::remove(uint32_t number) {
  by_name_.erase(tables_[number]->spec.name);
  tables_[number].reset();
}

base::Result<std::shared_ptr<shard::Shard>> Registry::make_shard(shard::SpecRef spec) const {
  return shard::Shard::make(std::move(spec), {roster_.servers(), roster_.index(), shares_memory_, families_, models_});
}

base::Result<std::shared_ptr<shard::Shard>> Registry::make_hidden_shard(const shard::Spec& spec) const {
  return shard::Shard::make(spec, {roster_.servers(), roster_.index(), false, nullptr, models_});
}

std::vector<const Table*> Registry::complete_tables() const {
  std::vector<const Table*> tables;
  for_each([&](const Table& table) {
    if (table.complete) tables.push_back(&table);
  });
  std::ranges::sort(tables, {}, [](const Table* table) -> const std::string& { return table->spec.name; });
  return tables;
}

std::vector<std::shared_ptr<shard::Shard>> Registry::parts() const {
  std::vector<std::shared_ptr<shard::Shard>> parts;
  for_each([&](const Table& table) {
    if (table.shard != nullptr) parts.push_back(table.shard);
  });
  return parts;
}

}  // namespace mv::table
