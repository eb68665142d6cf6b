#pragma once
// A worker's calls for checkpoints, and those that worker 0 makes by itself every so often.

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/client.hpp"
#include "engine/table/client/client.hpp"

namespace mv::checkpoint {

/// Loop thread only. What hears of an operation's end may call back into this object.
class Client {
 public:
  Client(const base::Clock& clock, rpc::Client& rpc, table::Client& tables, base::Pool& pool)
      : clock_(clock), rpc_(rpc), tables_(tables), pool_(pool) {}

  void start(const cluster::View& view) { view_ = &view; }

  struct Request {
    bool loads = false;
    std::string path;  ///< the directory to save to; the checkpoint to load, or a directory of them
    uint64_t keep = 0;
    base::OperationRef operation;
    std::function<void()> saving;  ///< a save: training may go on. Not called where the call ends before
  };
  /// Flush, then server 0. A save is over with the checkpoint, a load with the values.
  void begin(Request wish);

  /// From now on, and until finish(): a checkpoint every so often, without the other workers' taking part.
  void save_every(base::Nanos span, std::string directory, uint64_t keep);
  /// Calls `finished` once the saves that this worker has begun are over. No more are begun by the clock.
  void finish(std::function<void()> finished);

  base::Nanos next_deadline() const;
  void tick();

 private:
  class Call;
  using CallRef = std::shared_ptr<Call>;

  base::Peer server() const { return view_->servers().front()->peer; }
  void ask(const CallRef& call);
  void ask_whether_saved(const CallRef& call);
  void heard(const CallRef& call, const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload);
  void end(const CallRef& call, const base::Status& status);
  void withdraw(const CallRef& call, mv_status code);
  void expire(const CallRef& call);
  void save_by_clock();

  const base::Clock& clock_;
  rpc::Client& rpc_;
  table::Client& tables_;
  base::Pool& pool_;
  wire::FrameBuilder builder_;
  const cluster::View* view_ = nullptr;
  std::list<CallRef> calls_;
  base::Nanos every_ = base::kNever, next_by_clock_ = base::kNever;
  std::string directory_;
  uint64_t keep_ = 0;
  std::function<void()> finished_;
};

}  // namespace mv::checkpoint
