#pragma once
// The first bytes of every connection, before anything else is parsed: fixed-size records, little-endian.
//
//   dialer    Hello    who I am, what I speak, a nonce
//   listener  Hello    silent until spoken to, so that a port scan learns nothing
//   dialer    Share    its half of a key agreement that needs the secret (wire/cpace.hpp)
//   listener  Share    the other half
//   dialer    Proof    HMAC-SHA-512 by the agreed key, of the sender's role
//   listener  Proof    which is also the consent: frames may follow (wire/frame.hpp)
//   either    Refuse   instead of any of these: why not; the connection ends
//   either    Goodbye  between frames: the sender has ended the connection for good
//
// The key depends on the secret, on both Hellos, on both Shares with their roles, and on the channel (see prove()). A record that
// is changed, replayed in another connection, or sent back to its sender therefore ends in a Proof that does not hold. Neither
// side gives the other anything by which a secret could be guessed offline: who does not know it has one guess a connection.
//
// The dialer decides on the peer when it knows who answers (before its Share), the listener when the dialer has proved it.
//
// A pure state machine: bytes in, bytes out; sockets are transport/'s, random numbers the maker's.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"
#include "wire/cpace.hpp"

namespace mv::wire {

inline constexpr uint16_t kVersionMin = 2;
inline constexpr uint16_t kVersionMax = 2;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kAddressBytes = 64;

/// Bits of Introduction::capabilities.
inline constexpr uint64_t kObserves = 1;  ///< no member, and never will be: it asks how the cluster stands

enum class Record : uint32_t { kHello = 1, kProof = 2, kRefuse = 3, kGoodbye = 4, kShare = 5 };

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
  kUser = 9,       ///< neither side has a secret, and they are not processes of one user on one machine
};

/// What a side says of itself.
struct Introduction {
  base::Peer incarnation = base::kNobody;
  uint64_t capabilities = 0;
  uint16_t version_min = kVersionMin, version_max = kVersionMax;
  bool resumes = false;     ///< mends a broken connection
  bool has_secret = false;  ///< else it proves by other means that it belongs here, and so has its peer to
  std::string address;   ///< where it listens; empty: nowhere
};

/// One side of a hello. Takes exactly as many bytes as wants() says, so that no byte of a frame is ever taken.
class Handshake {
 public:
  enum class Side : uint32_t { kDialer = 1, kListener = 2 };
  /// Fresh random bytes, never used twice.
  struct Randomness {
    std::array<std::byte, kNonceBytes> nonce{};
    std::array<std::byte, 64> scalar{};
  };
  using Key = std::array<std::byte, 32>;
  enum class State {
    kHello,     ///< waits for the other's Hello
    kSecret,    ///< prove() or refuse(): a dialer knows the peer by its own words, a listener has got its Share
    kShare,     ///< waits for the other's Share
    kProof,     ///< waits for the other's Proof
    kDeciding,  ///< a listener: the dialer has proved itself; accept() or refuse()
    kDone,      ///< frames follow
    kFailed,    ///< why() tells; what output() holds is still worth sending
  };

  Handshake(Side side, Introduction self, const Randomness& randomness);
  Handshake(Handshake&&) = default;
  Handshake& operator=(Handshake&&) = delete;
  ~Handshake();

  State state() const { return state_; }
  Side side() const { return side_; }
  /// Waits for the owner's word.
  bool undecided() const { return state_ == State::kSecret || state_ == State::kDeciding; }
  /// Bytes to send; the caller clears it.
  std::vector<std::byte>& output() { return output_; }
  /// How many bytes the record under way still lacks; 0 unless it waits for one.
  size_t wants() const;
  /// Takes at most wants() bytes.
  void feed(std::span<const std::byte> bytes);

  /// kSecret. Computes for about 150 µs: a listener's owner bounds how often strangers cause that. Both sides have to give the
  /// same `secret`, and the same `channel`: what they see alike of the connection and a relay in between would change.
  void prove(std::string_view secret, std::string_view channel = {});
  /// kDeciding.
  void accept();
  /// Either side, any time before kDone. kFailed afterwards.
  void refuse(Refusal why);

  /// What the other side says of itself, from its Hello on: proved for a listener in kDeciding, for both in kDone.
  const Introduction& peer() const { return peer_; }
  uint16_t version() const { return version_; }
  /// kDone: a secret of the two sides and this connection alone.
  const Key& key() const { return key_; }
  /// kFailed: the reason, and whether it was the peer's decision.
  Refusal refusal() const { return refusal_; }
  bool refused_by_peer() const { return by_peer_; }
  /// kFailed: MV_EAUTH, MV_EVERSION, MV_EPROTOCOL or MV_EUNREACHABLE, as a sentence about `address`.
  base::Status why(std::string_view address) const;

 private:
  void take_record();
  void take_hello();
  void take_share();
  void take_proof();
  bool agree();
  void send_proof();
  void fail(Refusal why, bool by_peer);
  void fail_garbage();
  base::Status why_not_proved(std::string_view address) const;
  Key derive(std::string_view label) const;

  const Side side_;
  const Introduction self_;
  State state_ = State::kHello;
  Refusal refusal_ = Refusal::kNone;
  bool by_peer_ = false;
  uint16_t version_ = 0;
  Introduction peer_;
  std::vector<std::byte> input_, output_;
  std::vector<std::byte> own_hello_, peer_hello_;
  cpace::Scalar scalar_;
  cpace::Key session_{}, agreed_{};
  cpace::Point own_share_{}, peer_share_{};
  Key key_{};
};

/// Between frames, where a prefix would stand; as long as one (16 bytes).
inline constexpr size_t kGoodbyeBytes = 16;
std::array<std::byte, kGoodbyeBytes> goodbye();
bool is_goodbye(std::span<const std::byte> bytes);

}  // namespace mv::wire
