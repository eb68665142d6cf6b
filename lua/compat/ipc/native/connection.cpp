#include "connection.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "greeting.hpp"

namespace mv::native {

namespace {

constexpr size_t kStep = 1 << 20;              // memory that a length prefix alone can make us allocate
constexpr uint64_t kMost = uint64_t{1} << 36;  // the maximum length of a message
constexpr char kFunctions = 0;                 // its address is a key of Lua's registry

uint64_t length_in(const char (&bytes)[8]) {
  uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof length);
  return length;
}

Manner manner_of(lua_State* L) {
  lua_pushlightuserdata(L, const_cast<char*>(&kFunctions));
  lua_rawget(L, LUA_REGISTRYINDEX);
  const Manner manner{.functions = lua_toboolean(L, -1) != 0};
  lua_pop(L, 1);
  return manner;
}

/// Exchanges both sides' proofs; without a valid proof nothing is read.
bool greet(const Descriptor& socket, Clock::time_point deadline, const Interrupts& interrupts, Failure& failure) {
  Greeting greeting(Greeting::Side::kDialer, secret_of_environment());
  char bytes[256];
  while (true) {
    // A few bytes on a new connection: there is room for them.
    const std::string output = greeting.output();
    const bool is_sent = output.empty() || send(socket.get(), output.data(), output.size(), MSG_NOSIGNAL) >= 0;
    if (greeting.is_refused()) {
      failure = greeting.refusal("the server");
      return false;
    }
    if (!is_sent) {
      failure = std::strerror(errno);
      return false;
    }
    if (greeting.done()) return true;
    if (!wait_for(socket.get(), POLLIN, deadline, interrupts, failure)) return false;
    const ssize_t got = recv(socket.get(), bytes, std::min(greeting.wants(), sizeof bytes), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      failure = "the server closed the connection: its POLYVERSO_SECRET may differ";
      return false;
    }
    if (got > 0) greeting.take({bytes, static_cast<size_t>(got)});
  }
}

// ------------------------------------------------------------------ methods

int send_method(lua_State* L) {
  auto* connection = check_shared<Connection>(L, 1);
  luaL_checkany(L, 2);
  return guarded(L, [&](Failure& failure) {
    Message message;
    if (encode(L, 2, {}, message, failure)) connection->send(message, Interrupts(L), failure);
    return 0;
  });
}

int push_received(lua_State* L, const Message& message, Failure& failure) {
  size_t at = 0;
  if (!decode(L, message, at, manner_of(L), lua_isnoneornil(L, 2) ? 0 : 2, failure)) return 0;
  if (at != message.bytes.size()) failure = "invalid message: trailing bytes after the value";
  return 1;
}

int recv_method(lua_State* L) {
  auto* connection = check_shared<Connection>(L, 1);
  return guarded(L, [&](Failure& failure) {
    Message message;
    return connection->receive(message, Interrupts(L), failure) ? push_received(L, message, failure) : 0;
  });
}

int recv_async_method(lua_State* L) {
  auto* connection = check_shared<Connection>(L, 1);
  return guarded(L, [&](Failure& failure) {
    Message message;
    return connection->receive_now(message, failure) ? push_received(L, message, failure) : 0;
  });
}

int id_method(lua_State* L) {
  auto* connection = check_shared<Connection>(L, 1);
  if (lua_gettop(L) > 1) {
    connection->set_id(static_cast<int64_t>(luaL_checknumber(L, 2)));
    return 0;
  }
  push_integer(L, connection->id());
  return 1;
}

int tag_method(lua_State* L) {
  auto* connection = check_shared<Connection>(L, 1);
  if (!lua_isnoneornil(L, 2)) {
    luaL_checkstring(L, 2);
    connection->set_tag(text_of(L, 2));
    return 0;
  }
  const std::string tag = connection->tag();
  if (tag.empty()) return 0;
  lua_pushlstring(L, tag.data(), tag.size());
  return 1;
}

int address_method(lua_State* L) {
  lua_pushstring(L, check_shared<Connection>(L, 1)->address().c_str());
  return 1;
}

int stats_method(lua_State* L) {
  const auto* connection = check_shared<Connection>(L, 1);
  push_traffic(L, connection->sent(), connection->received());
  return 1;
}

int close_method(lua_State* L) {
  check_shared<Connection>(L, 1)->close();
  return 0;
}

}  // namespace

