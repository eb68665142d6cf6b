#include "greeting.hpp"

#include <sodium.h>

#include <cstdlib>
#include <utility>

namespace mv::native {

namespace {

constexpr std::string_view kMagic{"pv-ipc\0\1", 8};
constexpr size_t kNonce = 32, kProof = crypto_auth_hmacsha256_BYTES;

}  // namespace

Greeting::Greeting(Side side, std::string secret) : side_(side), secret_(std::move(secret)), own_nonce_(kNonce, '\0') {
  randombytes_buf(own_nonce_.data(), own_nonce_.size());
  if (side == Side::kServer) output_.append(kMagic).append(own_nonce_);
  wanted_ = kMagic.size() + kNonce + (side == Side::kServer ? kProof : 0);
}

std::string Greeting::proof(std::string_view whose) const {
  const bool is_server = side_ == Side::kServer;
  const std::string text = std::string(whose) + (is_server ? own_nonce_ + their_nonce_ : their_nonce_ + own_nonce_);
  std::string made(kProof, '\0');
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(secret_.data()), secret_.size());
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(made.data()));
  return made;
}

void Greeting::refuse(std::string why) {
  refusal_ = std::move(why);
  wanted_ = 0;
  input_.clear();
}

void Greeting::take(std::string_view bytes) {
  input_.append(bytes.substr(0, wants()));
  if (wanted_ > 0 && wants() == 0) read();
}

bool Greeting::begins_with_magic() const { return std::string_view(input_).substr(0, kMagic.size()) == kMagic; }

void Greeting::read() {
  const auto holds = [&](std::string_view given, std::string_view whose) { return sodium_memcmp(given.data(), proof(whose).data(), kProof) == 0; };
  const std::string_view input = input_;
  if (their_nonce_.empty()) {
    if (!begins_with_magic()) return refuse("what answers there is no server or client of this ipc");
    their_nonce_ = input.substr(kMagic.size(), kNonce);
    if (side_ == Side::kClient) {
      output_.append(kMagic).append(own_nonce_).append(proof("client"));
      wanted_ = kProof;
      input_.clear();
      return;
    }
    if (!holds(input.substr(kMagic.size() + kNonce), "client")) return refuse("its POLYVERSO_SECRET is another one");
    output_.append(proof("server"));
  } else if (!holds(input, "server")) {
    return refuse("its POLYVERSO_SECRET is another one");
  }
  done_ = true;
  wanted_ = 0;
  input_.clear();
}

std::string secret_of_environment() {
  const char* secret = std::getenv("POLYVERSO_SECRET");
  return secret != nullptr ? secret : "";
}

}  // namespace mv::native
