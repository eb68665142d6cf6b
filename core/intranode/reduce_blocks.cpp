#include <algorithm>
#include <cstring>

#include "intranode/waiting.hpp"
#include "math/copy.hpp"
#include "math/reduction.hpp"

namespace mv::intranode {

using collective::Kind;

namespace {

/// Results that are written to two places are made in pieces of this size: the second copy is made while the first is
/// in the nearest cache, which has 32 KiB or more on every processor that the library is built for. So it needs no trial.
constexpr size_t kTwiceAtOnce = size_t{16} << 10;

}  // namespace

const std::byte* RankContext::own_in(const Extent& extent) const {
  const std::byte* const in = what_.in.empty() ? nullptr : what_.in[extent.array];
  return in != nullptr ? in + extent.in_at : own_out(extent);  // an allgather gives only its own channel
}

/// The groups of blocks of this operation for which a rank has reported a step: the highest number so far. A word that
/// goes back, which happens on a broken rank only, must not undo earlier progress: this rank would look for work forever,
/// without a deadline.
uint64_t RankContext::done(size_t rank, Step step) {
  const Words& theirs = words(rank);
  const std::atomic<uint64_t>& word = step == Step::kStaged ? theirs.staged : step == Step::kMerged ? theirs.merged : theirs.copied;
  const uint64_t value = word.load(std::memory_order_acquire);
  const uint64_t number = value >> kGroupBits;
  const uint64_t groups = number == operation_ ? value & ((uint64_t{1} << kGroupBits) - 1) : number < operation_ ? 0 : plan_.groups;
  uint64_t& most = done_[rank][static_cast<size_t>(step)];
  return most = std::max(most, groups);
}

// ------------------------------------------------------------ small values

void RankContext::take_inline() {
  for (size_t channel = 0; channel < plan_.whole_channels(); ++channel) {
    if (!plan_.copied && plan_.owner(channel) != rank_) continue;
    const size_t at = plan_.inline_at(channel);
    plan_.over_channel(channel, [&](const Extent& extent) {
      const auto theirs = [&](size_t rank) { return regions_[rank].values(operation_) + at + extent.block_at; };
      if (!plan_.from_all) return void(std::memcpy(own_out(extent), theirs(plan_.owner(channel)), extent.bytes));
      for (size_t rank = 0; rank < ranks(); ++rank) sources_[rank] = theirs(rank);
      merge(extent, own_out(extent));
    });
  }
}

// ------------------------------------------------------------ large ones

template <typename Some>
bool RankContext::measured(base::TracePart part, const Some& some) {
  const bool any = some();
  if (any && slices_.wants_steps()) slices_.step(part, now());
  return any;
}

/// Does the steps nearest to the end first: another rank then reads from a cache what one has just written, and slots
/// become free again. If no step is possible, sleeps on what the least of its unfinished steps needs. In the order
/// (group; staged, merged, copied), every step needs lesser steps only. The rank with the least step of all can
/// therefore do it, and the group can't deadlock.
base::Status RankContext::work(base::Nanos deadline) {
  if (slices_.wants_steps()) slices_.begin_steps(now());
  while (true) {
    bool any = measured(base::TracePart::kCopyOut, [this] { return copy_some(); });
    any |= measured(base::TracePart::kReduce, [this] { return merge_some(); });
    any |= measured(base::TracePart::kCopyIn, [this] { return stage_some(); });
    if (any) continue;
    const std::optional<Need> need = next_need();
    if (!need) break;
    const auto is_met = [&] { return !is_unmet(*need); };
    base::Status status = wait(need->on, deadline, is_met);
    if (status.code() == MV_ETIMEOUT)
      return base::error(MV_ETIMEOUT, "{}: the deadline passed; this rank waits for {}", collective::kind_name(what_.kind), names_[need->on]);
    if (!status.ok()) return status;
  }
  return given_up();  // a rank that gave up may have changed what others read in place
}

uint64_t RankContext::copied() const {
  uint64_t least = plan_.groups;
  for (size_t channel = 0; channel < plan_.channels; ++channel)
    if (plan_.owner(channel) != rank_) least = std::min(least, copied_[channel]);
  return least;
}

/// The rank with the least progress in this step among those that matter; `groups` is what is needed of it.
template <typename Matters>
std::optional<RankContext::Need> RankContext::slowest(Step step, uint64_t groups, Matters matters) {
  std::optional<Need> found;
  uint64_t least = 0;
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (rank == rank_ || !matters(rank)) continue;
    const uint64_t there = done(rank, step);
    if (found && there >= least) continue;
    found = Need{rank, step, groups, there >= groups};
    least = there;
  }
  return found;
}

