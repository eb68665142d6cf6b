#pragma once
// The handshake at the start of every connection, before anything else is parsed: fixed-size records, little-endian.
//
//   dialer    Hello    identity, protocol versions, a nonce
//   listener  Hello    sent only after the dialer's, so that a port scan learns nothing
//   dialer    Share    its half of a key agreement that needs the secret (wire/cpace.hpp)
//   listener  Share    the other half
//   dialer    Proof    HMAC-SHA-512 of the sender's role under the agreed key
//   listener  Proof    also accepts the connection: frames may follow (wire/frame.hpp)
//   either    Refuse   instead of any of these, with the reason; the connection ends
//   either    Goodbye  between frames: the sender has ended the connection for good
//
// Encryption (see Tls) takes the place of one step, and everything after that step is encrypted:
//
//   kPsk      instead of both Proofs: TLS 1.3 with the agreed key as its pre-shared key. A side that has another key
//             cannot complete it. Then the listener sends Accept, a record without content.
//   kMutual   between the Hellos and the Shares: TLS 1.3 with certificates. Its channel is part of prove()'s, which
//             ties the Hellos to it.
//
// The key depends on the secret, on both Hellos, on both Shares with their roles, and on the channel (see prove()). A
// record that is changed, replayed in another connection, or reflected to its sender therefore leads to an invalid
// Proof. Neither side reveals anything that allows guessing the secret offline: a peer that does not know it has one
// guess per connection.
//
// The dialer accepts or refuses the peer once it knows the listener's claimed identity (before its Share), the listener
// once the dialer has proved its own.
//
// A pure state machine: bytes in, bytes out. Sockets belong to transport/; the creator supplies the random numbers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"
#include "wire/cpace.hpp"

