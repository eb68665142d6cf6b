#include <algorithm>
#include <cstring>

#include "intranode/waiting.hpp"
#include "math/merge.hpp"
#include "math/stream.hpp"

namespace mv::intranode {

using collective::Kind;

namespace {

/// What is written to two places: the second copy is made while the first is in the nearest cache.
constexpr size_t kTwiceAtOnce = size_t{16} << 10;

}  // namespace

const std::byte* RankContext::own_in(const Piece& piece) const {
  const std::byte* const in = what_.in.empty() ? nullptr : what_.in[piece.array];
  return in != nullptr ? in + piece.in_at : own_out(piece);  // of an allgather in its own lane, the only one it gives
}

/// The groups of blocks of this operation for which a rank says that it has done a step: the most that it ever said. A word that goes back,
/// which only a broken rank's does, must not undo what was seen: this rank would look for something to do for ever, without a deadline.
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
  for (size_t lane = 0; lane < plan_.whole_lanes(); ++lane) {
    if (!plan_.copied && plan_.owner(lane) != rank_) continue;
    const size_t at = plan_.inline_at(lane);
    plan_.over_lane(lane, [&](const Piece& piece) {
      const auto theirs = [&](size_t rank) { return regions_[rank].values(operation_) + at + piece.block_at; };
      if (!plan_.from_all) return void(std::memcpy(own_out(piece), theirs(plan_.owner(lane)), piece.bytes));
      for (size_t rank = 0; rank < ranks(); ++rank) sources_[rank] = theirs(rank);
      merge(piece, own_out(piece));
    });
  }
}

// ------------------------------------------------------------ large ones

/// What is nearest to the end goes first: so that what one rank has just written, another reads from a cache, and slots are free
/// again. Where nothing can be done it sleeps on what the least of its unfinished steps needs. In the order of (group; staged,
/// merged, copied) every step needs lesser ones only; so whoever has the least of all can do it, and nobody sleeps for ever.
base::Status RankContext::work(base::Nanos deadline) {
  while (true) {
    bool any = copy_some();
    any |= merge_some();
    any |= stage_some();
    if (any) continue;
    const std::optional<Need> need = next_need();
    if (!need) break;
    const auto is_met = [&] { return !is_unmet(*need); };
    base::Status status = wait(need->on, deadline, is_met);
    if (status.code() == MV_ETIMEOUT)
      return base::error(MV_ETIMEOUT, "{}: the deadline passed; it waits for {}", collective::kind_name(what_.kind), names_[need->on]);
    if (!status.ok()) return status;
  }
  return given_up();  // who has may have changed what others read where it lies
}

uint64_t RankContext::copied() const {
  uint64_t least = plan_.groups;
  for (size_t lane = 0; lane < plan_.lanes; ++lane)
    if (plan_.owner(lane) != rank_) least = std::min(least, copied_[lane]);
  return least;
}

/// The rank that is furthest behind `groups` among those that matter, or anyone of them.
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
  for (size_t lane = 0; lane < plan_.lanes; ++lane) {
    const size_t owner = plan_.owner(lane);
    if (owner == rank_ || copied_[lane] == plan_.groups || done(owner, Step::kMerged) <= copied_[lane]) continue;
    copy_block(lane, copied_[lane]++);
    any = true;
  }
  if (const uint64_t after = copied(); after != before) publish(own().copied, progress(operation_, after));
  return any;
}

void RankContext::copy_block(size_t lane, uint64_t group) {
  const size_t owner = plan_.owner(lane);
  const bool direct = is_direct_out(owner);
  const std::byte* const results = regions_[owner].results(group);
  plan_.over_block(lane, group, [&](const Piece& piece) {
    const std::byte* const from = direct ? out_[owner * what_.out.size() + piece.array] + piece.out_at : results + piece.block_at;
    std::memcpy(own_out(piece), from, piece.bytes);
  });
}