// ------------------------------------------------------------------ traffic counters

void Traffic::count(uint64_t of, Clock::time_point since) {
  bytes += of;
  ++calls;
  nanoseconds += static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - since).count());
}

void Traffic::push(lua_State* L) const {
  const double seconds = static_cast<double>(nanoseconds) * 1e-9;
  lua_newtable(L);
  push_integer(L, static_cast<int64_t>(bytes.load()));
  lua_setfield(L, -2, "num_bytes");
  push_integer(L, static_cast<int64_t>(calls.load()));
  lua_setfield(L, -2, "num_calls");
  lua_pushnumber(L, seconds);
  lua_setfield(L, -2, "total_seconds");
  lua_pushnumber(L, seconds > 0 ? static_cast<double>(bytes) / (1 << 20) / seconds : 0);
  lua_setfield(L, -2, "NETWORK MB/s");
}

void push_traffic(lua_State* L, const Traffic& sent, const Traffic& received) {
  lua_newtable(L);
  sent.push(L);
  lua_setfield(L, -2, "tx");
  received.push(L);
  lua_setfield(L, -2, "rx");
}

// ------------------------------------------------------------------ sending

bool Connection::lost(const std::string& why, Failure& failure) const {
  failure = (closed_ ? "this connection to " + address_ + " is closed" : address_ + ": " + why);
  return false;
}

bool Connection::send_all(const char* bytes, size_t count, const Interrupts& interrupts, Failure& failure) {
  while (count > 0) {
    if (closed_) return lost("", failure);
    const ssize_t sent = ::send(fd(), bytes, count, MSG_NOSIGNAL);
    if (sent > 0) {
      bytes += sent;
      count -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      // After half a message the connection cannot be used any more.
      if (!wait_for(fd(), POLLOUT, kForever, interrupts, failure)) return close(), false;
    } else {
      return lost(errno == EPIPE || errno == ECONNRESET ? "the other side has closed the connection" : std::strerror(errno), failure);
    }
  }
  return true;
}

bool Connection::send(const Message& message, const Interrupts& interrupts, Failure& failure) {
  const auto begun = Clock::now();
  const std::lock_guard lock(sending_);
  char length[8];
  const uint64_t count = message.bytes.size();
  std::memcpy(length, &count, sizeof count);
  if (count <= 4096) {  // in one piece
    const std::string whole = std::string(length, sizeof length) + message.bytes;
    if (!send_all(whole.data(), whole.size(), interrupts, failure)) return false;
  } else if (!send_all(length, sizeof length, interrupts, failure) || !send_all(message.bytes.data(), count, interrupts, failure)) {
    return false;
  }
  sent_.count(sizeof length + count, begun);
  return true;
}

// ------------------------------------------------------------------ receiving

/// `taken` is 0 if no bytes are available now.
bool Connection::take(char* to, size_t room, size_t& taken, Failure& failure) {
  taken = 0;
  if (closed_) return lost("", failure);
  const ssize_t got = recv(fd(), to, room, 0);
  if (got > 0) taken = static_cast<size_t>(got);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  lost(got == 0 || errno == ECONNRESET ? "the other side has closed the connection" : std::strerror(errno), failure);
  close();
  return false;
}

