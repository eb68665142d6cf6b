#pragma once
// The client's state of calls in flight; private to the source files of Client.

#include "engine/table/client/client.hpp"

namespace mv::table {

/// A call on a table. The client keeps it alive until its caller is notified. After that its chunks keep it alive, and
/// rpc keeps them until they are finished.
struct Client::TableCall final : base::Work, Timers::Timed, std::enable_shared_from_this<TableCall> {
  TableCall(Client& client, Request&& asked) : client(client), request(std::move(asked)), begun(client.servers_.clock.now()) {}
  void withdraw(mv_status code) override { client.withdraw(shared_from_this(), code); }
  void on_time() override { client.expire(shared_from_this()); }

  /// How servers count the call: not at all; in sync mode each gated call, by `round` and `index`; in a merging table
  /// adds, by `index`.
  enum class Counting : uint8_t { kNone, kSync, kMerge };
  bool counted() const { return counting == Counting::kSync; }
  bool merged() const { return counting == Counting::kMerge; }

  Client& client;
  Request request;
  std::vector<std::weak_ptr<Chunk>> chunks;
  const base::Nanos begun;
  size_t open = 0;          ///< chunks that are not finished
  base::Status error;       ///< the first one
  uint64_t change_id = 0;   ///< changes: its number, for flushes
  bool gated = false;       ///< it may have to wait for other workers
  Counting counting = Counting::kNone;
  /// The numbers of a call on a table on which this worker is a newcomer are final once it has begun.
  bool is_provisional = false;
  Counts numbered;
  Counts first() const { return is_provisional ? request.table->first : Counts(); }
  uint64_t round() const { return numbered.gets + first().gets; }
  uint64_t index() const { return merged() ? numbered.clock + first().clock : numbered.adds + first().adds; }
  uint64_t clock() const {
    const TableView& table = *request.table;
    return request.clock + (table.consistency == shard::Consistency::kStale ? table.clock_base.load(std::memory_order_relaxed) : first().clock);
  }
  bool is_sent = false;     ///< all chunks have been given to rpc
  bool asked_back = false;  ///< the deadline passed, and the servers were asked to withdraw it
  std::list<TableCallRef>::iterator place;  ///< in Client::waited_for_
  const base::Operation* whole = nullptr;   ///< the operation of which this is a part; null: it is a whole one
  std::vector<std::shared_ptr<Chunk>> withdrawn;  ///< chunks that a server withdrew
  std::vector<std::shared_ptr<Chunk>> refused;    ///< chunks for which a server had no memory
  int refusals = 0;                               ///< how often a server had none
  Timers::Timer timer;
  bool has_timer = false;
};

inline uint64_t many_bytes(std::span<const ManyPart> many) {
  uint64_t bytes = 0;
  for (const ManyPart& part : many) bytes += part.destination.size();
  return bytes;
}

/// One message of a call, waiting for its acknowledgement or answer.
class Client::Chunk final : public rpc::Pending, public std::enable_shared_from_this<Chunk> {
 public:
  Chunk(Client& client, TableCallRef op, ChunkRange piece) : op(std::move(op)), piece(std::move(piece)), client_(client) {}

  base::SinkRef place(const wire::Message& answer, size_t bytes) override;
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) override;
  /// Ends all access to the caller's memory.
  void let_go();
  /// The size of its values. An erase counts the rows that it names, though it carries no values.
  uint64_t bytes() const {
    const shard::Spec& spec = op->request.table->spec;
    if (!op->request.many.empty()) return many_bytes(op->request.many);
    return piece.ids.empty() ? piece.count * spec.element_bytes() : piece.ids.size() * spec.row_bytes();
  }
  /// Their size on the wire.
  uint64_t wire_bytes() const { return op->request.codec != nullptr ? op->request.codec->encoded_bytes(piece.count) : bytes(); }

  const TableCallRef op;
  const ChunkRange piece;
  base::PayloadRef payload;  ///< changes: what is sent
  bool makes_payload = false;  ///< it is gathered only when the message leaves
  bool over = false;

 private:
  std::span<std::byte> target() const;
  base::Status take(std::span<const std::byte> values);

  Client& client_;
  base::SinkRef sink_;  ///< the one that writes into the caller's memory
};

}  // namespace mv::table
