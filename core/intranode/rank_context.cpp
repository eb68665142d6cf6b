#include "intranode/rank_context.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ranges>
#include <thread>
#include <utility>

#include "base/memory_fence.hpp"
#include "engine/collective/shape.hpp"
#include "intranode/waiting.hpp"

namespace mv::intranode {

using collective::Kind;

namespace {

std::vector<SharedRegion> regions_of(const std::vector<Memory>& memory) {
  std::vector<SharedRegion> regions;
  regions.reserve(memory.size());
  for (const Memory& each : memory) regions.emplace_back(each, memory.size());
  return regions;
}

/// Detects ranks that differ by mistake; no protection against malice.
uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

}  // namespace

RankContext::RankContext(size_t rank, const std::vector<Memory>& memory, std::vector<std::string> names, base::Nanos spin, const Tuning& tuning)
    : rank_(rank), names_(std::move(names)), regions_(regions_of(memory)), segments_(rank, regions_), spin_policy_(memory.size(), spin),
      choices_(memory.size(), tuning), announced_(memory.size()), done_(memory.size()), sources_(memory.size()) {
  own().process.store(getpid());
}

RankContext::Waited RankContext::longest_wait() const {
  const auto longest = std::max_element(waited_.begin(), waited_.end());
  return {static_cast<size_t>(longest - waited_.begin()), *longest};
}

// ------------------------------------------------------------ headers

uint64_t RankContext::signature() const {
  uint64_t hash = mix(static_cast<uint64_t>(what_.kind) << 8 | static_cast<uint64_t>(what_.reduction), what_.root);
  for (const collective::Array& array : what_.out)
    hash = mix(mix(hash, what_.kind == Kind::kAlltoallCounts ? 0 : array.count), static_cast<uint64_t>(array.dtype));
  if (what_.vote != nullptr) return mix(hash, UINT64_MAX);  // no algorithm
  return is_chosen_ ? mix(hash, static_cast<uint64_t>(pick_.algorithm)) : hash;
}

/// The algorithm of an all-reduce whose values may lie beside their header. The ranks that agree on it have chosen alike.
void RankContext::choose_early() {
  pick_ = {};
  const size_t bytes = plan_.inline_bytes();
  const bool has_algorithms = what_.kind == Kind::kAllreduce && what_.vote == nullptr && bytes > kAlwaysInline;
  is_chosen_ = !has_algorithms || SizeClass::is_small(bytes);
  inline_ = bytes <= kInlineBytes;
  if (!has_algorithms || !is_chosen_) return;
  pick_ = choices_.pick(SizeClass(bytes, false, false));
  inline_ = pick_.algorithm == Algorithm::kInline;
  if (!inline_) plan_.take(pick_.algorithm);
}

/// All ranks have agreed on the operation, and know how each other's values lie in memory.
void RankContext::choose_late() {
  if (is_chosen_ && !pick_.timed) return;
  const auto all = [&](auto is) { return std::ranges::all_of(announced_, is); };
  const bool tensors = all([](const Announcement& each) { return each.shown_in && each.shown_out; });
  const bool in_place = !all([](const Announcement& each) { return !each.in_place; });
  const SizeClass of(plan_.inline_bytes(), tensors, in_place);
  if (!is_chosen_) {
    pick_ = choices_.pick(of);
    plan_.take(pick_.algorithm);
  }
  if (!pick_.timed) return;
  pick_.timed = choices_.begin(of, pick_.algorithm);
  agreed_at_ = now();
}

base::Status RankContext::begin(const collective::Operation& operation) {
  if (is_broken_) return broken();
  if (!drains_ && !operation.draining && own().draining.load() == operation_ + 1) return base::Status(MV_ESTATE, collective::kOnlyDraining);
  what_ = operation;
  std::fill(waited_.begin(), waited_.end(), base::Nanos{0});
  slices_.begin_operation();
  doing_.store(operation.kind, std::memory_order_relaxed);
  plan_ = Plan(what_, ranks());
  choose_early();
  phase_ = Phase::kBegun;
  if (!drains_) post();  // otherwise finish() does, once the outcome of the drain is known
  return base::Status();
}

void RankContext::post() {
  const uint64_t number = operation_ + 1;
  const base::Nanos since = pick_.timed ? now() : base::Nanos{0};
  operation_ = number;
  announced_[rank_] = {signature(), what_.root, what_.label, static_cast<uint32_t>(what_.out.size()), what_.kind, what_.reduction, what_.draining,
                       false, false, false, choices_.to_tell(), what_.vote != nullptr && *what_.vote != 0};
  inline_ ? post_values() : find_own_places();
  const size_t shown = std::min(what_.out.size(), kMostArrays);
  Item* const items = regions_[rank_].items(number);
  for (size_t i = 0; i < shown; ++i) {
    const collective::Array& array = what_.out[i];
    const OwnPlaces places = inline_ ? OwnPlaces() : own_places_[i];
    items[i].write({array.count, static_cast<uint32_t>(array.dtype), array.note, places.in, places.out});
  }
  Header& header = regions_[rank_].header(number);
  header.write(announced_[rank_]);
  publish(header.posted, number);
  if (pick_.timed) prepared_ = now() - since;
}

/// Finds which of this rank's values and results the others can read in place.
void RankContext::find_own_places() {
  segments_.look();
  const size_t arrays = what_.out.size();
  own_places_.assign(arrays, {});
  if (arrays > kMostArrays) return;
  Announcement& own = announced_[rank_];
  const bool gives = plan_.from_all && plan_.channels > 0 && !(plan_.channels == 1 && plan_.is_owner(rank_));
  const bool makes = plan_.copied && plan_.is_owner(rank_);
  const auto places = [&](bool wanted, auto place) {
    for (size_t i = 0; i < arrays && wanted; ++i) wanted = what_.out[i].count == 0 || place(i);
    return wanted;
  };
  own.in_place = std::ranges::any_of(std::views::iota(size_t{0}, arrays), [&](size_t i) {
    return what_.out[i].count > 0 && (what_.in.empty() || what_.in[i] == what_.out[i].data);
  });
  own.shown_in = places(gives, [&](size_t i) {
    const size_t bytes = what_.out[i].bytes() * (plan_.sliced_in() ? ranks() : 1);
    const std::byte* const at = what_.in.empty() ? what_.out[i].data : what_.in[i];
    const Location place = segments_.place_of({at, bytes});
    own_places_[i].in = place;
    return place.segment != 0;
  });
  own.shown_out = places(makes, [&](size_t i) {
    const bool same = own.in_place && own_places_[i].in.segment != 0 && (what_.in.empty() || what_.in[i] == what_.out[i].data);
    const Location place = same ? own_places_[i].in : segments_.place_of({what_.out[i].data, what_.out[i].bytes()});
    own_places_[i].out = place;
    return place.segment != 0;
  });
  segments_.settle();
}

void RankContext::post_values() {
  if (what_.kind == Kind::kBroadcast && rank_ != what_.root) return;
  std::byte* const values = regions_[rank_].values(operation_);
  const auto put = [&](size_t channel) {
    std::byte* const to = values + plan_.inline_at(channel);
    plan_.over_channel(channel, [&](const Extent& extent) { std::memcpy(to + extent.block_at, own_in(extent), extent.bytes); });
  };
  if (!plan_.sliced_in()) return put(plan_.channel_of(rank_));
  for (size_t channel = 0; channel < plan_.channels; ++channel) put(channel);
}

// ------------------------------------------------------------ agreeing

base::Status RankContext::finish(base::Nanos deadline) {
  if (phase_ == Phase::kIdle) return base::error(MV_ESTATE, "there is no operation to finish");
  if (drains_) {
    if (base::Status status = settle_drain(deadline); !status.ok()) return over(std::move(status));
    post();
  }
  if (phase_ == Phase::kBegun) {
    if (base::Status status = gather(deadline); !status.ok()) return over(std::move(status));
    phase_ = Phase::kGathered;
    if (base::Status status = agree(); !status.ok()) return over(std::move(status));
    choose_late();
    if (!inline_) {
      if (base::Status status = find_places(); !status.ok()) return over(std::move(status));
    }
  }
  if (inline_) {
    take_inline();
    return over(base::Status());
  }
  return over(work(deadline));
}

/// Ends the operation, unless a signal interrupted it.
base::Status RankContext::over(base::Status status) {
  if (status.code() == MV_EINTR) return status;
  settle();
  phase_ = Phase::kIdle;
  if (status.ok() && pick_.timed) choices_.end(prepared_ + (now() - agreed_at_));
  if (status.ok() && what_.contributors != nullptr) *what_.contributors = contributors_;
  if (status.ok() || status.code() == MV_EDISAGREE) return status;
  break_up(status, cause());
  return status;
}

/// The reason to publish for this rank's end: the rank that is lost or has left, or itself.
uint32_t RankContext::cause() const {
  uint32_t found = kGaveUp;
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const uint32_t left = words(rank).left.load();
    if (rank == rank_ || (left == 0 && !is_heard_to_have_left(rank))) continue;
    if (names_lost(left)) return left;
    found = kBecauseOf + static_cast<uint32_t>(rank);
  }
  return found;
}

