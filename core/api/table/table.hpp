#pragma once
// Tables, as capi/ and the stores use them.

#include <span>
#include <string>
#include <vector>

#include "api/call/options.hpp"
#include "codec/codec.hpp"
#include "shard/shard.hpp"

namespace mv::api {

class Table;
using TableRef = std::shared_ptr<Table>;
using TableSpec = shard::Spec;

/// A table to be created, and its initial value: worker 0's counts.
struct NewTable {
  shard::SpecRef spec;
  ConstData initial;
};

struct TableInfo {
  TableSpec spec;               ///< with the updater of now
  uint32_t servers = 0;
  uint64_t bytes = 0, adds = 0, gets = 0, clock = 0;
  shard::Usage usage;
};

/// What an updater remembers of a dense table.
struct TableStates {
  shard::UpdaterSpec updater;
  std::vector<std::vector<std::byte>> states;  ///< each of all elements, of the storage dtype
  std::vector<shard::Mark> marks;              ///< by server; none: left as they are
};

/// A chunk of a scan; see mv_table_scan().
struct Scanned {
  uint64_t found = 0;
  int64_t next = -1;
};

/// A table as one handle sees it. Methods from any thread; calls of one thread take effect in their order.
class Table {
 public:
  virtual ~Table() = default;
  virtual base::Result<TableInfo> info() = 0;
  virtual Started add(const Rows& rows, const ConstData& data, const CallOptions& options) = 0;
  /// Adds what a codec makes of all rows' values, each message's by itself. What it leaves out is in `residual`, elements of the storage
  /// dtype, and went into it before; unchanged on errors before the call has begun. The residual is the caller's to lock.
  virtual Started add_encoded(const ConstData& gradient, std::byte* residual, const codec::CodecRef& codec, const CallOptions& options) = 0;
  /// add() of all rows, which are made some at a time as the shard wants them, where all of them lie in this process and nobody waits
  /// for anybody. False: nothing was done.
  virtual bool add_here(const shard::Shard::Make&, base::Status* /*status*/) { return false; }
  /// The same of values that are there.
  virtual bool add_here(const std::byte*, base::Status* /*status*/) { return false; }
  /// It will be used in a moment, or rather `soon`: what a call looks at first is fetched into the caches.
  virtual void expect(bool /*soon*/) const {}
  /// It may be one of Node::add_many() and Node::get_many().
  virtual bool joins_many() const { return false; }
  virtual Started set(const Rows& rows, const ConstData& data, const CallOptions& options) = 0;
  virtual Started get(const Rows& rows, const MutableData& data, const CallOptions& options) = 0;
  /// get() of all rows into each of these places, where it needs no message and no waiting. False: nothing was done.
  virtual bool get_here(std::span<std::byte* const>, base::Status* /*status*/) { return false; }
  /// A get of all rows that servers send through a codec: always by messages, so that every worker gets the same.
  virtual Started get_encoded(const MutableData& data, const codec::CodecRef& codec, const CallOptions& options) = 0;
  virtual Started peek(const Rows& rows, const MutableData& data, const CallOptions& options) = 0;
  virtual Started erase(const Rows& rows, const CallOptions& options) = 0;
  virtual Started set_updater(const shard::UpdaterSpec& updater, const CallOptions& options) = 0;
  /// After this worker's earlier adds, and the rounds that they belong to.
  virtual base::Result<TableStates> states() = 0;
  /// Those of the table's updater, as states() gave them, perhaps from another number of servers.
  virtual base::Status set_states(const TableStates& states) = 0;
  virtual base::Status clock() = 0;
  /// A merging table's rounds go on without this worker's adds.
  virtual base::Status leave_rounds() = 0;
  virtual base::Result<Scanned> scan(int64_t cursor, std::span<int64_t> rows, const MutableData& data) = 0;
  virtual base::Status close() = 0;
  virtual base::Status destroy() = 0;
};

/// A table for which Table::joins_many() holds, and all of its values.
struct ManyAdd {
  Table* table;
  const std::byte* values;
};
struct ManyGet {
  Table* table;
  std::byte* out;
};

}  // namespace mv::api
