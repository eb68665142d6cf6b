#pragma once
// OpenSSL's objects as owners.

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstring>
#include <memory>
#include <string>

namespace mv::transport {

template <auto Free>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using OwnedContext = std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>>;
using OwnedSsl = std::unique_ptr<SSL, FreeBy<SSL_free>>;
using OwnedSession = std::unique_ptr<SSL_SESSION, FreeBy<SSL_SESSION_free>>;
using OwnedCertificate = std::unique_ptr<X509, FreeBy<X509_free>>;
using OwnedCipher = std::unique_ptr<EVP_CIPHER_CTX, FreeBy<EVP_CIPHER_CTX_free>>;

/// The cause of this thread's last failure as text; clears all errors. OpenSSL lists the first one first; a failure of the system, such as a
/// missing file, says more than what follows from it.
inline std::string last_error() {
  const unsigned long code = ERR_get_error();
  for (unsigned long each = code; each != 0; each = ERR_get_error()) {
    if (!ERR_SYSTEM_ERROR(each)) continue;
    ERR_clear_error();
    return std::strerror(ERR_GET_REASON(each));
  }
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  std::string text = reason != nullptr ? reason
                     : code != 0       ? "error " + std::to_string(ERR_GET_REASON(code))
                                       : "unknown";
  ERR_clear_error();
  return text;
}

}  // namespace mv::transport
