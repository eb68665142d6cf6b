#include "api/distlearn/all_reduce_ea.hpp"

#include <atomic>
#include <cmath>

#include "base/log.hpp"

namespace mv::distlearn {

base::Status AllReduceEa::check(int64_t tau, double alpha) {
  if (tau < 1) return base::error(MV_EINVAL, "tau is {}: expected 1 or more (parameters are averaged every tau steps)", tau);
  if (!std::isfinite(alpha) || alpha < 0) return base::error(MV_EINVAL, "alpha is {}: expected a weight from 0 to 1", alpha);
  return {};
}

AllReduceEa::AllReduceEa(api::Node& node, api::GroupRef group, int64_t tau, double alpha)
    : peers_(node, std::move(group)), tau_(tau), alpha_(alpha) {
  const double most = 2.0 / (static_cast<double>(peers_.size()) + 1);
  static std::atomic_flag has_warned;  // once per process is enough
  if (alpha > most && peers_.rank() == 0 && !has_warned.test_and_set())
    base::log_warn("elastic averaging: alpha is {}, but with {} ranks the centre is stable only up to 2 / (ranks + 1) = {:.4g}", alpha,
                   peers_.size(), most);
}

base::Status AllReduceEa::check(const Arrays& parameters) const {
  if (auto status = check_floats(parameters); !status.ok()) return status;
  return has_center_ ? check_alike(parameters_, parameters) : base::Status();
}

base::Status AllReduceEa::begin(const Arrays& parameters) {
  if (auto status = check(parameters); !status.ok()) return status;
  if (auto status = settle(parameters); !status.ok()) return status;
  parameters_ = parameters;
  if (has_center_) return {};
  base::Status status = take_center();
  has_center_ = status.ok();
  return status;
}

/// The centre follows the parameters to another place.
base::Status AllReduceEa::settle(const Arrays& parameters) {
  auto places = peers_.places_of(parameters, places_);
  if (!places.ok()) return places.status();
  if (auto status = center_.settle(parameters, places.value()); !status.ok()) return status;
  if (auto status = difference_.settle(parameters, places.value()); !status.ok()) return status;
  places_ = std::move(places).value();
  return {};
}

base::Status AllReduceEa::move_to_center() { return elastic(parameters_, center_.arrays(), difference_.arrays(), alpha_, places_); }

base::Status AllReduceEa::average(const Arrays& parameters, base::Nanos timeout) {
  const bool is_idle = !uses_parameters();
  if (auto status = is_idle ? check(parameters) : begin(parameters); !status.ok()) return status;
  const auto count = [&] {
    ++step_;
    peers_.meter.steps += 1;
    peers_.meter.dense_bytes += bytes_of(parameters);
    return step_ % tau_ == 0 ? move_to_center() : base::Status();
  };
  const auto exchange = [&] {
    return step_ % tau_ == 0 ? peers_.allreduce(difference_.arrays(), math::Reduction::kSum) : base::Status();
  };
  const auto finish = [&] { return step_ % tau_ == 0 ? add_difference() : base::Status(); };
  base::Status status = peers_.carry_out("mv_ea_average", {count, exchange, finish}, timeout);
  return is_idle ? status : end_call(places_, std::move(status));
}

/// What this rank contributes to an all-reduce of the others. One that is no average, such as that of a
/// loss, gets neutral values.
base::Result<Arrays> AllReduceEa::contribute(const collective::Shape& shape) {
  const bool is_average = shape.reduction == math::Reduction::kSum && check_alike(difference_.arrays(), shape.arrays).ok();
  if (!shape.finished && !is_average) return Arrays();
  if (auto status = add_difference(); !status.ok()) return status;
  if (auto status = move_to_center(); !status.ok()) return status;
  return difference_.arrays();
}

base::Status AllReduceEa::end_rounds() {
  return peers_.drain([this](const collective::Shape& shape) { return contribute(shape); }, {});
}

base::Status AllReduceEa::synchronize_center(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = begin(parameters); !status.ok()) return status;
  const auto clear = [&] { return difference_.fill_zero(); };  // the last difference has been added already
  const auto finish = [&] {
    step_ = 0;
    return base::Status();
  };
  const auto share = [&] { return peers_.broadcast(center_.arrays(), 0); };
  return end_call(places_, peers_.carry_out("mv_ea_synchronize_center", {clear, [&] { return end_rounds(); }, share, finish}, timeout));
}

base::Status AllReduceEa::synchronize_parameters(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = begin(parameters); !status.ok()) return status;
  const auto clear = [&] { return difference_.fill_zero(); };
  const auto share = [&] { return peers_.broadcast(parameters, 0); };
  const auto finish = [&] {
    step_ = 0;
    return take_center();
  };
  return end_call(places_, peers_.carry_out("mv_ea_synchronize_parameters", {clear, [&] { return end_rounds(); }, share, finish}, timeout));
}

base::Status AllReduceEa::read_center(const Arrays& parameters) {
  if (!has_center_) return base::Status(MV_ESTATE, "there is no centre yet: the first average creates it from the parameters");
  if (auto status = check(parameters); !status.ok()) return status;
  if (auto status = settle(parameters); !status.ok()) return status;
  return end_call(places_, convert(parameters, center_.arrays(), places_));
}

}  // namespace mv::distlearn
