#pragma once
// Tables: creates, opens and lists the tables of one node, and runs calls on many tables at once. For callers' threads.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "api/call/calls.hpp"
#include "api/table/mapping.hpp"
#include "api/table/table.hpp"

namespace mv::api {

/// All methods from any thread.
class Tables {
 public:
  explicit Tables(Calls& calls) : calls_(calls) {}

  /// See Node.
  base::Result<std::vector<TableRef>> create(std::vector<NewTable> tables);
  base::Result<TableRef> create(TableSpec spec, ConstData initial);
  base::Result<TableRef> open(const std::string& name);
  base::Result<std::vector<TableSpec>> list();
  base::Status add_many(std::span<const ManyAdd> adds, const CallOptions& options);
  base::Status get_many(std::span<const ManyGet> gets, const CallOptions& options);

  /// Stops reads from this peer's mapped segments. On the loop.
  void drop_mapped(base::Peer peer);

 private:
  struct Outcome;
  base::Nanos creation_deadline(const std::string& name);
  base::Result<std::vector<TableRef>> finish_opening(const std::shared_ptr<Outcome>& outcome, const std::string& creating);
  std::shared_ptr<shard::Shard> own_shard(const table::TableView& table);

  Calls& calls_;
  Mappings mappings_{calls_.runtime()};
  std::mutex creations_mutex_;
  std::map<std::string, base::Nanos> creations_;  ///< deadlines, by the name of the first table
  std::atomic<uint64_t> unnamed_{0};
};

}  // namespace mv::api
