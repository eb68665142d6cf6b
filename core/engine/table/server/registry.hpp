#pragma once
// The tables of a server, by number and by name.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/names.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/refusals.hpp"
#include "engine/table/server/table.hpp"

namespace mv::table {

/// A table's number never changes, and no other table gets it. Loop thread only.
class Registry {
 public:
  static constexpr uint32_t kNoTable = UINT32_MAX;

  Registry(rpc::Server& rpc, const Roster& roster, Refusals& refusals, GateDecisions& decisions, bool shares_memory)
      : rpc_(rpc), roster_(roster), refusals_(refusals), decisions_(decisions), shares_memory_(shares_memory) {}

  /// The numbers given so far: 0 .. size() - 1.
  uint32_t size() const { return static_cast<uint32_t>(tables_.size()); }
  /// Null once destroyed.
  Table* at(uint32_t number) const { return number < tables_.size() ? tables_[number].get() : nullptr; }
  /// Null if there is none; the request has then failed.
  Table* find(const rpc::Asked& asked, uint32_t number) const;
  /// Finds a table that has its part of the values.
  Table* find_sound(const rpc::Asked& asked, uint32_t number) const;
  Table* find(const std::string& name) const;
  /// The table's number, or kNoTable. Workers create and load the same tables in the same order, so it usually is the
  /// one after the last.
  uint32_t number_of(std::string_view name);

  /// Makes room for the names of more tables.
  void expect_names(size_t more) { base::expect_names(by_name_, more); }
  /// Adds a table and returns its number; if its name is taken already, that table's. If its shard cannot be made, the
  /// table is broken.
  /// @param shard null: a new one
  uint32_t add(shard::SpecRef spec, std::shared_ptr<shard::Shard> shard = nullptr);
  /// Adds a table of another server's part under its number, as a copy. MV_EPROTOCOL if the number or the name is taken.
  base::Result<Table*> add_copy(uint32_t number, shard::SpecRef spec);
  /// The numbers up to this one are used, perhaps by tables that are gone.
  void give_numbers(uint32_t numbers) { tables_.resize(std::max<size_t>(tables_.size(), numbers)); }
  /// Removes the table and frees its name.
  void remove(uint32_t number);

  base::Result<std::shared_ptr<shard::Shard>> make_shard(shard::SpecRef spec) const;
  /// A shard that no other process will map.
  base::Result<std::shared_ptr<shard::Shard>> make_hidden_shard(const shard::Spec& spec) const;

  /// Sorted by name.
  std::vector<const Table*> complete_tables() const;
  /// This server's parts of all tables.
  std::vector<std::shared_ptr<shard::Shard>> parts() const;

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& table : tables_)
      if (table != nullptr) visit(*table);
  }

 private:
  std::unique_ptr<Table> make(uint32_t number, shard::SpecRef spec, std::shared_ptr<shard::Shard> shard) const;
  base::Result<std::shared_ptr<shard::Shard>> make_or_refuse(const shard::SpecRef& spec) const;

  rpc::Server& rpc_;
  const Roster& roster_;
  Refusals& refusals_;
  GateDecisions& decisions_;
  const bool shares_memory_;  ///< other processes of this machine may map the shards
  const std::shared_ptr<shard::Families> families_ = std::make_shared<shard::Families>();
  const std::shared_ptr<shard::PlainModels> models_ = shard::make_plain_models();
  std::vector<std::unique_ptr<Table>> tables_;  ///< by number; null once destroyed
  base::NameMap<uint32_t> by_name_;             ///< keys point to the tables' names
  uint32_t last_named_ = 0;                     ///< see number_of()
};

}  // namespace mv::table
