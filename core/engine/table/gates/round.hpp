#pragma once
// One request to several servers; private to the parts of Client that address all of them.

#include <map>
#include <string>
#include <utility>

#include "engine/table/client/chunk.hpp"

namespace mv::table {

/// Sends a request to some servers, and collects all answers, or the first error.
class Client::Round : public std::enable_shared_from_this<Round> {
 public:
  using Each = std::function<void(size_t server, const wire::Message&, std::span<const std::byte> payload)>;
  using Done = std::function<void(const base::Status&)>;
  using Ask = std::function<base::Frame(wire::FrameBuilder&, size_t server)>;

  Round(Client& client, std::vector<base::Peer> servers, Each each, Done done)
      : client_(client), servers_(std::move(servers)), each_(std::move(each)), done_(std::move(done)) {}

  /// Sends a question, which each server answers.
  void ask(const Ask& question, base::Nanos deadline) { send(question, deadline, kNoServer, true); }
  /// Sends a message that each server except `skip` acknowledges.
  void tell(const Ask& news, base::Nanos deadline = base::kNever, size_t skip = kNoServer) { send(news, deadline, skip, false); }

  /// Keeps `work` until the round is over.
  void keep(std::shared_ptr<base::Work> work) { work_ = std::move(work); }
  /// Asks the servers to withdraw the request; their errors name the missing workers. Ends without their answers 1 s
  /// later.
  void expire() {
    if (has_timer_) client_.deadlines_.erase(timer_);
    ask_back();
  }

 private:
  void send(const Ask& question, base::Nanos deadline, size_t skip, bool wants_answer) {
    open_ = servers_.size() - (skip < servers_.size() ? 1 : 0);
    if (open_ == 0) return done_({});
    if (deadline != base::kNever) {
      timer_ = client_.deadlines_.emplace(deadline, [self = shared_from_this()] { self->ask_back(); });
      has_timer_ = true;
    }
    std::vector<std::shared_ptr<Gather>> pendings(servers_.size());
    for (size_t server = 0; server < servers_.size(); ++server) {
      if (server == skip) continue;
      pendings[server] = std::make_shared<Gather>(
          client_.pool_, [self = shared_from_this(), server](const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
            self->heard(server, status, answer, payload);
          });
    }
    pendings_.assign(pendings.begin(), pendings.end());  // answers may come at once
    for (size_t server = 0; server < servers_.size(); ++server)
      if (pendings[server] != nullptr)
        client_.rpc_.call(servers_[server], {question(client_.builder_, server), pendings[server], wants_answer, 0, nullptr});
  }

  void heard(size_t server, const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
    pendings_[server].reset();
    if (status.ok() && answer != nullptr && each_) each_(server, *answer, payload);
    const bool unsent = asked_back_ && status.code() == MV_ECANCELED;
    if (!status.ok() && error_.ok())
      error_ = !unsent ? status : base::error(MV_ETIMEOUT, "{} has not answered earlier calls", client_.view_->name(servers_[server]));
    if (--open_ > 0) return;
    if (has_timer_) client_.deadlines_.erase(timer_);
    has_timer_ = false;
    done_(error_);
  }

  void ask_back() {
    has_timer_ = false;
    std::vector<std::shared_ptr<Gather>> pendings;
    for (const auto& pending : pendings_) pendings.push_back(pending.lock());
    if (!std::exchange(asked_back_, true)) {
      timer_ = client_.deadlines_.emplace(client_.clock_.now() + std::chrono::seconds(1), [self = shared_from_this()] { self->ask_back(); });
      has_timer_ = true;
      for (size_t server = 0; server < servers_.size(); ++server)
        if (pendings[server] != nullptr) client_.rpc_.cancel(servers_[server], pendings[server].get());
      return;
    }
    for (size_t server = 0; server < servers_.size(); ++server)
      if (pendings[server] != nullptr)
        client_.rpc_.abandon(servers_[server], pendings[server].get(),
                             base::error(MV_ETIMEOUT, "no answer from {}", client_.view_->name(servers_[server])));
  }

  Client& client_;
  const std::vector<base::Peer> servers_;
  const Each each_;
  const Done done_;
  std::shared_ptr<base::Work> work_;
  std::vector<std::weak_ptr<Gather>> pendings_;  ///< owned by rpc; they own this object
  size_t open_ = 0;
  base::Status error_;
  bool asked_back_ = false;
  bool has_timer_ = false;
  std::multimap<base::Nanos, std::function<void()>>::iterator timer_;
};

}  // namespace mv::table
