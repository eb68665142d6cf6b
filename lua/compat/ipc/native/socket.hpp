#pragma once
// Sockets whose waits have a deadline and return at a signal.

#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <string>

#include "lua.hpp"

namespace mv::native {

using Clock = std::chrono::steady_clock;

/// The time for which client() tries, and clients(n) waits, as in torch-ipc.
inline constexpr std::chrono::minutes kPatience{5};
inline constexpr Clock::time_point kForever = Clock::time_point::max();

/// An open descriptor, or none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();

 private:
  int fd_;
};

/// "1.2.3.4:5": the address to which a socket is bound or connected.
struct Address {
  std::string host;
  int port = 0;
  std::string text() const { return host + ":" + std::to_string(port); }
};

Address address_of(const sockaddr_storage& address);
Address own_address(int fd);

/// Whether only this machine can reach the address.
bool is_loopback(const sockaddr_storage& address);

/// Reports a long wait on stderr: after 5 seconds, and then every minute.
class Report {
 public:
  bool is_due() const { return Clock::now() >= next_; }
  /// @param what  behind "has waited 5 s for"
  void print(const std::string& what);

 private:
  const Clock::time_point since_ = Clock::now();
  Clock::time_point next_ = since_ + std::chrono::seconds(5);
};

/// Waits for events of poll(2) on a socket.
bool wait_for(int fd, short events, Clock::time_point deadline, const Interrupts& interrupts, Failure& failure);

/// A non-blocking listening socket; port 0 is any free one. Addresses other than loopback need a secret.
Descriptor listen_at(const std::string& host, int port, bool has_secret, Failure& failure);

/// A socket bound with SO_REUSEADDR that does not listen. While it is open, nobody gets its port by chance, but a process that requests the
/// port by number gets it.
Descriptor reserve_port(const std::string& host, Failure& failure);

/// Tries until the deadline.
Descriptor connect_to(const std::string& host, int port, Clock::time_point deadline, const Interrupts& interrupts, Failure& failure);

/// Sends small messages at once, and enables keepalive to detect a dead machine.
void tune(int fd);

}  // namespace mv::native
