#pragma once
// One server's tables with their clients' streams, as a state machine that has a copy in another process.

#include <cstdint>
#include <functional>
#include <set>
#include <span>

#include "base/pool.hpp"
#include "engine/cluster/view.hpp"
#include "engine/replica/digest.hpp"
#include "engine/replica/outbox.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/server.hpp"

namespace mv::replica {

/// State machine replication (Schneider, ACM Computing Surveys 1990) with a primary and a back-up: the primary numbers the inputs of the part,
/// clients' requests and the ends of workers, by processing them; the back-up processes the same inputs in the same order. The part is
/// deterministic, so both have equal tables, updaters' states, gates and streams: a client of the one can go on with the other, and each
/// request has its effect once. Gets that change nothing are not inputs. What one of the two can't do for want of memory ends it: see
/// table::Roster::has_copy(). Loop thread only.
class Part final : private rpc::Service {
 public:
  /// One input. `request`, `payload` and `staged` are valid during the call.
  struct Input {
    wire::ReplicaEvent event = wire::ReplicaEvent::Asked;
    base::Peer client = base::kNobody;
    rpc::Seq seq = 0;
    const wire::Message* request = nullptr;
    std::span<const std::byte> payload = {};
    base::SinkRef staged = nullptr;
    base::Status why = {};
    const cluster::Member* worker = nullptr;
    const Piece* piece = nullptr;
  };
  using Log = std::function<void(const Input&)>;

  Part(base::Link& link, base::Pool& pool) : outbox_(link), streams_(outbox_, *this), pool_(pool) {}

  rpc::Server& streams() { return streams_; }
  const rpc::Server& streams() const { return streams_; }
  Outbox& outbox() { return outbox_; }
  /// @param view  of the complete cluster; the part keeps a copy, which changes with its inputs only
  /// @param tables  which use streams(); must outlive this object
  /// @param has_copy  see table::Roster::has_copy()
  void start(const cluster::View& view, const cluster::Member& server, table::Server& tables, bool has_copy = true);
  /// Makes this the primary, without a back-up.
  void lead();
  /// The primary has a back-up with an equal part, and passes its inputs to `log` before it processes them.
  void pass_on(Log log);
  bool leads() const { return leads_; }
  bool has_backup() const { return log_ != nullptr; }
  /// Of a back-up: the number of tables of which it has not had the values of the primary.
  size_t differing() const { return differing_.size(); }
  /// The back-up is gone.
  void lead_alone();
  /// While it is sealed, the primary takes no requests and answers none, and its back-up gets no inputs: it may take over at any moment.
  void seal();
  /// Afterwards clients repeat what they have asked meanwhile. `view`: of the cluster, for the news about workers meanwhile.
  void unseal(const cluster::View& view);
  bool is_sealed() const { return is_sealed_; }

  // inputs of the primary
  void on_message(base::Peer client, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged) {
    if (!is_sealed_) streams_.on_message(client, message, payload, staged);
  }
  void worker_finished(base::Peer worker);
  void worker_lost(base::Peer worker, const base::Status& why);
  void worker_joined(const cluster::Member& worker);
  /// Passes a digest of some of the values to the back-up, the next ones with each call. The back-up logs a difference and counts it.
  void compare();
  /// Processes the news about workers that its primary did not live to pass on.
  void catch_up(const cluster::View& view);

  // a copy for a new back-up

  /// Nothing waits in the part: write_state() has everything but values.
  bool is_idle() const { return streams_.is_idle() && tables_->part_state().is_idle(); }
  /// Drops requests that begin something new until it ends, so that the part becomes idle. Then their clients repeat them.
  void calm(bool on);
  /// Passes the state to `send`, message by message: payloads, each a wire::PartState.
  void write_state(const std::function<void(base::PayloadRef)>& send) const;
  /// Puts one of them into a new part; the first one starts it. `server`: see start(). MV_EPROTOCOL
  base::Status restore(const cluster::Member& server, table::Server& tables, std::span<const std::byte> payload);
  const table::Server& tables() const { return *tables_; }
  bool has_started() const { return tables_ != nullptr; }

  /// The next input of the back-up, which is process `self`.
  base::Status replay(base::Peer self, const wire::Replicate& input, std::span<const std::byte> payload, const base::SinkRef& staged);

 private:
  base::SinkRef place(const wire::Message& request, size_t bytes) override;
  bool may_start(const rpc::Asked& asked, const wire::Message& request) override;
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged) override;
  void on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) override;
  void on_cancel(const rpc::Asked& asked) override;
  void log(const Input& input);
  void compared_with(const Piece& theirs, base::Peer backup);

  Outbox outbox_;
  rpc::Server streams_;
  base::Pool& pool_;
  cluster::View view_;
  base::Peer server_ = base::kNobody;  ///< whose part this is
  table::Server* tables_ = nullptr;
  bool leads_ = false, is_calm_ = false, is_sealed_ = false;
  std::set<base::Peer> kept_waiting_;  ///< clients with dropped requests: see calm()
  Piece next_;                         ///< to be compared
  std::set<uint32_t> differing_;       ///< tables
  Log log_;
};

/// The message that passes an input of part `part` to the back-up; its payload goes with the frame.
flatbuffers::Offset<wire::Replicate> write_input(flatbuffers::FlatBufferBuilder& fbb, uint32_t part, const Part::Input& input);

}  // namespace mv::replica
