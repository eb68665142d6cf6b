#pragma once
// One rank's part of a group whose ranks all share memory. Operations run on the caller's own thread, over the memory
// of all ranks.
//
// An operation takes three hand-offs at most. First, every rank posts a header, and waits for the headers of all ranks.
// The headers show whether the ranks agree, which ranks contribute, and where the values lie. Second, each rank makes
// its blocks of the result directly from the values of all ranks, in the order of the ranks, so that the bits depend on
// nothing else. Third, each rank copies the blocks of the other owners. Two ranks may both compute the whole result and
// skip the third step. Small values lie beside their header, and need one hand-off only. Private memory goes through
// staging, block by block, so that copying in, reducing and copying out follow each other within the caches. An
// all-reduce measures which of these algorithms is fastest: see choices.hpp.
//
// No rank writes another's memory. A rank that stops or dies at any moment leaves its shared memory as it was. A rank
// that writes garbage into its own memory makes the others fail or gives them wrong values, and does no other harm: see
// shared_region.hpp.

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "intranode/choices.hpp"
#include "intranode/distance.hpp"
#include "intranode/plan.hpp"
#include "intranode/segments.hpp"
#include "intranode/shared_region.hpp"
#include "intranode/slices.hpp"
#include "intranode/spin_policy.hpp"

namespace mv::intranode {

/// The steps of each group of blocks. Each rank publishes its progress in them.
enum class Step : uint8_t { kStaged, kMerged, kCopied };
inline constexpr size_t kSteps = 3;

class RankContext {
 public:
  /// @param memory  by rank, each of SharedRegion::bytes() and initially zero; this rank's own is writable. At most
  ///                kMostRanks
  /// @param names   by rank, for messages
  /// @param spin    the longest time for which a wait spins before it sleeps
  /// @param tuning  the same on all ranks
  RankContext(size_t rank, const std::vector<Memory>& memory, std::vector<std::string> names, base::Nanos spin = std::chrono::microseconds(50),
              const Tuning& tuning = {});
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  // One thread at a time.

  /// Borrows what `operation` points to until finish() returns something other than MV_EINTR. After an error nothing
  /// has begun. An operation whose values go by messages
  /// (collective::is_by_messages()) is only agreed upon here.
  base::Status begin(const collective::Operation& operation);
  /// MV_EINTR after a signal: call it again. MV_EDISAGREE: the operation has ended on all ranks, and the group
  /// continues. Any other error ends the group: MV_EPEERLOST if a rank is lost or has left, MV_ETIMEOUT with the names
  /// of the late ranks.
  base::Status finish(base::Nanos deadline);
  /// Waits for the next operation of the other ranks: see collective::Shape. Errors are those of finish(); after
  /// MV_EINTR and MV_ETIMEOUT it may be called again. If an operation is begun instead, its finish() first waits until
  /// every rank has begun the next operation or drains at it.
  base::Result<collective::Shape> drain(base::Nanos deadline);
  /// From now on the waits and the parts of each operation are measured.
  void measure() {
    waited_.assign(ranks(), base::Nanos{0});
    slices_.turn_on();
  }
  struct Waited {
    size_t on;
    base::Nanos span;
  };
  /// The rank that the last operation waited for longest; a span of 0 if it did not wait. Needs measure().
  Waited longest_wait() const;
  /// The parts of the last operation; none if its values fit beside the headers, which takes less time than measuring.
  /// Needs measure(). Call it once for each operation.
  std::span<const Slices::Slice> slices(base::Nanos now) { return inline_ ? std::span<const Slices::Slice>() : slices_.all(now); }

  // Any thread.

  /// Reports that a rank is lost. Ends the current operation, and refuses all later ones.
  void lose(size_t rank, const base::Status& why);
  /// The same, because this rank gives up.
  void give_up(const base::Status& why);
  /// Like give_up(), but does not notify the other ranks: they learn the real cause elsewhere.
  void end(const base::Status& why);
  /// Reports that a rank has left, even if its memory does not say so. Operations that it had begun continue.
  void hear_left(size_t rank);
  /// Notifies the ranks that wait for this one, now or later, that it has left. Allocates nothing: destructors call it.
  void leave() noexcept;
  base::Status broken() const;
  uint64_t operations() const { return operation_.load(std::memory_order_relaxed); }
  struct Sleep {
    collective::Kind kind = collective::Kind::kBarrier;  ///< of the current operation
    int32_t on = -1;                                     ///< the rank that it waits for; -1: it does not sleep
    bool has_come = false;                               ///< whether that rank has begun this operation
    base::Nanos since{0};
  };
  /// The rank for which this one sleeps. The sleep may have ended by now.
  Sleep asleep() const;
  /// The algorithm of each class of all-reduces, and why.
  std::vector<Decision> decisions() const { return choices_.decisions(); }
  /// The number of trials that have ended.
  uint64_t trials_ended() const { return choices_.changed(); }

 private:
  size_t ranks() const { return regions_.size(); }
  Words& words(size_t rank) const { return regions_[rank].words(); }
  Words& own() const { return words(rank_); }
  /// The number of the operation that was last posted in the header slot of `number`.
  uint64_t posted(size_t rank, uint64_t number) const { return regions_[rank].header(number).posted.load(std::memory_order_acquire); }

