// What the connections of a node have in common: OpenSSL's contexts, and the files of the certificates.

#include <openssl/pem.h>
#include <sys/stat.h>

#include <array>
#include <ctime>

#include "transport/tls/openssl/stream.hpp"

namespace mv::transport {

namespace {

/// The dialer's order counts. Both have SHA-256 as their digest, which the key of tls=psk needs.
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

OwnedContext make_context() {
  ERR_clear_error();
  OwnedContext context(SSL_CTX_new(TLS_method()));
  if (context == nullptr) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context.get(), kCiphers);
  SSL_CTX_set_num_tickets(context.get(), 0);  // every connection proves everything again
  SSL_CTX_set_session_id_context(context.get(), OpenSslStream::kUse.data(), OpenSslStream::kUse.size());
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_clear_options(context.get(), SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, &OpenSslStream::note_verdict);
  SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });  // never ask a terminal
  OpenSslStream::prepare(*context);
  return context;
}

class OpenSslContext final : public TlsContext {
 public:
  explicit OpenSslContext(TlsFiles files) : files_(std::move(files)) {}

  base::Status load();
  base::Result<std::unique_ptr<TlsStream>> psk(bool dials, const Key& key) override {
    if (by_key_ == nullptr) by_key_ = make_context();
    if (by_key_ == nullptr) return base::error(MV_ENOMEM, "OpenSSL can't begin: {}", last_error());
    return OpenSslStream::make(*by_key_, dials, &key, "");
  }
  base::Result<std::unique_ptr<TlsStream>> mutual(bool dials, const std::string& host) override {
    refresh();
    if (by_files_ == nullptr) return base::error(MV_EINVAL, "tls=mutual needs tls_cert, tls_key and tls_ca");
    return OpenSslStream::make(*by_files_, dials, nullptr, host);
  }
  base::Status trouble() override { return trouble_; }
  base::Result<int64_t> expires() override {
    refresh();
    const X509* const own = by_files_ != nullptr ? SSL_CTX_get0_certificate(by_files_.get()) : nullptr;
    std::tm time{};
    if (own == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(own), &time) != 1)
      return base::error(MV_EINVAL, "tls_cert={} has no time of expiry", files_.cert);
    return static_cast<int64_t>(timegm(&time));
  }

 private:
  /// A file's state by which a change is noticed.
  struct Seen {
    int64_t seconds = 0, nanos = 0, bytes = -1;
    uint64_t inode = 0;
    bool operator==(const Seen&) const = default;
  };
  using AllSeen = std::array<Seen, 3>;
  AllSeen look() const;
  base::Result<OwnedContext> read_files() const;
  void refresh();

  const TlsFiles files_;
  OwnedContext by_key_, by_files_;
  AllSeen seen_;
  base::Status trouble_;
};

OpenSslContext::AllSeen OpenSslContext::look() const {
  AllSeen seen;
  size_t i = 0;
  for (const std::string* file : {&files_.cert, &files_.key, &files_.ca}) {
    struct stat state {};
    if (stat(file->c_str(), &state) == 0)
      seen[i] = {state.st_mtim.tv_sec, state.st_mtim.tv_nsec, state.st_size, state.st_ino};
    ++i;
  }
  return seen;
}

base::Result<OwnedContext> OpenSslContext::read_files() const {
  OwnedContext context = make_context();
  if (context == nullptr) return base::error(MV_ENOMEM, "OpenSSL can't begin: {}", last_error());
  if (SSL_CTX_use_certificate_chain_file(context.get(), files_.cert.c_str()) != 1)
    return base::error(MV_EINVAL, "tls_cert={} has no certificate in PEM form that can be read: {}", files_.cert,
                       last_error());
  if (SSL_CTX_use_PrivateKey_file(context.get(), files_.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return base::error(
        MV_EINVAL, "tls_key={} has no private key of tls_cert in PEM form, without a passphrase, that can be read: {}",
        files_.key, last_error());
  if (SSL_CTX_check_private_key(context.get()) != 1)  // OpenSSL keeps a pair for each type of key, and so compares only keys of one type above
    return base::error(MV_EINVAL, "tls_key={} is not the private key of tls_cert={}", files_.key, files_.cert);
  if (SSL_CTX_load_verify_locations(context.get(), files_.ca.c_str(), nullptr) != 1)
    return base::error(MV_EINVAL, "tls_ca={} has no certificate in PEM form that can be read: {}", files_.ca,
                       last_error());
  return context;
}

base::Status OpenSslContext::load() {
  if (files_.cert.empty()) return {};
  seen_ = look();
  auto read = read_files();
  if (!read.ok()) return read.status();
  by_files_ = std::move(read).value();
  return {};
}

/// Takes the new certificates once they can be read. Connections that are open keep theirs.
void OpenSslContext::refresh() {
  if (files_.cert.empty()) return;
  const AllSeen seen = look();
  if (seen == seen_) return;
  seen_ = seen;
  auto read = read_files();
  trouble_ = read.ok() ? base::Status() : read.status();
  if (read.ok()) by_files_ = std::move(read).value();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void polyverso_make_tls(
    const TlsFiles& files, base::Result<std::shared_ptr<TlsContext>>& made) {
  auto context = std::make_shared<OpenSslContext>(files);
  const base::Status loaded = context->load();
  if (loaded.ok())
    made = std::shared_ptr<TlsContext>(std::move(context));
  else
    made = loaded;
}

}  // namespace mv::transport
