#pragma once
// Ranks that train by themselves and meet every so many steps: local SGD (Stich 2018), DiLoCo (Douillard et al. 2023: an outer step of
// Nesterov's momentum upon what all have moved by), and Streaming DiLoCo (2025: fragment by fragment, while training goes on).

#include "api/distlearn/peers.hpp"

namespace mv::distlearn {

struct LocalSettings {
  int64_t inner_steps = 1;    ///< from one exchange of everything to the next
  double outer_rate = 1;      ///< 1, without momentum: parameters are averaged
  double outer_momentum = 0;  ///< Nesterov's
  int64_t fragments = 1;      ///< each is exchanged by itself, at its own time within the inner steps
  int64_t overlap = 0;        ///< steps that are made while an exchange is under way
  double mixing = 0;          ///< with an overlap: parameters = mixing * (what they have become) + (1 - mixing) * (what was agreed on)
};

class LocalSgd {
 public:
  static base::Status check(const LocalSettings& settings);
  LocalSgd(api::Node& node, api::GroupRef group, const LocalSettings& settings) : peers_(node, std::move(group)), settings_(settings) {}
  ~LocalSgd() { peers_.withdraw(); }  // before the memory goes that is lent

  /// After each inner step. The outer parameters begin as those of the first call of any kind.
  base::Status step(const Arrays& parameters, base::Nanos timeout);
  /// Takes part until everyone has come here; then one exchange of everything among those who have moved since their last, after which all
  /// ranks have the same bits. Where nobody has made a step at all, they get the lowest rank's.
  base::Status synchronize(const Arrays& parameters, base::Nanos timeout);

  Peers& peers() { return peers_; }

 private:
  base::Status begin(const Arrays& parameters);
  Arrays fragment(const Arrays& arrays, uint64_t number) const;
  bool is_due() const;
  void gather(uint64_t number);
  struct Fragment {
    Arrays parameters, outer, velocity, moved;
  };
  Fragment part(uint64_t number) const;
  /// What becomes of the parameters in an outer step: the outer ones; a mixture with them; or they move by as much.
  enum class After { kReplace, kMix, kFollow };
  void step_outside(const Fragment& part, After after);
  base::Status exchange_due();
  base::Status finish_overlapped();
  base::Status drain();
  enum class Since : int64_t;
  base::Status meet();
  void have_met();

  Peers peers_;
  const LocalSettings settings_;
  Arrays parameters_;  ///< of the call under way
  Buffers outer_, velocity_, moved_;
  int64_t step_ = 0;
  int64_t since_exchange_ = 0;  ///< steps
  uint64_t next_ = 0;           ///< number of exchanges so far; its fragment is that modulo fragments
  int64_t overlapped_until_ = 0;
  bool drains_exchange_ = false;  ///< the operation that is drained is an exchange, not somebody's something else
};

}  // namespace mv::distlearn