  // rank_context.cpp: agreement, draining, the end of the group
  uint64_t signature() const;
  void choose_early();
  void choose_late();
  void post();
  void find_own_places();
  void post_values();
  base::Status settle_drain(base::Nanos deadline);
  base::Status refuse_to_drain(base::Nanos deadline);
  base::Status gather(base::Nanos deadline);
  base::Status agree() const;
  std::string describe(size_t rank) const;
  Described described(size_t rank, size_t array) const { return regions_[rank].items(operation_)[array].read(); }
  base::Result<collective::Shape> shape_of(size_t rank, const Announcement& theirs) const;
  base::Status find_places();
  base::Status over(base::Status status);
  uint32_t cause() const;
  bool note_broken(const base::Status& why);
  void break_up(const base::Status& why, uint32_t as);
  void say_left(uint32_t as);
  void wake_own() const;
  void wake_sleeper(size_t rank) const;

  // reduce_blocks.cpp: the values
  void take_inline();
  base::Status work(base::Nanos deadline);
  template <typename Some>
  bool measured(base::TracePart part, const Some& some);
  bool copy_some();
  bool merge_some();
  bool stage_some();
  void copy_block(size_t channel, uint64_t group);
  void stage_block(size_t channel, uint64_t group);
  std::byte* staging(size_t rank, size_t channel, uint64_t group) const;
  size_t ring_blocks() const { return kRingBytes / plan_.block_bytes(); }
  void merge_block(uint64_t group);
  void merge_extent(const Extent& extent, uint64_t group);
  void merge(const Extent& extent, std::byte* to);
  const std::byte* own_in(const Extent& extent) const;
  std::byte* own_out(const Extent& extent) const { return what_.out[extent.array].data + extent.out_at; }
  /// A rank that computes the whole result does not read values in place if the result overwrites them, because it may
  /// be late.
  bool is_direct_in(size_t rank) const { return announced_[rank].shown_in && (!plan_.by_all || (plan_.direct && !announced_[rank].in_place)); }
  bool is_direct_out(size_t rank) const { return plan_.copied && announced_[rank].shown_out; }
  bool stages() const { return plan_.from_all && !(plan_.channels == 1 && plan_.is_owner(rank_)) && !is_direct_in(rank_); }
  /// A step that another rank must do first.
  struct Need {
    size_t on;
    Step step;
    uint64_t groups;
    bool was_met;  ///< whether all ranks that matter had done it when checked; is_unmet() checks `on` alone, later
  };
  std::optional<Need> next_need();
  bool is_unmet(const Need& need) { return done(need.on, need.step) < need.groups; }
  template <typename Matters>
  std::optional<Need> slowest(Step step, uint64_t groups, Matters matters);
  uint64_t copied() const;
  uint64_t done(size_t rank, Step step);

  // waiting.hpp, waiting.cpp
  void publish(std::atomic<uint64_t>& word, uint64_t value);
  void settle();
  template <typename Ready>
  base::Status wait(size_t on, base::Nanos deadline, const Ready& ready);
  template <typename Ready>
  base::Status sleep(size_t on, base::Nanos deadline, const Ready& ready);
  base::Status trouble(size_t on) const;
  bool has_left(size_t rank) const { return words(rank).left.load() != 0 || is_heard_to_have_left(rank); }
  bool is_heard_to_have_left(size_t rank) const { return (heard_left_.load() >> rank & 1) != 0; }
  /// Whether `left` names a lost rank.
  bool names_lost(uint32_t left) const { return left >= kBecauseOf && left - kBecauseOf < ranks(); }
  base::Status given_up() const;

  const size_t rank_;
  const std::vector<std::string> names_;
  std::vector<SharedRegion> regions_;
  Segments segments_;
  SpinPolicy spin_policy_;
  std::vector<base::Nanos> waited_;  ///< by rank, in this operation; empty: not measured
  Slices slices_;
  bool owes_ = false;  ///< something was published, and sleepers were not woken yet

  std::atomic<uint64_t> operation_{0};  ///< the current one, or the last
  enum class Phase : uint8_t { kIdle, kBegun, kGathered };  ///< kGathered: all ranks have announced it
  Phase phase_ = Phase::kIdle;
  bool drains_ = false;  ///< at the next operation, and its outcome is not known yet
  collective::Operation what_;
  Plan plan_;
  bool inline_ = false;
  Choices choices_;
  Choices::Pick pick_;          ///< the algorithm of this operation, if it is an all-reduce
  bool is_chosen_ = true;       ///< pick_ and plan_ are known before the ranks have agreed
  base::Nanos prepared_{0}, agreed_at_{0};  ///< if pick_.timed: how long post() took, and when the ranks had agreed
  uint64_t contributors_ = 0;
  std::vector<Announcement> announced_;                     ///< by rank: its announcement of this operation, as read on arrival
  std::vector<std::array<uint64_t, kSteps>> done_;          ///< by rank and step: groups, the highest number seen
  struct OwnPlaces {
    Location in, out;
  };
  std::vector<OwnPlaces> own_places_;       ///< by array
  std::vector<const std::byte*> in_, out_;  ///< by rank and array, where they can be read directly
  std::vector<uint64_t> copied_;            ///< groups, by channel
  uint64_t staged_ = 0, merged_ = 0;        ///< groups
  uint64_t ring_first_ = 0;                 ///< the block of the ring that holds this operation's first block
  size_t ring_at_ = 0;                      ///< where the next operation's blocks begin, at the earliest
  Distance distance_;
  std::vector<const std::byte*> sources_;

  std::atomic<collective::Kind> doing_{collective::Kind::kBarrier};
  std::atomic<int64_t> asleep_since_{0};

  std::atomic<uint64_t> heard_left_{0};  ///< a bit for each rank
  std::atomic<bool> is_broken_{false};
  mutable std::mutex mutex_;
  base::Status why_broken_;
  const base::Status why_left_{MV_ESTATE, "this rank has left the group"};
};

}  // namespace mv::intranode
