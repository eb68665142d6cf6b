#include "shard/shard.hpp"

#include <cassert>
#include <cstring>
#include <vector>

#include "shard/dense.hpp"
#include "shard/keyed/keyed.hpp"

namespace mv::shard {

base::Result<std::shared_ptr<Shard>> Shard::make(SpecRef spec, const Position& place) {
  return spec->is_keyed() ? KeyedShard::make(std::move(spec), place) : DenseShard::make(std::move(spec), place);
}

void Shard::add_made(Worker worker, uint64_t first, uint64_t count, const Make& make, ChangePart piece) {
  std::vector<std::byte> values(count * spec_.element_bytes());
  make(first, count, values.data());
  change(Write::Add, worker, first, count, values.data(), piece);
}

void Shard::read_each(Worker worker, std::span<std::byte* const> outs) {
  read(worker, 0, elements(), outs.front());
  for (std::byte* const out : outs.subspan(1)) std::memcpy(out, outs.front(), elements() * spec_.element_bytes());
}

void Shard::read_stored(uint64_t, uint64_t, uint64_t, std::byte*) { assert(false); }

base::Result<Scanned> Shard::scan_stored(int64_t cursor, size_t most) { return scan(cursor, most, true); }

}  // namespace mv::shard
