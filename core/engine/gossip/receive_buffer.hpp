#pragma once
// The buffer that receives a peer's snapshot, piece by piece, in any order. Values are checked before they are used.

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "engine/gossip/snapshot.hpp"

namespace mv::gossip {

class ReceiveBuffer {
 public:
  /// Makes room for a version with this description. Its arrays must fit those of `own`, or both must be bytes, of any
  /// lengths. MV_ESHAPE, MV_EPROTOCOL, MV_ENONFINITE, MV_ENOMEM: nothing was begun.
  base::Status begin(Description description, std::span<const ArraySpec> own);
  const Description& description() const { return description_; }

  /// Where bytes first .. first + count - 1 go.
  std::span<std::byte> room(uint64_t first, uint64_t count) { return {memory_.data() + first, count}; }
  /// MV_ENONFINITE if NaN or infinity is among these bytes.
  base::Status check(uint64_t first, uint64_t count) const;
  /// Copies these bytes from a version's memory, without the gaps between its arrays, and checks them in the same pass.
  base::Status copy(uint64_t first, uint64_t count, const std::byte* from);
  /// Notes that `count` more bytes have arrived and were checked.
  void arrived(uint64_t count) { arrived_ += count; }
  bool whole() const { return arrived_ == description_.bytes; }

  /// The values of a part, by its number.
  std::span<const std::byte> part(size_t number) const { return {memory_.data() + starts_[number], description_.parts[number].bytes()}; }

 private:
  template <typename Work>
  base::Status each_part(uint64_t first, uint64_t count, const Work& is_finite) const;

  Description description_;
  std::vector<uint64_t> starts_;
  base::Memory memory_;  ///< reused for the next version
  uint64_t arrived_ = 0;
};

}  // namespace mv::gossip