base::Status RankContext::gather(base::Nanos deadline) {
  const uint64_t number = operation_;
  for (size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    const auto has_posted = [&] { return posted(peer, number) >= number; };
    base::Status status = wait(peer, deadline, has_posted);
    if (!status.ok() && status.code() != MV_ETIMEOUT) return status;
    if (status.ok()) continue;
    std::string late;
    for (size_t other = 0; other < ranks(); ++other) {
      if (other != rank_ && posted(other, number) < number) late += (late.empty() ? "" : ", ") + names_[other];
    }
    return base::error(MV_ETIMEOUT, "{}: the deadline passed; this rank waits for {}", collective::kind_name(what_.kind), late);
  }
  if (base::Status status = given_up(); !status.ok()) return status;
  contributors_ = 0;
  for (size_t rank = 0; rank < ranks(); ++rank) {
    if (rank != rank_) announced_[rank] = regions_[rank].header(number).read();
    contributors_ += announced_[rank].draining ? 0 : 1;
  }
  if (what_.vote != nullptr) *what_.vote = std::ranges::all_of(announced_, [](const Announcement& each) { return each.vote; }) ? 1 : 0;
  if (choices_.expects_times()) {
    uint32_t longest = 0;
    for (const Announcement& each : announced_) longest = std::max(longest, each.took == 0 ? collective::Trial::kLongest : each.took);
    choices_.heard(longest);
  }
  return base::Status();
}