bool RankContext::copy_some() {
  if (!plan_.copied) return false;
  const uint64_t before = copied();
  bool any = false;
  for (size_t channel = 0; channel < plan_.channels; ++channel) {
    const size_t owner = plan_.owner(channel);
    if (owner == rank_ || copied_[channel] == plan_.groups || done(owner, Step::kMerged) <= copied_[channel]) continue;
    copy_block(channel, copied_[channel]++);
    any = true;
  }
  if (const uint64_t after = copied(); after != before) publish(own().copied, progress(operation_, after));
  return any;
}

void RankContext::copy_block(size_t channel, uint64_t group) {
  const size_t owner = plan_.owner(channel);
  const bool direct = is_direct_out(owner);
  const std::byte* const results = regions_[owner].results(group);
  plan_.over_block(channel, group, [&](const Extent& extent) {
    const std::byte* const from = direct ? out_[owner * what_.out.size() + extent.array] + extent.out_at : results + extent.block_at;
    std::memcpy(own_out(extent), from, extent.bytes);
  });
}

bool RankContext::merge_some() {
  if (!plan_.is_owner(rank_) || merged_ == plan_.groups) return false;
  if (plan_.by_all && stages() && staged_ == merged_) return false;  // in place it would overwrite values that are not staged yet
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (rank == rank_) continue;
    if (plan_.from_all && !is_direct_in(rank) && done(rank, Step::kStaged) <= merged_) return false;
    if (plan_.copied && !is_direct_out(rank_) && merged_ >= kSlots && done(rank, Step::kCopied) + kSlots <= merged_) return false;
  }
  merge_block(merged_++);
  publish(own().merged, progress(operation_, merged_));
  return true;
}

void RankContext::merge_block(uint64_t group) {
  const size_t channel = plan_.channel_of(rank_);
  const bool twice = plan_.copied && !is_direct_out(rank_);
  std::byte* const results = regions_[rank_].results(group);
  plan_.over_block(channel, group, [&](Extent extent) {
    const size_t all = extent.bytes;
    const size_t step = twice ? kTwiceAtOnce : all;
    for (size_t at = 0; at < all; at += step) {
      extent.bytes = std::min(step, all - at);
      merge_extent(extent, group);
      if (twice) std::memcpy(results + extent.block_at, own_out(extent), extent.bytes);
      extent.in_at += extent.bytes;
      extent.out_at += extent.bytes;
      extent.block_at += extent.bytes;
    }
  });
}

void RankContext::merge_extent(const Extent& extent, uint64_t group) {
  if (!plan_.from_all) {
    if (own_in(extent) != own_out(extent)) std::memcpy(own_out(extent), own_in(extent), extent.bytes);
    return;
  }
  const size_t channel = plan_.channel_of(rank_);
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const bool direct = rank == rank_ || is_direct_in(rank);
    const std::byte* const theirs = direct && rank != rank_ ? in_[rank * what_.out.size() + extent.array] + extent.in_at : own_in(extent);
    sources_[rank] = direct ? theirs : staging(rank, channel, group) + extent.block_at;
  }
  merge(extent, own_out(extent));
}

void RankContext::merge(const Extent& extent, std::byte* to) {
  const mv_dtype dtype = what_.out[extent.array].dtype;
  math::merge_bytes(what_.reduction, dtype, to, {sources_.data(), ranks()}, extent.bytes / tensor::dtype_bytes(dtype),
                    std::max<uint64_t>(contributors_, 1));
}

