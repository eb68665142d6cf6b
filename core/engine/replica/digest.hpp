#pragma once
// Digests of pieces of a part's values, by which a server and its back-up are compared.

#include <cstdint>

#include "base/result.hpp"
#include "engine/table/server/server.hpp"

namespace mv::replica {

/// Some of the values of a table's part.
struct Piece {
  uint32_t table = 0;
  int64_t from = 0;     ///< the first element; keyed: a cursor of shard::Shard::scan()
  uint64_t count = 0;   ///< elements; keyed: rows
  uint64_t digest = 0;  ///< XXH3 with 64 bits of the values, and of the rows' ids; equal for equal values in all processes of one byte order
};

/// The piece of about `bytes` bytes at this place. It has no values if there is no such place any more. Sets *after to
/// the place behind the piece: in the next table at the end of a table, and in the first table at the end of the last
/// one. Loop thread only.
Piece piece_at(const table::Server& tables, uint32_t table, int64_t from, size_t bytes, Piece* after);

}  // namespace mv::replica