base::Status RankContext::agree() const {
  const auto disagree = [&](size_t a, size_t b, const char* more) {
    return base::error(MV_EDISAGREE, "operation {} of the group: {} calls {}, {} calls {}{}", operation_.load(),
                       names_[a], describe(a), names_[b], describe(b), more);
  };
  for (size_t peer = 1; peer < ranks(); ++peer)
    if (announced_[peer].signature != announced_[0].signature) return disagree(0, peer, "");
  size_t labelled = 0;
  while (labelled + 1 < ranks() && announced_[labelled].label == 0) ++labelled;
  for (size_t peer = labelled + 1; peer < ranks(); ++peer)
    if (!collective::labels_fit(announced_[labelled].label, announced_[peer].label)) return disagree(labelled, peer, collective::kOtherLabel);
  return {};
}

/// Formats like collective::describe().
std::string RankContext::describe(size_t rank) const {
  constexpr size_t kShown = 4;
  const Announcement& header = announced_[rank];
  std::string text = collective::kind_name(header.kind);
  const bool reduces = header.kind == Kind::kAllreduce || header.kind == Kind::kReduce || header.kind == Kind::kReduceScatter;
  if (reduces) text += fmt::format(" ({})", math::reduction_name(header.reduction));
  const size_t arrays = header.kind == Kind::kGrow ? 0 : std::min<size_t>(header.arrays, kMostArrays);
  for (size_t i = 0; i < std::min(arrays, kShown); ++i) {
    const Described array = described(rank, i);
    const std::string count = header.kind == Kind::kAlltoallCounts ? "" : fmt::format("{} ", array.count);
    text += fmt::format("{}{}{}", i == 0 ? " of " : ", ", count, tensor::dtype_name(static_cast<mv_dtype>(array.dtype)));
  }
  if (arrays > kShown) text += fmt::format(" and {} more", arrays - kShown);
  if (collective::is_to_root(header.kind)) text += fmt::format(" to rank {}", header.root);
  if (collective::is_from_root(header.kind)) text += fmt::format(" from rank {}", header.root);
  return text;
}

