#include "engine/table/server/queries.hpp"

#include <algorithm>
#include <cstring>

#include "engine/table/spec_wire.hpp"

namespace mv::table {

void Queries::list(const rpc::Asked& asked) {
  auto& fbb = builder_.fbb();
  std::vector<flatbuffers::Offset<wire::TableSpec>> specs;
  for (const Table* table : registry_.complete_tables()) specs.push_back(write_spec(fbb, table->spec));
  const auto vector = fbb.CreateVector(specs);
  rpc_.answer(asked, builder_.finish(wire::Body::Listing, wire::CreateListing(fbb, vector)));
}

void Queries::stat(const rpc::Asked& asked, const wire::Stat& request) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  const shard::Usage usage = table->shard->usage();
  const auto updater = write_updater(builder_.fbb(), table->shard->updater());
  const auto stats = wire::CreateStats(builder_.fbb(), usage.stored, usage.memory_bytes, usage.state_bytes, updater, usage.updates);
  rpc_.answer(asked, builder_.finish(wire::Body::Stats, stats));
}

void Queries::scan(const rpc::Asked& asked, const wire::Scan& request) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  if (!table->spec.is_keyed())
    return rpc_.fail(asked, base::error(MV_EINVAL, "table \"{}\" is {}: only keyed tables can be scanned", table->spec.name, table->spec.describe()));
  const uint64_t bytes_each = sizeof(int64_t) + (request.values() ? table->spec.row_bytes() : 0);
  const uint64_t most = std::min<uint64_t>(request.most(), shard::kStripeBytes / bytes_each);
  auto scanned = table->shard->scan(request.cursor(), std::max<uint64_t>(1, most), request.values());
  if (!scanned.ok()) return rpc_.fail(asked, scanned.status());
  const shard::Scanned& found = scanned.value();
  base::PayloadRef payload;
  if (!found.rows.empty()) {
    const size_t ids_bytes = found.rows.size() * sizeof(int64_t);
    base::Pool::Block block = pool_.take(ids_bytes + found.values.size());
    std::memcpy(block.bytes.data(), found.rows.data(), ids_bytes);
    if (!found.values.empty()) std::memcpy(block.bytes.data() + ids_bytes, found.values.data(), found.values.size());
    payload = base::Payload::kept(block.bytes, block.memory);
  }
  rpc_.answer(asked, builder_.finish(wire::Body::Scanned, wire::CreateScanned(builder_.fbb(), found.rows.size(), found.next), payload));
}

}  // namespace mv::table
