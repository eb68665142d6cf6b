// One side of a hello against any input. It never consumes more than it wants, never accepts a peer that does not know the secret, and
// every error has a message.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "wire/handshake.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mv::wire;
  if (size < 2) return 0;
  Introduction self;
  self.incarnation = 1;
  self.address = "127.0.0.1:1";
  const auto side = data[0] % 2 == 0 ? Handshake::Side::kDialer : Handshake::Side::kListener;
  const size_t step = data[1] % 64 + 1u;
  const bool accepts = data[0] / 2 % 4 != 0;
  self.has_secret = true;
  self.tls = static_cast<Tls>(data[0] / 8 % 4);
  Handshake handshake(side, self, Handshake::Randomness{});
  std::span<const std::byte> stream = std::as_bytes(std::span(data, size)).subspan(2);
  while (!stream.empty() && handshake.wants() > 0) {
    if (handshake.wants() > 4096) abort();
    const size_t taken = std::min({step, stream.size(), handshake.wants()});
    handshake.feed(stream.first(taken));
    stream = stream.subspan(taken);
    if (handshake.state() == Handshake::State::kDeciding) abort();  // it has seen a proof
    // No fuzzer completes TLS with the agreed key, but anybody may have a certificate.
    if (handshake.state() == Handshake::State::kTls && handshake.tls() == Tls::kMutual) handshake.encrypted("a channel");
    if (handshake.state() == Handshake::State::kSecret)
      accepts ? handshake.prove("a secret that no fuzzer finds") : handshake.refuse(Refusal::kFenced);
  }
  if (handshake.state() == Handshake::State::kDone) abort();
  if (handshake.state() == Handshake::State::kFailed && handshake.why("there").text().empty()) abort();
  if (handshake.output().size() > 4096) abort();
  return 0;
}
