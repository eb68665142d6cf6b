#include "node/mapping.hpp"

#include <bit>

#include "base/log.hpp"

namespace mv::node {

Mapping::Mapping(io::Loop& loop, io::ShmRoad& road, ps::TableViewRef table, size_t own)
    : loop_(loop), road_(road), table_(std::move(table)), own_(own), parts_(table_->servers.size()) {}

const table::SegmentReader* Mapping::reader(size_t server) {
  Part& part = parts_[server];
  const table::SegmentReader* reader = part.reader.load();
  if (reader == nullptr || reader->is_closed()) return nullptr;
  if (!part.populated.load(std::memory_order_relaxed) && !part.populated.exchange(true)) reader->populate();
  return reader;
}

void Mapping::ask() {
  // Less and less often: where a server has nothing to map, every get comes by here.
  if (!std::has_single_bit(asks_.fetch_add(1, std::memory_order_relaxed) + 1)) return;
  loop_.post([self = shared_from_this()] { self->ask_on_loop(); });
}

void Mapping::ask_on_loop() {
  drop_destroyed();
  for (size_t server = 0; server < parts_.size(); ++server) {
    Part& part = parts_[server];
    const bool needed =
        server != own_ && table::has_part(table_->spec, parts_.size(), server) && part.reader.load() == nullptr;
    if (!needed || part.asked || !road_.reaches(table_->servers[server])) continue;
    part.asked = true;
    road_.ask(table_->servers[server], table_->numbers[server],
              [weak = weak_from_this(), server](std::shared_ptr<base::SharedMemory> memory) {
                if (const MappingRef self = weak.lock()) self->take(server, std::move(memory));
              });
  }
}

void Mapping::take(size_t server, std::shared_ptr<base::SharedMemory> memory) {
  Part& part = parts_[server];
  part.asked = false;
  if (memory == nullptr) return;
  const uint64_t rows = table::part_of(table_->spec, parts_.size(), server).count;
  auto reader = table::SegmentReader::open(std::move(memory), table_->spec, rows * table_->spec.cols);
  if (!reader.ok()) return base::log_debug("{}", reader.status().text());
  part.kept = std::move(reader).value();
  part.populated = false;
  part.reader.store(part.kept.get());
}

// ------------------------------------------------------------ dropping

void Mapping::drop(base::Peer server) {
  for (size_t i = 0; i < parts_.size(); ++i)
    if (table_->servers[i] == server) drop(parts_[i]);
  unmap_dropped();
}

void Mapping::drop_destroyed() {
  for (Part& part : parts_)
    if (part.kept != nullptr && part.kept->destroyed()) drop(part);
  unmap_dropped();
}

void Mapping::drop(Part& part) {
  if (part.kept == nullptr) return;
  part.reader.store(nullptr);
  part.dropped.push_back(std::move(part.kept));
  has_dropped_ = true;
}

/// Dekker's pattern: a user counts itself and then loads the reader, this thread has cleared the reader and then loads the count. All four accesses are
/// seq_cst, so either this thread sees the user, or the user sees that the reader was dropped.
void Mapping::unmap_dropped() {
  if (!has_dropped_ || users_ != 0) return;
  has_dropped_ = false;
  for (Part& part : parts_) part.dropped.clear();
}

void Mapping::unmap_later() {
  loop_.post([weak = weak_from_this()] {
    if (const MappingRef self = weak.lock()) self->unmap_dropped();
  });
}

}  // namespace mv::node
