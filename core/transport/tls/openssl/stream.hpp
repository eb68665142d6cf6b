#pragma once
// One TLS connection: OpenSSL's handshake over memory, then records (records.hpp).

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "transport/tls/openssl/owned.hpp"
#include "transport/tls/openssl/records.hpp"
#include "transport/tls/tls.hpp"

namespace mv::transport {

class OpenSslStream final : public TlsStream {
 public:
  /// `key`: that of kPsk; null with certificates. `host`: the name to demand of the listener's certificate.
  static base::Result<std::unique_ptr<TlsStream>> make(SSL_CTX& context, bool dials, const TlsContext::Key* key,
                                                       const std::string& host);
  /// Sets the callbacks by which the streams of a context get their keys.
  static void prepare(SSL_CTX& context);
  /// The callback by which contexts verify each certificate of a peer's chain.
  static int note_verdict(int is_good, X509_STORE_CTX* chain);
  ~OpenSslStream() override;

  State state() const override { return state_; }
  base::Status why() const override { return why_; }
  std::span<std::byte> room() override;
  void arrived(size_t bytes) override;
  size_t open(std::span<std::byte> to) override;
  size_t seal(std::span<const std::byte> bytes) override;
  std::span<const std::byte> output() const override { return {out_.get() + out_begin_, out_end_ - out_begin_}; }
  void sent(size_t bytes) override;
  const char* cipher() const override { return cipher_; }
  const Binding& binding() const override { return binding_; }
  bool is_named(const std::string& host) const override;

  /// A key protects at most this many records (RFC 8446, section 5.5), which is about 64 GiB.
  static constexpr uint64_t kRecordsPerKey = 1 << 22;
  /// OpenSSL demands that contexts which verify certificates name their use, and that keys have the same name.
  static constexpr std::array<unsigned char, 9> kUse{'p', 'o', 'l', 'y', 'v', 'e', 'r', 's', 'o'};

 private:
  /// A multiple of the largest record: that many are written and read in one system call.
  static constexpr size_t kRecordsAtOnce = 16;
  static constexpr size_t kOutBytes = kRecordsAtOnce * (Records::kMostContent + Records::kOverhead);
  static constexpr size_t kInBytes = kRecordsAtOnce * (Records::kMostSealed + Records::kHeadBytes);
  /// A handshake with a chain of certificates has a few KiB.
  static constexpr size_t kMostGreeting = 64 << 10, kGreetingRoom = 4 << 10;
  static constexpr size_t kMostSecret = EVP_MAX_MD_SIZE;
  struct Secret {
    std::array<unsigned char, kMostSecret> bytes{};
    size_t count = 0;
    std::span<const unsigned char> get() const { return std::span(bytes).first(count); }
  };

  OpenSslStream(OwnedSsl ssl, bool dials, const TlsContext::Key* key, const std::string& host);

  static void note_secret(const SSL* ssl, const char* line);
  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* name_bytes, SSL_SESSION** session);
  static int find_key(SSL* ssl, const unsigned char*, size_t, SSL_SESSION** session);
  OwnedSession session_of_key(SSL* ssl) const;

  void greet();
  void finish_greeting();
  void take_output();
  void append(std::span<const std::byte> bytes);
  void grow_output(size_t bytes);
  bool seal_record(Content type, std::span<const std::byte> content);
  void take_control(Content type, std::span<const std::byte> content);
  void take_key_update(std::span<const std::byte> message);
  void change_own_key();
  void fail(std::string why);
  std::string why_greeting_failed();
  static bool is_about_certificate(int alert);
  static std::string why_refused(int alert);

  State state_ = State::kGreeting;
  base::Status why_;
  const bool dials_, by_key_;
  const std::string host_;
  std::string wrong_authority_;  ///< the subject of the peer's authority whose certificate was refused; empty if it was the peer's own
  TlsContext::Key key_{};
  OwnedSsl ssl_;  // until the handshake is complete
  OwnedCertificate peer_;
  Secret dialer_secret_, listener_secret_;
  Records sealing_, opening_;
  Binding binding_{};
  const char* cipher_ = "";
  size_t greeted_ = 0;  // bytes of the handshake that have arrived

  // Small until the handshake is complete: strangers must not cost more.
  std::unique_ptr<std::byte[]> in_, out_;
  size_t out_bytes_ = kGreetingRoom;
  size_t in_begin_ = 0, in_end_ = 0;
  std::span<std::byte> rest_;  // of a decrypted record that was larger than its reader's room
  size_t out_begin_ = 0, out_end_ = 0;
  std::vector<std::byte> greeting_;  // handshake messages after the handshake that are incomplete
  bool owes_key_update_ = false;
};

}  // namespace mv::transport
