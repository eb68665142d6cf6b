#pragma once
// The first bytes of every connection, before anything else is parsed: fixed-size records, little-endian.
//
//   dialer    Hello    who I am, what I speak, a nonce
//   listener  Hello    silent until spoken to, so that a port scan learns nothing
//   dialer    Proof    HMAC-SHA-256, keyed by the cluster's secret, of the sender's role and both Hellos: each side's nonce is
//                      in it, and neither's proof can be sent back as the other's
//   listener  Proof    which is also the consent: frames may follow (wire/frame.hpp)
//   either    Refuse   instead of any of these: why not; the connection ends
//   either    Goodbye  between frames: the sender has ended the connection for good
//
// The dialer decides on the peer when it knows who answers (before its Proof), the listener when the dialer has proved it.
//
// A pure state machine: bytes in, bytes out; sockets are io/'s, random numbers the maker's.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"

namespace mv::wire {

inline constexpr uint16_t kVersionMin = 1;
inline constexpr uint16_t kVersionMax = 1;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kAddressBytes = 64;

/// Bits of Introduction::capabilities.
inline constexpr uint64_t kObserves = 1;  ///< no member, and never will be: it asks how the cluster stands

enum class Record : uint32_t { kHello = 1, kProof = 2, kRefuse = 3, kGoodbye = 4 };

enum class Refusal : uint32_t {
  kNone = 0,
  kVersion = 1,    ///< no version in common
  kByteOrder = 2,  ///< the other byte order
  kSecret = 3,     ///< the proof does not hold
  kFenced = 4,     ///< this life of the process was given up: only a new one may come
  kDuplicate = 5,  ///< there is a connection between the two already
  kSelf = 6,       ///< the process has reached itself
  kBusy = 7,       ///< too many connections
  kStranger = 8,   ///< another life of a process answered than the one that was looked for
};

/// What a side says of itself.
struct Introduction {
  base::Peer incarnation = base::kNobody;
  uint64_t capabilities = 0;
  uint16_t version_min = kVersionMin, version_max = kVersionMax;
  bool resumes = false;  ///< mends a broken connection
  std::string address;   ///< where it listens; empty: nowhere
};

/// One side of a hello. Takes exactly as many bytes as wants() says, so that no byte of a frame is ever taken.
class Handshake {
 public:
  enum class Side : uint32_t { kDialer = 1, kListener = 2 };
  using Nonce = std::array<std::byte, kNonceBytes>;
  enum class State {
    kHello,     ///< waits for the other's Hello
    kProof,     ///< waits for the other's Proof
    kDeciding,  ///< accept() or refuse() the peer: a dialer by the peer's own words, a listener on proof
    kDone,      ///< frames follow
    kFailed,    ///< why() tells; what output() holds is still worth sending
  };

  /// `nonce` must never be used twice.
  Handshake(Side side, Introduction self, std::string_view secret, const Nonce& nonce);

  State state() const { return state_; }
  Side side() const { return side_; }
  /// Bytes to send; the caller clears it.
  std::vector<std::byte>& output() { return output_; }
  /// How many bytes the record under way still lacks; 0 unless it waits for one.
  size_t wants() const;
  /// Takes at most wants() bytes.
  void feed(std::span<const std::byte> bytes);

  /// kDeciding.
  void accept();
  /// Either side, any time before kDone. kFailed afterwards.
  void refuse(Refusal why);

  /// What the other side says of itself: from kDeciding on; only its own words for a dialer before kDone.
  const Introduction& peer() const { return peer_; }
  uint16_t version() const { return version_; }
  /// kFailed: the reason, and whether it was the peer's decision.
  Refusal refusal() const { return refusal_; }
  bool refused_by_peer() const { return by_peer_; }
  /// kFailed: MV_EAUTH, MV_EVERSION, MV_EPROTOCOL or MV_EUNREACHABLE, as a sentence about `address`.
  base::Status why(std::string_view address) const;

 private:
  void take_record();
  void take_hello();
  void take_proof();
  void send_proof();
  void fail(Refusal why, bool by_peer);
  void fail_garbage();
  std::array<std::byte, 32> proof_of(Side side, std::span<const std::byte> own,
                                     std::span<const std::byte> others) const;

  const Side side_;
  const Introduction self_;
  const std::string secret_;
  State state_ = State::kHello;
  Refusal refusal_ = Refusal::kNone;
  bool by_peer_ = false;
  uint16_t version_ = 0;
  Introduction peer_;
  std::vector<std::byte> input_, output_;
  std::vector<std::byte> own_hello_, peer_hello_;
};

/// Between frames, where a prefix would stand; as long as one (16 bytes).
inline constexpr size_t kGoodbyeBytes = 16;
std::array<std::byte, kGoodbyeBytes> goodbye();
bool is_goodbye(std::span<const std::byte> bytes);

}  // namespace mv::wire
