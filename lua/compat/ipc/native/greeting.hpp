#pragma once
// The handshake of ipc's connections: the cluster's (core/wire/handshake.hpp), with the secret of the environment. Without a secret, which
// only loopback allows, it shows no more than that it is ipc at the other end.

#include <string>
#include <string_view>

#include <wire/handshake.hpp>

namespace mv::native {

class Greeting {
 public:
  using Side = wire::Handshake::Side;

  Greeting(Side side, std::string secret);

  /// Takes the bytes to send, also those of a refusal.
  std::string output();
  /// The number of bytes it waits for; 0 when done or refused.
  size_t wants() const { return handshake_.wants(); }
  /// Takes at most wants() received bytes.
  void take(std::string_view bytes);
  bool done() const { return handshake_.state() == wire::Handshake::State::kDone; }
  bool is_refused() const { return handshake_.state() == wire::Handshake::State::kFailed; }
  /// If refused: the reason, as a sentence about `peer`.
  std::string refusal(std::string_view peer) const { return handshake_.why(peer).text(); }

 private:
  const std::string secret_;
  wire::Handshake handshake_;
};

/// POLYVERSO_SECRET, or empty.
std::string secret_of_environment();

}  // namespace mv::native
