#pragma once
// Compression: the codecs of a store's pushes and pulls.

#include <string_view>

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

}  // namespace mv::kvstore
