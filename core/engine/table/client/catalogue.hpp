#pragma once
// The tables that this worker knows: creates, opens, lists and destroys them, and sets their clocks and updaters.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/names.hpp"
#include "engine/table/client/open_changes.hpp"
#include "engine/table/client/operation.hpp"
#include "engine/table/client/servers.hpp"

namespace mv::table {

class Client;

struct NewTable {
  shard::SpecRef spec;
  base::PayloadRef initial = nullptr;  ///< worker 0 only, else null; lent until `created` is called
  bool given = false;                  ///< whether this worker was given an initial value, even one that does not count
};

/// Loop thread only.
class Catalogue {
 public:
  /// @param client  sets large initial values
  Catalogue(Servers& servers, OpenChanges& changes, Client& client) : servers_(servers), changes_(changes), client_(client) {}
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;
  ~Catalogue();

  /// By name; the keys point into the views.
  const TablesByName& tables() const { return tables_; }

  using Created = std::function<void(base::Result<std::vector<TableViewRef>>)>;
  /// Creates tables collectively, in one operation: all of them or none.
  void create(std::vector<NewTable> tables, base::Nanos deadline, Created created);
  bool is_creating() const { return !creations_.empty(); }
  /// Ends the creation of this table, as if its deadline had passed.
  void give_up_creation(const std::string& name);
  using Opened = std::function<void(base::Result<TableViewRef>)>;
  void open(const std::string& name, base::Nanos deadline, Opened opened);
  void list(base::Nanos deadline, std::function<void(base::Result<std::vector<shard::Spec>>)> listed);
  void destroy(const TableViewRef& table, base::OperationRef operation);

  /// This worker has begun its clock-th iteration; UINT64_MAX: it leaves the rounds of a merging table. Ordered like a
  /// change; flushes wait for it. Errors are reported like those of fire-and-forget adds.
  void clock(const TableViewRef& table, uint64_t clock);
  /// This worker's clock on each of its tables; set_clock() is for a loaded checkpoint.
  std::map<std::string, uint64_t> clocks() const;
  void set_clock(const std::string& table, uint64_t clock);
  /// Ordered like a change; `skip` is a server that the caller has served itself. The caller counts it in open_changes.
  void set_updater(const TableViewRef& table, const shard::UpdaterSpec& updater, size_t skip, base::OperationRef operation);

 private:
  class Creation;

  void know(TableView& table) const;
  void remember(const TableViewRef& table);
  void take_progress(const TableViewRef& table, const std::vector<Counts>& by_server);
  void tell_clock(const TableViewRef& table, uint64_t own, uint64_t id);

  Servers& servers_;
  OpenChanges& changes_;
  Client& client_;
  TablesByName tables_;  ///< so that all handles share the counters
  base::NameSet creating_;  ///< keys point to the names in `creations_`
  std::vector<std::shared_ptr<Creation>> creations_;
};

}  // namespace mv::table
