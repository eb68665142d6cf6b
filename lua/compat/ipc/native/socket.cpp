#include "socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace mv::native {

namespace {

constexpr std::chrono::milliseconds kSlice{50};  // interval at which a wait checks for signals
constexpr std::chrono::milliseconds kPause{50};  // between two attempts to connect

struct Resolved {
  sockaddr_storage address{};
  socklen_t length = 0;
};

bool resolve(const std::string& host, int port, std::vector<Resolved>& found, Failure& failure) {
  if (port < 0 || port > 65535) {
    failure = "port " + std::to_string(port) + ": 0 .. 65535 is needed";
    return false;
  }
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) {
    failure = "host \"" + host + "\": " + gai_strerror(code);
    return false;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Resolved one;
    std::memcpy(&one.address, entry->ai_addr, entry->ai_addrlen);
    one.length = entry->ai_addrlen;
    found.push_back(one);
  }
  return true;
}

std::string errno_text() { return std::strerror(errno); }

Descriptor stream_socket(const Resolved& at) { return Descriptor(socket(at.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

/// A socket bound to the first usable address of the host.
Descriptor bound_socket(const std::string& host, int port, Resolved& at, Failure& failure) {
  std::vector<Resolved> found;
  if (!resolve(host, port, found, failure)) return Descriptor();
  for (const Resolved& one : found) {
    Descriptor made = stream_socket(one);
    const int on = 1;
    if (made) setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (made && bind(made.get(), reinterpret_cast<const sockaddr*>(&one.address), one.length) == 0) {
      at = one;
      return made;
    }
  }
  failure = "can't listen at " + host + ":" + std::to_string(port) + ": " + errno_text();
  return Descriptor();
}

/// One attempt; 0, or errno.
int try_to_connect(const Resolved& at, Descriptor& made, Clock::time_point deadline, const Interrupts& interrupts) {
  made = stream_socket(at);
  if (!made) return errno;
  if (connect(made.get(), reinterpret_cast<const sockaddr*>(&at.address), at.length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  Failure ignored;
  if (!wait_for(made.get(), POLLOUT, deadline, interrupts, ignored)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  Descriptor old(std::exchange(fd_, other.release()));
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::release() { return std::exchange(fd_, -1); }

Address address_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto* at = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &at->sin_addr, text, sizeof text);
    return {text, ntohs(at->sin_port)};
  }
  if (address.ss_family == AF_INET6) {
    const auto* at = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &at->sin6_addr, text, sizeof text);
    return {text, ntohs(at->sin6_port)};
  }
  return {"?", 0};
}

Address own_address(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return address_of(address);
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in*>(&address)->sin_addr.s_addr) >> 24) == 127;
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr);
}

bool wait_for(int fd, short events, Clock::time_point deadline, const Interrupts& interrupts, Failure& failure) {
  while (true) {
    pollfd one{fd, events, 0};
    if (poll(&one, 1, static_cast<int>(kSlice.count())) > 0) return true;
    if (interrupts.come()) {
      failure = kInterrupted;
      return false;
    }
    if (Clock::now() >= deadline) {
      failure = "time-out";
      return false;
    }
  }
}

Descriptor listen_at(const std::string& host, int port, bool has_secret, Failure& failure) {
  Resolved at;
  Descriptor made = bound_socket(host, port, at, failure);
  if (!made) return made;
  if (!has_secret && !is_loopback(at.address)) {
    failure = "listening at " + host + ", which other machines reach, needs a secret: set POLYVERSO_SECRET to the same text for all processes";
    return Descriptor();
  }
  if (listen(made.get(), 1024) != 0) {
    failure = "can't listen at " + host + ":" + std::to_string(port) + ": " + errno_text();
    return Descriptor();
  }
  return made;
}

Descriptor reserve_port(const std::string& host, Failure& failure) {
  Resolved at;
  return bound_socket(host, 0, at, failure);
}

void Report::print(const std::string& what) {
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - since_).count();
  const std::string line = "ipc: has waited " + std::to_string(waited) + " s for " + what + "\n";
  std::fputs(line.c_str(), stderr);
  next_ = Clock::now() + std::chrono::minutes(1);
}

Descriptor connect_to(const std::string& host, int port, Clock::time_point deadline, const Interrupts& interrupts, Failure& failure) {
  std::vector<Resolved> found;
  if (!resolve(host, port, found, failure)) return Descriptor();
  Report report;
  while (true) {
    int error = 0;
    for (const Resolved& one : found) {
      Descriptor made;
      error = try_to_connect(one, made, deadline, interrupts);
      if (error == 0) return made;
    }
    if (interrupts.come()) {
      failure = kInterrupted;
      return Descriptor();
    }
    if (Clock::now() >= deadline) {
      failure = "no answer from " + host + ":" + std::to_string(port) + ": " + std::strerror(error);
      return Descriptor();
    }
    if (report.is_due()) report.print("a server at " + host + ":" + std::to_string(port) + ": " + std::strerror(error));
    std::this_thread::sleep_for(kPause);
  }
}

void tune(int fd) {
  const int on = 1, idle = 30, between = 10, probes = 6;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace mv::native
