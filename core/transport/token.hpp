#pragma once
// Authentication without a secret, between processes of one user on one machine. A node that listens on loopback has a
// random token, which it sends to processes of its own user over a socket in the abstract namespace. The kernel reports
// to each end of such a socket the user of the other end, and the socket has the same reach as loopback. The token then
// takes the secret's place in the hello.
//
// The socket's name contains the listener's incarnation, a random number that is unknown until the node listens.
// Another user therefore cannot take the name first.

#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "base/result.hpp"
#include "transport/fd.hpp"
#include "transport/listener.hpp"
#include "transport/loop/handles.hpp"

namespace mv::transport {

/// The length of a token, which is random.
inline constexpr size_t kTokenBytes = 32;

/// The listener's side: sends the token to processes of the same user.
class TokenDesk {
 public:
  /// Serves the token of node `self`, which listens at `address`.
  static base::Result<std::unique_ptr<TokenDesk>> make(Loop& loop, base::Peer self, const std::string& address, std::string token);

 private:
  explicit TokenDesk(std::string token) : token_(std::move(token)) {}
  void answer(const Fd& asker) const;

  const std::string token_;
  std::unique_ptr<Listener> listener_;
};

/// The dialer's side: requests the token of node `listener`, which listens at `address`. On the loop.
class TokenQuery {
 public:
  /// MV_EAUTH: the listener belongs to another user, or is on another machine. The message says what to do.
  using Told = std::function<void(base::Result<std::string> token)>;
  TokenQuery(Loop& loop, base::Peer listener, const std::string& address, Told told);
  /// Sends the request, or does nothing if it is sent already. The caller repeats ask() from time to time, because the
  /// desk may be busy. `told` is called once, possibly within this call; this object must outlive that call.
  void ask();

 private:
  void read();
  void tell(base::Result<std::string> token);

  Loop& loop_;
  const std::string address_, name_;
  Told told_;
  std::string token_;
  Fd fd_;
  std::unique_ptr<Poll> poll_;  // destroyed before fd_
};

/// Like TokenQuery, without a loop: blocks for up to `patience`. MV_EUNREACHABLE after that.
base::Result<std::string> ask_for_token(base::Peer listener, const std::string& address, base::Nanos patience);

}  // namespace mv::transport
