#include "transport/tls/openssl/records.hpp"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace mv::transport {

namespace {

const unsigned char* chars(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* chars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

/// EVP_CipherUpdate() without its checks, which cost a third of a small record.
bool update_cipher(EVP_CIPHER_CTX* cipher, unsigned char* out, const unsigned char* in, size_t bytes) {
  return EVP_Cipher(cipher, out, in, static_cast<unsigned>(bytes)) >= 0;
}

/// Computes the tag, or compares it with the given one. Not by EVP_Cipher(), whose end does nothing for ChaCha20-Poly1305.
bool finish_cipher(EVP_CIPHER_CTX* cipher) {
  unsigned char nothing[EVP_MAX_BLOCK_LENGTH];
  int bytes = 0;
  return EVP_CipherFinal_ex(cipher, nothing, &bytes) == 1;
}

void write_head(std::byte* record, size_t sealed_bytes) {
  record[0] = static_cast<std::byte>(Content::kData);
  record[1] = record[2] = std::byte{3};
  record[3] = static_cast<std::byte>(sealed_bytes >> 8);
  record[4] = static_cast<std::byte>(sealed_bytes);
}

}  // namespace

Records::~Records() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

bool Records::start(const SSL_CIPHER* cipher, std::span<const unsigned char> secret, bool seals) {
  kind_ = EVP_get_cipherbynid(SSL_CIPHER_get_cipher_nid(cipher));
  digest_ = SSL_CIPHER_get_handshake_digest(cipher);
  if (cipher_ == nullptr || kind_ == nullptr || digest_ == nullptr ||
      secret.size() != static_cast<size_t>(EVP_MD_get_size(digest_)))
    return false;
  secret_bytes_ = secret.size();
  std::copy(secret.begin(), secret.end(), secret_.begin());
  seals_ = seals;
  return use_secret();
}

/// HKDF-Expand-Label without a context, for results of at most one digest.
bool Records::derive(const char* label, std::span<unsigned char> to) const {
  std::array<unsigned char, 64> info{};
  const std::string_view text(label), prefix("tls13 ");
  size_t at = 0;
  info[at++] = 0;
  info[at++] = static_cast<unsigned char>(to.size());
  info[at++] = static_cast<unsigned char>(prefix.size() + text.size());
  at = static_cast<size_t>(std::copy(prefix.begin(), prefix.end(), info.begin() + static_cast<ptrdiff_t>(at)) -
                           info.begin());
  at = static_cast<size_t>(std::copy(text.begin(), text.end(), info.begin() + static_cast<ptrdiff_t>(at)) -
                           info.begin());
  info[at++] = 0;  // no context
  info[at++] = 1;  // the first block of HKDF-Expand
  std::array<unsigned char, EVP_MAX_MD_SIZE> block{};
  unsigned bytes = 0;
  if (HMAC(digest_, secret_.data(), static_cast<int>(secret_bytes_), info.data(), at, block.data(), &bytes) ==
          nullptr ||
      to.size() > bytes)
    return false;
  std::copy_n(block.begin(), to.size(), to.begin());
  OPENSSL_cleanse(block.data(), block.size());
  return true;
}

bool Records::use_secret() {
  std::array<unsigned char, EVP_MAX_KEY_LENGTH> key{};
  const auto key_bytes = static_cast<size_t>(EVP_CIPHER_get_key_length(kind_));
  count_ = 0;
  const bool used = EVP_CIPHER_get_iv_length(kind_) == static_cast<int>(kNonceBytes) &&
                    derive("key", std::span(key).first(key_bytes)) && derive("iv", nonce_) &&
                    EVP_CipherInit_ex(cipher_.get(), kind_, nullptr, key.data(), nullptr, seals_ ? 1 : 0) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  return used;
}

bool Records::update() {
  std::array<unsigned char, kMostSecret> next{};
  if (!derive("traffic upd", std::span(next).first(secret_bytes_))) return false;
  secret_ = next;
  OPENSSL_cleanse(next.data(), next.size());
  return use_secret();
}

/// Sets the nonce of the next record, and authenticates its head.
bool Records::begin_record(const std::byte* head) {
  std::array<unsigned char, kNonceBytes> nonce = nonce_;
  for (size_t i = 0; i < sizeof count_; ++i)
    nonce[kNonceBytes - 1 - i] ^= static_cast<unsigned char>(count_ >> (8 * i));
  ++count_;
  return EVP_CipherInit_ex(cipher_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
         update_cipher(cipher_.get(), nullptr, chars(head), kHeadBytes);
}

bool Records::seal(Content type, std::span<const std::byte> content, std::byte* record) {
  write_head(record, content.size() + 1 + kTagBytes);
  EVP_CIPHER_CTX* const cipher = cipher_.get();
  std::byte* const body = record + kHeadBytes;
  std::byte* const tag = body + content.size() + 1;
  const auto last = static_cast<unsigned char>(type);
  if (!begin_record(record)) return false;
  bool sealed;
  if (content.size() <= kCopiedContent) {
    std::copy(content.begin(), content.end(), body);
    body[content.size()] = static_cast<std::byte>(type);
    sealed = update_cipher(cipher, chars(body), chars(body), content.size() + 1);
  } else {
    sealed = update_cipher(cipher, chars(body), chars(content.data()), content.size()) &&
             update_cipher(cipher, chars(body) + content.size(), &last, 1);
  }
  return sealed && finish_cipher(cipher) &&
         EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1;
}

std::optional<Records::Opened> Records::open(std::span<std::byte> record, std::span<std::byte> to) {
  if (record.size() < kOverhead) return std::nullopt;
  const std::span<std::byte> body = record.subspan(kHeadBytes);
  const size_t bytes = body.size() - kTagBytes - 1;  // the content, or the content and its padding
  std::byte* const into = to.size() >= bytes ? to.data() : body.data();
  const bool at_once = into == body.data() ||
                       to.size() > bytes;  // with the byte of the type, which is nobody's if it follows the content
  EVP_CIPHER_CTX* const cipher = cipher_.get();
  unsigned char last = 0;
  if (!begin_record(record.data()) ||
      EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, kTagBytes, body.last(kTagBytes).data()) != 1)
    return std::nullopt;
  const bool opened = at_once ? update_cipher(cipher, chars(into), chars(body.data()), bytes + 1)
                              : update_cipher(cipher, chars(into), chars(body.data()), bytes) &&
                                    update_cipher(cipher, &last, chars(body.data()) + bytes, 1);
  if (!opened || !finish_cipher(cipher)) return std::nullopt;
  if (at_once) last = std::to_integer<unsigned char>(into[bytes]);
  size_t content = bytes;
  if (last == 0) {  // padded with zeros, before which the type stands
    while (content > 0 && into[content - 1] == std::byte{0}) --content;
    if (content == 0) return std::nullopt;
    last = static_cast<unsigned char>(into[--content]);
  }
  if (content > kMostContent) return std::nullopt;
  return Opened{static_cast<Content>(last), {into, content}};
}

}  // namespace mv::transport
