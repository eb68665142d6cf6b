#pragma once
// How the survivors of a group come to the same list of themselves.

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "base/result.hpp"

namespace mv::collective {

/// The coordinator is the lowest rank that is not known to be gone. It gathers from the others which ranks they have lost, and whether they know of
/// a decision; every rank that anybody has lost is out, and the coordinator tells who is in. When it is gone the next one gathers. A decision that
/// any survivor has heard of stands: the next coordinator hears of it from each survivor before it decides by itself, also from those that are
/// done. A rank that has named another one as gone takes no word of that one any more: the next coordinator may have decided by its report.
/// Modelled in tests/models/agreement.pml. Pure: words come in and go out. Loop thread only.
class Agreement {
 public:
  using Ranks = std::vector<uint32_t>;
  struct Word {
    bool decides = false;  ///< `decided` is told; else it is a report
    bool asks = false;
    Ranks gone;
    Ranks decided;         ///< of a report: empty if none is known
  };
  using Tell = std::function<void(uint32_t to, const Word& word)>;
  using Done = std::function<void(base::Result<Ranks>)>;

  Agreement(uint32_t rank, uint32_t size, Tell tell) : rank_(rank), size_(size), tell_(std::move(tell)) {}

  /// This rank wants to go on with the others.
  void begin(Done done);
  void give_up(const base::Status& why);
  bool is_wanted() const { return done_ != nullptr; }
  /// A rank is lost, or has left.
  void gone(uint32_t rank);
  void heard(uint32_t from, const Word& word);
  const std::optional<Ranks>& decided() const { return decided_; }
  bool is_gone(uint32_t rank) const { return gone_.contains(rank); }
  bool all_here() const { return gone_.empty(); }
  /// Who has not said anything.
  Ranks awaited() const;

 private:
  void proceed();
  void decide(const Ranks& ranks);
  Word report(bool asks) const;
  Ranks known(Ranks told) const;
  Ranks survivors() const;
  uint32_t coordinator() const;

  const uint32_t rank_, size_;
  const Tell tell_;
  Done done_;
  std::set<uint32_t> gone_, reported_, asked_;
  std::optional<Ranks> decided_;
  uint32_t told_ = UINT32_MAX;  ///< the coordinator who has this rank's report
  size_t told_gone_ = 0;        ///< and how many it named
};

}  // namespace mv::collective
