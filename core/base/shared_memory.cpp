#include "base/shared_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "base/descriptors.hpp"
#include "base/retried.hpp"

namespace mv::base {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

/// The enlisted memory that find() searches, by the address after its last byte.
struct Listing {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<SharedMemory>> by_end;
  std::atomic<size_t> size{0};  ///< lets find() skip the lock when the list is empty
};

/// Never destroyed: memory may outlive static objects. Construction allocates nothing, because destructors call it.
Listing& listing() noexcept {
  alignas(Listing) static std::byte room[sizeof(Listing)];
  static auto* const kListing = new (room) Listing;
  return *kListing;
}

/// Null before the first memory. Never destroyed, like the listing.
std::atomic<Descriptors*> held{nullptr};
std::atomic<uint32_t> fork_count{0};
/// The count at which this process began. A forked child has closed the descriptors of older memory.
std::atomic<uint32_t> begun_at{0};

Descriptors& held_descriptors() {
  if (held.load() == nullptr) {
    Descriptors* none = nullptr;
    auto* const made = new Descriptors;
    if (!held.compare_exchange_strong(none, made)) delete made;
  }
  return *held.load();
}

}  // namespace

SharedMemory::SharedMemory(int fd, std::span<std::byte> memory) : fd_(fd), memory_(memory), made_at_(fork_count) {
  if (fd_ >= 0) held_descriptors().add(fd_);
}

uint32_t SharedMemory::forks() noexcept { return fork_count.load(std::memory_order_relaxed); }
bool SharedMemory::is_ours(uint32_t number) noexcept { return number >= begun_at.load(std::memory_order_relaxed); }

void SharedMemory::before_fork() noexcept {
  listing().mutex.lock();
  ++fork_count;
}

void SharedMemory::after_fork() noexcept { listing().mutex.unlock(); }

void SharedMemory::after_fork_in_child() noexcept {
  for (const auto& [end, listed] : listing().by_end) {
    // Memory of an ancestor is already private, and fork() copies it like all private memory.
    if (const auto memory = listed.lock(); memory != nullptr && memory->is_ours()) memory->copy_on_write();
  }
  begun_at.store(fork_count);
  if (Descriptors* const all = held.load()) all->close_all();
  listing().mutex.unlock();
}

/// Remaps the memory in place. If that fails for lack of memory, writing faults, and perhaps reading.
void SharedMemory::copy_on_write() noexcept {
  const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
  if (mmap(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE, flags, fd_, 0) == MAP_FAILED)
    mprotect(memory_.data(), memory_.size(), PROT_READ);
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::make(const char* label, size_t bytes) {
  // The limit of files (ulimit -f) holds for this memory, too, and the kernel ends a process that exceeds it.
  rlimit largest{};
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && bytes > largest.rlim_cur)
    return error(MV_ESYSTEM, "can't create {} bytes of shared memory: files may have at most {} bytes (ulimit -f)", bytes, largest.rlim_cur);
  // Pages are allocated when they are first written, so the kernel would refuse nothing here, and end processes then.
  struct sysinfo machine {};
  if (sysinfo(&machine) == 0 && bytes / machine.mem_unit > machine.totalram + machine.totalswap)
    return error(MV_ENOMEM, "can't allocate {} bytes of shared memory: this machine has {} in all", bytes,
                 (machine.totalram + machine.totalswap) * machine.mem_unit);
  const int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return error(MV_ESYSTEM, "can't create shared memory: {}", std::strerror(errno));
  if (retried([&] { return ftruncate(fd, static_cast<off_t>(bytes)); }) != 0) {
    const int why = errno;
    close(fd);
    return error(MV_ENOMEM, "can't allocate {} bytes of shared memory: {}", bytes, std::strerror(why));
  }
  auto made = map(fd, bytes, PROT_READ | PROT_WRITE);
  // After our own mapping, which stays writable: every later mapping is read-only.
  if (made.ok() && fcntl(fd, F_ADD_SEALS, kSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    return error(MV_ESYSTEM, "can't seal shared memory: {}", std::strerror(errno));
  return made;
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::adopt(int fd, size_t least_bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat about {};
  // Ordinary pages only: an access to huge pages faults when none is left.
  struct statfs system {};
  const bool sound = seals >= 0 && (seals & kSeals) == kSeals && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC &&
                     fstat(fd, &about) == 0 && about.st_size > 0 && static_cast<size_t>(about.st_size) >= least_bytes;
  if (!sound) {
    close(fd);
    return error(MV_EPROTOCOL, "a descriptor for shared memory is not a sealed memfd of at least {} bytes", least_bytes);
  }
  auto mapped = map(fd, static_cast<size_t>(about.st_size), PROT_READ);
  if (mapped.ok()) close(fd);  // the mapping does not need it, and a process may map thousands of its peers' tables
  return mapped;
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::map(int fd, size_t bytes, int protection) {
  void* mapped = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    const int why = errno;
    close(fd);
    return error(MV_ENOMEM, "can't map {} bytes of shared memory: {}", bytes, std::strerror(why));
  }
  madvise(mapped, bytes, MADV_DONTFORK);
  const bool keeps = (protection & PROT_WRITE) != 0;
  return std::shared_ptr<SharedMemory>(new SharedMemory(keeps ? fd : -1, {static_cast<std::byte*>(mapped), bytes}));
}

SharedMemory::~SharedMemory() {
  Listing& all = listing();
  if (all.size.load(std::memory_order_relaxed) > 0) {
    std::lock_guard lock(all.mutex);
    const auto found = all.by_end.find(memory_.data() + memory_.size());
    if (found != all.by_end.end() && found->second.expired()) all.by_end.erase(found);
    all.size = all.by_end.size();
  }
  if (is_ours() || is_enlisted_) munmap(memory_.data(), memory_.size());
  if (!is_ours() || fd_ < 0) return;  // closed at the fork; the number may now be another descriptor
  held_descriptors().remove(fd_);
  close(fd_);
}

void SharedMemory::enlist(const std::shared_ptr<SharedMemory>& memory) {
  Listing& all = listing();
  std::lock_guard lock(all.mutex);
  madvise(memory->data(), memory->bytes(), MADV_DOFORK);
  memory->is_enlisted_ = true;
  all.by_end.insert_or_assign(memory->data() + memory->bytes(), memory);
  all.size = all.by_end.size();
}

std::shared_ptr<SharedMemory> SharedMemory::find(std::span<const std::byte> bytes) {
  Listing& all = listing();
  if (all.size.load(std::memory_order_relaxed) == 0) return nullptr;
  std::shared_ptr<SharedMemory> memory;  // declared before the lock: if this is the last owner, the destructor takes the lock, too
  std::lock_guard lock(all.mutex);
  const auto next = all.by_end.upper_bound(bytes.data());
  if (next == all.by_end.end()) return nullptr;
  memory = next->second.lock();
  const bool holds = memory != nullptr && memory->is_ours() && bytes.data() >= memory->data() && bytes.data() + bytes.size() <= next->first;
  return holds ? memory : nullptr;
}

}  // namespace mv::base
