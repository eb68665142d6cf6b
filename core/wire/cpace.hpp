#pragma once
// CPace (draft-irtf-cfrg-cpace, suite CPACE-RISTR255-SHA512, initiator and responder): two sides that know the same
// secret agree on a key. An eavesdropper learns nothing. An attacker that takes part can test one guess per exchange,
// so even a secret from a dictionary can't be found offline.
//
// Pure functions of bytes; about 150 µs for one side of one exchange. wire/handshake.hpp builds a handshake from them.

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace mv::wire::cpace {

using Point = std::array<std::byte, 32>;   ///< an element of ristretto255, encoded
using Scalar = std::array<std::byte, 32>;  ///< little-endian
using Key = std::array<std::byte, 64>;     ///< the draft's ISK

/// A scalar from fresh random bytes.
Scalar scalar_from(const std::array<std::byte, 64>& random);
/// The base point for both sides. It depends on the secret, on the channel of the exchange, and on the session.
Point generator(std::string_view secret, std::string_view channel, std::span<const std::byte> session);
/// The point that a side sends to its peer.
Point share(const Scalar& own, const Point& generator);

/// The shares of both sides, each with its associated data.
struct Transcript {
  Point initiator_share;
  std::string_view initiator_data;
  Point responder_share;
  std::string_view responder_data;
};
/// The key; empty if the peer's share is no point, or the neutral element, which would make the key predictable.
std::optional<Key> key(const Scalar& own, const Point& others_share, std::span<const std::byte> session, const Transcript& transcript);

}  // namespace mv::wire::cpace
