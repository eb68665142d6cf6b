#pragma once
// AllReduceEa: elastic averaging (Zhang, Choromanska, LeCun: "Deep learning with Elastic Averaging SGD"). Ranks train
// independently, tied to a centre of which each has a copy.

#include "api/distlearn/peers.hpp"

namespace mv::distlearn {

class AllReduceEa {
 public:
  /// MV_EINVAL if tau or alpha is invalid; the text says why.
  static base::Status check(int64_t tau, double alpha);
  /// Warns if alpha exceeds 2 / (ranks + 1), up to which the centre is stable without gradients.
  AllReduceEa(api::Node& node, api::GroupRef group, int64_t tau, double alpha);
  ~AllReduceEa() { peers_.withdraw(); }  // before the lent memory is freed

  /// Every tau-th call: d = alpha (parameters - centre); parameters -= d; centre += the sum of all ranks' d. The centre
  /// starts as the parameters of the first call of any kind.
  base::Status average(const Arrays& parameters, base::Nanos timeout);
  /// Takes part in the averages that other ranks still make, with differences of its own; then all ranks get the lowest
  /// rank's centre. The parameters move towards the centre in each of these rounds, including the last one, in which
  /// every rank drains; after that they do not change.
  base::Status synchronize_center(const Arrays& parameters, base::Nanos timeout);
  /// Likewise, but then all ranks get the lowest rank's parameters, which also become the centre.
  base::Status synchronize_parameters(const Arrays& parameters, base::Nanos timeout);

  /// parameters = the centre. MV_ESTATE before the first call.
  base::Status read_center(const Arrays& parameters);
  const Arrays& center() const { return center_.arrays(); }
  Peers& peers() { return peers_; }

 private:
  /// Whether the next average() reads or writes parameters: other calls only count.
  bool uses_parameters() const { return !has_center_ || (step_ + 1) % tau_ == 0 || peers_.is_interrupted(); }
  base::Status check(const Arrays& parameters) const;
  base::Status begin(const Arrays& parameters);
  base::Status settle(const Arrays& parameters);
  base::Status move_to_center();
  base::Status take_center() { return convert(center_.arrays(), parameters_, places_); }
  base::Status add_difference() { return add(center_.arrays(), difference_.arrays(), places_); }
  base::Result<Arrays> contribute(const collective::Shape& shape);
  base::Status end_rounds();

  Peers peers_;
  const int64_t tau_;
  const double alpha_;
  int64_t step_ = 0;
  bool has_center_ = false;
  Arrays parameters_;           ///< of the call in progress
  Places places_;               ///< of the parameters, and of the two below
  Buffers center_, difference_; ///< difference_: this rank's before an all-reduce, the sum of all ranks' after it
};

}  // namespace mv::distlearn
