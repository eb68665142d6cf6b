#include "greeting.hpp"

#include <sodium.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

namespace mv::native {

namespace {

namespace cpace = wire::cpace;

constexpr std::string_view kMagic{"pv-ipc\0\2", 8};
constexpr std::string_view kChannel = "pv-ipc";
constexpr size_t kNonce = 32, kShare = sizeof(cpace::Point), kProof = crypto_auth_hmacsha512_BYTES;

std::string_view text(const cpace::Point& point) { return {reinterpret_cast<const char*>(point.data()), point.size()}; }

}  // namespace

Greeting::Greeting(Side side, std::string secret) : side_(side), secret_(std::move(secret)), own_nonce_(kNonce, '\0') {
  randombytes_buf(own_nonce_.data(), own_nonce_.size());
  std::array<std::byte, 64> random;
  randombytes_buf(random.data(), random.size());
  scalar_ = cpace::scalar_from(random);
  if (side == Side::kServer) output_.append(kMagic).append(own_nonce_);
  expect(State::kHello, kMagic.size() + kNonce + (side == Side::kServer ? kShare : 0));
}

void Greeting::expect(State state, size_t bytes) {
  state_ = state;
  wanted_ = bytes;
  input_.clear();
}

void Greeting::refuse(std::string why) {
  refusal_ = std::move(why);
  expect(State::kRefused, 0);
}

void Greeting::take(std::string_view bytes) {
  input_.append(bytes.substr(0, wants()));
  if (wanted_ > 0 && wants() == 0) read();
}

void Greeting::read() {
  const std::string record = std::exchange(input_, {});
  switch (state_) {
    case State::kHello:
      return read_hello(record);
    case State::kShare:
      return read_share(record);
    case State::kProof:
      return read_proof(record);
    case State::kDone:
    case State::kRefused:
      break;
  }
}

void Greeting::read_hello(std::string_view record) {
  if (record.substr(0, kMagic.size()) != kMagic) return refuse("the peer is not an ipc server or client, or has another version of ipc");
  const std::string their_nonce(record.substr(kMagic.size(), kNonce));
  session_ = side_ == Side::kServer ? own_nonce_ + their_nonce : their_nonce + own_nonce_;
  own_share_ = cpace::share(scalar_, cpace::generator(secret_, kChannel, std::as_bytes(std::span(session_))));
  if (side_ == Side::kClient) {
    output_.append(kMagic).append(own_nonce_).append(text(own_share_));
    return expect(State::kShare, kShare + kProof);
  }
  if (!agree(record.substr(kMagic.size() + kNonce))) return refuse("the peer sent an invalid key share");
  output_.append(text(own_share_)).append(proof("server"));
  expect(State::kProof, kProof);
}

void Greeting::read_share(std::string_view record) {
  if (!agree(record.substr(0, kShare))) return refuse("the peer sent an invalid key share");
  read_proof(record.substr(kShare));
  if (done()) output_.append(proof("client"));
}

void Greeting::read_proof(std::string_view record) {
  const std::string expected = proof(side_ == Side::kServer ? "client" : "server");
  if (sodium_memcmp(record.data(), expected.data(), kProof) != 0) return refuse("its POLYVERSO_SECRET differs");
  expect(State::kDone, 0);
}

bool Greeting::agree(std::string_view share) {
  cpace::Point theirs;
  std::memcpy(theirs.data(), share.data(), theirs.size());
  if (theirs == own_share_) return false;  // sent back
  const bool is_server = side_ == Side::kServer;
  const cpace::Transcript transcript{is_server ? theirs : own_share_, "", is_server ? own_share_ : theirs, ""};
  const auto key = cpace::key(scalar_, theirs, std::as_bytes(std::span(session_)), transcript);
  if (key) key_ = *key;
  return key.has_value();
}

std::string Greeting::proof(std::string_view whose) const {
  std::string made(kProof, '\0');
  crypto_auth_hmacsha512_state state;
  crypto_auth_hmacsha512_init(&state, reinterpret_cast<const unsigned char*>(key_.data()), key_.size());
  crypto_auth_hmacsha512_update(&state, reinterpret_cast<const unsigned char*>(whose.data()), whose.size());
  crypto_auth_hmacsha512_final(&state, reinterpret_cast<unsigned char*>(made.data()));
  return made;
}

std::string secret_of_environment() {
  const char* secret = std::getenv("POLYVERSO_SECRET");
  return secret != nullptr ? secret : "";
}

}  // namespace mv::native
