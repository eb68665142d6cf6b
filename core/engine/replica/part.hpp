#pragma once
// One server's tables and their clients' streams, as a state machine that has a copy in another process.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/pool.hpp"
#include "engine/checkpoint/held_save.hpp"
#include "engine/cluster/view.hpp"
#include "engine/replica/digest.hpp"
#include "engine/replica/outbox.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/server.hpp"

namespace mv::replica {

/// State machine replication (Schneider, ACM Computing Surveys 1990) with a primary and back-ups. The inputs of the
/// part are its clients' requests and the ends of workers. The order in which the primary processes them is their
/// order, and each back-up processes the same inputs in that order. The part is deterministic, so all have equal
/// tables, updaters' states, gates and streams. A client of one can therefore continue with another, and each request
/// takes effect once.
///
/// Gets that change nothing are not inputs. The parts of a merging table's round are one input together, with their sum
/// in place of their values. Until then they are withheld from the back-up, and not acknowledged (part_rounds.cpp).
/// If the primary has no memory for what an input needs, both refuse that. If only the back-up has none, its process ends: see
/// table::Refusals. Loop thread only.
class Part final : private rpc::Service {
 public:
  /// A request that was not sent to the back-up yet.
  struct Unsent {
    rpc::Asked asked;
    rpc::Seq done;                  ///< of its message
    std::vector<std::byte> header;  ///< its message
    std::vector<std::byte> ids = {};  ///< of a get: the ids of its rows
    const wire::Message& message() const { return *flatbuffers::GetRoot<wire::Message>(header.data()); }
  };
  /// One input. `request`, `payload` and `staged` are valid during the call.
  struct Input {
    wire::ReplicaEvent event = wire::ReplicaEvent::Asked;
    base::Peer client = base::kNobody;
    rpc::Seq seq = 0;
    const wire::Message* request = nullptr;
    std::span<const std::byte> payload = {};
    std::shared_ptr<const void> staged = nullptr;  ///< keeps the payload alive; null: it is valid during the call
    base::Status why = {};
    const cluster::Member* worker = nullptr;
    const Piece* piece = nullptr;
    std::span<const Unsent> parts = {};  ///< Merged: of a round, whose sum is the payload
    uint64_t number = 0;                 ///< of the input: log() gives it
    uint64_t epoch = 0;                  ///< Copy: of the primary's view
    base::Peer to = base::kNobody;       ///< Copy: the next back-up, which gets its copy from `client`
    const checkpoint::HeldSave* save = nullptr;  ///< Snapshot, Written
    std::span<const uint32_t> refused = {};  ///< see table::Refusals
  };
  using Log = std::function<void(const Input&)>;

  Part(base::Link& link, base::Pool& pool) : outbox_(link), streams_(outbox_, *this), pool_(pool) {}

  rpc::Server& streams() { return streams_; }
  const rpc::Server& streams() const { return streams_; }
  Outbox& outbox() { return outbox_; }
  /// @param view  of the complete cluster. The part keeps a copy, which only its inputs change
  /// @param tables  which use streams(); must outlive this object
  /// @param has_copy  see table::Roster::has_copy()
  void start(const cluster::View& view, const cluster::Member& server, table::Server& tables, bool has_copy = true);
  /// Makes this the primary, without a back-up.
  void lead();
  /// The primary has a back-up with an equal part, and passes its inputs to `log` before it processes them. The back-up
  /// has not acknowledged this many earlier inputs yet.
  void pass_on(Log log, size_t unacknowledged = 0);
  /// Passes an event to the back-ups that is no change.
  void tell(Input event) { log(std::move(event)); }
  /// Whether tables without back-ups (MV_NO_BACKUPS) are treated like the others: their requests are inputs, and a copy
  /// has their values. So it is without replicas, and while a part is given to another server.
  bool has_all() const { return has_all_; }
  void set_has_all(bool on) {
    has_all_ = on;
    if (tables_ != nullptr) tables_->set_copies_all(on);
  }
  /// The number of the last input: see Replicate.number.
  uint64_t inputs() const { return inputs_; }
  /// Of a piece of a new content, which is numbered like an input: its number, and what a back-up has taken.
  uint64_t next_input() { return ++inputs_; }
  void took(uint64_t number) { inputs_ = number; }
  bool leads() const { return leads_; }
  bool has_backup() const { return log_ != nullptr; }
  /// Of a back-up: the number of tables that have differed from the primary's.
  size_t differing() const { return differing_.size(); }
  /// The back-up is gone.
  void lead_alone();
  /// When the first of the withheld parts arrived, which the back-up does not have and the primary has not
  /// acknowledged; kNever: there are none.
  base::Nanos withheld_since() const;
  /// Passes the withheld parts that arrived until `by` to the back-up.
  void send_withheld(base::Nanos by = base::kNever);
  /// Whether the primary withholds parts from now on. It must not while a load changes the values.
  void may_withhold(bool on);
  /// While the primary is sealed, it takes no requests and answers none, and its back-up gets no inputs: the back-up
  /// may take over at any moment.
  void seal();
  /// Ends the seal; clients then repeat their requests. `view`: the cluster's, for changes of workers in the meantime.
  void unseal(const cluster::View& view);
  bool is_sealed() const { return is_sealed_; }

