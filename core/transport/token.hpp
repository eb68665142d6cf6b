#pragma once
// How processes of one user on one machine prove themselves to each other where no secret is set: whoever listens on loopback has
// a random token, which it hands to processes of its own user over a socket in the abstract namespace. The kernel tells both ends
// of such a socket as which user the other runs, and the socket reaches exactly as far as loopback does. The token then takes the
// secret's place in the hello.
//
// The socket is named after the listener's incarnation, a random number that nobody knows before it listens, so that another user
// can't take the name first.

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

/// Random bytes.
inline constexpr size_t kTokenBytes = 32;

/// Hands the token out.
class TokenDesk {
 public:
  /// For what node `self` listens on at `address`.
  static base::Result<std::unique_ptr<TokenDesk>> make(Loop& loop, base::Peer self, const std::string& address, std::string token);

 private:
  explicit TokenDesk(std::string token) : token_(std::move(token)) {}
  void answer(const Fd& asker) const;

  const std::string token_;
  std::unique_ptr<Listener> listener_;
};

/// Asks for the token of node `listener`, which listens at `address`. On the loop.
class TokenQuery {
 public:
  /// MV_EAUTH: the listener is another user's, or on another machine; a sentence about it that says what to do.
  using Told = std::function<void(base::Result<std::string> token)>;
  TokenQuery(Loop& loop, base::Peer listener, const std::string& address, Told told);
  /// Asks, or does nothing if it has asked already: to be called again from time to time, for the desk may be crowded. `told` is
  /// called once, possibly within this call; this has to outlive that.
  void ask();

 private:
  void read();
  void tell(base::Result<std::string> token);

  Loop& loop_;
  const std::string address_, name_;
  Told told_;
  std::string token_;
  Fd fd_;
  std::unique_ptr<Poll> poll_;  // ends before fd_
};

/// The same without a loop: waits for as long as `patience`.
base::Result<std::string> ask_for_token(base::Peer listener, const std::string& address, base::Nanos patience);

}  // namespace mv::transport
