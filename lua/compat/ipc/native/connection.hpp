#pragma once
// One connection between a client and a server: length-prefixed messages, and the peer's identity.

#include <atomic>
#include <mutex>
#include <string>

#include "message.hpp"
#include "socket.hpp"

namespace mv::native {

/// netStats() of one direction.
struct Traffic {
  std::atomic<uint64_t> bytes{0}, calls{0}, nanoseconds{0};
  void count(uint64_t of, Clock::time_point since);
  /// Pushes a table.
  void push(lua_State* L) const;
};

/// Pushes {tx = ..., rx = ...}.
void push_traffic(lua_State* L, const Traffic& sent, const Traffic& received);

class Connection : public Shared {
 public:
  static constexpr const char* kKind = "ipc.client";

  Connection(Descriptor socket, std::string address) : socket_(std::move(socket)), address_(std::move(address)) {}
  const char* kind() const override { return kKind; }

  bool send(const Message& message, const Interrupts& interrupts, Failure& failure);
  /// Waits for a message as long as the connection lasts.
  bool receive(Message& message, const Interrupts& interrupts, Failure& failure);
  /// Takes a message that has arrived completely, without waiting. False with a failure, or without one if there is none yet.
  bool receive_now(Message& message, Failure& failure);
  /// Wakes the peer, and threads that wait here, at once.
  void close();

  int fd() const { return socket_.get(); }
  bool is_closed() const { return closed_; }
  const std::string& address() const { return address_; }
  const Traffic& sent() const { return sent_; }
  const Traffic& received() const { return received_; }

  int64_t id() const;
  void set_id(int64_t id);
  std::string tag() const;
  void set_tag(std::string tag);

 private:
  bool send_all(const char* bytes, size_t count, const Interrupts& interrupts, Failure& failure);
  /// Reads the available bytes; sets `whole` when the current message is complete.
  bool fill(bool& whole, Failure& failure);
  bool take(char* to, size_t room, size_t& taken, Failure& failure);
  void hand_over(Message& message);
  bool lost(const std::string& why, Failure& failure) const;

  Descriptor socket_;
  const std::string address_;
  std::atomic<bool> closed_{false};
  Traffic sent_, received_;
  std::mutex sending_, receiving_;
  mutable std::mutex naming_;
  int64_t id_ = 0;
  std::string tag_;

  // The message being received.
  char length_[8] = {};
  size_t length_taken_ = 0, body_taken_ = 0;
  std::string body_;
};

/// acceptFunctions(accept): whether this Lua state accepts functions from other processes.
int accept_functions(lua_State* L);

/// client(host, port [, seconds]), client(port); tries for that many seconds, by default for kPatience
int open_client(lua_State* L);

/// Makes the metatable and pushes the table of its methods.
void open_connections(lua_State* L);

}  // namespace mv::native
