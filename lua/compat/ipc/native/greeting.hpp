#pragma once
// The first bytes of a connection of ipc's, of fixed size: each side proves that it knows the secret before anything else is read.
//
//   server   kMagic, a nonce
//   client   kMagic, a nonce, its share of a key agreement that needs the secret (core/wire/cpace.hpp)
//   server   its share, HMAC-SHA-512(key, "server")
//   client   HMAC-SHA-512(key, "client")
//
// The key depends on the secret, both nonces and both shares. As in the cluster's hello, a stranger at either end can test one guess of the
// secret for each connection, and none afterwards: the same secret protects both. Without a secret, which only loopback allows, the proofs
// show no more than that it is ipc at the other end.

#include <array>
#include <string>
#include <string_view>

#include <wire/cpace.hpp>

namespace mv::native {

class Greeting {
 public:
  enum class Side { kServer, kClient };

  Greeting(Side side, std::string secret);

  /// Bytes to send; the caller clears it.
  std::string& output() { return output_; }
  /// How many bytes it waits for; 0 when done or failed.
  size_t wants() const { return wanted_ - input_.size(); }
  /// At most so many bytes that have come.
  void take(std::string_view bytes);
  bool done() const { return state_ == State::kDone; }
  /// Why the other side is refused; empty: it is not.
  const std::string& refusal() const { return refusal_; }

 private:
  enum class State { kHello, kShare, kProof, kDone, kRefused };

  void expect(State state, size_t bytes);
  void refuse(std::string why);
  void read();
  void read_hello(std::string_view record);
  void read_share(std::string_view record);
  void read_proof(std::string_view record);
  bool agree(std::string_view share);
  std::string proof(std::string_view whose) const;

  const Side side_;
  const std::string secret_;
  State state_ = State::kHello;
  std::string own_nonce_, session_;
  wire::cpace::Scalar scalar_;
  wire::cpace::Point own_share_{};
  wire::cpace::Key key_{};
  std::string input_, output_, refusal_;
  size_t wanted_ = 0;
};

/// POLYVERSO_SECRET, or empty.
std::string secret_of_environment();

}  // namespace mv::native
