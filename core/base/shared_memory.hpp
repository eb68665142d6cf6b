#pragma once
// Memory that several processes map: the ground under tables' shards, tensors and the shared-memory road.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.hpp"

namespace mv::base {

/// A memfd, mapped. It has no name in any file system: the kernel frees it with its last descriptor and mapping, whatever way
/// the processes end. Sealed: it keeps its size, so that no peer can make another's access fault, and only its maker can write.
/// Any thread; the object is immutable, its bytes are the owners' business.
class SharedMemory {
 public:
  /// New memory, all zeros, readable and writable here. `label` shows in /proc/<pid>/maps. Pages are touched now with
  /// `populate`, else when first used. MV_ENOMEM, MV_ESYSTEM.
  static Result<std::shared_ptr<SharedMemory>> make(const char* label, size_t bytes, bool populate = false);
  /// Another process's memory, by a descriptor that it takes over, mapped read-only. MV_EPROTOCOL unless it is a memfd of ordinary pages, sealed
  /// against a change of its size, of at least `least_bytes`: so no access to it can fault, whatever the other process does.
  static Result<std::shared_ptr<SharedMemory>> adopt(int fd, size_t least_bytes, bool populate = false);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Writing faults unless this object made the memory.
  std::byte* data() const { return memory_.data(); }
  size_t bytes() const { return memory_.size(); }
  int fd() const { return fd_; }

  /// Lets find() find it, until it is destroyed.
  static void enlist(const std::shared_ptr<SharedMemory>& memory);
  /// The enlisted memory that holds all of these bytes, or null.
  static std::shared_ptr<SharedMemory> find(std::span<const std::byte> bytes);

  /// Round a fork, so that no other thread is in the midst of making or ending one: a child could never make one.
  static void hold_all() noexcept;
  static void release_all() noexcept;
  /// In a forked child: closes all descriptors, and finds nothing of the parent's any more. What is mapped stays, and so
  /// do the objects. Async-signal-safe.
  static void abandon_after_fork() noexcept;

 private:
  SharedMemory(int fd, std::span<std::byte> memory);
  static Result<std::shared_ptr<SharedMemory>> map(int fd, size_t bytes, int protection, bool populate);

  const int fd_;
  const std::span<std::byte> memory_;
  const uint32_t life_;  ///< of the process: one fork after the other
};

}  // namespace mv::base
