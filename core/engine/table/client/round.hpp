#pragma once
// One request to several servers.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/operation.hpp"
#include "engine/table/client/gather.hpp"
#include "engine/table/client/operation.hpp"
#include "engine/table/client/servers.hpp"

namespace mv::table {

/// Sends a request to some servers, and collects all answers, or the first error.
class Round final : public Timers::Timed, public std::enable_shared_from_this<Round> {
 public:
  using Each = std::function<void(size_t server, const wire::Message&, std::span<const std::byte> payload)>;
  using Done = std::function<void(const base::Status&)>;
  using Ask = std::function<base::Frame(wire::FrameBuilder&, size_t server)>;

  Round(Servers& all, std::vector<base::Peer> servers, Each each, Done done) : Round(all, all.rpc, std::move(servers), std::move(each), std::move(done)) {}
  Round(Servers& all, rpc::Client& rpc, std::vector<base::Peer> servers, Each each, Done done)
      : all_(all), rpc_(rpc), servers_(std::move(servers)), each_(std::move(each)), done_(std::move(done)) {}

  /// Sends a question, which each server answers.
  void ask(const Ask& question, base::Nanos deadline) { send(question, deadline, kNoServer, true); }
  /// Sends a message that each server except `skip` acknowledges.
  void tell(const Ask& news, base::Nanos deadline = base::kNever, size_t skip = kNoServer) { send(news, deadline, skip, false); }

  /// Its messages do not wait behind calls for which there is no room. To be called first.
  void overtake() { overtakes_ = true; }
  /// Keeps `work` until the round has ended.
  void keep(std::shared_ptr<base::Work> work) { work_ = std::move(work); }
  /// Asks the servers to withdraw the request; their errors name the missing workers. Ends without their answers 1 s
  /// later.
  void expire() {
    if (has_timer_) all_.timers.drop(timer_);
    ask_back();
  }

 private:
  void on_time() override { ask_back(); }
  void send(const Ask& question, base::Nanos deadline, size_t skip, bool wants_answer) {
    open_ = servers_.size() - (skip < servers_.size() ? 1 : 0);
    if (open_ == 0) return done_({});
    if (deadline != base::kNever) {
      timer_ = all_.timers.set(deadline, shared_from_this());
      has_timer_ = true;
    }
    std::vector<std::shared_ptr<Gather>> pendings(servers_.size());
    for (size_t server = 0; server < servers_.size(); ++server) {
      if (server == skip) continue;
      pendings[server] = std::make_shared<Gather>(
          all_.pool, [self = shared_from_this(), server](const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
            self->heard(server, status, answer, payload);
          });
    }
    pendings_.assign(pendings.begin(), pendings.end());  // answers may come at once
    for (size_t server = 0; server < servers_.size(); ++server)
      if (pendings[server] != nullptr)
        rpc_.call(servers_[server], {question(all_.builder, server), pendings[server], wants_answer, 0, nullptr, overtakes_});
  }

  void heard(size_t server, const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
    pendings_[server].reset();
    if (status.ok() && answer != nullptr && each_) each_(server, *answer, payload);
    const bool unsent = asked_back_ && status.code() == MV_ECANCELED;
    if (!status.ok() && error_.ok())
      error_ = !unsent ? status : base::error(MV_ETIMEOUT, "{} has not answered earlier calls", all_.name(servers_[server]));
    if (--open_ > 0) return;
    if (has_timer_) all_.timers.drop(timer_);
    has_timer_ = false;
    done_(error_);
  }

  void ask_back() {
    has_timer_ = false;
    std::vector<std::shared_ptr<Gather>> pendings;
    for (const auto& pending : pendings_) pendings.push_back(pending.lock());
    if (!std::exchange(asked_back_, true)) {
      timer_ = all_.timers.set(all_.clock.now() + std::chrono::seconds(1), shared_from_this());
      has_timer_ = true;
      for (size_t server = 0; server < servers_.size(); ++server)
        if (pendings[server] != nullptr) rpc_.cancel(servers_[server], pendings[server].get());
      return;
    }
    for (size_t server = 0; server < servers_.size(); ++server)
      if (pendings[server] != nullptr)
        rpc_.abandon(servers_[server], pendings[server].get(),
                             base::error(MV_ETIMEOUT, "no answer from {}", all_.name(servers_[server])));
  }

  Servers& all_;
  rpc::Client& rpc_;
  const std::vector<base::Peer> servers_;
  const Each each_;
  const Done done_;
  std::shared_ptr<base::Work> work_;
  std::vector<std::weak_ptr<Gather>> pendings_;  ///< owned by rpc; they own this object
  size_t open_ = 0;
  base::Status error_;
  bool asked_back_ = false, overtakes_ = false;
  bool has_timer_ = false;
  Timers::Timer timer_;
};

}  // namespace mv::table
