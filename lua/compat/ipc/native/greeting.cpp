#include "greeting.hpp"

#include <sodium.h>

#include <cstdlib>
#include <span>
#include <utility>

namespace mv::native {

namespace {

/// Differs from the cluster's channels, so that members of a cluster and ipc never take each other for peers, and changes with the format of
/// ipc's messages.
constexpr std::string_view kChannel = "ipc 3";

wire::Introduction introduction(bool has_secret) {
  wire::Introduction self;
  randombytes_buf(&self.incarnation, sizeof self.incarnation);
  self.incarnation |= 1;  // not kNobody
  self.has_secret = has_secret;
  return self;
}

wire::Handshake::Randomness randomness() {
  wire::Handshake::Randomness random;
  randombytes_buf(random.nonce.data(), random.nonce.size());
  randombytes_buf(random.scalar.data(), random.scalar.size());
  return random;
}

}  // namespace

Greeting::Greeting(Side side, std::string secret) : secret_(std::move(secret)), handshake_(side, introduction(!secret_.empty()), randomness()) {}

std::string Greeting::output() {
  const auto bytes = std::exchange(handshake_.output(), {});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void Greeting::take(std::string_view bytes) {
  handshake_.feed(std::as_bytes(std::span(bytes)));
  if (handshake_.state() == wire::Handshake::State::kSecret) handshake_.prove(secret_, kChannel);
  if (handshake_.state() == wire::Handshake::State::kDeciding) handshake_.accept();
}

std::string secret_of_environment() {
  const char* secret = std::getenv("POLYVERSO_SECRET");
  return secret != nullptr ? secret : "";
}

}  // namespace mv::native
