#pragma once
// One TCP connection, from its connect() or accept() to its close: the hello, then frames, then a goodbye or a break.
// It does not know other connections; its owner (tcp.hpp) decides what to do when it ends.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/link.hpp"
#include "transport/loop/handles.hpp"
#include "transport/tcp/outbox.hpp"
#include "transport/tcp/receiver.hpp"
#include "transport/tcp/socket.hpp"
#include "transport/tls/tls.hpp"
#include "wire/handshake.hpp"

namespace mv::transport {

class Connection;

/// The events of a connection. All calls on the loop. The connection must outlive the call in which it reports.
class ConnectionEvents {
 public:
  /// A dialed socket is connected. The owner calls greet(), or ends the connection if it was a probe.
  virtual void on_stream(Connection& connection) = 0;
  /// The handshake needs a decision: handshake().prove(), accept() or refuse(), then continue_greeting(), or in kTls
  /// encrypt(); now or later.
  virtual void on_deciding(Connection& connection) = 0;
  /// The hello is complete. The owner calls open().
  virtual void on_greeted(Connection& connection) = 0;
  /// The connection failed before that. `refused`: no process listens there.
  virtual void on_failed(Connection& connection, const base::Status& why, bool refused) = 0;
  /// An open connection has received bytes.
  virtual void on_received(Connection& connection) = 0;
  enum class End { kBroken, kGoodbye, kGarbage, kClosed };
  /// An open connection has ended; kClosed after say_goodbye().
  virtual void on_ended(Connection& connection, End how, const base::Status& why) = 0;

 protected:
  ~ConnectionEvents() = default;
};

class Connection {
 public:
  enum class State { kConnecting, kGreeting, kOpen, kClosing, kDead };

  /// A connection to dial: tries `endpoints` in turn. `address` names it in messages.
  Connection(Loop& loop, ConnectionEvents& owner, std::string address, std::vector<Endpoint> endpoints);
  /// An accepted connection.
  Connection(Loop& loop, ConnectionEvents& owner, std::string address, Fd fd);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  State state() const { return state_; }
  const std::string& address() const { return address_; }
  int fd() const { return fd_.get(); }

  /// Starts to dial. on_failed() reports a failure, possibly within this call.
  void connect();
  void greet(wire::Handshake handshake);
  bool greeting() const { return handshake_.has_value(); }
  wire::Handshake& handshake() { return *handshake_; }
  /// The arrival time of the other side's last complete record of the hello, or of the connection if none has come.
  base::Nanos last_step() const { return last_step_; }
  /// Continues the hello after a decision.
  void continue_greeting();
  /// In the handshake's kTls: everything from now on passes through `stream`.
  void encrypt(std::unique_ptr<TlsStream> stream);
  /// Null if the connection is not encrypted.
  const TlsStream* tls() const { return tls_.get(); }
  /// Starts the exchange of frames.
  void open(base::LinkEvents& events, base::Peer peer);

  /// Queues a frame, which flush() writes. True if the queue was empty before.
  bool send(const base::Frame& frame);
  /// Processes what has arrived, without waiting for the poll; true if there was anything.
  bool read();
  /// Writes as much as the kernel takes, within the budget of one turn.
  void flush();
  size_t queued() const { return outbox_.bytes(); }
  /// Sends a goodbye after the queued frames, ignores further input, and ends with kClosed once the peer has closed.
  void say_goodbye();
  /// Breaks the connection as a failing network would.
  void cut();
  /// Closes the connection without a goodbye and without a report.
  void kill();

 private:
  void set_state(State next);
  void try_next_endpoint(int failure);
  void on_ready(int events);
  void on_connect_result();
  void read_hello();
  bool read_tls_hello();
  void take_tls_step();
  bool refused_in_place_of_tls(std::span<const std::byte> arrived);
  void fail_tls();
  void hello_ended(ssize_t got);
  bool read_frames();
  void drain();
  void fail(const base::Status& why, bool refused = false);
  void fail_greeting();
  void end(ConnectionEvents::End how, const base::Status& why);
  void finish_writing();
  void write_plain();
  void write_sealed();
  void seal();
  void write_failed(int error);
  void watch();
  ssize_t receive(std::span<std::byte> first, std::span<std::byte> second);
  ssize_t receive_plain(std::span<std::byte> first, std::span<std::byte> second);
  ssize_t receive_sealed(std::span<std::byte> to);
  std::string why_broken(ssize_t got) const;

  Loop& loop_;
  ConnectionEvents& owner_;
  const std::string address_;
  State state_;
  std::vector<Endpoint> endpoints_;
  size_t next_endpoint_ = 0;
  Fd fd_;
  std::unique_ptr<Poll> poll_;  // destroyed before fd_
  std::optional<wire::Handshake> handshake_;
  base::Nanos last_step_{0};
  std::optional<Receiver> receiver_;
  std::unique_ptr<TlsStream> tls_;
  bool tls_arrived_ = false;     // its first bytes
  bool drained_socket_ = false;  // TLS only: the last read has emptied the socket
  Outbox outbox_;
  bool full_ = false;  // the kernel's buffer is full: wait for UV_WRITABLE
  bool half_closed_ = false;
  int write_error_ = 0;  // of the failed write; the next read reports the end
  size_t drained_ = 0;
};

}  // namespace mv::transport
