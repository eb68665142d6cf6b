#include "api/table/mapping.hpp"

#include <bit>

#include "api/table/remote_segment.hpp"
#include "base/log.hpp"
#include "transport/fabric/fabric_transport.hpp"
#include "transport/shm/shm.hpp"

namespace mv::api {

Mapping::Mapping(runtime::Runtime& runtime, table::TableViewRef table, size_t own)
    : runtime_(runtime), table_(std::move(table)), own_(own), parts_(table_->servers.size()) {}

const shard::SegmentView* Mapping::reader(size_t server) {
  MappedShard& part = parts_[server];
  const shard::SegmentView* reader = part.reader.load();
  if (reader == nullptr || reader->is_closed()) return nullptr;
  if (!part.prepared.load(std::memory_order_relaxed) && !part.prepared.exchange(true)) reader->prepare();
  return reader;
}

void Mapping::ask() {
  // Ask at exponentially growing intervals: every get of a table that a server cannot map calls this.
  if (!std::has_single_bit(asks_.fetch_add(1, std::memory_order_relaxed) + 1)) return;
  runtime_.loop().post([self = shared_from_this()] { self->ask_on_loop(); });
}

void Mapping::ask_on_loop() {
  drop_destroyed();
  transport::ShmTransport* const shared = runtime_.shared_memory();
  transport::FabricTransport* const fabric = runtime_.fabric();
  const auto self = weak_from_this();
  for (size_t server = 0; server < parts_.size(); ++server) {
    MappedShard& part = parts_[server];
    const bool needed =
        server != own_ && shard::has_part(table_->spec, parts_.size(), server) && part.reader.load() == nullptr;
    if (!needed || part.asked) continue;
    const base::Peer peer = table_->servers[server];
    const uint64_t number = table_->numbers[server];
    if (shared != nullptr && shared->reaches(peer)) {
      part.asked = true;
      shared->ask(peer, number, [self, server](std::shared_ptr<base::SharedMemory> memory) {
        if (const MappingRef mapping = self.lock()) mapping->take(server, std::move(memory));
      });
    } else if (fabric != nullptr && fabric->can_ask(peer)) {
      part.asked = true;
      fabric->ask(peer, number, [self, server](std::shared_ptr<transport::RemoteMemory> memory) {
        if (const MappingRef mapping = self.lock()) mapping->take_remote(server, std::move(memory));
      });
    }
  }
}

uint64_t Mapping::elements_of(size_t server) const { return shard::part_of(table_->spec, parts_.size(), server).count * table_->spec.cols; }

void Mapping::take(size_t server, std::shared_ptr<base::SharedMemory> memory) {
  parts_[server].asked = false;
  if (memory == nullptr) return;
  auto reader = shard::SegmentReader::open(std::move(memory), table_->spec, elements_of(server));
  if (!reader.ok()) return base::log_debug("{}", reader.status().text());
  use(server, std::move(reader).value());
}

void Mapping::take_remote(size_t server, std::shared_ptr<transport::RemoteMemory> memory) {
  if (memory == nullptr) {
    parts_[server].asked = false;
    return;
  }
  RemoteSegment::open(runtime_.loop(), std::move(memory), table_->spec, elements_of(server), [weak = weak_from_this(), server](std::shared_ptr<RemoteSegment> segment) {
    const MappingRef self = weak.lock();
    if (self == nullptr) return;
    self->parts_[server].asked = false;
    if (segment != nullptr) self->use(server, std::move(segment));
  });
}

void Mapping::use(size_t server, std::shared_ptr<const shard::SegmentView> segment) {
  MappedShard& part = parts_[server];
  part.kept = std::move(segment);
  part.prepared = false;
  part.reader.store(part.kept.get());
}

// ------------------------------------------------------------ dropping

void Mapping::drop(base::Peer server) {
  for (size_t i = 0; i < parts_.size(); ++i)
    if (table_->servers[i] == server) drop(parts_[i]);
  unmap_dropped();
}

void Mapping::drop_destroyed() {
  for (MappedShard& part : parts_)
    if (part.kept != nullptr && part.kept->destroyed()) drop(part);
  unmap_dropped();
}

void Mapping::drop(MappedShard& part) {
  if (part.kept == nullptr) return;
  part.reader.store(nullptr);
  part.dropped.push_back(std::move(part.kept));
  has_dropped_ = true;
}

/// Dekker's pattern: a user increments the count and then loads the reader; this thread has cleared the reader
/// and then loads the count. All four accesses are seq_cst, so either this thread sees the user, or the user sees
/// that the reader was dropped.
void Mapping::unmap_dropped() {
  if (!has_dropped_ || users_ != 0) return;
  has_dropped_ = false;
  for (MappedShard& part : parts_) part.dropped.clear();
}

void Mapping::unmap_later() {
  runtime_.loop().post([weak = weak_from_this()] {
    if (const MappingRef self = weak.lock()) self->unmap_dropped();
  });
}

// ---- all handles of a node

MappingRef Mappings::map(const table::TableViewRef& table, size_t own) {
  if (!runtime_.shares_tables() || !shard::is_mapped(table->spec) || table->consistency == shard::Consistency::kSync) return nullptr;
  const auto mapping = std::make_shared<Mapping>(runtime_, table, own);
  mapping->ask();
  {
    std::lock_guard lock(mutex_);
    mappings_.push_back(mapping);
    if (mappings_.size() < 2 * swept_) return mapping;
    // Not on every call, because it scans all mappings.
    std::erase_if(mappings_, [](const auto& weak) { return weak.expired(); });
    swept_ = mappings_.size();
  }
  // An unclosed handle must not keep the memory of a destroyed table for ever.
  runtime_.loop().post([this] {
    for (const MappingRef& each : all()) each->drop_destroyed();
  });
  return mapping;
}

std::vector<MappingRef> Mappings::all() {
  std::lock_guard lock(mutex_);
  std::vector<MappingRef> found;
  for (const auto& weak : mappings_)
    if (MappingRef mapping = weak.lock()) found.push_back(std::move(mapping));
  return found;
}

void Mappings::drop(base::Peer server) {
  for (const MappingRef& mapping : all()) mapping->drop(server);
}

}  // namespace mv::api
