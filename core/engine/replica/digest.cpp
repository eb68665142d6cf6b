#include "engine/replica/digest.hpp"

#include <algorithm>
#include <memory>
#include <span>

#define XXH_INLINE_ALL  // inlines the few functions used, instead of loading the library
#include <xxhash.h>

namespace mv::replica {

namespace {

uint64_t digest_of(std::span<const std::byte> bytes, uint64_t seed = 0) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

/// Returns the place behind the piece; -1: there is none in this table.
int64_t read_dense(shard::Shard& shard, size_t bytes, Piece& piece) {
  const auto from = static_cast<uint64_t>(piece.from);
  if (from >= shard.elements()) return -1;
  const size_t size = shard.spec().element_bytes();
  piece.count = std::min<uint64_t>(std::max<size_t>(bytes / size, 1), shard.elements() - from);
  const auto values = std::make_unique_for_overwrite<std::byte[]>(piece.count * size);
  shard.read(shard::kNoWorker, from, piece.count, values.get());
  piece.digest = digest_of({values.get(), piece.count * size});
  return from + piece.count < shard.elements() ? static_cast<int64_t>(from + piece.count) : -1;
}

int64_t read_keyed(shard::Shard& shard, size_t bytes, Piece& piece) {
  const auto scanned = shard.scan(piece.from, std::max<size_t>(bytes / shard.spec().row_bytes(), 64), true);
  if (!scanned.ok()) return -1;
  piece.count = scanned.value().rows.size();
  piece.digest = digest_of(scanned.value().values, digest_of(std::as_bytes(std::span(scanned.value().rows))));
  return scanned.value().next;
}

}  // namespace

Piece piece_at(const table::Server& tables, uint32_t table, int64_t from, size_t bytes, Piece* after) {
  Piece piece{table, from, 0, 0};
  const auto shard = tables.shard(table);
  const int64_t next = shard == nullptr ? -1 : shard->spec().is_keyed() ? read_keyed(*shard, bytes, piece) : read_dense(*shard, bytes, piece);
  if (after != nullptr) *after = next >= 0 ? Piece{table, next, 0, 0} : Piece{table + 1 < tables.numbers() ? table + 1 : 0, 0, 0, 0};
  return piece;
}

}  // namespace mv::replica
