#pragma once
// LocalSgd: ranks train independently and exchange every few steps. Local SGD (Stich 2018); DiLoCo (Douillard et al.
// 2023): an outer step with Nesterov momentum along the average movement; Streaming DiLoCo (2025): fragment by
// fragment, while training continues.

#include "api/distlearn/peers.hpp"

namespace mv::distlearn {

struct LocalSettings {
  int64_t inner_steps = 1;    ///< from one exchange of all parameters to the next
  double outer_rate = 1;      ///< 1, without momentum: parameters are averaged
  double outer_momentum = 0;  ///< Nesterov's
  int64_t fragments = 1;      ///< each is exchanged separately, at its own time within the inner steps
  int64_t overlap = 0;        ///< steps made during an exchange
  double mixing = 0;          ///< with an overlap: parameters = mixing * (trained meanwhile) + (1 - mixing) * (agreed)
};

class LocalSgd {
 public:
  static base::Status check(const LocalSettings& settings);
  LocalSgd(api::Node& node, api::GroupRef group, const LocalSettings& settings) : peers_(node, std::move(group)), settings_(settings) {}
  ~LocalSgd() { peers_.withdraw(); }  // before the lent memory is freed

  /// Call it after each inner step. The outer parameters start as those of the first call of any kind.
  base::Status step(const Arrays& parameters, base::Nanos timeout);
  /// Whether the next step() reads or writes parameters: other calls only count.
  bool uses_parameters() const { return outer_.empty() || is_due(step_ + 1) || ends_overlap(step_ + 1) || peers_.is_interrupted(); }
  /// Takes part until all ranks have called this. Then the ranks that have moved since their last exchange make one
  /// exchange of all parameters, after which all ranks have the same bits. If no rank has made a step at all, all get
  /// the parameters of the lowest rank.
  base::Status synchronize(const Arrays& parameters, base::Nanos timeout);

  Peers& peers() { return peers_; }

 private:
  base::Status check(const Arrays& parameters) const;
  base::Status begin(const Arrays& parameters);
  base::Status settle(const Arrays& parameters);
  OuterArrays all() const { return {parameters_, outer_.arrays(), velocity_.arrays(), moved_.arrays(), outer_.places()}; }
  OuterArrays fragment() const;
  bool is_due(int64_t step) const;
  bool is_due() const { return is_due(step_); }
  bool is_overlapped() const { return peers_.is_under_way() || has_arrived_; }
  bool ends_overlap(int64_t step) const { return is_overlapped() && step >= overlapped_until_; }
  base::Status work(const OuterArrays& arrays, math::Outer what) const;
  base::Status step_outside(math::Outer what);
  base::Status exchange_due();
  base::Status finish_overlapped();
  base::Status drain();
  enum class Since : int64_t;
  base::Status meet();
  base::Status have_met();

  Peers peers_;
  const LocalSettings settings_;
  Arrays parameters_;  ///< of the call in progress
  Buffers outer_, velocity_, moved_;
  int64_t step_ = 0;
  int64_t since_exchange_ = 0;  ///< steps
  uint64_t next_ = 0;           ///< number of exchanges so far; modulo fragments: the next fragment
  int64_t overlapped_until_ = 0;
  bool has_arrived_ = false;    ///< what was exchanged during steps, before it was due
  bool drains_exchange_ = false;  ///< the drained operation is an exchange, not another all-reduce of the group
};

}  // namespace mv::distlearn