/// Finds the values and results of the other ranks that are read in place.
base::Status RankContext::find_places() {
  const size_t arrays = what_.out.size();
  in_.assign(ranks() * arrays, nullptr);
  out_.assign(ranks() * arrays, nullptr);
  copied_.assign(plan_.channels, 0);
  done_.assign(ranks(), {});
  staged_ = merged_ = 0;
  if (plan_.by_all) {
    ring_first_ = (ring_at_ + plan_.block_bytes() - 1) / plan_.block_bytes() % ring_blocks();
    ring_at_ = (ring_first_ + plan_.groups) % ring_blocks() * plan_.block_bytes();
  }
  for (size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    const bool direct_in = is_direct_in(peer), direct_out = is_direct_out(peer);
    if ((direct_in || direct_out) && arrays > kMostArrays)
      return base::error(MV_EPROTOCOL, "{} describes more arrays than there is room for", names_[peer]);
    for (size_t i = 0; i < arrays && (direct_in || direct_out); ++i) {
      const size_t bytes = what_.out[i].bytes();
      if (bytes == 0) continue;
      const size_t in_bytes = bytes * (plan_.sliced_in() ? ranks() : 1);
      const std::byte*& in = in_[peer * arrays + i];
      const std::byte*& out = out_[peer * arrays + i];
      const Described array = described(peer, i);
      if (direct_in) in = segments_.find(peer, array.in, in_bytes);
      if (direct_out) out = segments_.find(peer, array.out, bytes);
      if ((direct_in && in == nullptr) || (direct_out && out == nullptr))
        return base::error(MV_EPROTOCOL, "{} refers to memory that it does not share", names_[peer]);
    }
  }
  return base::Status();
}

// ------------------------------------------------------------ draining

base::Result<collective::Shape> RankContext::drain(base::Nanos deadline) {
  if (is_broken_) return broken();
  const uint64_t number = operation_ + 1;
  doing_.store(Kind::kDrain, std::memory_order_relaxed);
  if (!std::exchange(drains_, true)) publish(own().draining, number);
  if (base::Status status = settle_drain(deadline); !status.ok()) {
    if (status.code() != MV_EINTR && status.code() != MV_ETIMEOUT) break_up(status, cause());
    return status;
  }
  collective::Shape nothing;
  nothing.finished = operation_ == number;
  if (nothing.finished) return nothing;
  size_t peer = 0;
  while (peer < ranks() && posted(peer, number) != number) ++peer;
  const Announcement theirs = peer < ranks() ? regions_[peer].header(number).read() : Announcement();
  if (peer < ranks() && theirs.kind != Kind::kAllreduce && theirs.kind != Kind::kCustom) return refuse_to_drain(deadline);
  auto shape = peer < ranks() ? shape_of(peer, theirs) : base::error(MV_EPROTOCOL, "draining: the operation that a rank had begun is gone");
  if (!shape.ok()) break_up(shape.status(), kGaveUp);
  return shape;
}

/// The shape of the next operation, as described by a rank that has begun it.
base::Result<collective::Shape> RankContext::shape_of(size_t rank, const Announcement& theirs) const {
  if (theirs.arrays > kMostArrays)
    return base::error(MV_EINVAL, "draining: the others reduce {} arrays together, but shared memory describes {} at most", theirs.arrays,
                       kMostArrays);
  collective::Shape shape;
  shape.reduction = theirs.reduction;
  shape.custom = theirs.kind == Kind::kCustom;
  for (size_t i = 0; i < theirs.arrays; ++i) {
    const Described array = regions_[rank].items(operation_ + 1)[i].read();
    const auto note = static_cast<uint8_t>(std::min<uint32_t>(array.note, UINT8_MAX));
    shape.arrays.push_back({nullptr, array.count, static_cast<mv_dtype>(array.dtype), note});
  }
  if (base::Status wrong = collective::check_shape(shape); !wrong.ok()) return wrong;
  return shape;
}

/// Ranks can drain at an allreduce or a custom operation only. Posts a kDrain instead of the other kind: all ranks get
/// MV_EDISAGREE, and the number is spent on all of them.
base::Status RankContext::refuse_to_drain(base::Nanos deadline) {
  collective::Operation drain;
  drain.kind = Kind::kDrain;
  drain.draining = true;
  base::Status status = begin(drain);
  while (phase_ != Phase::kIdle) status = finish(deadline);  // the others have begun: signals are delayed only briefly
  return status;
}

