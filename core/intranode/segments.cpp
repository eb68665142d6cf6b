#include "intranode/segments.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace mv::intranode {

uint64_t file_of(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 ? about.st_ino : 0;
}

base::Result<Memory> open_of(int32_t process, int descriptor, uint64_t file, size_t least_bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, descriptor);
  // Another rank chose this descriptor. Opening a device or a pipe has side effects, so only memory is opened.
  char target[64] = {};
  if (readlink(path.c_str(), target, sizeof target - 1) < 0) return base::error(MV_ESYSTEM, "{} can't be read: {}", path, std::strerror(errno));
  if (!std::string_view(target).starts_with("/memfd:")) return base::error(MV_EPROTOCOL, "{} is not shared memory", path);
  const int opened = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0) return base::error(MV_ESYSTEM, "{} can't be opened: {}", path, std::strerror(errno));
  if (file_of(opened) == file) return base::SharedMemory::adopt(opened, least_bytes);
  close(opened);
  return base::error(MV_ESYSTEM, "{} is another file", path);
}

Segments::Segments(size_t rank, const std::vector<SharedRegion>& regions) : rank_(rank), regions_(regions), shown_(kExports), peers_(regions.size()) {
  for (Peer& peer : peers_) peer.slots.resize(kExports);
}

// ------------------------------------------------------------ exports

Location Segments::place_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const bool is_latest = latest_ != nullptr && bytes.data() >= latest_->data() &&
                         bytes.data() + bytes.size() <= latest_->data() + latest_->bytes();
  if (!is_latest) {
    latest_ = base::SharedMemory::find(bytes);
    latest_slot_ = latest_ != nullptr ? exported(latest_) : kExports;
  }
  if (latest_slot_ == kExports || !is_mapped_by_all(latest_slot_)) return {};
  return {shown_[latest_slot_].number, static_cast<uint64_t>(bytes.data() - latest_->data())};
}

size_t Segments::exported(const Memory& memory) {
  size_t free = kExports;
  for (size_t slot = 0; slot < kExports; ++slot) {
    if (shown_[slot].number == 0) {
      if (free == kExports) free = slot;
    } else if (!shown_[slot].memory.owner_before(memory) && !memory.owner_before(shown_[slot].memory)) {
      return slot;
    }
  }
  if (free == kExports) return free;
  shown_[free] = {++last_number_, memory};
  Export& exported = regions_[rank_].exports()[free];
  exported.descriptor.store(memory->fd());
  exported.file.store(file_of(memory->fd()));
  exported.number.store(last_number_);
  regions_[rank_].words().exports.fetch_add(1);
  return free;
}

bool Segments::is_mapped_by_all(size_t slot) const {
  for (size_t peer = 0; peer < regions_.size(); ++peer) {
    if (peer != rank_ && regions_[peer].mapped(rank_)[slot].load(std::memory_order_acquire) != shown_[slot].number) return false;
  }
  return true;
}

void Segments::drop_freed() {
  for (size_t slot = 0; slot < kExports; ++slot) {
    if (shown_[slot].number == 0 || !shown_[slot].memory.expired()) continue;
    shown_[slot] = {};
    regions_[rank_].exports()[slot].number.store(0);
    regions_[rank_].words().exports.fetch_add(1);
  }
}

// ------------------------------------------------------------ mappings

const std::byte* Segments::find(size_t owner, const Location& place, size_t bytes) const {
  for (const Mapped& mapped : peers_[owner].slots) {
    if (mapped.number != place.segment || mapped.memory == nullptr) continue;
    const size_t size = mapped.memory->bytes();
    return place.at <= size && bytes <= size - place.at ? mapped.memory->data() + place.at : nullptr;
  }
  return nullptr;
}

void Segments::look() {
  drop_freed();
  for (size_t owner = 0; owner < peers_.size(); ++owner) {
    if (owner != rank_ && regions_[owner].words().exports.load() != peers_[owner].seen) follow(owner);
  }
}

void Segments::follow(size_t owner) {
  const SharedRegion& theirs = regions_[owner];
  peers_[owner].seen = theirs.words().exports.load();
  const int32_t process = theirs.words().process.load();
  for (size_t slot = 0; slot < kExports; ++slot) {
    const Export& exported = theirs.exports()[slot];
    const uint32_t number = exported.number.load();
    Mapped& mapped = peers_[owner].slots[slot];
    if (mapped.number == number) continue;
    std::atomic<uint32_t>& said = regions_[rank_].mapped(owner)[slot];
    said.store(0);
    mapped = {number, nullptr};
    if (number == 0) continue;
    auto memory = open_of(process, exported.descriptor.load(), exported.file.load(), 1);
    if (!memory.ok() || exported.number.load() != number) continue;  // it can't be mapped, or was freed meanwhile, which the next look() sees
    mapped.memory = std::move(memory).value();
    said.store(number);
  }
}

}  // namespace mv::intranode
