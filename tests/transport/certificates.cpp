#include "certificates.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace mv::test {

namespace {

EVP_PKEY* make_key() { return EVP_EC_gen("P-256"); }

X509* make_certificate(EVP_PKEY* key, const char* name, const char* names, Authority::Validity validity, X509* issuer,
                       EVP_PKEY* issuer_key) {
  static std::atomic<long> serial{1};
  X509* const made = X509_new();
  X509_set_version(made, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(made), validity.from);
  X509_gmtime_adj(X509_getm_notAfter(made), validity.until);
  X509_set_pubkey(made, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(made, X509_get_subject_name(issuer != nullptr ? issuer : made));
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer != nullptr ? issuer : made, made, nullptr, nullptr, 0);
  const auto add = [&](int kind, const char* text) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, text);
    if (extension == nullptr) abort();
    X509_add_ext(made, extension, -1);
    X509_EXTENSION_free(extension);
  };
  if (issuer == nullptr) add(NID_basic_constraints, "critical,CA:TRUE");
  if (names != nullptr) add(NID_subject_alt_name, names);
  if (X509_sign(made, issuer != nullptr ? issuer_key : key, EVP_sha256()) == 0) abort();
  return made;
}

/// Replaces a file at once, as one that renews certificates should.
template <typename Write>
void write_file(const std::string& path, Write write) {
  const std::string beside = path + ".new";
  std::FILE* const file = std::fopen(beside.c_str(), "we");
  if (file == nullptr || write(file) != 1 || std::fclose(file) != 0) abort();
  std::filesystem::rename(beside, path);
}

}  // namespace

Authority::Authority() {
  std::string folder = std::filesystem::temp_directory_path() / "polyverso-tls-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) abort();
  folder_ = folder;
  file_ = folder_ + "/ca.pem";
  EVP_PKEY* const key = make_key();
  X509* const certificate = make_certificate(key, "an authority of a test", nullptr, {}, nullptr, nullptr);
  write_file(file_, [&](std::FILE* file) { return PEM_write_X509(file, certificate); });
  key_ = key;
  certificate_ = certificate;
}

Authority::~Authority() {
  X509_free(static_cast<X509*>(certificate_));
  EVP_PKEY_free(static_cast<EVP_PKEY*>(key_));
  std::filesystem::remove_all(folder_);
}

transport::TlsFiles Authority::issue(const std::string& name, const std::string& names, Validity validity) const {
  EVP_PKEY* const key = make_key();
  X509* const certificate = make_certificate(key, name.c_str(), names.empty() ? nullptr : names.c_str(), validity,
                                             static_cast<X509*>(certificate_), static_cast<EVP_PKEY*>(key_));
  const transport::TlsFiles files{folder_ + "/" + name + ".pem", folder_ + "/" + name + ".key", file_};
  write_file(files.key,
             [&](std::FILE* file) { return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr); });
  write_file(files.cert, [&](std::FILE* file) { return PEM_write_X509(file, certificate); });
  X509_free(certificate);
  EVP_PKEY_free(key);
  return files;
}

}  // namespace mv::test
