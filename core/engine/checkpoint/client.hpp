#pragma once
// The worker's side of checkpoints: calls that save or load, and the periodic saves of worker 0.

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/client.hpp"
#include "engine/table/client/client.hpp"

namespace mv::checkpoint {

/// Requests saves and loads from the coordinator, the process that serves the part of server 0. With back-ups, a call
/// whose coordinator is lost asks the next coordinator. Loop thread only. Completions of operations may call back into this object.
class Client {
 public:
  /// @param can_move  with back-ups: another process may become the coordinator
  Client(const base::Clock& clock, rpc::Client& rpc, table::Client& tables, base::Pool& pool, bool can_move)
      : clock_(clock), rpc_(rpc), tables_(tables), pool_(pool), can_move_(can_move) {}

  void start(const cluster::View& view);

  struct Request {
    bool loads = false;
    std::string path;  ///< the directory to save to, or the checkpoint to load, or a directory of checkpoints of which the newest is loaded
    uint64_t keep = 0;
    base::OperationRef operation;
    std::function<void()> saving;  ///< a save: training may continue. Not called if the call ends earlier
  };
  /// Flushes, then asks the coordinator. A save ends when the checkpoint is complete, a load when the tables have its values.
  void begin(Request request);

  /// Saves a checkpoint every `span` from now on until finish(). The other workers do not take part.
  void save_every(base::Nanos span, std::string directory, uint64_t keep);
  /// Ends periodic saves, and calls `finished` when the saves that this worker has begun have ended.
  void finish(std::function<void()> finished);
  /// The view has changed: there may be another coordinator.
  void servers_changed();
  /// The master is lost, so there will be no other coordinator.
  void master_lost(const base::Status& why);
  void master_found() { no_master_ = {}; }

  base::Nanos next_deadline() const;
  void tick();

 private:
  class Call;
  using CallRef = std::shared_ptr<Call>;

  base::Peer coordinator() const;
  /// Whether another process may become the coordinator. Without back-ups, that happens when a server drains.
  bool can_move() const { return can_move_ || (view_ != nullptr && view_->has_departures()); }
  bool may_ask_successor(const Call& call, const base::Status& status) const;
  void ask(const CallRef& call);
  void ask_whether_saved(const CallRef& call);
  void heard(const CallRef& call, const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload);
  void end(const CallRef& call, const base::Status& status);
  void stop_waiting(const Call& call);
  void withdraw(const CallRef& call, mv_status code);
  void expire(const CallRef& call);
  void save_by_clock();

  const base::Clock& clock_;
  rpc::Client& rpc_;
  table::Client& tables_;
  base::Pool& pool_;
  const bool can_move_;  ///< see can_move()
  wire::FrameBuilder builder_;
  const cluster::View* view_ = nullptr;
  base::Peer coordinator_ = base::kNobody;  ///< the last one
  base::Status no_master_;
  uint64_t begun_ = 0;  ///< calls except periodic saves; see wire::Save.call
  uint64_t ended_ = 0;  ///< the last call that the coordinator, or its loss, has ended, and how
  mv_status how_ = MV_OK;
  std::list<CallRef> calls_;
  base::Nanos every_ = base::kNever, next_by_clock_ = base::kNever;
  std::string directory_;
  uint64_t keep_ = 0;
  std::function<void()> finished_;
};

}  // namespace mv::checkpoint
