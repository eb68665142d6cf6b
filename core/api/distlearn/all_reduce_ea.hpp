#pragma once
// Elastic averaging (Zhang, Choromanska, LeCun: "Deep learning with Elastic Averaging SGD"): ranks train by themselves, held together by a
// centre of which each has a copy.

#include "api/distlearn/peers.hpp"

namespace mv::distlearn {

class AllReduceEa {
 public:
  /// MV_EINVAL with what is wrong with tau or alpha.
  static base::Status check(int64_t tau, double alpha);
  /// Warns where alpha is beyond 2 / (ranks + 1), up to which the centre is stable without gradients.
  AllReduceEa(api::Node& node, api::GroupRef group, int64_t tau, double alpha);
  ~AllReduceEa() { peers_.withdraw(); }  // before the memory goes that is lent

  /// Every tau-th time: d = alpha (parameters - centre); parameters -= d; centre += the sum of all ranks' d. The centre begins as the
  /// parameters of the first call of any kind.
  base::Status average(const Arrays& parameters, base::Nanos timeout);
  /// Takes part in what others still average, with differences of its own; then all ranks get the lowest rank's centre. In each round, the
  /// one in which nobody is left included, parameters move towards the centre; after that they are left alone.
  base::Status synchronize_center(const Arrays& parameters, base::Nanos timeout);
  /// The same, but then all ranks get the lowest rank's parameters, and the centre becomes them.
  base::Status synchronize_parameters(const Arrays& parameters, base::Nanos timeout);

  /// parameters = the centre. MV_ESTATE before the first call.
  base::Status read_center(const Arrays& parameters) const;
  const Arrays& center() const { return center_.arrays(); }
  Peers& peers() { return peers_; }

 private:
  base::Status begin(const Arrays& parameters);
  void move_to_center();
  void take_center();
  void add_difference();
  Arrays contribute(const collective::Shape& shape);
  base::Status end_rounds();

  Peers peers_;
  const int64_t tau_;
  const double alpha_;
  int64_t step_ = 0;
  Arrays parameters_;           ///< of the call under way
  Buffers center_, difference_; ///< the latter: this rank's on its way out, all ranks' on its way back
};

}  // namespace mv::distlearn
