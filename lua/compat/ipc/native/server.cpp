#include "server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

namespace mv::native {

namespace {

constexpr std::chrono::seconds kPoliteness{10};  // for a stranger to complete its greeting
constexpr size_t kStrangers = 256;               // at the same time

int wait_method(lua_State* L) {
  auto* server = check_shared<Server>(L, 1);
  const auto count = static_cast<int64_t>(luaL_checknumber(L, 2));
  return guarded(L, [&](Failure& failure) {
    server->wait(static_cast<size_t>(std::max<int64_t>(count, 0)), Clock::now() + kPatience, Interrupts(L), failure);
    return 0;
  });
}

/// list([tag [, inverted]])
int list_method(lua_State* L) {
  auto* server = check_shared<Server>(L, 1);
  luaL_optstring(L, 2, "");
  const auto found = server->clients(text_of(L, 2), lua_toboolean(L, 3) != 0);
  lua_newtable(L);
  for (size_t i = 0; i < found.size(); ++i) {
    push_shared(L, found[i]);
    lua_rawseti(L, -2, static_cast<int>(i + 1));
  }
  return 1;
}

int address_method(lua_State* L) {
  lua_pushstring(L, check_shared<Server>(L, 1)->address().text().c_str());
  return 1;
}

int stats_method(lua_State* L) {
  check_shared<Server>(L, 1)->push_traffic(L);
  return 1;
}

int close_method(lua_State* L) {
  check_shared<Server>(L, 1)->close();
  return 0;
}

}  // namespace

Server::Server(Descriptor listening) : listening_(std::move(listening)), address_(own_address(listening_.get())) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
    wake_read_ = Descriptor(ends[0]);
    wake_write_ = Descriptor(ends[1]);
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the interpreter
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Server::close() {
  std::vector<std::shared_ptr<Connection>> clients;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    clients.swap(clients_);
  }
  const char byte = 0;
  [[maybe_unused]] const ssize_t woken = write(wake_write_.get(), &byte, 1);
  thread_.join();
  listening_ = Descriptor();
  for (const auto& client : clients) client->close();
}

// ------------------------------------------------------------------ the server's thread

void Server::serve() {
  while (true) {
    std::vector<pollfd> watched{{wake_read_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
    if (strangers_.size() >= kStrangers) watched[1].events = 0;
    for (const Stranger& stranger : strangers_) watched.push_back({stranger.socket.get(), POLLIN, 0});
    poll(watched.data(), watched.size(), strangers_.empty() ? -1 : 1000);
    if (watched[0].revents != 0) return;
    size_t i = 2;
    for (auto stranger = strangers_.begin(); stranger != strangers_.end(); ++i) {
      const bool stays = watched[i].revents != 0 ? greet(*stranger) : Clock::now() < stranger->deadline;
      stranger = stays ? std::next(stranger) : strangers_.erase(stranger);
    }
    if (watched[1].revents != 0) accept_all();
  }
}

void Server::accept_all() {
  while (strangers_.size() < kStrangers) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    Descriptor socket(accept4(listening_.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors: the connection stays in the queue, and polling at once would spin.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return;
    }
    tune(socket.get());
    strangers_.push_back({std::move(socket), address_of(from).text(), Greeting(Greeting::Side::kListener, secret_of_environment()),
                          Clock::now() + kPoliteness});
  }
}

bool Server::greet(Stranger& stranger) {
  char bytes[256];
  Greeting& greeting = stranger.greeting;
  const ssize_t got = recv(stranger.socket.get(), bytes, std::min(greeting.wants(), sizeof bytes), 0);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  greeting.take({bytes, static_cast<size_t>(got)});
  // A few bytes on a new connection: there is room for them, or it is none.
  const std::string output = greeting.output();
  if (!output.empty() && send(stranger.socket.get(), output.data(), output.size(), MSG_NOSIGNAL) < 0) return false;
  if (greeting.is_refused()) return false;
  if (!greeting.done()) return true;
  const std::lock_guard lock(mutex_);
  clients_.push_back(std::make_shared<Connection>(std::move(stranger.socket), stranger.address));
  came_.notify_all();
  return false;
}

// ------------------------------------------------------------------ the server's clients

void Server::forget_closed() {
  std::erase_if(clients_, [this](const auto& client) {
    if (!client->is_closed()) return false;
    gone_[0] += client->sent().bytes;
    gone_[1] += client->sent().calls;
    gone_[2] += client->received().bytes;
    gone_[3] += client->received().calls;
    return true;
  });
}

bool Server::wait(size_t count, Clock::time_point deadline, const Interrupts& interrupts, Failure& failure) {
  std::unique_lock lock(mutex_);
  Report report;
  while (true) {
    if (closed_) return failure = "this server is closed", false;
    forget_closed();
    if (clients_.size() >= count) return true;
    if (interrupts.come()) return failure = kInterrupted, false;
    if (Clock::now() >= deadline) {
      failure = std::to_string(clients_.size()) + " of " + std::to_string(count) + " clients connected to " + address_.text() + " within 5 minutes";
      return false;
    }
    if (report.is_due()) report.print("clients of " + address_.text() + ": " + std::to_string(clients_.size()) + " of " + std::to_string(count) + " connected");
    came_.wait_for(lock, std::chrono::milliseconds(50));
  }
}

std::vector<std::shared_ptr<Connection>> Server::clients(const std::string& tag, bool inverted) {
  const std::lock_guard lock(mutex_);
  forget_closed();
  std::vector<std::shared_ptr<Connection>> found;
  for (const auto& client : clients_)
    if (tag.empty() || client->tag() == tag) found.push_back(client);
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a->id() < b->id(); });
  if (inverted) std::reverse(found.begin(), found.end());
  return found;
}

