#pragma once
// Words of the users' own for servers: each is executed once, in its sender's order, by this server's controller, and answered then.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/cluster/view.hpp"
#include "engine/cluster/wait.hpp"
#include "engine/rpc/server.hpp"

namespace mv::table {

/// Loop thread only.
class Commands {
 public:
  struct Command {
    uint64_t number = 0;  ///< by which this server knows it
    int64_t head = 0;
    std::string body;
  };
  /// What becomes of commands: somebody takes them; somebody may soon; or nobody will.
  enum class Controller { kHere, kAwaited, kNone };

  Commands(const base::Clock& clock, rpc::Server& rpc) : clock_(clock), rpc_(rpc) {}

  void start(const cluster::View& view, base::Peer self);
  /// `waiting` hears how many more wait for take(), or fewer. Not called where there is none.
  void set_controller(Controller controller, std::function<void(int64_t more)> waiting);

  void on_request(const rpc::Asked& asked, const wire::Command& request, std::span<const std::byte> payload);
  /// One that was not taken yet is not executed any more. True if it is one of these.
  bool on_cancel(const rpc::Asked& asked);

  /// The oldest that waits; done() follows.
  std::optional<Command> take();
  void done(uint64_t number, const base::Status& outcome);

  /// Those that are not executed yet.
  std::vector<cluster::Wait> waits() const;

 private:
  struct WaitingWorker {
    rpc::Asked asked;
    Command command;
    base::Nanos since{0};
  };
  struct Taken {
    rpc::Asked asked;
    int64_t head = 0;
    base::Nanos since{0};
  };
  base::Status nobody() const;
  cluster::Wait wait_of(const rpc::Asked& asked, int64_t head, base::Nanos since, std::string what) const;

  const base::Clock& clock_;
  rpc::Server& rpc_;
  wire::FrameBuilder builder_;
  base::Peer peer_ = base::kNobody;
  std::string self_;
  Controller controller_ = Controller::kNone;
  std::function<void(int64_t)> waiting_changed_;
  std::deque<WaitingWorker> waiting_;
  std::map<uint64_t, Taken> taken_;
  uint64_t next_ = 1;
};

}  // namespace mv::table
