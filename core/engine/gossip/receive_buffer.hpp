#pragma once
// A peer's snapshot as it comes, piece by piece, in any order; checked before it is used.

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.hpp"
#include "engine/gossip/snapshot.hpp"

namespace mv::gossip {

class ReceiveBuffer {
 public:
  /// Room for a version with this description, if its arrays fit those of `own`, or both are bytes of whatever length.
  /// MV_ESHAPE, MV_EPROTOCOL, MV_ENONFINITE, MV_ENOMEM: nothing was begun.
  base::Status begin(Description description, std::span<const ArraySpec> own);
  const Description& description() const { return description_; }

  /// Where bytes first .. first + count - 1 go.
  std::span<std::byte> room(uint64_t first, uint64_t count) { return {memory_.data() + first, count}; }
  /// MV_ENONFINITE: NaN or infinity is among these.
  base::Status check(uint64_t first, uint64_t count) const;
  /// Puts them there from a version's memory, gaps between its arrays left out, and checks them meanwhile.
  base::Status copy(uint64_t first, uint64_t count, const std::byte* from);
  /// So many more are there, and checked.
  void arrived(uint64_t count) { arrived_ += count; }
  bool whole() const { return arrived_ == description_.bytes; }

  /// The values of a part, by its number.
  std::span<const std::byte> part(size_t number) const { return {memory_.data() + starts_[number], description_.parts[number].bytes()}; }

 private:
  template <typename Work>
  base::Status each_part(uint64_t first, uint64_t count, const Work& is_finite) const;

  Description description_;
  std::vector<uint64_t> starts_;
  base::Memory memory_;  ///< kept from one version to the next
  uint64_t arrived_ = 0;
};

}  // namespace mv::gossip
