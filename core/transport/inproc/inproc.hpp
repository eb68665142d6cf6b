#pragma once
// The transport between nodes of one process, which know each other by name ("inproc:name"), and from a node to itself.
//
// To itself a message goes by reference, in the next turn of the loop. To another node it crosses to that node's loop, and takes
// a copy of its payload with it: a lender may move or withdraw the original at any moment, on its own loop.

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/transport.hpp"

namespace mv::transport {

class InprocTransport;

/// The names of one process, as ports are of one machine. Any thread.
class InprocHub {
 public:
  /// How other nodes reach one: its transport, as long as there is one.
  class Endpoint {
   public:
    Endpoint(Loop& loop, InprocTransport& transport, base::Peer who) : who(who), loop_(&loop), transport_(&transport) {}
    /// Runs `fn(InprocTransport&)` on the transport's loop, unless it is gone by then. False if it is gone already.
    template <typename Fn>
    bool post(std::shared_ptr<Endpoint> self, Fn fn) {
      std::lock_guard lock(mutex_);
      if (loop_ == nullptr) return false;
      loop_->post([self = std::move(self), fn = std::move(fn)]() mutable {
        if (self->transport_ != nullptr) fn(*self->transport_);
      });
      return true;
    }
    /// On the transport's loop.
    void shut() {
      std::lock_guard lock(mutex_);
      loop_ = nullptr;
      transport_ = nullptr;
    }
    const base::Peer who;

   private:
    std::mutex mutex_;
    Loop* loop_;        // under mutex_
    InprocTransport* transport_;  // changed on its loop, under mutex_; read there
  };

  /// The one that nodes use unless told otherwise.
  static InprocHub& process();
  /// Round a fork(): no other thread is in the midst of a change. A child finds none of its parent's transports, whose loops don't run there.
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
  /// "inproc:name".
  base::Result<std::string> listen(const std::string& address) override;
  base::Result<std::string> adopt(int listening_fd) override;
  void dial(const std::string& address) override;
  /// A node may send to itself without a dial.
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;
  void flush() override {}
  void stop(std::function<void()> stopped) override;
  /// A connection within a process has nothing that could fail and be mended: cut loses it for good on both sides.
  void cut(base::Peer peer) override;

 private:
  using Endpoint = InprocHub::Endpoint;
  using DoorRef = std::shared_ptr<Endpoint>;
  struct Known {
    DoorRef endpoint;
    std::string address;
  };

  // What other transports ask of this one, on this loop.
  void take_dial(const DoorRef& from, const std::string& from_address, const std::string& dialed);
  void take_answer(const DoorRef& from, const std::string& dialed, bool accepted);
  void take_frame(base::Peer from, const base::Frame& frame);
  void take_end(base::Peer from, const std::string& how);

  bool connect(const DoorRef& endpoint, const std::string& address);
  void part(base::Peer peer, const char* how);
  void leave();

  InprocHub& hub_;
  const base::Peer self_;
  base::LinkEvents* events_ = nullptr;
  DoorRef endpoint_;
  std::vector<std::string> names_;  // without "inproc:"
  std::unordered_map<base::Peer, Known> peers_;
  std::unordered_set<base::Peer> gone_;
  bool stopping_ = false;
};

}  // namespace mv::transport