void Server::push_traffic(lua_State* L) {
  Traffic sent, received;
  {
    const std::lock_guard lock(mutex_);
    forget_closed();
    sent.bytes = gone_[0];
    sent.calls = gone_[1];
    received.bytes = gone_[2];
    received.calls = gone_[3];
    for (const auto& client : clients_) {
      for (const auto& [sum, one] : {std::pair(&sent, &client->sent()), std::pair(&received, &client->received())}) {
        sum->bytes += one->bytes;
        sum->calls += one->calls;
        sum->nanoseconds += one->nanoseconds;
      }
    }
  }
  native::push_traffic(L, sent, received);
}

// ------------------------------------------------------------------ for Lua

int open_server(lua_State* L) {
  luaL_optstring(L, 1, "");
  const int port = static_cast<int>(luaL_optnumber(L, 2, 0));
  return guarded(L, [&](Failure& failure) {
    const std::string host = lua_isnoneornil(L, 1) ? "127.0.0.1" : text_of(L, 1);
    Descriptor listening = listen_at(host, port, !secret_of_environment().empty(), failure);
    if (!listening) return 0;
    const auto server = std::make_shared<Server>(std::move(listening));
    const int found = server->address().port;
    push_shared(L, server);
    lua_pushinteger(L, found);
    return 2;
  });
}

int wait_ready(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  return guarded(L, [&](Failure& failure) {
    std::vector<SharedPtr> kept;
    std::vector<pollfd> watched;
    for (size_t i = 1; i <= raw_length(L, 1); ++i) {
      lua_rawgeti(L, 1, static_cast<int>(i));
      kept.push_back(shared_at(L, -1));
      lua_pop(L, 1);
      const auto* client = dynamic_cast<Connection*>(kept.back().get());
      if (client == nullptr) return failure = "a list of clients is needed", 0;
      watched.push_back({client->fd(), POLLIN, 0});
    }
    if (watched.empty()) return failure = "recvAny() would wait forever: the server has no such clients", 0;
    const Interrupts interrupts(L);
    while (poll(watched.data(), watched.size(), 50) <= 0)
      if (interrupts.come()) return failure = kInterrupted, 0;
    for (size_t i = 0; i < watched.size(); ++i)
      if (watched[i].revents != 0) return lua_pushinteger(L, static_cast<lua_Integer>(i + 1)), 1;
    return 0;
  });
}

void open_servers(lua_State* L) {
  static constexpr luaL_Reg kMethods[] = {{"wait", wait_method},      {"list", list_method},   {"address", address_method},
                                          {"netStats", stats_method}, {"close", close_method}, {nullptr, nullptr}};
  open_kind(L, Server::kKind, kMethods);
}

}  // namespace mv::native
