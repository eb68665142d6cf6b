#pragma once
// The protection of TLS 1.3's records (RFC 8446, sections 5.2, 5.3 and 7.3), in one direction, with OpenSSL's ciphers.
//
// OpenSSL makes the handshake (stream.cpp), and this class continues with the keys that it agreed on, as the kernel's
// TLS does. SSL_read() and SSL_write() would make two more copies of each value, and cost 0.4 us more for each record.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/tls/openssl/owned.hpp"

namespace mv::transport {

enum class Content : uint8_t { kAlert = 21, kHandshake = 22, kData = 23 };

class Records {
 public:
  static constexpr size_t kHeadBytes = 5, kTagBytes = 16;
  static constexpr size_t kOverhead = kHeadBytes + 1 + kTagBytes;
  static constexpr size_t kMostContent = 16 << 10;
  /// The most bytes after a record's head; peers may pad.
  static constexpr size_t kMostSealed = kMostContent + 256;

  Records() = default;
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;
  ~Records();

  /// Begins with a traffic secret of the handshake. False if OpenSSL fails.
  bool start(const SSL_CIPHER* cipher, std::span<const unsigned char> secret, bool seals);
  /// Changes to the next key; the peer must do the same between the same records.
  bool update();
  /// Records with the present key.
  uint64_t count() const { return count_; }

  /// Writes a record of `content`, at most kMostContent, to `record`, which has room for kOverhead more.
  bool seal(Content type, std::span<const std::byte> content, std::byte* record);
  /// Decrypts `record`, head included, whose size is right. The content goes to `to` if that has room for as many bytes
  /// as the record may contain; otherwise it replaces the record's own bytes. nullopt if any bit is wrong; then ignore
  /// the written bytes.
  struct Opened {
    Content type;
    std::span<std::byte> content;
  };
  std::optional<Opened> open(std::span<std::byte> record, std::span<std::byte> to);

 private:
  static constexpr size_t kMostSecret = EVP_MAX_MD_SIZE, kNonceBytes = 12;
  /// Contents up to this size are copied, so that they are encrypted in one step together with their type.
  static constexpr size_t kCopiedContent = 1024;

  bool use_secret();
  bool derive(const char* label, std::span<unsigned char> to) const;
  bool begin_record(const std::byte* head);

  OwnedCipher cipher_{EVP_CIPHER_CTX_new()};
  const EVP_CIPHER* kind_ = nullptr;
  const EVP_MD* digest_ = nullptr;
  std::array<unsigned char, kMostSecret> secret_{};
  size_t secret_bytes_ = 0;
  std::array<unsigned char, kNonceBytes> nonce_{};
  bool seals_ = false;
  uint64_t count_ = 0;
};

}  // namespace mv::transport
