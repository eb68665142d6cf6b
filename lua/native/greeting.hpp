#pragma once
// The first bytes of a connection of ipc's, of fixed size: each side proves that it knows the secret before anything else is read.
//
//   server   kMagic, a nonce
//   client   kMagic, a nonce, HMAC(secret, "client", both nonces)
//   server   HMAC(secret, "server", both nonces)
//
// Without a secret, which only loopback allows, the proofs show no more than that it is ipc at the other end.

#include <string>
#include <string_view>

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
  bool done() const { return done_; }
  /// Why the other side is refused; empty: it is not.
  const std::string& refusal() const { return refusal_; }

 private:
  std::string proof(std::string_view whose) const;
  void refuse(std::string why);
  void read();
  bool begins_with_magic() const;

  const Side side_;
  const std::string secret_;
  std::string own_nonce_, their_nonce_;
  std::string input_, output_, refusal_;
  size_t wanted_;
  bool done_ = false;
};

/// POLYVERSO_SECRET, or empty.
std::string secret_of_environment();

}  // namespace mv::native
