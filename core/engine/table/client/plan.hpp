#pragma once
// Which part of a call goes to which server. Pure functions.

#include <cstdint>
#include <span>
#include <vector>

#include "shard/spec.hpp"

namespace mv::codec {
class Codec;
}

namespace mv::table {

/// One message's worth of a call: a run of elements, or some rows, of one server's part.
struct ChunkRange {
  size_t server = 0;           ///< index among the servers
  uint64_t first = 0;          ///< elements: the first one, in the server's own numbering
  uint64_t count = 0;          ///< elements: how many
  uint64_t offset = 0;         ///< elements: where they lie in the caller's data
  std::vector<int64_t> ids;    ///< rows: in the server's own numbering
  std::vector<uint64_t> from;  ///< rows: which of the caller's rows each is
  uint32_t of = 1;             ///< how many pieces there are for this server
  uint32_t number = 0;         ///< which of them it is
  uint64_t encoded_at = 0;     ///< bytes: where it lies in the caller's data, if that is encoded

  /// The rows lie one after the other in the caller's data.
  bool contiguous() const { return from.empty() || from.back() - from.front() + 1 == from.size(); }
};

inline constexpr size_t kNoServer = SIZE_MAX;

/// All of the table. `skip` is a server that is served otherwise. Pieces of a server follow each other, in order; a server
/// that owns something gets at least one, if only to count the call.
std::vector<ChunkRange> plan_all(const shard::Spec& spec, size_t servers, size_t skip = kNoServer);
/// Pieces of elements, each encoded by itself, lie one behind the other: says where. Gives the bytes of all.
uint64_t place_encoded(std::span<ChunkRange> pieces, const codec::Codec& codec);
/// Some rows; every server that owns part of the table gets at least one piece, perhaps an empty one. `replaces`: whatever
/// rows these are not become zeros, so that an empty one is the first where rows come as elements.
std::vector<ChunkRange> plan_rows(const shard::Spec& spec, size_t servers, std::span<const int64_t> rows, size_t skip = kNoServer,
                             bool replaces = false);

}  // namespace mv::table
