#pragma once
// AsyncEa: asynchronous elastic averaging. The centre is a table; each worker averages with it
// without waiting for others.

#include "api/distlearn/arrays.hpp"
#include "api/distlearn/peers.hpp"
#include "api/node/node.hpp"

namespace mv::distlearn {

class AsyncEa {
 public:
  /// MV_EINVAL, MV_EDTYPE or MV_ESTATE if tau, alpha or the table is unsuitable.
  static base::Status check(const api::TableInfo& table, int64_t tau, double alpha);
  AsyncEa(api::Node& node, api::TableRef table, const api::TableSpec& spec, int64_t tau, double alpha);
  ~AsyncEa() { withdraw(); }
  AsyncEa(const AsyncEa&) = delete;
  AsyncEa& operator=(const AsyncEa&) = delete;

  /// Every tau-th call: d = alpha (parameters - centre); parameters -= d; centre += d. The centre read may be stale,
  /// because other workers add to it.
  base::Status average(const Arrays& parameters, base::Nanos timeout);
  /// parameters = the centre.
  base::Status read(const Arrays& parameters, base::Nanos timeout);
  void withdraw();

  Meter meter;

 private:
  /// Whether the next average() reads or writes parameters: other calls only count.
  bool uses_parameters() const { return (step_ + 1) % tau_ == 0 || stages_.is_interrupted(); }
  base::Status check_shape(const Arrays& parameters) const;
  base::Status finish(api::Started started);
  base::Status get(base::Nanos timeout);
  base::Status settle(const Arrays& parameters);
  api::MutableData center() const;
  Arrays like(const Arrays& parameters) const;
  base::Status move_to_center(const Arrays& parameters);
  base::Status take(const Arrays& parameters) const;
  template <typename Work>
  base::Status at_center(Arrays parameters, const Work& work) const;

  api::Node& node_;
  const api::TableRef table_;
  const mv_dtype dtype_;
  const uint64_t elements_;
  const int64_t tau_;
  const double alpha_;
  int64_t step_ = 0;
  Stages stages_;
  api::CallRef pending_;
  Buffers center_;  ///< the centre as read, then this worker's difference to it: on the parameters' device, if they are on one
};

}  // namespace mv::distlearn
