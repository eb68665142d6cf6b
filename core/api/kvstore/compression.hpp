#pragma once
// Compression: the codecs of a store's pushes and pulls.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "codec/codec.hpp"

namespace mv::kvstore {

/// Null: uncompressed.
struct Compression {
  codec::CodecRef push, pull;

  bool operator==(const Compression& other) const { return same(push, other.push) && same(pull, other.pull); }

 private:
  static bool same(const codec::CodecRef& a, const codec::CodecRef& b) {
    return a == b || (a != nullptr && b != nullptr && a->spec() == b->spec());
  }
};

/// Parses "2bit threshold=0.5", "int8 block=64 pull=fp16" or "none". MV_EINVAL lists what is known.
base::Result<Compression> parse_compression(std::string_view text);

/// The residual of each sender of a key; empty if it has none.
using Senders = std::vector<std::vector<std::byte>>;

/// The residuals of a key: what the codec has left out of its pushes so far, for each sender. A sender is this worker,
/// or in local stores each of its devices. Elements of the key's storage dtype. Its owner locks.
class Residuals {
 public:
  /// All zeros at first.
  std::byte* of(size_t sender, size_t bytes) {
    if (senders_.size() <= sender) senders_.resize(sender + 1);
    senders_[sender].resize(bytes);
    return senders_[sender].data();
  }
  bool any() const { return !senders_.empty(); }
  void clear() { senders_.clear(); }

  const Senders& senders() const { return senders_; }
  void restore(Senders senders) { senders_ = std::move(senders); }

 private:
  Senders senders_;
};

}  // namespace mv::kvstore
