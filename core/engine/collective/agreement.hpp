#pragma once
// The protocol by which the survivors of a group agree on who they are.

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "base/result.hpp"

namespace mv::collective {

/// The lowest rank that is not known to be gone coordinates. It asks each other rank for a report: which ranks it has
/// lost, and which decision it knows. A rank that any report names as lost is excluded, and the coordinator sends the
/// list of the others to all. If the coordinator is lost, the next rank takes over.
/// A decision that any survivor knows is final: the next coordinator receives it in the survivors' reports, also from
/// ranks that are done, before it decides itself. A rank that has reported another one as gone ignores all further
/// messages of it: the next coordinator may already have decided on that report.
/// Modelled in tests/models/agreement.pml. No I/O: messages go in and come out. Loop thread only.
class Agreement {
 public:
  using Ranks = std::vector<uint32_t>;
  struct Word {
    bool decides = false;  ///< this is the decision `decided`; otherwise a report
    bool asks = false;
    Ranks gone;
    Ranks decided;         ///< in a report: empty if no decision is known
  };
  using Tell = std::function<void(uint32_t to, const Word& word)>;
  using Done = std::function<void(base::Result<Ranks>)>;

  Agreement(uint32_t rank, uint32_t size, Tell tell) : rank_(rank), size_(size), tell_(std::move(tell)) {}

  /// This rank wants to continue with the survivors.
  void begin(Done done);
  void give_up(const base::Status& why);
  bool is_wanted() const { return done_ != nullptr; }
  /// A rank is lost or has left.
  void gone(uint32_t rank);
  void heard(uint32_t from, const Word& word);
  const std::optional<Ranks>& decided() const { return decided_; }
  bool is_gone(uint32_t rank) const { return gone_.contains(rank); }
  bool all_here() const { return gone_.empty(); }
  /// The ranks that have not reported yet.
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
  uint32_t told_ = UINT32_MAX;  ///< the coordinator that has this rank's report
  size_t told_gone_ = 0;        ///< and the number of ranks that it named
};

}  // namespace mv::collective