/// Waits until every rank has begun the next operation, or drains at it like this one. If all drain, its number is
/// spent. A rank that has announced that it drains begins nothing before this is known, so all ranks see the same
/// outcome.
base::Status RankContext::settle_drain(base::Nanos deadline) {
  const uint64_t number = operation_ + 1;
  for (size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    const auto has_decided = [&] { return posted(peer, number) >= number || words(peer).draining.load() >= number; };
    base::Status status = wait(peer, deadline, has_decided);
    if (status.code() == MV_ETIMEOUT) return base::error(MV_ETIMEOUT, "draining: the deadline passed; this rank waits for {}", names_[peer]);
    if (!status.ok()) return status;
  }
  // A rank that is further ahead has already seen all ranks drain.
  const auto has_begun = [&](size_t peer) { return posted(peer, number) == number; };
  bool any = false;
  for (size_t peer = 0; peer < ranks(); ++peer) any |= has_begun(peer);
  if (!any) operation_ = number;
  drains_ = false;
  settle();
  return base::Status();
}

// ------------------------------------------------------------ ends

void RankContext::lose(size_t rank, const base::Status& why) {
  break_up(base::error(MV_EPEERLOST, "{} is lost, which broke the group: {}", names_[rank], why.text()), kBecauseOf + static_cast<uint32_t>(rank));
  wake_own();
}

void RankContext::give_up(const base::Status& why) {
  break_up(why, kGaveUp);
  wake_own();
}

/// Wakes this rank's own thread, which sleeps on another rank's bell. That bell can't be changed here, so the kernel
/// does not notice a wake-up between the thread's last check and its sleep. Repeats the wake-up until the thread
/// reports that it is awake.
void RankContext::wake_own() const {
  base::full_fence();  // between the end of the group and the load of asleep_on; see sleep()
  wake_sleeper(rank_);
}

void RankContext::wake_sleeper(size_t rank) const {
  constexpr base::Nanos kMost = std::chrono::milliseconds(10);  // a stopped or broken rank may claim forever that it sleeps
  for (const base::Nanos until = now() + kMost; now() < until;) {
    const uint32_t on = words(rank).asleep_on.load();
    if (on == 0 || on > ranks()) return;
    wake_all(words(on - 1).bell);
    std::this_thread::yield();
  }
}

void RankContext::end(const base::Status& why) {
  static_cast<void>(note_broken(why));
  wake_own();
}

void RankContext::hear_left(size_t rank) {
  static_assert(kMostRanks <= 64);
  heard_left_.fetch_or(uint64_t{1} << rank);
  wake_own();
}

/// Keeps the first reason.
bool RankContext::note_broken(const base::Status& why) {
  std::lock_guard lock(mutex_);
  if (!why_broken_.ok()) return false;
  why_broken_.assign(why);
  is_broken_.store(true);
  return true;
}

void RankContext::break_up(const base::Status& why, uint32_t as) {
  if (note_broken(why)) say_left(as);
}

void RankContext::leave() noexcept { break_up(why_left_, kLeft); }

void RankContext::say_left(uint32_t as) {
  own().left.store(as);
  own().bell.fetch_add(1);
  wake_all(own().bell);
  if (as == kLeft) return;  // a rank that waits for another one does not need this one
  base::full_fence();
  for (size_t rank = 0; rank < ranks(); ++rank)
    if (rank != rank_) wake_sleeper(rank);
}

RankContext::Sleep RankContext::asleep() const {
  Sleep sleep;
  sleep.kind = doing_.load(std::memory_order_relaxed);
  sleep.on = static_cast<int32_t>(own().asleep_on.load()) - 1;
  sleep.since = base::Nanos(asleep_since_.load(std::memory_order_relaxed));
  const uint64_t number = operation_ + (sleep.kind == Kind::kDrain ? 1 : 0);
  if (sleep.on >= 0) sleep.has_come = posted(static_cast<size_t>(sleep.on), number) >= number;
  return sleep;
}

base::Status RankContext::broken() const {
  std::lock_guard lock(mutex_);
  return why_broken_;
}

}  // namespace mv::intranode
