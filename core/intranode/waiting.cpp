#include "intranode/waiting.hpp"

#include <utility>

namespace mv::intranode {

/// Looking for sleepers takes a full fence, which waits until all writes have reached the caches. A rank therefore
/// continues first while it has work, but only for kSlots blocks, on which another rank could work meanwhile.
void RankContext::publish(std::atomic<uint64_t>& word, uint64_t value) {
  word.store(value, std::memory_order_release);
  owes_ = true;
  if (const uint64_t group = value & ((uint64_t{1} << kGroupBits) - 1); group > 0 && group % kSlots == 0 && plan_.groups > kSlots) settle();
}

/// Wakes the ranks that sleep on this one. The other side of the pattern is sleep().
void RankContext::settle() {
  if (!std::exchange(owes_, false)) return;
  base::full_fence();
  const uint32_t on_us = 1 + static_cast<uint32_t>(rank_);
  const bool any = std::ranges::any_of(regions_, [on_us](const SharedRegion& region) { return region.words().asleep_on.load() == on_us; });
  if (!any) return;
  own().bell.fetch_add(1);
  wake_all(own().bell);
}

/// Why waiting for that rank is useless. A rank that left between operations has left in place what others need for the
/// last one.
base::Status RankContext::trouble(size_t on) const {
  if (is_broken_) return broken();
  if (base::Status status = given_up(); !status.ok()) return status;
  return has_left(on) ? base::error(MV_EPEERLOST, "{} has left the group", names_[on]) : base::Status();
}

base::Status RankContext::given_up() const {
  base::Status found;
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const uint32_t left = words(rank).left.load();
    if (left < kGaveUp || rank == rank_) continue;
    if (names_lost(left))
      return base::error(MV_EPEERLOST, "{} is lost, which broke the group: {} reports it", names_[left - kBecauseOf], names_[rank]);
    found = base::error(MV_EPEERLOST, "{} has given up an operation of the group", names_[rank]);
  }
  return found;
}

}  // namespace mv::intranode
