#pragma once
// Memory that several processes map. Table shards, tensors and the shared-memory transport use it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.hpp"

namespace mv::base {

/// A mapped memfd. It has no name in any file system: the kernel frees it with its last descriptor and mapping, however
/// the processes end. It is sealed: its size is fixed, so no peer can make another's access fault, and only its creator
/// can write. Any thread; the object is immutable, and its users synchronise access to the bytes.
///
/// A forked child never writes into its parent's memory. Enlisted memory, which holds users' arrays, is remapped
/// copy-on-write in the child: the child keeps its pointers and gets a private copy of a page at its first write. Until
/// then it sees the parent's writes: a true snapshot would have to be copied in full before fork() returns, for each
/// child. All other memory (rings, shards, arenas, peers' memory) is not mapped in the child (MADV_DONTFORK). A fork()
/// handler does this, so it does not cover children of vfork(), which run another program at once, nor of _Fork() and
/// clone(2).
class SharedMemory {
 public:
  /// New zeroed memory, readable and writable here. `label` shows in /proc/<pid>/maps. MV_ENOMEM, MV_ESYSTEM.
  static Result<std::shared_ptr<SharedMemory>> make(const char* label, size_t bytes);
  /// Maps another process's memory read-only, and closes `fd`, also if that fails. MV_EPROTOCOL unless it is a memfd of ordinary
  /// pages with a sealed size of at least `least_bytes`. No access can then fault, whatever the other process does.
  static Result<std::shared_ptr<SharedMemory>> adopt(int fd, size_t least_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Writable only if this object made the memory; otherwise a write faults.
  std::byte* data() const { return memory_.data(); }
  size_t bytes() const { return memory_.size(); }
  /// Of memory that this object made, to pass it to other processes; -1 of adopted memory.
  int fd() const { return fd_; }

  /// Makes it visible to find() until it is destroyed, and keeps it mapped in forked children.
  static void enlist(const std::shared_ptr<SharedMemory>& memory);
  /// The enlisted memory that contains all of these bytes, or null.
  static std::shared_ptr<SharedMemory> find(std::span<const std::byte> bytes);

  /// A number that grows with every fork() of this process and of its ancestors. A child may still read memory that was
  /// made at an earlier number.
  static uint32_t forks() noexcept;
  /// Whether memory made at this number was made by this process, not by an ancestor.
  static bool is_ours(uint32_t number) noexcept;

  /// Before fork(): takes the list's lock, because in a child no other thread could release it.
  static void before_fork() noexcept;
  static void after_fork() noexcept;
  /// In the child, instead of after_fork(): makes the enlisted memory copy-on-write and closes all descriptors. The
  /// objects stay, but find() no longer returns them. Async-signal-safe.
  static void after_fork_in_child() noexcept;

 private:
  SharedMemory(int fd, std::span<std::byte> memory);
  static Result<std::shared_ptr<SharedMemory>> map(int fd, size_t bytes, int protection);

  bool is_ours() const noexcept { return is_ours(made_at_); }
  void copy_on_write() noexcept;

  const int fd_;  ///< -1: adopted
  const std::span<std::byte> memory_;
  const uint32_t made_at_;  ///< forks() at that time
  bool is_enlisted_ = false;
};

}  // namespace mv::base
