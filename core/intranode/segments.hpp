#pragma once
// Tensors in the library's shared memory, which other processes read in place, without a copy.
//
// A rank exports the segment of a value by listing the segment's descriptor. At their next operation the other ranks
// see the entry, map the segment, and report that in their own regions. Until all have done so, values from it are
// copied like any others. Therefore no rank ever waits for a mapping, and a mapping that fails is no error.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/shared_memory.hpp"
#include "intranode/shared_region.hpp"

namespace mv::intranode {

using Memory = std::shared_ptr<base::SharedMemory>;

/// The inode behind a descriptor of this process; 0 if there is none.
uint64_t file_of(int descriptor);
/// Maps another process's descriptor of shared memory. MV_ESYSTEM if it can't be opened or is another file,
/// MV_EPROTOCOL if it is not a sealed memfd.
base::Result<Memory> open_of(int32_t process, int descriptor, uint64_t file, size_t least_bytes);

/// The segments that this rank exports, and those of other ranks that it has mapped. One thread at a time.
class Segments {
 public:
  Segments(size_t rank, const std::vector<SharedRegion>& regions);

  /// Where all other ranks can read these bytes; segment 0 if some can't. Exports the segment if necessary.
  Location place_of(std::span<const std::byte> bytes);
  /// Call after the last place_of() of an operation.
  void settle() { latest_ = nullptr; }
  /// Where this rank can read those bytes, or null.
  const std::byte* find(size_t owner, const Location& place, size_t bytes) const;
  /// Call between operations: drops freed segments, and maps new ones.
  void look();

 private:
  struct Shown {
    uint32_t number = 0;  ///< 0: free
    std::weak_ptr<base::SharedMemory> memory;
  };
  struct Mapped {
    uint32_t number = 0;
    Memory memory;  ///< null if it can't be mapped
  };
  struct Peer {
    uint32_t seen = 0;  ///< the value of its Words::exports when last followed
    std::vector<Mapped> slots;
  };
  size_t exported(const Memory& memory);
  bool is_mapped_by_all(size_t slot) const;
  void drop_freed();
  void follow(size_t owner);

  const size_t rank_;
  const std::vector<SharedRegion>& regions_;
  std::vector<Shown> shown_;
  uint32_t last_number_ = 0;
  std::vector<Peer> peers_;
  Memory latest_;  ///< cached, because arrays of one call often lie in one segment
  size_t latest_slot_ = kExports;
};

}  // namespace mv::intranode
