#pragma once
// The protocol by which the survivors of a group agree on the members of the new group, including newcomers.

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"

namespace mv::collective {

/// The lowest rank that is not known to be gone coordinates. It asks each other rank for a report: which ranks it has
/// lost, and which decision it knows. A rank that any report names as lost is excluded, and the coordinator sends the
/// list of the others to all. If the coordinator is lost, the next rank takes over. A decision that any survivor knows
/// is final: the next coordinator receives it in the survivors' reports, even from ranks that have finished, before it
/// decides itself. A rank that has reported another one as gone ignores all later messages of that rank, because the
/// next coordinator may already have decided by that report. A rank that wants the group to grow also reports the
/// newcomers that have asked it, and reports again when they change. The decision includes the newcomers that all
/// survivors have reported, and waits until the group has the wanted size. If one survivor does not want the group to
/// grow, the decision includes no newcomers. Modelled in tests/models/agreement.pml. No I/O: messages go in and come
/// out. Loop thread only.
class Agreement {
 public:
  using Ranks = std::vector<uint32_t>;
  /// A process that wants to join.
  struct Newcomer {
    base::Peer peer = base::kNobody;
    uint32_t place = 0;  ///< its rank in the cluster
    auto operator<=>(const Newcomer&) const = default;
  };
  using Newcomers = std::vector<Newcomer>;
  struct Wish {
    bool grows = false;
    uint32_t size = 0;    ///< the least number of ranks
    Newcomers newcomers;  ///< the newcomers that have asked, in order
    bool operator==(const Wish&) const = default;
  };
  struct Decision {
    Ranks ranks;
    Newcomers joined;
    bool operator==(const Decision&) const = default;
  };
  struct Word {
    bool decides = false;  ///< this is the decision `decided`; otherwise a report
    bool asks = false;
    Ranks gone;
    Wish wish;
    Decision decided;      ///< in a report: empty if no decision is known
  };
  using Tell = std::function<void(uint32_t to, const Word& word)>;
  using Done = std::function<void(base::Result<Decision>)>;

  Agreement(uint32_t rank, uint32_t size, Tell tell) : rank_(rank), size_(size), tell_(std::move(tell)) {}

  /// This rank wants to continue with the survivors.
  void begin(Done done) { begin({}, std::move(done)); }
  void begin(Wish wish, Done done);
  /// The list of newcomers that have asked this rank has changed.
  void change(Wish wish);
  void give_up(const base::Status& why);
  bool is_wanted() const { return done_ != nullptr; }
  /// A rank is lost or has left.
  void gone(uint32_t rank);
  void heard(uint32_t from, const Word& word);
  const std::optional<Decision>& decided() const { return decided_; }
  bool is_gone(uint32_t rank) const { return gone_.contains(rank); }
  bool all_here() const { return gone_.empty(); }
  /// The ranks that have not reported yet.
  Ranks awaited() const;
  Ranks survivors() const;

 private:
  void proceed();
  void decide(const Decision& decision);
  std::optional<Newcomers> joining(const Ranks& ranks) const;
  Word report(bool asks) const;
  Ranks known(Ranks told) const;
  uint32_t coordinator() const;

  const uint32_t rank_, size_;
  const Tell tell_;
  Done done_;
  std::set<uint32_t> gone_, asked_;
  Wish wish_;
  std::map<uint32_t, Wish> reported_;
  std::optional<Decision> decided_;
  uint32_t told_ = UINT32_MAX;  ///< the coordinator that has this rank's report
  size_t told_gone_ = 0;        ///< and the number of ranks that it named
  Wish told_wish_;
};

}  // namespace mv::collective