  // saves: see checkpoint::HeldSave

  /// The primary has taken the snapshot of a save. `clocks`: see checkpoint::ServedParts::hold().
  void hold(const std::string& path, std::span<const std::byte> clocks);
  /// Whether the back-ups have the snapshot of the last save, too.
  bool is_held() const { return !save_ || outbox_.is_held(save_->inputs); }
  /// The primary has written its file of the last save, or (null) will not.
  void written(const checkpoint::FileEntry* file);
  /// The last one; null if there was none.
  checkpoint::HeldSave* save() { return save_ ? &*save_ : nullptr; }

  // inputs of the primary
  void on_message(base::Peer client, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged) {
    if (!is_sealed_) streams_.on_message(client, message, payload, staged);
  }
  void worker_finished(base::Peer worker);
  void worker_lost(base::Peer worker, const base::Status& why);
  void worker_joined(const cluster::Member& worker);
  /// Passes a digest of the next values to the back-up, unless the back-up still owes the acknowledgement of the last
  /// one: on a slow connection, answers to clients would wait for ever more digests. The back-up logs and counts a
  /// difference.
  void compare();
  /// Processes the changes of workers that the primary did not pass on before it died.
  void catch_up(const cluster::View& view);

  // a copy for a new back-up

  /// Nothing waits in the part: write_state() has everything but values.
  bool is_idle() const { return streams_.is_idle() && tables_->part_state().is_idle(); }
  /// While on, drops requests that begin something new, so that the part becomes idle. Their clients repeat them
  /// afterwards.
  void calm(bool on);
  /// Passes the state to `send`, message by message: payloads, each a wire::PartState.
  void write_state(const std::function<void(base::PayloadRef)>& send) const;
  /// Reads one of these messages into a new part; the first one starts it. `server`: see start(). MV_EPROTOCOL
  base::Status restore(const cluster::Member& server, table::Server& tables, std::span<const std::byte> payload);
  const table::Server& tables() const { return *tables_; }
  bool has_started() const { return tables_ != nullptr; }

  /// The next input of the back-up, which is process `self`. After an error, all later inputs fail with it.
  base::Status replay(base::Peer self, const wire::Replicate& input, std::span<const std::byte> payload, const base::SinkRef& staged);
  /// The first error of replay(): this copy lacks changes.
  const base::Status& damage() const { return damage_; }

 private:
  base::SinkRef place(const wire::Message& request, size_t bytes) override;
  bool may_start(const rpc::Asked& asked, const wire::Message& request) override;
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged) override;
  void on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) override;
  void on_cancel(const rpc::Asked& asked) override;
  bool starts_again(const wire::Message& request) override { return tables_->is_gone(request); }
  void log(Input input);
  template <typename Work>
  void log_after(Input input, const Work& work);
  void pass_part(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged);
  void send_round(const std::vector<table::WithheldParts::Merge>& merges, const Unsent& last);
  bool send_sum(const std::vector<table::WithheldParts::Merge>& merges, const Unsent& last);
  void pass_on_alone(const Unsent& one, std::span<const std::byte> payload, const std::shared_ptr<const void>& keep);
  template <typename Which>
  void send_withheld_if(Which which);
  void send_before(const rpc::Asked& asked, const wire::Message& request);
  void keep_waiting(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload);
  void send_waiting();
  bool is_round_without_backups(const wire::Replicate& input) const;
  base::Status replay_input(base::Peer self, const wire::Replicate& input, std::span<const std::byte> payload, const base::SinkRef& staged);
  base::Status replay_round(const wire::Replicate& input, std::span<const std::byte> payload);
  void compared_with(const Piece& theirs, base::Peer backup);
  bool replay_save(const wire::Replicate& input, std::span<const std::byte> clocks);

  Outbox outbox_;
  rpc::Server streams_;
  base::Pool& pool_;
  cluster::View view_;
  base::Peer server_ = base::kNobody;  ///< the server whose part this is
  table::Server* tables_ = nullptr;
  bool leads_ = false, is_calm_ = false, is_sealed_ = false;
  std::set<base::Peer> kept_waiting_;  ///< clients with dropped requests: see calm()
  Piece next_;                         ///< to be compared
  uint64_t compared_ = 0;              ///< the number of inputs up to the last comparison
  std::set<uint32_t> differing_;       ///< tables
  std::optional<checkpoint::HeldSave> save_;
  bool owes_written_ = false;          ///< the back-ups do not know, because the part was sealed
  Log log_;
  uint64_t inputs_ = 0;
  base::Status damage_;
  bool may_withhold_ = true, has_all_ = true;
  std::deque<Unsent> unsent_;    ///< withheld parts of rounds, in their order
  std::vector<Unsent> waiting_;  ///< gets that wait for rounds; the back-up needs them only if a worker is lost meanwhile
};

/// The message that passes an input of part `part` to the back-up; its payload goes with the frame.
flatbuffers::Offset<wire::Replicate> write_input(flatbuffers::FlatBufferBuilder& fbb, uint32_t part, const Part::Input& input);

}  // namespace mv::replica
