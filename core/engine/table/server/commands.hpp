#pragma once
// User-defined commands for servers. A server's controller executes each command once, in its sender's order; then the
// server answers it.

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
    uint64_t number = 0;  ///< this server's number for it
    int64_t head = 0;
    std::string body;
  };
  /// Whether commands are executed: a controller is set, one may still be set, or there will be none.
  enum class Controller { kHere, kAwaited, kNone };

  Commands(const base::Clock& clock, rpc::Server& rpc) : clock_(clock), rpc_(rpc) {}

  void start(const cluster::View& view, base::Peer self);
  /// `waiting` is called with the change in the number of commands that wait for take(). It may be empty.
  void set_controller(Controller controller, std::function<void(int64_t more)> waiting);

  void on_request(const rpc::Asked& asked, const wire::Command& request, std::span<const std::byte> payload);
  /// A command that was not taken yet will not be executed. A taken one continues.
  void on_cancel(const rpc::Asked& asked);

  /// Takes the oldest waiting command; done() follows.
  std::optional<Command> take();
  void done(uint64_t number, const base::Status& outcome);

  /// The commands that are not executed yet.
  std::vector<cluster::Wait> waits() const;

 private:
  struct WaitingCommand {
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
  std::deque<WaitingCommand> waiting_;
  std::map<uint64_t, Taken> taken_;
  uint64_t next_ = 1;
};

}  // namespace mv::table
