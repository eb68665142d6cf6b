#pragma once
// Compression of a snapshot's chunks. The codec encodes the floats of each array separately. Other values are sent
// unchanged, and gaps between arrays are not sent. Both sides therefore know the length of an encoded chunk from the
// arrays alone.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/codec.hpp"
#include "engine/gossip/snapshot.hpp"

namespace mv::gossip {

class Coding {
 public:
  /// With null, chunks are sent unchanged, including gaps.
  explicit Coding(codec::CodecRef codec) : codec_(std::move(codec)) {}

  const codec::Codec* codec() const { return codec_.get(); }
  /// The encoded length of bytes first .. first + count - 1 of a snapshot with these arrays.
  uint64_t encoded_bytes(std::span<const ArraySpec> parts, uint64_t first, uint64_t count) const;
  /// `raw` holds the bytes from `first` on.
  std::vector<std::byte> encode(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> raw);
  /// `encoded` must have encoded_bytes() bytes. MV_EPROTOCOL for an invalid encoding.
  base::Status decode(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> encoded, std::span<std::byte> raw);
  /// values += own - decode(encode(own)). `own` holds the same bytes of this node's snapshot as `values` holds of a
  /// peer's, where they are decoded. If two nodes do so with each other's snapshots, both see the same difference of
  /// their models: that of the encoded values.
  void correct(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> own, std::span<std::byte> values);

 private:
  /// The part of an array in a range: its offset there in bytes, and its number of elements.
  struct Run {
    size_t at, count;
    mv_dtype dtype;
    bool coded;
    size_t raw_bytes() const;
  };
  std::vector<Run> runs(std::span<const ArraySpec> parts, uint64_t first, uint64_t count) const;
  size_t coded_bytes(const Run& run) const;
  void encode_run(const Run& run, const std::byte* raw, std::byte* out);

  const codec::CodecRef codec_;
  std::vector<std::byte> left_out_;  ///< residual of the run being encoded; discarded: the next snapshot has all values
};

}  // namespace mv::gossip
