#pragma once
// Chooses the algorithms of a group's all-reduces: by trials, by the results of earlier groups, or by the user's setting.

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/collective/trial.hpp"
#include "intranode/algorithms.hpp"

namespace mv::intranode {

/// How a group chooses. The lowest rank's tuning is used on all ranks. A rank receives it as bytes and does not trust
/// them: numbers that are no algorithm, or one that does not fit, are ignored.
struct Tuning {
  static constexpr uint8_t kTrial = 0, kFixed = 1;
  static constexpr uint8_t kNone = 255;
  uint8_t mode = kTrial;
  uint8_t named = kNone;  ///< an Algorithm, used wherever it fits
  std::array<uint8_t, SizeClass::kCount> kept;  ///< by class: an Algorithm that an earlier group found best
  Tuning() { kept.fill(kNone); }
};

/// The algorithm that a group uses for one class of operations, and why.
struct Decision {
  enum class Why : uint8_t { kTried, kKept, kNamed, kFixed, kTrying };
  SizeClass of;
  Algorithm algorithm;
  Why why;
  std::vector<std::pair<Algorithm, uint32_t>> scores;  ///< kTried: nanoseconds, the chosen algorithm first
};
const char* why_name(Decision::Why why);
/// "1M tensors: whole-staged (tried: 140 us; shares 151 us), 64K private: shares (kept)"
std::string describe(const std::vector<Decision>& decisions);

/// The choices of one rank. All ranks make the same calls of pick(), begin(), end() and heard(), for the operations that
/// they have agreed on, and therefore make the same choices. One thread at a time, except for decisions() and changed().
class Choices {
 public:
  Choices(size_t ranks, const Tuning& tuning);

  struct Pick {
    Algorithm algorithm = Algorithm::kShares;
    bool timed = false;
  };
  /// The algorithm of the next operation of this class. Changes no trial: the ranks may disagree on that operation.
  Pick pick(const SizeClass& of);
  /// All ranks have agreed on an operation that uses this algorithm and shall be timed. False if the trial has ended
  /// since pick(): then the operation is not timed.
  bool begin(const SizeClass& of, Algorithm algorithm);
  /// That operation has ended on this rank.
  void end(base::Nanos span);
  /// The nanoseconds of the last operation that was timed. This rank announces them with its next operation.
  uint32_t to_tell() const { return timed_ ? timed_->nanos : 0; }
  /// Whether the announcements of the other ranks contain such times.
  bool expects_times() const { return timed_.has_value(); }
  /// The longest of all ranks' times.
  void heard(uint32_t longest);

  // Any thread.

  /// For each class of which this rank has begun an operation, by size.
  std::vector<Decision> decisions() const;
  /// The number of trials that have ended.
  uint64_t changed() const { return changed_.load(std::memory_order_acquire); }

 private:
  struct Timed {
    SizeClass of;
    Algorithm algorithm;
    uint32_t nanos;
  };
  /// The decision, if it needs no trial.
  std::optional<Decision> settled(const SizeClass& of) const;
  void settle(Decision decision);

  const size_t ranks_;
  const Tuning tuning_;
  std::array<uint8_t, SizeClass::kCount> chosen_;     ///< an Algorithm, or kNone before the trial has ended
  std::map<size_t, collective::Trial> trials_;        ///< by class, until they end
  std::optional<Timed> timed_;                        ///< the operation whose times the ranks do not know yet
  mutable std::mutex mutex_;
  std::map<size_t, Decision> decisions_;              ///< by class
  std::atomic<uint64_t> changed_{0};
};

}  // namespace mv::intranode
