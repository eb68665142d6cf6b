#pragma once
// A caller's call, as the engine carries it out.

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/operation.hpp"
#include "codec/codec.hpp"
#include "engine/rpc/pending.hpp"
#include "engine/table/client/uses.hpp"
#include "shard/shard.hpp"
#include "wire/frame.hpp"

namespace mv::table {

/// A table as its clients know it. Shared by all handles of this node on it. `spec`, `pace`, `servers` and `numbers` are fixed;
/// what is atomic is for any thread, the rest is the loop's.
struct TableView {
  TableView(shard::SpecRef of, std::shared_ptr<const std::vector<base::Peer>> by_id)
      : numbers(by_id->size(), kNoNumber), shared_spec(std::move(of)), spec(*shared_spec), shared_servers(std::move(by_id)), servers(*shared_servers) {}

  static constexpr uint32_t kNoNumber = UINT32_MAX;
  // What calls on many tables look at comes first, and together.
  std::atomic<uint64_t> clock{0};   ///< this worker's iterations, see mv_table_clock(); of a merging table its adds that have begun
  /// Changes that callers have started and servers have not acknowledged. While there are none, what a server holds shows all that
  /// this worker has done.
  std::atomic<uint64_t> open_changes{0};
  std::atomic<bool> has_untold{false};  ///< any thread
  shard::Consistency consistency = shard::Consistency::kAsync;
  std::vector<uint32_t> numbers;    ///< the table's number on each server; kNoNumber before that is known
  const shard::SpecRef shared_spec;
  const shard::Spec& spec;
  const std::shared_ptr<const std::vector<base::Peer>> shared_servers;
  const std::vector<base::Peer>& servers;  ///< by server id
  uint64_t queue = 0;                ///< small keys of one store keep the order of their calls among all of them; 0: each table by itself
  uint64_t round = 0;               ///< sync: gets of this worker so far
  uint64_t index = 0;               ///< sync: adds of this worker so far
  base::Status untold;              ///< of a fire-and-forget add that failed; taken by Client::take_untold()
  TableUses uses;
};
using TableViewRef = std::shared_ptr<TableView>;

enum class OpKind { kChange, kGet };

/// What a table takes on all servers, and what its adds do there now.
struct TableStats {
  shard::Usage usage;
  shard::UpdaterSpec updater;
};

/// A table of a get of many, and where its values go.
struct ManyPart {
  TableViewRef table;
  std::span<std::byte> destination;
};

/// What a caller asks for.
struct Request {
  TableViewRef table;
  OpKind kind = OpKind::kGet;
  wire::Write write = wire::Write::Add;
  bool gated = true;                      ///< gets: waits for its turn where the table's consistency asks for it (false: a peek)
  uint64_t clock = 0;                     ///< gets: this worker's clock at the call
  bool all = true;                        ///< all rows, else those of `rows`
  std::vector<int64_t> rows;
  size_t skip = SIZE_MAX;                 ///< a server that the caller serves itself
  bool waits_only = false;                ///< gated gets of no row: answered by all servers once their gates would serve
  base::PayloadRef source;                ///< changes: the caller's values, lent or owned
  codec::CodecRef codec;                  ///< adds of all elements: what `source` is encoded by, as place_encoded() says; gets: the answers
  int64_t priority = 0;                   ///< among what this worker has queued for other tables
  std::span<std::byte> destination;       ///< gets: the caller's memory
  std::vector<ManyPart> many;             ///< a get of several tables that lie whole on `server`; `table` is the first of them
  size_t server = 0;
  base::OperationRef operation;           ///< null for fire-and-forget
  uint64_t reserved = 0;                  ///< bytes of Client::in_flight() to give back when the call is over
};

}  // namespace mv::table
