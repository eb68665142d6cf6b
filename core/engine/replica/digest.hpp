#pragma once
// Digests of pieces of a part, by which a server and its back-up are compared.

#include <cstdint>

#include "base/result.hpp"
#include "engine/table/server/server.hpp"

namespace mv::replica {

/// A piece of a table's part: of its values, of its updater's states, or of what workers last got (DC-ASGD).
struct Piece {
  uint32_t table = 0;
  /// The first element: of array number from / shard::Shard::elements(), see Shard::read_stored(). Keyed: a cursor of
  /// Shard::scan_stored(), whose rows have all that is stored of them.
  int64_t from = 0;
  uint64_t count = 0;   ///< elements; keyed: rows
  uint64_t digest = 0;  ///< XXH3 with 64 bits; equal for equal bytes in all processes of one byte order
};

/// The piece of about `bytes` bytes at this place. It is empty if there is no such place any more. Sets *after to the
/// place behind the piece: in the next table at the end of a table, and in the first table at the end of the last one.
/// Loop thread only.
Piece piece_at(const table::Server& tables, uint32_t table, int64_t from, size_t bytes, Piece* after);
/// The same piece of another copy of the part.
Piece piece_like(const table::Server& tables, const Piece& theirs, size_t bytes);

}  // namespace mv::replica