bool Connection::fill(bool& whole, Failure& failure) {
  size_t taken = 1;
  whole = false;
  while (length_taken_ < sizeof length_ && taken > 0) {
    if (!take(length_ + length_taken_, sizeof length_ - length_taken_, taken, failure)) return false;
    length_taken_ += taken;
  }
  if (length_taken_ < sizeof length_) return true;
  const uint64_t length = length_in(length_);
  if (length == 0 || length > kMost) {
    close();
    failure = address_ + " sent an invalid ipc message; the connection is closed";
    return false;
  }
  while (body_taken_ < length && taken > 0) {
    if (body_taken_ == body_.size()) body_.resize(std::min<uint64_t>(length, std::max<uint64_t>(kStep, 2 * body_.size())));
    if (!take(body_.data() + body_taken_, body_.size() - body_taken_, taken, failure)) return false;
    body_taken_ += taken;
  }
  whole = body_taken_ == length;
  return true;
}

void Connection::hand_over(Message& message) {
  message.bytes = std::move(body_);
  body_.clear();
  length_taken_ = body_taken_ = 0;
}

bool Connection::receive(Message& message, const Interrupts& interrupts, Failure& failure) {
  const auto begun = Clock::now();
  const std::lock_guard lock(receiving_);
  bool whole = false;
  while (true) {
    if (!fill(whole, failure)) return false;
    if (whole) break;
    if (!wait_for(fd(), POLLIN, kForever, interrupts, failure)) return false;
  }
  hand_over(message);
  received_.count(sizeof length_ + message.bytes.size(), begun);
  return true;
}

bool Connection::receive_now(Message& message, Failure& failure) {
  const auto begun = Clock::now();
  const std::lock_guard lock(receiving_);
  bool whole = false;
  if (!fill(whole, failure) || !whole) return false;
  hand_over(message);
  received_.count(sizeof length_ + message.bytes.size(), begun);
  return true;
}

void Connection::close() {
  if (!closed_.exchange(true)) shutdown(fd(), SHUT_RDWR);
}

// ------------------------------------------------------------------ names

int64_t Connection::id() const {
  const std::lock_guard lock(naming_);
  return id_;
}

void Connection::set_id(int64_t id) {
  const std::lock_guard lock(naming_);
  id_ = id;
}

std::string Connection::tag() const {
  const std::lock_guard lock(naming_);
  return tag_;
}

void Connection::set_tag(std::string tag) {
  const std::lock_guard lock(naming_);
  tag_ = std::move(tag);
}

// ------------------------------------------------------------------ for Lua

int accept_functions(lua_State* L) {
  luaL_checktype(L, 1, LUA_TBOOLEAN);
  lua_pushlightuserdata(L, const_cast<char*>(&kFunctions));
  lua_pushvalue(L, 1);
  lua_rawset(L, LUA_REGISTRYINDEX);
  return 0;
}

int open_client(lua_State* L) {
  const bool has_host = lua_type(L, 1) == LUA_TSTRING && !lua_isnoneornil(L, 2);
  const int port = static_cast<int>(luaL_checknumber(L, has_host ? 2 : 1));
  const std::chrono::duration<double> patience(luaL_optnumber(L, 3, std::chrono::duration<double>(kPatience).count()));
  return guarded(L, [&](Failure& failure) {
    const std::string host = has_host ? text_of(L, 1) : "127.0.0.1";
    const std::string at = host + ":" + std::to_string(port);
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
    const Interrupts interrupts(L);
    Descriptor socket = connect_to(host, port, deadline, interrupts, failure);
    if (!socket) return 0;
    tune(socket.get());
    if (!greet(socket, deadline, interrupts, failure)) {
      if (failure != kInterrupted) failure = at + ": " + failure;
      return 0;
    }
    push_shared(L, std::make_shared<Connection>(std::move(socket), at));
    return 1;
  });
}

void open_connections(lua_State* L) {
  static constexpr luaL_Reg kMethods[] = {{"send", send_method},        {"recv", recv_method},       {"recvAsync", recv_async_method},
                                          {"id", id_method},            {"tag", tag_method},         {"address", address_method},
                                          {"netStats", stats_method},   {"close", close_method},     {nullptr, nullptr}};
  open_kind(L, Connection::kKind, kMethods);
}

}  // namespace mv::native
