#pragma once
// The transport between nodes of one process, which dial each other by name ("inproc:name"), and from a node to itself.
//
// A node delivers messages to itself by reference, in the next turn of its loop. A message to another node is posted to
// that node's loop with a copy of its payload: a lender may move or revoke the original at any time, on its own loop.

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/peering/fenced_peers.hpp"
#include "transport/transport.hpp"

namespace mv::transport {

class InprocTransport;

/// The registry of the inproc names of one process, like the ports of a machine. Any thread.
class InprocHub {
 public:
  /// The shared reference to a node's transport, which the transport clears when it ends.
  class Endpoint {
   public:
    Endpoint(Loop& loop, InprocTransport& transport, base::Peer who) : who(who), loop_(&loop), transport_(&transport) {}
    /// Runs `fn(InprocTransport&)` on the transport's loop, unless the transport has ended by then. False if it has
    /// ended already.
    template <typename Fn>
    bool post(std::shared_ptr<Endpoint> self, Fn fn) {
      std::lock_guard lock(mutex_);
      if (loop_ == nullptr) return false;
      loop_->post([self = std::move(self), fn = std::move(fn)]() mutable {
        if (self->transport_ != nullptr) fn(*self->transport_);
      });
      return true;
    }
    /// Clears the reference. On the transport's loop.
    void shut() {
      std::lock_guard lock(mutex_);
      loop_ = nullptr;
      transport_ = nullptr;
    }
    const base::Peer who;

   private:
    std::mutex mutex_;
    Loop* loop_;        // under mutex_
    InprocTransport* transport_;  // written on its loop, under mutex_; read on its loop
  };

  /// The default hub of the process.
  static InprocHub& process();
  /// To be called around a fork(), so that no other thread is in the middle of a change. The child forgets its parent's
  /// transports, because their loops do not run in the child.
  void before_fork() noexcept { mutex_.lock(); }
  void after_fork() noexcept { mutex_.unlock(); }
  void after_fork_in_child() noexcept;

  bool add(const std::string& name, std::shared_ptr<Endpoint> endpoint);
  void remove(const std::string& name);
  std::shared_ptr<Endpoint> find(const std::string& name);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Endpoint>> endpoints_;
};

class InprocTransport final : public Transport {
 public:
  InprocTransport(Loop& loop, base::Peer self, InprocHub& hub = InprocHub::process());
  ~InprocTransport() override;

  void attach(base::LinkEvents& events) override { events_ = &events; }
  /// `address` is "inproc:name".
  base::Result<std::string> listen(const std::string& address) override;
  base::Result<std::string> adopt(int listening_fd) override;
  void dial(const std::string& address) override;
  /// A node may send to itself without a dial.
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;
  void flush() override {}
  void stop(std::function<void()> stopped) override;
  /// Both sides lose the connection for good, because a connection within a process cannot fail and be restored.
  void cut(base::Peer peer) override;

 private:
  using Endpoint = InprocHub::Endpoint;
  using EndpointRef = std::shared_ptr<Endpoint>;
  struct Known {
    EndpointRef endpoint;
    std::string address;
  };

  // Requests of other transports, on this loop.
  void take_dial(const EndpointRef& from, const std::string& from_address, const std::string& dialed);
  void take_answer(const EndpointRef& from, const std::string& dialed, bool accepted);
  void take_frame(base::Peer from, const base::Frame& frame);
  void take_end(base::Peer from, const std::string& how);

  bool connect(const EndpointRef& endpoint, const std::string& address);
  void part(base::Peer peer, const char* how);
  void leave();

  InprocHub& hub_;
  const base::Peer self_;
  base::LinkEvents* events_ = nullptr;
  EndpointRef endpoint_;
  std::vector<std::string> names_;  // without "inproc:"
  std::unordered_map<base::Peer, Known> peers_;
  FencedPeers gone_;
  bool stopping_ = false;
};

}  // namespace mv::transport
