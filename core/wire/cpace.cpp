#include "wire/cpace.hpp"

#include <sodium.h>

#include <algorithm>
#include <string>

namespace mv::wire::cpace {

namespace {

constexpr std::string_view kDomain = "CPaceRistretto255", kKeyDomain = "CPaceRistretto255_ISK";
constexpr size_t kHashBlock = 128;  // SHA-512's

static_assert(crypto_core_ristretto255_BYTES == sizeof(Point) && crypto_core_ristretto255_SCALARBYTES == sizeof(Scalar));
static_assert(crypto_core_ristretto255_HASHBYTES == crypto_hash_sha512_BYTES && crypto_hash_sha512_BYTES == sizeof(Key));

template <typename Bytes>
uint8_t* raw(Bytes& bytes) {
  return reinterpret_cast<uint8_t*>(bytes.data());
}
template <typename Bytes>
const uint8_t* raw(const Bytes& bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}
template <typename Bytes>
std::string_view text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The draft's prepend_len(): the length in LEB128, then the bytes.
void append(std::string& out, std::string_view bytes) {
  size_t length = bytes.size();
  for (; length >= 0x80; length >>= 7) out.push_back(static_cast<char>(0x80 | (length & 0x7f)));
  out.push_back(static_cast<char>(length));
  out.append(bytes);
}

Key hash_and_wipe(std::string& bytes) {
  Key hash;
  crypto_hash_sha512(raw(hash), raw(bytes), bytes.size());
  sodium_memzero(bytes.data(), bytes.size());
  return hash;
}

}  // namespace

Scalar scalar_from(const std::array<std::byte, 64>& random) {
  Scalar scalar;
  crypto_core_ristretto255_scalar_reduce(raw(scalar), raw(random));
  return scalar;
}

Point generator(std::string_view secret, std::string_view channel, std::span<const std::byte> session) {
  std::string input;
  input.reserve(2 * kHashBlock + secret.size() + channel.size() + session.size());
  append(input, kDomain);
  append(input, secret);
  // Zero padding fills the first hash block, so the time does not leak the secret's length.
  const size_t filled = input.size() + 1;
  append(input, std::string(filled < kHashBlock ? kHashBlock - filled : 0, '\0'));
  append(input, channel);
  append(input, text(session));
  const Key hash = hash_and_wipe(input);
  Point point;
  crypto_core_ristretto255_from_hash(raw(point), raw(hash));
  return point;
}

Point share(const Scalar& own, const Point& generator) {
  Point point{};
  // Fails only if the result is the neutral element: for a scalar of 0, whose share the peer refuses.
  [[maybe_unused]] const int failed = crypto_scalarmult_ristretto255(raw(point), raw(own), raw(generator));
  return point;
}

std::optional<Key> key(const Scalar& own, const Point& others_share, std::span<const std::byte> session, const Transcript& transcript) {
  Point secret_point;
  if (crypto_scalarmult_ristretto255(raw(secret_point), raw(own), raw(others_share)) != 0) return std::nullopt;
  std::string input;
  input.reserve(512 + session.size() + transcript.initiator_data.size() + transcript.responder_data.size());
  append(input, kKeyDomain);
  append(input, text(session));
  append(input, text(secret_point));
  append(input, text(transcript.initiator_share));
  append(input, transcript.initiator_data);
  append(input, text(transcript.responder_share));
  append(input, transcript.responder_data);
  sodium_memzero(secret_point.data(), secret_point.size());
  return hash_and_wipe(input);
}

}  // namespace mv::wire::cpace
