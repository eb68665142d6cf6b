#pragma once
// A peer's snapshot as it comes, piece by piece, in any order; checked before it is used.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/gossip/snapshot.hpp"

namespace mv::gossip {

class Intake {
 public:
  /// Room for a version with this description, if its arrays fit those of `own`, or both are bytes of whatever length.
  /// MV_ESHAPE, MV_EPROTOCOL, MV_ENONFINITE, MV_ENOMEM: nothing was begun.
  base::Status begin(Description description, std::span<const Part> own);
  const Description& description() const { return description_; }

  /// Where bytes first .. first + count - 1 go.
  std::span<std::byte> room(uint64_t first, uint64_t count) { return {memory_.get() + first, count}; }
  /// MV_ENONFINITE: NaN or infinity is among these.
  base::Status check(uint64_t first, uint64_t count) const;
  /// They are there, and are checked.
  base::Status arrived(uint64_t first, uint64_t count);
  bool whole() const { return arrived_ == description_.bytes; }

  /// The values of a part, by its number.
  std::span<const std::byte> part(size_t number) const { return {memory_.get() + starts_[number], description_.parts[number].bytes()}; }

 private:
  Description description_;
  std::vector<uint64_t> starts_;
  std::unique_ptr<std::byte[]> memory_;  ///< kept from one version to the next
  uint64_t capacity_ = 0;
  uint64_t arrived_ = 0;
};

}  // namespace mv::gossip