bool RankContext::merge_some() {
  if (!plan_.is_owner(rank_) || merged_ == plan_.groups) return false;
  if (plan_.by_all && stages() && staged_ == merged_) return false;  // in place it writes over what is to be staged
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
  const size_t lane = plan_.lane_of(rank_);
  const bool twice = plan_.copied && !is_direct_out(rank_);
  std::byte* const results = regions_[rank_].results(group);
  plan_.over_block(lane, group, [&](Piece piece) {
    const size_t all = piece.bytes;
    const size_t step = twice ? kTwiceAtOnce : all;
    for (size_t at = 0; at < all; at += step) {
      piece.bytes = std::min(step, all - at);
      merge_piece(piece, group);
      if (twice) std::memcpy(results + piece.block_at, own_out(piece), piece.bytes);
      piece.in_at += piece.bytes;
      piece.out_at += piece.bytes;
      piece.block_at += piece.bytes;
    }
  });
}

void RankContext::merge_piece(const Piece& piece, uint64_t group) {
  if (!plan_.from_all) {
    if (own_in(piece) != own_out(piece)) std::memcpy(own_out(piece), own_in(piece), piece.bytes);
    return;
  }
  const size_t lane = plan_.lane_of(rank_);
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const bool direct = rank == rank_ || is_direct_in(rank);
    const std::byte* const theirs = direct && rank != rank_ ? in_[rank * what_.out.size() + piece.array] + piece.in_at : own_in(piece);
    sources_[rank] = direct ? theirs : staging(rank, lane, group) + piece.block_at;
  }
  merge(piece, own_out(piece));
}

void RankContext::merge(const Piece& piece, std::byte* to) {
  const mv_dtype dtype = what_.out[piece.array].dtype;
  math::merge_bytes(what_.reduction, dtype, to, sources_.data(), ranks(), piece.bytes / tensor::dtype_bytes(dtype),
                    std::max<uint64_t>(contributors_, 1));
}

bool RankContext::stage_some() {
  if (!stages() || staged_ == plan_.groups) return false;
  if (staged_ >= kSlots) {
    for (size_t rank = 0; rank < ranks(); ++rank)
      if (rank != rank_ && plan_.is_owner(rank) && done(rank, Step::kMerged) + kSlots <= staged_) return false;
  }
  for (size_t lane = 0; lane < plan_.lanes; ++lane) {
    if (plan_.owner(lane) != rank_) stage_block(lane, staged_);
  }
  ++staged_;
  publish(own().staged, progress(operation_, staged_));
  return true;
}

/// Only of two ranks it is known that the other one reads it, and nobody else.
void RankContext::stage_block(size_t lane, uint64_t group) {
  std::byte* const to = staging(rank_, lane, group);
  const auto copy = [&](auto how) {
    plan_.over_block(lane, group, [&](const Piece& piece) { how(to + piece.block_at, own_in(piece), piece.bytes); });
  };
  const auto by_caches = [](std::byte* dst, const std::byte* src, size_t bytes) { std::memcpy(dst, src, bytes); };
  if (!plan_.by_all) return copy(by_caches);
  const bool past_caches = distance_.past_caches();
  const base::Nanos begun = distance_.timed() ? now() : base::Nanos{0};
  past_caches ? copy(math::stream_bytes) : copy(by_caches);
  if (distance_.timed()) distance_.took(plan_.block_bytes(), now() - begun);
}

std::byte* RankContext::staging(size_t rank, size_t lane, uint64_t group) const {
  if (plan_.by_all) return regions_[rank].ring() + (ring_first_ + group) % ring_blocks() * plan_.block_bytes();
  return regions_[rank].staging(group, lane);
}

/// After nothing could be done.
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
    // As merge_some(): nobody copies what goes to one rank only, or lies where it is read. What was missing may have come since.
    const bool by_slots = plan_.copied && !is_direct_out(rank_) && merged_ >= kSlots;
    return by_slots ? slowest(Step::kCopied, merged_ - kSlots + 1, everybody) : need;
  }
  if (least_copied < plan_.groups) {
    for (size_t lane = 0; lane < plan_.lanes; ++lane) {
      const size_t owner = plan_.owner(lane);
      if (owner != rank_ && copied_[lane] == least_copied) return Need{owner, Step::kMerged, least_copied + 1, false};
    }
  }
  // This rank's part is done. Its memory is needed until the others' parts are, where they read it directly.
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
