#pragma once
// A snapshot's chunks as fewer bytes. Of what lies in a chunk the codec takes each array's floats by themselves, all others travel as they
// are, and the gaps between arrays not at all: so both sides know from the arrays alone how long an encoded chunk is.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/codec.hpp"
#include "engine/gossip/snapshot.hpp"

namespace mv::gossip {

class Coding {
 public:
  /// null: chunks travel as they are, gaps and all.
  explicit Coding(codec::CodecRef codec) : codec_(std::move(codec)) {}

  const codec::Codec* codec() const { return codec_.get(); }
  /// What bytes first .. first + count - 1 of a snapshot with these arrays are encoded to.
  uint64_t encoded_bytes(std::span<const ArraySpec> parts, uint64_t first, uint64_t count) const;
  /// `raw` are these bytes.
  std::vector<std::byte> encode(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> raw);
  /// `encoded` has encoded_bytes(). MV_EPROTOCOL for what is no code.
  base::Status decode(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> encoded, std::span<std::byte> raw);
  /// values += own - what `own` comes to once it has been encoded and decoded: the same bytes of this node's snapshot as `values` are of a
  /// peer's, encoded too. Two that do so to each other are apart what their codes say on both sides.
  void correct(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> own, std::span<std::byte> values);

 private:
  /// What of an array lies in a range: where it begins there, in bytes, and how many elements.
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
  std::vector<std::byte> left_out_;  ///< of the run that is encoded: nobody makes up for it, the next snapshot has it again
};

}  // namespace mv::gossip
