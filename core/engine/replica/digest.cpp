#include "engine/replica/digest.hpp"

#include <algorithm>
#include <memory>
#include <span>

#define XXH_INLINE_ALL  // inlines the few functions used, instead of loading the library
#include <xxhash.h>

#include "tensor/dtype.hpp"

namespace mv::replica {

namespace {

constexpr size_t kLeastRows = 64;  ///< of a keyed table: rows that a cursor can't separate must fit

uint64_t digest_of(std::span<const std::byte> bytes, uint64_t seed = 0) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

/// The numbers of the updater's progress, with the first values of a table.
uint64_t digest_of_mark(const shard::Shard& shard, int64_t from) {
  if (from != 0) return 0;
  const shard::Mark mark = shard.mark();
  return digest_of(std::as_bytes(std::span(mark.shared)), mark.updates);
}

/// Returns the place behind the piece; -1: there is none in this table.
int64_t read_dense(shard::Shard& shard, size_t bytes, Piece& piece) {
  const uint64_t all = shard.elements(), from = static_cast<uint64_t>(piece.from);
  if (all == 0) return -1;
  const uint64_t array = from / all, first = from % all;
  const size_t size = tensor::dtype_bytes(tensor::storage_dtype(shard.spec().dtype));
  piece.count = std::min<uint64_t>(std::max<size_t>(bytes / size, 1), all - first);
  const auto values = std::make_unique_for_overwrite<std::byte[]>(piece.count * size);
  shard.read_stored(array, first, piece.count, values.get());
  piece.digest = digest_of({values.get(), piece.count * size}, digest_of_mark(shard, piece.from));
  if (first + piece.count < all) return piece.from + static_cast<int64_t>(piece.count);
  const uint64_t next = shard.next_stored(array);
  return next != 0 ? static_cast<int64_t>(next * all) : -1;
}

int64_t read_keyed(shard::Shard& shard, size_t rows, Piece& piece) {
  const auto scanned = shard.scan_stored(piece.from, rows);
  if (!scanned.ok()) return -1;
  const shard::Scanned& found = scanned.value();
  piece.count = found.rows.size();
  piece.digest = digest_of(std::as_bytes(std::span(found.rows)), digest_of_mark(shard, piece.from));
  piece.digest = digest_of(found.beside, digest_of(found.values, piece.digest));
  piece.digest = digest_of(std::as_bytes(std::span(&found.next, 1)), piece.digest);
  return found.next;
}

}  // namespace

Piece piece_at(const table::Server& tables, uint32_t table, int64_t from, size_t bytes, Piece* after) {
  Piece piece{table, from, 0, 0};
  const auto shard = tables.shard(table);
  const auto rows = [&] { return std::max<size_t>(bytes / shard->stored_row_bytes(), kLeastRows); };
  const int64_t next = shard == nullptr ? -1 : shard->spec().is_keyed() ? read_keyed(*shard, rows(), piece) : read_dense(*shard, bytes, piece);
  *after = next >= 0 ? Piece{table, next, 0, 0} : Piece{table + 1 < tables.numbers() ? table + 1 : 0, 0, 0, 0};
  return piece;
}

Piece piece_like(const table::Server& tables, const Piece& theirs, size_t bytes) {
  Piece piece{theirs.table, theirs.from, 0, 0};
  const auto shard = tables.shard(theirs.table);
  if (shard == nullptr || theirs.from < 0) return piece;
  shard->spec().is_keyed() ? read_keyed(*shard, theirs.count, piece) : read_dense(*shard, bytes, piece);
  return piece;
}

}  // namespace mv::replica
