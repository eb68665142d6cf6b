#pragma once
// CPace (draft-irtf-cfrg-cpace, suite CPACE-RISTR255-SHA512, initiator and responder): two sides that know the same secret agree
// on a key. Someone who does not know it learns nothing by listening, and can test one guess for each exchange it takes part in,
// so even a secret from a dictionary can't be found offline.
//
// Pure functions of bytes; about 150 µs for one side of one exchange. wire/hello.hpp makes a handshake of them.

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
/// What both sides multiply: it depends on the secret, on the channel that the exchange is for, and on the session.
Point generator(std::string_view secret, std::string_view channel, std::span<const std::byte> session);
/// What a side sends to the other.
Point share(const Scalar& own, const Point& generator);

/// What both have sent, each with the bytes that it vouches for.
struct Transcript {
  Point initiator_share;
  std::string_view initiator_data;
  Point responder_share;
  std::string_view responder_data;
};
/// The key; nothing if the other side's share is no point, or the neutral one, which would make the key predictable.
std::optional<Key> key(const Scalar& own, const Point& others_share, std::span<const std::byte> session, const Transcript& transcript);

}  // namespace mv::wire::cpace
