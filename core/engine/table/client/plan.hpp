#pragma once
// Splits a call into the parts for each server. Pure functions.

#include <cstdint>
#include <span>
#include <vector>

#include "shard/spec.hpp"

namespace mv::codec {
class Codec;
}

namespace mv::table {

/// One message of a call: a run of elements, or some rows, of one server's part.
struct ChunkRange {
  size_t server = 0;           ///< index among the servers
  uint64_t first = 0;          ///< elements: the first one, in the server's own numbering
  uint64_t count = 0;          ///< elements: their number
  uint64_t offset = 0;         ///< elements: their offset in the caller's data
  std::vector<int64_t> ids;    ///< rows: in the server's own numbering
  std::vector<uint64_t> from;  ///< rows: the index of each among the caller's rows
  uint32_t of = 1;             ///< the number of pieces for this server
  uint32_t number = 0;         ///< the index of this piece among them
  uint64_t encoded_at = 0;     ///< bytes: its offset in the caller's data, if that is encoded

  /// Whether the rows are consecutive in the caller's data.
  bool contiguous() const { return from.empty() || from.back() - from.front() + 1 == from.size(); }
};

inline constexpr size_t kNoServer = SIZE_MAX;

/// Splits a call on the whole table. `skip` is a server that gets no message. The pieces of a server are consecutive
/// and in order. A server that owns part of the table gets at least one piece, even if only to count the call.
std::vector<ChunkRange> plan_all(const shard::Spec& spec, size_t servers, size_t skip = kNoServer);
/// Places pieces of elements, each encoded separately, one after the other. Returns the bytes of all.
uint64_t place_encoded(std::span<ChunkRange> pieces, const codec::Codec& codec);
/// The same for answers that their receiver decodes: each piece begins at a multiple of 16, because kernels read words.
uint64_t place_answers(std::span<ChunkRange> pieces, const codec::Codec& codec);
/// Splits a call on some rows. Each server that owns part of the table gets at least one piece, possibly an empty one.
/// `replaces`: all other rows become zeros, so an empty piece comes first if rows are sent as elements.
std::vector<ChunkRange> plan_rows(const shard::Spec& spec, size_t servers, std::span<const int64_t> rows, size_t skip = kNoServer,
                             bool replaces = false);

}  // namespace mv::table
