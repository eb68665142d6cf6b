#include "transport/tls/openssl/stream.hpp"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cassert>

namespace mv::transport {

namespace {

constexpr std::string_view kDialerSecret = "CLIENT_TRAFFIC_SECRET_0 ", kListenerSecret = "SERVER_TRAFFIC_SECRET_0 ";
constexpr std::string_view kBindingLabel = "EXPORTER-Channel-Binding";
constexpr unsigned char kNewTicket = 4, kKeyUpdate = 24;
constexpr size_t kMessageHead = 4;
/// No message after the handshake is longer: a ticket, which is ignored, or a change of the key.
constexpr size_t kMostMessage = 16 << 10;

OpenSslStream* stream_of(const SSL* ssl) { return static_cast<OpenSslStream*>(SSL_get_app_data(ssl)); }

bool is_address(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

int digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

}  // namespace

void OpenSslStream::prepare(SSL_CTX& context) {
  SSL_CTX_set_keylog_callback(&context, &OpenSslStream::note_secret);
  SSL_CTX_set_psk_use_session_callback(&context, &OpenSslStream::offer_key);
  SSL_CTX_set_psk_find_session_callback(&context, &OpenSslStream::find_key);
}

base::Result<std::unique_ptr<TlsStream>> OpenSslStream::make(SSL_CTX& context, bool dials, const TlsContext::Key* key,
                                                             const std::string& host) {
  ERR_clear_error();
  OwnedSsl ssl(SSL_new(&context));
  BIO* const from = BIO_new(BIO_s_mem());
  BIO* const to = BIO_new(BIO_s_mem());
  if (ssl == nullptr || from == nullptr || to == nullptr) {
    BIO_free(from);
    BIO_free(to);
    return base::error(MV_ENOMEM, "no memory for a TLS connection: {}", last_error());
  }
  SSL_set_bio(ssl.get(), from, to);
  if (dials && !host.empty()) {
    X509_VERIFY_PARAM* const names = SSL_get0_param(ssl.get());
    const bool set = is_address(host) ? X509_VERIFY_PARAM_set1_ip_asc(names, host.c_str()) == 1
                                      : SSL_set1_host(ssl.get(), host.c_str()) == 1;
    if (!set) return base::error(MV_EINVAL, "\"{}\" can't be the name of a certificate: {}", host, last_error());
  }
  std::unique_ptr<OpenSslStream> stream(new OpenSslStream(std::move(ssl), dials, key, host));
  stream->greet();
  return std::unique_ptr<TlsStream>(std::move(stream));
}

OpenSslStream::OpenSslStream(OwnedSsl ssl, bool dials, const TlsContext::Key* key, const std::string& host)
    : dials_(dials),
      by_key_(key != nullptr),
      host_(host),
      ssl_(std::move(ssl)),
      in_(std::make_unique_for_overwrite<std::byte[]>(kGreetingRoom)),
      out_(std::make_unique_for_overwrite<std::byte[]>(kGreetingRoom)) {
  if (key != nullptr) key_ = *key;
  SSL_set_app_data(ssl_.get(), this);
  dials_ ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
}

OpenSslStream::~OpenSslStream() {
  for (Secret* secret : {&dialer_secret_, &listener_secret_})
    OPENSSL_cleanse(secret->bytes.data(), secret->bytes.size());
  OPENSSL_cleanse(key_.data(), key_.size());
}

void OpenSslStream::fail(std::string why) {
  state_ = State::kFailed;
  why_ = base::Status(MV_EAUTH, std::move(why));
  ERR_clear_error();
}

// ------------------------------------------------------------ the handshake

/// Receives the secrets that the records' keys are derived from, as lines "LABEL RANDOM SECRET" in hexadecimal digits:
/// this is OpenSSL's only function that gives them.
void OpenSslStream::note_secret(const SSL* ssl, const char* line) {
  OpenSslStream* const stream = stream_of(ssl);
  const std::string_view text(line);
  Secret* const secret = text.starts_with(kDialerSecret)     ? &stream->dialer_secret_
                         : text.starts_with(kListenerSecret) ? &stream->listener_secret_
                                                             : nullptr;
  if (secret == nullptr) return;
  const std::string_view digits = text.substr(text.rfind(' ') + 1);
  if (digits.size() % 2 != 0 || digits.size() / 2 > kMostSecret) return;
  for (size_t i = 0; i < digits.size() / 2; ++i)
    secret->bytes[i] = static_cast<unsigned char>(digit(digits[2 * i]) * 16 + digit(digits[2 * i + 1]));
  secret->count = digits.size() / 2;
}

/// The key in the form in which OpenSSL takes a pre-shared key; null without one.
OwnedSession OpenSslStream::session_of_key(SSL* ssl) const {
  static constexpr unsigned char kAes128[] = {0x13, 0x01};  // fixes the digest, SHA-256, and not the cipher
  if (!by_key_) return nullptr;
  OwnedSession session(SSL_SESSION_new());
  const bool made = session != nullptr &&
                    SSL_SESSION_set1_master_key(session.get(), reinterpret_cast<const unsigned char*>(key_.data()),
                                                key_.size()) == 1 &&
                    SSL_SESSION_set_cipher(session.get(), SSL_CIPHER_find(ssl, kAes128)) == 1 &&
                    SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1 &&
                    SSL_SESSION_set1_id_context(session.get(), kUse.data(), kUse.size()) == 1;
  return made ? std::move(session) : nullptr;
}

int OpenSslStream::offer_key(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* name_bytes,
                             SSL_SESSION** session) {
  *name = kUse.data();
  *name_bytes = kUse.size();
  *session = stream_of(ssl)->session_of_key(ssl).release();
  return 1;
}

int OpenSslStream::find_key(SSL* ssl, const unsigned char*, size_t, SSL_SESSION** session) {
  *session = stream_of(ssl)->session_of_key(ssl).release();
  return 1;
}

void OpenSslStream::greet() {
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  const int error = SSL_get_error(ssl_.get(), done);
  const bool complete =
      done == 1 && (!by_key_ || SSL_session_reused(ssl_.get()) == 1);  // only by our key, never by a certificate
  const bool failed = !complete && error != SSL_ERROR_WANT_READ;
  std::string why = failed ? why_greeting_failed() : std::string();
  take_output();
  if (failed) return fail(std::move(why));
  if (complete && state_ == State::kGreeting) finish_greeting();
}

/// Bytes that the handshake puts out, alerts included.
void OpenSslStream::take_output() {
  std::array<std::byte, 4096> bytes;
  for (int got; (got = BIO_read(SSL_get_wbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()))) > 0;)
    append(std::span(bytes).first(static_cast<size_t>(got)));
}

void OpenSslStream::append(std::span<const std::byte> bytes) {
  const size_t needed = out_end_ + bytes.size();
  if (needed > kMostGreeting) return fail("the TLS handshake puts out too much");
  if (needed > out_bytes_) grow_output(std::max(needed, 2 * out_bytes_));
  std::copy(bytes.begin(), bytes.end(), out_.get() + out_end_);
  out_end_ += bytes.size();
}

void OpenSslStream::grow_output(size_t bytes) {
  auto larger = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::memcpy(larger.get(), out_.get(), out_end_);
  out_ = std::move(larger);
  out_bytes_ = bytes;
}

void OpenSslStream::finish_greeting() {
  SSL* const ssl = ssl_.get();
  const SSL_CIPHER* const cipher = SSL_get_current_cipher(ssl);
  cipher_ = SSL_CIPHER_get_name(cipher);
  peer_.reset(SSL_get1_peer_certificate(ssl));
  const Secret &own = dials_ ? dialer_secret_ : listener_secret_, &others = dials_ ? listener_secret_ : dialer_secret_;
  if (!sealing_.start(cipher, own.get(), true) || !opening_.start(cipher, others.get(), false) ||
      SSL_export_keying_material(ssl, reinterpret_cast<unsigned char*>(binding_.data()), binding_.size(),
                                 kBindingLabel.data(), kBindingLabel.size(), nullptr, 0, 0) != 1)
    return fail("TLS: no keys: " + last_error());
  state_ = State::kOpen;
  in_ = std::make_unique_for_overwrite<std::byte[]>(kInBytes);
  grow_output(kOutBytes);
  const int more = BIO_read(SSL_get_rbio(ssl), in_.get(),
                            static_cast<int>(kInBytes));  // at most what arrived with the end of the handshake
  in_begin_ = 0;
  in_end_ = more > 0 ? static_cast<size_t>(more) : 0;
  ssl_.reset();
  ERR_clear_error();
}

/// Notes which certificate of the peer's chain is wrong.
int OpenSslStream::note_verdict(int is_good, X509_STORE_CTX* chain) {
  const auto* const ssl = static_cast<const SSL*>(X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
  OpenSslStream* const stream = ssl != nullptr ? stream_of(ssl) : nullptr;
  X509* const wrong = X509_STORE_CTX_get_current_cert(chain);
  if (is_good == 0 && stream != nullptr && wrong != nullptr && X509_STORE_CTX_get_error_depth(chain) > 0) {
    std::array<char, 200> name{};
    X509_NAME_oneline(X509_get_subject_name(wrong), name.data(), static_cast<int>(name.size()));
    stream->wrong_authority_ = name.data();
  }
  return is_good;
}

/// What a peer objects to that sends such an alert.
bool OpenSslStream::is_about_certificate(int alert) {
  constexpr std::array<int, 7> kAbout = {SSL_AD_BAD_CERTIFICATE,     SSL_AD_UNSUPPORTED_CERTIFICATE, SSL_AD_CERTIFICATE_REVOKED, SSL_AD_CERTIFICATE_EXPIRED,
                                         SSL_AD_CERTIFICATE_UNKNOWN, SSL_AD_UNKNOWN_CA,              SSL_AD_CERTIFICATE_REQUIRED};
  return std::ranges::find(kAbout, alert) != kAbout.end();
}

std::string OpenSslStream::why_refused(int alert) {
  const char* const text = SSL_alert_desc_string_long(alert);
  if (!is_about_certificate(alert)) return fmt::format("it refused TLS here: {}", text);
  return fmt::format("it refused the certificate of this process ({}): look at tls_cert here, at tls_ca there, and at its log, which has the reason", text);
}

std::string OpenSslStream::why_greeting_failed() {
  const long verdict = SSL_get_verify_result(ssl_.get());
  if (!by_key_ && verdict != X509_V_OK) {
    const char* const text = X509_verify_cert_error_string(verdict);
    const std::string whose = wrong_authority_.empty() ? "its certificate" : fmt::format("the certificate of the authority {} that signs its own", wrong_authority_);
    switch (verdict) {
      case X509_V_ERR_HOSTNAME_MISMATCH:
      case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return fmt::format(
            "its certificate is not for \"{}\": issue it with that subjectAltName, or reach it by a name that it has: set "
            "advertise there, or master here",
            host_);
      case X509_V_ERR_CERT_HAS_EXPIRED:
        return whose + " has expired: renew it";
      case X509_V_ERR_CERT_NOT_YET_VALID:
        return whose + " is not valid yet: compare the clocks of both machines";
      case X509_V_ERR_INVALID_PURPOSE:
        return whose + " is not for this purpose: a node's own needs both serverAuth and clientAuth in its extendedKeyUsage, or none";
      default:
        return fmt::format("its certificate is not signed by an authority in tls_ca: {}", text);
    }
  }
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_REASON(code);
  if (reason > SSL_AD_REASON_OFFSET && reason <= SSL_AD_REASON_OFFSET + 255)
    return why_refused(reason - SSL_AD_REASON_OFFSET);
  return "TLS failed: " + last_error();
}

bool OpenSslStream::is_named(const std::string& host) const {
  if (peer_ == nullptr) return false;
  if (is_address(host)) return X509_check_ip_asc(peer_.get(), host.c_str(), 0) == 1;
  return X509_check_host(peer_.get(), host.data(), host.size(), 0, nullptr) == 1;
}

// ------------------------------------------------------------ input

std::span<std::byte> OpenSslStream::room() {
  if (state_ == State::kGreeting) return {in_.get(), kGreetingRoom};
  if (!rest_.empty()) return {};
  if (in_begin_ != 0) {
    std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  return {in_.get() + in_end_, kInBytes - in_end_};
}

void OpenSslStream::arrived(size_t bytes) {
  if (state_ != State::kGreeting) {
    in_end_ += bytes;
    return;
  }
  greeted_ += bytes;
  if (greeted_ > kMostGreeting) return fail("its TLS handshake is too long");
  if (BIO_write(SSL_get_rbio(ssl_.get()), in_.get(), static_cast<int>(bytes)) != static_cast<int>(bytes))
    return fail("TLS: no memory");
  greet();
}

size_t OpenSslStream::open(std::span<std::byte> to) {
  while (state_ == State::kOpen) {
    if (!rest_.empty()) {
      const size_t taken = std::min(rest_.size(), to.size());
      std::memcpy(to.data(), rest_.data(), taken);
      rest_ = rest_.subspan(taken);
      return taken;
    }
    const size_t available = in_end_ - in_begin_;
    if (available < Records::kHeadBytes) return 0;
    std::byte* const record = in_.get() + in_begin_;
    const size_t sealed = (std::to_integer<size_t>(record[3]) << 8) | std::to_integer<size_t>(record[4]);
    if (record[0] != static_cast<std::byte>(Content::kData) || record[1] != std::byte{3} ||
        sealed > Records::kMostSealed) {
      fail("a TLS record was changed on its way");
      return 0;
    }
    if (available < Records::kHeadBytes + sealed) return 0;
    const auto opened = opening_.open({record, Records::kHeadBytes + sealed}, to);
    in_begin_ += Records::kHeadBytes + sealed;
    if (!opened) {
      fail("a TLS record was changed on its way");
      return 0;
    }
    if (opened->type != Content::kData) {
      take_control(opened->type, opened->content);
    } else if (opened->content.data() == to.data()) {
      if (!opened->content.empty()) return opened->content.size();
    } else {
      rest_ = opened->content;
    }
  }
  return 0;
}

void OpenSslStream::take_control(Content type, std::span<const std::byte> content) {
  if (type == Content::kAlert && content.size() == 2) {
    const int alert = std::to_integer<int>(content[1]);
    if (alert == SSL_AD_CLOSE_NOTIFY) {
      state_ = State::kEnded;
      return;
    }
    return fail(why_refused(alert));
  }
  if (type != Content::kHandshake || content.empty()) return fail("a TLS record of an unknown kind");
  greeting_.insert(greeting_.end(), content.begin(), content.end());
  while (state_ == State::kOpen && greeting_.size() >= kMessageHead) {
    const size_t body = (std::to_integer<size_t>(greeting_[1]) << 16) | (std::to_integer<size_t>(greeting_[2]) << 8) |
                        std::to_integer<size_t>(greeting_[3]);
    if (body > kMostMessage) return fail("a TLS message is too long");
    if (greeting_.size() < kMessageHead + body) return;
    const std::span<const std::byte> message(greeting_.data(), kMessageHead + body);
    const auto kind = std::to_integer<unsigned char>(message[0]);
    if (kind == kKeyUpdate && message.size() == kMessageHead + 1 && greeting_.size() == message.size())
      take_key_update(message);
    else if (kind != kNewTicket || !dials_)
      return fail("a TLS message that has no place after the handshake");
    greeting_.erase(greeting_.begin(), greeting_.begin() + static_cast<ptrdiff_t>(kMessageHead + body));
  }
}

void OpenSslStream::take_key_update(std::span<const std::byte> message) {
  const auto asks = std::to_integer<int>(message[kMessageHead]);
  if (asks > 1) return fail("a TLS message is malformed");
  if (!opening_.update()) return fail("TLS: no keys");
  owes_key_update_ = owes_key_update_ || asks == 1;
}

// ------------------------------------------------------------ output

bool OpenSslStream::seal_record(Content type, std::span<const std::byte> content) {
  if (!sealing_.seal(type, content, out_.get() + out_end_)) {
    fail("TLS: encryption failed: " + last_error());
    return false;
  }
  out_end_ += content.size() + Records::kOverhead;
  return true;
}

void OpenSslStream::change_own_key() {
  static constexpr std::array<std::byte, 5> kMessage{std::byte{kKeyUpdate}, {}, {}, std::byte{1}, {}};
  if (out_bytes_ - out_end_ < kMessage.size() + Records::kOverhead) return;  // with the next record that has room
  if (!seal_record(Content::kHandshake, kMessage)) return;
  owes_key_update_ = false;
  if (!sealing_.update()) fail("TLS: no keys");
}

size_t OpenSslStream::seal(std::span<const std::byte> bytes) {
  size_t sealed = 0;
  while (state_ == State::kOpen && sealed < bytes.size()) {
    if (owes_key_update_ || sealing_.count() >= kRecordsPerKey) change_own_key();
    const size_t free = out_bytes_ - out_end_;
    if (free <= Records::kOverhead) break;
    const size_t piece = std::min({bytes.size() - sealed, Records::kMostContent, free - Records::kOverhead});
    if (!seal_record(Content::kData, bytes.subspan(sealed, piece))) break;
    sealed += piece;
  }
  return sealed;
}

void OpenSslStream::sent(size_t bytes) {
  assert(bytes <= out_end_ - out_begin_);
  out_begin_ += bytes;
  if (out_begin_ == out_end_) out_begin_ = out_end_ = 0;
}

}  // namespace mv::transport
