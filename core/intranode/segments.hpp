#pragma once
// Tensors of ours lie in memory that other processes can be shown: they read it where it is, and nothing is copied in.
//
// A rank shows a segment that a value lies in by putting its descriptor's number into a list. The others see that at their next
// operation, map it, and say so in their own regions. Until all have, values from there are copied like everybody's: so nobody
// ever waits for a mapping, and where one can't be had nothing fails.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/shared_memory.hpp"
#include "intranode/shared_region.hpp"

namespace mv::intranode {

using Memory = std::shared_ptr<base::SharedMemory>;

/// The file behind a descriptor of this process; 0 if there is none.
uint64_t file_of(int descriptor);
/// Another process's descriptor of shared memory, mapped. MV_ESYSTEM if it can't be opened or is another file, MV_EPROTOCOL if it is no
/// sealed memfd.
base::Result<Memory> open_of(int32_t process, int descriptor, uint64_t file, size_t least_bytes);

/// One thread at a time.
class Segments {
 public:
  Segments(size_t rank, const std::vector<SharedRegion>& regions);

  /// Where all others can read these bytes; segment 0 if not all can. Shows the segment to those who can't yet.
  Location place_of(std::span<const std::byte> bytes);
  /// After the last place_of() of an operation.
  void settle() { latest_ = nullptr; }
  /// Where this rank can read them, or null.
  const std::byte* find(size_t owner, const Location& place, size_t bytes) const;
  /// Between operations: gives up what was freed, maps what is new.
  void look();

 private:
  struct Shown {
    uint32_t number = 0;  ///< 0: free
    std::weak_ptr<base::SharedMemory> memory;
  };
  struct Mapped {
    uint32_t number = 0;
    Memory memory;  ///< null where it can't be had
  };
  struct Peer {
    uint32_t seen = 0;  ///< of its Words::exports
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
  Memory latest_;  ///< arrays of one call often lie in one segment
  size_t latest_slot_ = kExports;
};

}  // namespace mv::intranode
