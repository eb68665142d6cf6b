#pragma once
// Chooses between several alternatives, such as algorithms of an all-reduce, by measuring them. Pure: no clock, no I/O.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace mv::collective {

/// A trial over the first operations of one class, for example all-reduces of 512 KiB to 1 MiB. The operations use the
/// alternatives in turn. Every rank makes the same calls on its own trial: begin() for each operation that all ranks
/// have agreed on, and took() with the longest time of any rank, which the ranks learn with a later operation. All ranks
/// therefore compute the same decision, and need no messages for it.
///
/// The first time of each alternative is ignored, because it includes page faults. The score of an alternative is the
/// median of its next kTimes times, so a paused rank may disturb two operations of five. An alternative that is far
/// slower than another one is dropped early. Alternative 0 is the default. Another one replaces it only if it is faster
/// by more than measurements vary.
///
/// There is one trial only: it costs about 6 operations for each alternative, and most of them are slower than
/// necessary. Ranks that repeat an operation thousands of times gain from one trial, but would lose from repeated ones.
class Trial {
 public:
  static constexpr size_t kMostAlternatives = 6, kTimes = 5;
  /// A rank reports this if it does not know its time, or if its time is longer.
  static constexpr uint32_t kLongest = UINT32_MAX;

  /// @param alternatives  1 .. kMostAlternatives
  explicit Trial(size_t alternatives);

  /// The alternative of the next operation.
  size_t next() const;
  /// An operation uses this alternative.
  void begin(size_t alternative) { ++alternatives_[alternative].begun; }
  /// An operation that used this alternative has ended on all ranks. Any unit of time will do.
  void took(size_t alternative, uint32_t longest);
  /// The best alternative, once it is known.
  std::optional<size_t> chosen() const { return chosen_; }
  /// The median of an alternative's times; kLongest if it has none.
  uint32_t score(size_t alternative) const;

 private:
  static constexpr size_t kEnoughToDrop = 3;
  struct Tried {
    std::array<uint32_t, kTimes> times{};
    size_t count = 0;        ///< of those
    uint32_t begun = 0;
    bool warm = false;       ///< its first time has been ignored
    bool dropped = false;
  };
  bool is_hopeless(const Tried& tried) const;

  std::array<Tried, kMostAlternatives> alternatives_;
  size_t count_;
  std::optional<size_t> chosen_;
};

}  // namespace mv::collective