namespace mv::wire {

inline constexpr uint16_t kVersionMin = 3;
inline constexpr uint16_t kVersionMax = 3;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kAddressBytes = 64;

/// Bits of Introduction::capabilities.
inline constexpr uint64_t kObserves = 1;  ///< an observer: never a member, only queries the cluster's status
inline constexpr uint64_t kHasUcx = 2;    ///< exchanges messages by UCX after the hello, if the other side does too

enum class Record : uint32_t { kHello = 1, kProof = 2, kRefuse = 3, kGoodbye = 4, kShare = 5, kAccept = 6 };

/// What a side says about TLS in its Hello.
enum class Tls : uint8_t {
  kOff = 0,      ///< never
  kIfAsked = 1,  ///< as kPsk if the other side demands it, else without
  kPsk = 2,      ///< demands it, with the key of the hello
  kMutual = 3,   ///< demands it, with certificates of both sides
};
/// What two sides use: kOff, kPsk or kMutual; empty if they exclude each other.
std::optional<Tls> agree(Tls one, Tls other);

enum class Refusal : uint32_t {
  kNone = 0,
  kVersion = 1,    ///< no version in common
  kByteOrder = 2,  ///< the other byte order
  kSecret = 3,     ///< the proof is invalid
  kFenced = 4,     ///< this incarnation was declared lost: only a new one may connect
  kDuplicate = 5,  ///< the two are already connected
  kSelf = 6,       ///< the process has dialed itself
  kBusy = 7,       ///< too many connections
  kStranger = 8,   ///< another incarnation answered than the expected one
  kUser = 9,       ///< neither side has a secret, and they are not processes of one user on one machine
  kTls = 10,       ///< one side demands encryption that the other does not have
  kCertificate = 11,  ///< the certificate is not valid for this peer
};

/// A side's description of itself.
struct Introduction {
  base::Peer incarnation = base::kNobody;
  uint64_t capabilities = 0;
  uint16_t version_min = kVersionMin, version_max = kVersionMax;
  bool resumes = false;     ///< restores a broken connection
  bool has_secret = false;  ///< if false, both sides must authenticate by other means
  Tls tls = Tls::kOff;
  std::string address;   ///< where it listens; empty: nowhere
};

/// One side of a hello. Consumes exactly as many bytes as wants() says, so it never consumes a byte of a frame.
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
    kHello,     ///< waits for the peer's Hello
    kTls,       ///< encryption begins here: run TLS as dialer or listener, then call encrypted(). The peer may refuse instead
    kSecret,    ///< call prove() or refuse(): a dialer has the peer's Hello, a listener also its Share
    kShare,     ///< waits for the peer's Share
    kProof,     ///< waits for the peer's Proof
    kDeciding,  ///< listener only: the dialer's Proof is valid; call accept() or refuse()
    kDone,      ///< frames follow
    kFailed,    ///< why() has the reason; output() should still be sent
  };

  Handshake(Side side, Introduction self, const Randomness& randomness);
  Handshake(Handshake&&) = default;
  Handshake& operator=(Handshake&&) = delete;
  ~Handshake();

  State state() const { return state_; }
  Side side() const { return side_; }
  /// Waits for the owner's decision.
  bool undecided() const { return state_ == State::kTls || state_ == State::kSecret || state_ == State::kDeciding; }
  /// Bytes to send; the caller clears it.
  std::vector<std::byte>& output() { return output_; }
  /// The number of missing bytes of the current record; 0 if it waits for none. In kTls, of a Refuse in place of TLS.
  size_t wants() const;
  /// Takes at most wants() bytes.
  void feed(std::span<const std::byte> bytes);

  /// In kSecret. Takes about 150 µs of computation: the owner of a listener limits how often strangers can cause that.
  /// Both sides must pass the same `secret` and the same `channel`: properties of the connection that both sides see,
  /// but that a relay in between would change.
  void prove(std::string_view secret, std::string_view channel = {});
  /// In kTls: TLS is complete. All further bytes in and out pass through it. `channel`, for kMutual: a value that is
  /// unique to this TLS connection, and that only its two ends know.
  void encrypted(std::string_view channel = {});
  /// In kTls: TLS has failed. The state becomes kFailed; there is no output.
  void not_encrypted();
  /// In kDeciding.
  void accept();
  /// Either side, any time before kDone. The state becomes kFailed.
  void refuse(Refusal why);

  /// The peer's introduction, once its Hello has arrived: authenticated for a listener in kDeciding, for both in kDone.
  const Introduction& peer() const { return peer_; }
  uint16_t version() const { return version_; }
  /// The encryption that the two Hellos lead to: kOff, kPsk or kMutual. Known from kTls or kSecret on.
  Tls tls() const { return tls_; }
  /// In kTls with kPsk, and in kDone: a key that only the two sides know, unique to this connection.
  const Key& key() const { return key_; }
  /// In kFailed: the reason, and whether the peer refused.
  Refusal refusal() const { return refusal_; }
  bool refused_by_peer() const { return by_peer_; }
  /// In kFailed: MV_EAUTH, MV_EVERSION, MV_EPROTOCOL or MV_EUNREACHABLE, as a sentence about `address`.
  base::Status why(std::string_view address) const;

 private:
  void take_record();
  void take_hello();
  void take_share();
  void take_proof();
  bool agree_on_key();
  void send_proof();
  void fail(Refusal why, bool by_peer);
  void fail_garbage();
  base::Status why_not_proved(std::string_view address) const;
  base::Status why_not_encrypted(std::string_view address) const;
  Key derive(std::string_view label) const;

  const Side side_;
  const Introduction self_;
  State state_ = State::kHello;
  Refusal refusal_ = Refusal::kNone;
  bool by_peer_ = false;
  uint16_t version_ = 0;
  Tls tls_ = Tls::kOff;
  std::string channel_;  // of TLS with certificates
  Introduction peer_;
  std::vector<std::byte> input_, output_;
  std::vector<std::byte> own_hello_, peer_hello_;
  cpace::Scalar scalar_;
  cpace::Key session_{}, agreed_{};
  cpace::Point own_share_{}, peer_share_{};
  Key key_{};
};

/// A Goodbye takes the place of a frame's prefix, and has its size (16 bytes).
inline constexpr size_t kGoodbyeBytes = 16;
std::array<std::byte, kGoodbyeBytes> goodbye();
bool is_goodbye(std::span<const std::byte> bytes);

}  // namespace mv::wire
