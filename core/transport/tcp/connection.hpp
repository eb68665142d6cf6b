#pragma once
// One socket, from its connect() or accept() to its close: the hello, then frames, then a goodbye or a break.
// It knows nothing of other connections; what its end means is decided by its owner (tcp.hpp).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/link.hpp"
#include "transport/loop/handles.hpp"
#include "transport/tcp/outbox.hpp"
#include "transport/tcp/receiver.hpp"
#include "transport/tcp/socket.hpp"
#include "wire/hello.hpp"

namespace mv::transport {

class Connection;

/// All on the loop. A connection must outlive the call in which it reports.
class ConnectionEvents {
 public:
  /// Dialed, and connected: greet() is due, or the end of a probe.
  virtual void on_stream(Connection& connection) = 0;
  /// The handshake is undecided: handshake().prove(), accept() or refuse(), and continue_greeting(), now or later.
  virtual void on_deciding(Connection& connection) = 0;
  /// The hello is complete: open() is due.
  virtual void on_greeted(Connection& connection) = 0;
  /// It came to nothing before that. `refused`: nobody listens there.
  virtual void on_failed(Connection& connection, const base::Status& why, bool refused) = 0;
  enum class End { kBroken, kGoodbye, kGarbage, kClosed };
  /// An open connection has ended; kClosed after say_goodbye().
  virtual void on_ended(Connection& connection, End how, const base::Status& why) = 0;

 protected:
  ~ConnectionEvents() = default;
};

class Connection {
 public:
  enum class State { kConnecting, kGreeting, kOpen, kClosing, kDead };

  /// To dial: tries `endpoints` in turn. `address` is what messages call it.
  Connection(Loop& loop, ConnectionEvents& owner, std::string address, std::vector<Endpoint> endpoints);
  /// Accepted.
  Connection(Loop& loop, ConnectionEvents& owner, std::string address, Fd fd);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  State state() const { return state_; }
  const std::string& address() const { return address_; }
  int fd() const { return fd_.get(); }

  /// Begins to dial; a failure is reported by on_failed(), possibly within this call.
  void connect();
  void greet(wire::Handshake handshake);
  bool greeting() const { return handshake_.has_value(); }
  wire::Handshake& handshake() { return *handshake_; }
  /// When the other side's last whole record of the hello came, or the connection.
  base::Nanos last_step() const { return last_step_; }
  /// After a decision.
  void continue_greeting();
  /// Frames flow from now on.
  void open(base::LinkEvents& events, base::Peer peer);

  /// Queues; flush() writes. True if there was nothing queued before.
  bool send(const base::Frame& frame);
  /// Writes as much as the kernel takes.
  void flush();
  size_t queued() const { return outbox_.bytes(); }
  /// Says goodbye after what is queued, hears nothing more, and ends with kClosed when the peer has ended too.
  void say_goodbye();
  /// As a failing network would.
  void cut();
  /// Without a word, and without a report.
  void kill();

 private:
  void set_state(State next);
  void try_next_endpoint(int failure);
  void on_ready(int events);
  void on_connect_result();
  void read_hello();
  void read_frames();
  void drain();
  void fail(const base::Status& why, bool refused = false);
  void fail_greeting();
  void end(ConnectionEvents::End how, const base::Status& why);
  void finish_writing();
  void watch();
  ssize_t receive(std::span<std::byte> first, std::span<std::byte> second);

  Loop& loop_;
  ConnectionEvents& owner_;
  const std::string address_;
  State state_;
  std::vector<Endpoint> endpoints_;
  size_t next_endpoint_ = 0;
  Fd fd_;
  std::unique_ptr<Poll> poll_;  // ends before fd_
  std::optional<wire::Handshake> handshake_;
  base::Nanos last_step_{0};
  std::optional<Receiver> receiver_;
  Outbox outbox_;
  bool full_ = false;  // the kernel's buffer: wait for UV_WRITABLE
  bool half_closed_ = false;
  int write_error_ = 0;  // of the write that failed: reading tells of the end
  size_t drained_ = 0;
};

}  // namespace mv::transport
