#pragma once
// TLS 1.3 for one stream: bytes in, bytes out. It has no socket; transport/tcp passes it what arrives, and writes what
// it puts out. The implementation, by OpenSSL, is in a module of its own (transport/tls/openssl), so a process without
// encrypted connections does not load OpenSSL.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "wire/handshake.hpp"

namespace mv::transport {

/// The setting `tls`.
enum class TlsMode {
  kOff,
  kAuto,    ///< kPsk beyond loopback; on loopback only if the other side demands it
  kPsk,     ///< with a key that both sides derive from the secret
  kMutual,  ///< with a certificate of each side
};
/// nullopt for other words than off, auto, psk, mutual.
std::optional<TlsMode> tls_mode(std::string_view word);

/// The files of kMutual, in PEM form: this node's certificates (its own first), its private key, and the authorities
/// that sign the peers' certificates.
struct TlsFiles {
  std::string cert, key, ca;
  bool operator==(const TlsFiles&) const = default;
};

struct TlsSettings {
  TlsMode mode = TlsMode::kAuto;
  TlsFiles files;  ///< of kMutual
};
/// What a connection demands in its hello.
wire::Tls demand_of(TlsMode mode, bool beyond_loopback);

/// One side of one connection. On one thread at a time.
class TlsStream {
 public:
  virtual ~TlsStream() = default;
  TlsStream() = default;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  enum class State {
    kGreeting,  ///< TLS's handshake: pass on what arrives and what is put out
    kOpen,      ///< seal() and open()
    kEnded,     ///< the peer has ended the stream properly
    kFailed,    ///< why() has the reason; output() should still be sent
  };
  virtual State state() const = 0;
  virtual base::Status why() const = 0;

  /// The place for bytes from the peer, never empty in kGreeting. In kOpen, empty only while open() has more.
  virtual std::span<std::byte> room() = 0;
  /// `bytes` are now in room(). In kGreeting it continues the handshake.
  virtual void arrived(size_t bytes) = 0;
  /// In kOpen: decrypts at most one record into `to`, directly if it is large enough. Returns the number of bytes; 0 if
  /// the rest of a record is missing, or if the state has changed.
  virtual size_t open(std::span<std::byte> to) = 0;

  /// In kOpen: encrypts the first bytes of `bytes`, as many as output() has room for. Returns their number.
  virtual size_t seal(std::span<const std::byte> bytes) = 0;
  /// Bytes to send. Valid until the next call.
  virtual std::span<const std::byte> output() const = 0;
  /// The first `bytes` of output() have been sent.
  virtual void sent(size_t bytes) = 0;

  /// From kOpen on: for example "TLS_AES_128_GCM_SHA256".
  virtual const char* cipher() const = 0;
  /// From kOpen on: a value unique to this connection that only its two ends know (RFC 9266).
  using Binding = std::array<std::byte, 32>;
  virtual const Binding& binding() const = 0;
  /// From kOpen on, with certificates: whether the peer's certificate is valid for `host`, a name or a numeric address.
  virtual bool is_named(const std::string& host) const = 0;
};

/// What the connections of a node have in common. On one thread at a time.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  using Key = std::array<std::byte, 32>;

  /// A side whose peer must have the same `key`, which is of this connection only.
  virtual base::Result<std::unique_ptr<TlsStream>> psk(bool dials, const Key& key) = 0;
  /// A side with certificates; reads the files again if they have changed. A dialer also demands that the listener's
  /// certificate is valid for `host`. MV_EINVAL if a file can't be used.
  virtual base::Result<std::unique_ptr<TlsStream>> mutual(bool dials, const std::string& host) = 0;
  /// Why files that have changed could not be used, so that the certificates read before remain; ok() if there is no
  /// such error.
  virtual base::Status trouble() = 0;
  /// The time at which this node's certificate expires, in seconds since 1970. MV_EINVAL if a file can't be used.
  virtual base::Result<int64_t> expires() = 0;
};

/// Loads the module and, with `files`, the certificates. MV_ENOSYS if there is no module, MV_EINVAL for files that
/// can't be used; the message names the setting.
base::Result<std::shared_ptr<TlsContext>> make_tls(const TlsFiles& files);

/// The entry point of the module. Module and library must be of one build.
using MakeTls = void (*)(const TlsFiles& files, base::Result<std::shared_ptr<TlsContext>>& made);
inline constexpr const char* kTlsModuleEntry = "polyverso_make_tls";
inline constexpr const char* kTlsModuleFile = "libpolyverso-tls.so";

}  // namespace mv::transport