bool RankContext::stage_some() {
  if (!stages() || staged_ == plan_.groups) return false;
  if (staged_ >= kSlots) {
    for (size_t rank = 0; rank < ranks(); ++rank)
      if (rank != rank_ && plan_.is_owner(rank) && done(rank, Step::kMerged) + kSlots <= staged_) return false;
  }
  for (size_t channel = 0; channel < plan_.channels; ++channel) {
    if (plan_.owner(channel) != rank_) stage_block(channel, staged_);
  }
  ++staged_;
  publish(own().staged, progress(operation_, staged_));
  return true;
}

/// Only with two ranks is it known that exactly one other rank reads the block; `distance_` is for that case.
void RankContext::stage_block(size_t channel, uint64_t group) {
  std::byte* const to = staging(rank_, channel, group);
  const auto copy = [&](auto how) {
    plan_.over_block(channel, group, [&](const Extent& extent) { how(to + extent.block_at, own_in(extent), extent.bytes); });
  };
  const auto by_caches = [](std::byte* dst, const std::byte* src, size_t bytes) { std::memcpy(dst, src, bytes); };
  if (!plan_.by_all) return copy(by_caches);
  const bool past_caches = distance_.past_caches();
  const base::Nanos begun = distance_.timed() ? now() : base::Nanos{0};
  past_caches ? copy(math::stream_bytes) : copy(by_caches);
  if (distance_.timed()) distance_.took(plan_.block_bytes(), now() - begun);
}

std::byte* RankContext::staging(size_t rank, size_t channel, uint64_t group) const {
  if (plan_.by_all) return regions_[rank].ring() + (ring_first_ + group) % ring_blocks() * plan_.block_bytes();
  return regions_[rank].staging(group, channel);
}

/// The next step to wait for, after none was possible; none if this rank is done.
std::optional<RankContext::Need> RankContext::next_need() {
  const bool may_stage = stages() && staged_ < plan_.groups;
  const bool may_merge = plan_.is_owner(rank_) && merged_ < plan_.groups;
  const uint64_t least_copied = plan_.copied ? copied() : plan_.groups;
  const auto owners = [&](size_t rank) { return plan_.is_owner(rank); };
  const auto everybody = [](size_t) { return true; };
  if (may_stage && (!may_merge || staged_ <= merged_) && staged_ <= least_copied)
    return slowest(Step::kMerged, staged_ - kSlots + 1, owners);
  if (may_merge && merged_ <= least_copied) {
    std::optional<Need> need;
    if (plan_.from_all) need = slowest(Step::kStaged, merged_ + 1, [&](size_t rank) { return !is_direct_in(rank); });
    if (need && !need->was_met) return need;
    // Same as in merge_some(): results that go to one rank only, or are read in place, are not copied. Missing blocks
    // may have arrived since.
    const bool by_slots = plan_.copied && !is_direct_out(rank_) && merged_ >= kSlots;
    return by_slots ? slowest(Step::kCopied, merged_ - kSlots + 1, everybody) : need;
  }
  if (least_copied < plan_.groups) {
    for (size_t channel = 0; channel < plan_.channels; ++channel) {
      const size_t owner = plan_.owner(channel);
      if (owner != rank_ && copied_[channel] == least_copied) return Need{owner, Step::kMerged, least_copied + 1, false};
    }
  }
  // This rank's part is done. Its memory is needed until the other ranks are done as well, if they read it in place.
  if (plan_.from_all && is_direct_in(rank_)) {
    const auto need = slowest(Step::kMerged, plan_.groups, owners);
    if (need && !need->was_met) return need;
  }
  if (plan_.copied && plan_.is_owner(rank_) && is_direct_out(rank_)) {
    const auto need = slowest(Step::kCopied, plan_.groups, everybody);
    if (need && !need->was_met) return need;
  }
  return std::nullopt;
}

}  // namespace mv::intranode
