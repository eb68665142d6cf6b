#pragma once
// Memory that several processes map: the ground under tables' shards, tensors and the shared-memory transport.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.hpp"

namespace mv::base {

/// A memfd, mapped. It has no name in any file system: the kernel frees it with its last descriptor and mapping, whatever way
/// the processes end. Sealed: it keeps its size, so that no peer can make another's access fault, and only its maker can write.
/// Any thread; the object is immutable, its bytes are the owners' business.
///
/// A forked child never writes into its parent's memory. Enlisted memory, which users' arrays lie in, is mapped again in the child,
/// copy-on-write: the child keeps its pointers and gets a page of its own with the first write to it. Until then it sees what the
/// parent writes there: a snapshot would have to be copied before fork() returns, all of it and for each child. All other
/// memory (rings, shards, arenas, peers' memory) does not exist in the child (MADV_DONTFORK). All this is a handler of fork(), so it
/// does not hold for children of vfork(), which run another program at once, nor of _Fork() and clone(2).
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

  /// Lets find() find it, until it is destroyed, and a forked child keep it.
  static void enlist(const std::shared_ptr<SharedMemory>& memory);
  /// The enlisted memory that holds all of these bytes, or null.
  static std::shared_ptr<SharedMemory> find(std::span<const std::byte> bytes);

  /// Grows with every fork() of this process and of those it was forked from. A child may still read memory that is as old as an
  /// earlier number.
  static uint32_t forks() noexcept;
  /// Whether what was made at that number was made by this process, not by one that it was forked from.
  static bool is_ours(uint32_t number) noexcept;

  /// Before fork(): takes the list's lock, since a child can't wait for another thread to release it.
  static void before_fork() noexcept;
  static void after_fork() noexcept;
  /// In the child instead: makes the enlisted memory its own, and closes all descriptors. The objects stay; find() finds none of them
  /// any more. Async-signal-safe.
  static void after_fork_in_child() noexcept;

 private:
  SharedMemory(int fd, std::span<std::byte> memory);
  static Result<std::shared_ptr<SharedMemory>> map(int fd, size_t bytes, int protection, bool populate);

  bool is_ours() const noexcept { return is_ours(made_at_); }
  void copy_on_write() noexcept;

  const int fd_;
  const std::span<std::byte> memory_;
  const uint32_t made_at_;  ///< forks()
  bool is_enlisted_ = false;
};

}  // namespace mv::base
