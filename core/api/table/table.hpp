#pragma once
// Table: the interface to tables that capi/ and the stores use.

#include <span>
#include <string>
#include <vector>

#include "api/call/options.hpp"
#include "codec/on_device.hpp"
#include "shard/shard.hpp"

namespace mv::api {

class Table;
using TableRef = std::shared_ptr<Table>;
using TableSpec = shard::Spec;

/// A table to be created and its initial value. Only worker 0's initial value counts.
struct NewTable {
  shard::SpecRef spec;
  ConstData initial;
};

struct TableInfo {
  TableSpec spec;               ///< with the current updater
  uint32_t servers = 0;
  uint64_t bytes = 0, adds = 0, gets = 0, clock = 0;
  shard::Usage usage;
};

/// The state that an updater keeps for a dense table.
struct TableStates {
  shard::UpdaterSpec updater;
  std::vector<std::vector<std::byte>> states;  ///< each: one element of the storage dtype per value
  std::vector<shard::Mark> marks;              ///< by server; empty: the servers keep theirs
};

/// All values of a table as they travel through a codec: where each piece is in memory of so many bytes.
struct EncodedPieces {
  std::vector<codec::Piece> pieces;
  uint64_t bytes = 0;
};

/// A chunk of a scan; see mv_table_scan().
struct Scanned {
  uint64_t found = 0;
  int64_t next = -1;
};

/// A table as one handle sees it. Any thread; calls of one thread take effect in their order.
class Table {
 public:
  virtual ~Table() = default;
  virtual base::Result<TableInfo> info() = 0;
  virtual Started add(const Rows& rows, const ConstData& data, const CallOptions& options) = 0;
  /// Adds all rows through a codec; each message is encoded separately. `residual` has elements of the storage dtype.
  /// It is added to the gradient, and receives what the codec leaves out. It is unchanged after errors before the call
  /// has begun. The caller locks it.
  virtual Started add_encoded(const ConstData& gradient, std::byte* residual, const codec::CodecRef& codec, const CallOptions& options) = 0;
  /// add() of all rows, generated piece by piece as the shard needs them, if all rows lie in this process and no worker
  /// waits for another. False: nothing was done.
  virtual bool add_here(const shard::Shard::Make&, base::Status* /*status*/) { return false; }
  /// Likewise for values that exist already.
  virtual bool add_here(const std::byte*, base::Status* /*status*/) { return false; }
  /// The table's shard, if it is in the memory of a device, all of it lies in this process, and no worker waits for another: the caller may add
  /// to it, after checking values if the table rejects some, or read it, and counts as having done so. Null: nothing was done, or `status` is an
  /// error.
  virtual shard::OnDevice* on_device_here(bool /*adds*/, base::Status* /*status*/) { return nullptr; }
  /// Prefetches into the caches what a call reads first. Call it early with `soon` false, and later with true.
  virtual void expect(bool /*soon*/) const {}
  /// Whether Node::add_many() and Node::get_many() accept the table.
  virtual bool joins_many() const { return false; }
  virtual Started set(const Rows& rows, const ConstData& data, const CallOptions& options) = 0;
  virtual Started get(const Rows& rows, const MutableData& data, const CallOptions& options) = 0;
  /// get() of all rows into each of these places, if it needs no message and no waiting. False: nothing was done.
  virtual bool get_here(std::span<std::byte* const>, base::Status* /*status*/) { return false; }
  /// Gets all rows, encoded by the servers. Always by messages, so that every worker gets the same values.
  virtual Started get_encoded(const MutableData& data, const codec::CodecRef& codec, const CallOptions& options) = 0;
  /// The same, but the caller decodes: `out` takes the pieces of encoded_pieces().
  virtual Started get_pieces(std::span<std::byte> out, const codec::CodecRef& codec, const CallOptions& options) = 0;
  virtual EncodedPieces encoded_pieces(const codec::Codec& codec) const = 0;
  virtual Started peek(const Rows& rows, const MutableData& data, const CallOptions& options) = 0;
  virtual Started erase(const Rows& rows, const CallOptions& options) = 0;
  virtual Started set_updater(const shard::UpdaterSpec& updater, const CallOptions& options) = 0;
  /// The states after this worker's earlier adds and after the rounds that those belong to.
  virtual base::Result<TableStates> states() = 0;
  /// Restores what states() returned for the table's updater, perhaps with another number of servers.
  virtual base::Status set_states(const TableStates& states) = 0;
  virtual base::Status clock() = 0;
  /// The rounds of a merging table continue without this worker's adds.
  virtual base::Status leave_rounds() = 0;
  virtual base::Result<Scanned> scan(int64_t cursor, std::span<int64_t> rows, const MutableData& data) = 0;
  virtual base::Status close() = 0;
  virtual base::Status destroy() = 0;
};

/// Asynchronous changes of this size and more, and those from devices, begin while their values are still being copied. The window has room for all
/// of a smaller one, which would leave before a call of higher priority that comes a moment later.
inline constexpr uint64_t kCopiedAlongBytes = 16 << 20;

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
