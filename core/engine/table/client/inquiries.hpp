#pragma once
// A worker's questions and commands to servers that change no values: usage, stored rows, updaters' states.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/table/client/operation.hpp"
#include "engine/table/client/servers.hpp"

namespace mv::table {

/// A chunk of the rows that one server stores.
struct ScannedRows {
  uint64_t found = 0;
  int64_t next = -1;
};

/// A chunk of the updater's states of a server's part: one state of some rows. With `states` 0 it holds only the
/// updater and its progress.
struct StatesChunk {
  uint64_t first = 0, count = 0;
  uint32_t state = 0, states = 0;
  std::vector<std::byte> values;  ///< of the storage dtype
  shard::UpdaterSpec updater;
  shard::Mark mark;
};
inline constexpr uint64_t kNoMoreStates = UINT64_MAX;
/// The answer to a chunk while the table has another snapshot, or if the server does not know the transfer: begin anew, with chunk 0.
inline constexpr mv_status kBeginAnew = MV_ECANCELED;

/// Loop thread only.
class Inquiries {
 public:
  explicit Inquiries(Servers& servers) : servers_(servers) {}

  void stat(const TableViewRef& table, base::Nanos deadline, std::function<void(base::Result<TableStats>)> told);
  /// @param values  room for as many rows as `rows`, or empty
  void scan(const TableViewRef& table, size_t server, int64_t cursor, std::span<int64_t> rows, std::span<std::byte> values,
            base::Nanos deadline, std::function<void(base::Result<ScannedRows>)> told);
  /// Ask for chunk 0, 1 and so on, until one has no states; kNoMoreStates ends the transfer early.
  void states(const TableViewRef& table, size_t server, uint64_t chunk, base::Nanos deadline,
              std::function<void(base::Result<StatesChunk>)> told);
  /// Send the states of some rows in one call after another, and finally the mark.
  void set_states(const TableViewRef& table, size_t server, const StatesChunk& chunk, base::Nanos deadline,
                  std::function<void(base::Result<bool>)> told);
  /// Sends a command to all servers. Each server's controller executes it once; the operation ends when all have.
  void command(int64_t head, const std::string& body, base::OperationRef operation);

 private:
  Servers& servers_;
};

}  // namespace mv::table
