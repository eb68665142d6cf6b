#include "stranger.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "transport/token.hpp"

namespace mv::test {

Stranger::Stranger(const std::string& address) : address_(address) {
  const auto endpoints = transport::resolve(transport::parse_address(address).value(), true, false).value();
  fd_ = transport::Fd(socket(endpoints[0].storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd_.get(), endpoints[0].get(), endpoints[0].length) != 0) fd_.reset();
}

bool Stranger::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool Stranger::send(const std::string& text) { return send(std::as_bytes(std::span(text))); }

bool Stranger::prove(wire::Handshake& handshake, const std::string& secret, const std::string& ends) const {
  if (!secret.empty()) {
    handshake.prove(secret);
    return true;
  }
  const auto token = transport::ask_for_token(handshake.peer().incarnation, address_, std::chrono::seconds(20));
  if (token.ok()) handshake.prove(token.value(), ends);
  return token.ok();
}

bool Stranger::introduce(base::Peer self, const std::string& secret) {
  return introduce(self, secret, transport::ends_of(fd_.get(), /*dialed=*/true));
}

bool Stranger::introduce_between(base::Peer self, const std::string& ends) { return introduce(self, "", ends); }

bool Stranger::introduce(base::Peer self, const std::string& secret, const std::string& ends) {
  wire::Introduction introduction;
  introduction.incarnation = self;
  introduction.has_secret = !secret.empty();
  introduction.resumes = mends_;
  wire::Handshake::Randomness randomness;
  randomness.nonce[0] = randomness.scalar[0] = static_cast<std::byte>(self);
  wire::Handshake handshake(wire::Handshake::Side::kDialer, introduction, randomness);
  for (;;) {
    if (!send(handshake.output())) return false;
    handshake.output().clear();
    if (handshake.state() == wire::Handshake::State::kDone) return true;
    if (handshake.state() == wire::Handshake::State::kFailed) return false;
    if (handshake.state() == wire::Handshake::State::kSecret) {
      if (!prove(handshake, secret, ends)) return false;
      continue;
    }
    std::array<std::byte, 256> buffer;
    const ssize_t got = recv(fd_.get(), buffer.data(), std::min(buffer.size(), handshake.wants()), 0);
    if (got <= 0) return false;
    handshake.feed(std::span(buffer).first(static_cast<size_t>(got)));
  }
}

void Stranger::mend(int patience_ms) {
  mends_ = true;
  const timeval patience{patience_ms / 1000, patience_ms % 1000 * 1000};
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

std::vector<std::byte> Stranger::read(size_t bytes) {
  std::vector<std::byte> all(bytes);
  const ssize_t got = recv(fd_.get(), all.data(), bytes, MSG_WAITALL);
  all.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return all;
}

std::optional<std::vector<std::byte>> Stranger::read_to_end(int limit_ms) {
  std::vector<std::byte> all;
  for (;;) {
    pollfd watched{fd_.get(), POLLIN, 0};
    if (poll(&watched, 1, limit_ms) <= 0) return std::nullopt;
    std::array<std::byte, 4096> buffer;
    const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) return all;
    all.insert(all.end(), buffer.begin(), buffer.begin() + got);
  }
}

}  // namespace mv::test
