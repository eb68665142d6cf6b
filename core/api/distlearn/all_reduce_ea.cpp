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

base::Status AllReduceEa::begin(const Arrays& parameters) {
  if (auto status = check_floats(parameters); !status.ok()) return status;
  if (!parameters_.empty()) {
    if (auto status = check_alike(parameters_, parameters); !status.ok()) return status;
  }
  parameters_ = parameters;
  if (!center_.empty()) return {};
  center_ = Buffers(parameters);
  difference_ = Buffers(parameters);
  take_center();
  return {};
}

void AllReduceEa::take_center() {
  for_each_element(parameters_, []<typename T>(T& p, T& centre) { centre = p; }, center_.arrays());
}

void AllReduceEa::move_to_center() {
  const auto move = [alpha = alpha_]<typename T>(T& p, T& centre, T& d) {
    d = (p - centre) * static_cast<T>(alpha);
    p -= d;
  };
  for_each_element(parameters_, move, center_.arrays(), difference_.arrays());
}

void AllReduceEa::add_difference() {
  for_each_element(center_.arrays(), []<typename T>(T& centre, T& d) { centre += d; }, difference_.arrays());
}

base::Status AllReduceEa::average(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = begin(parameters); !status.ok()) return status;
  const auto count = [&] {
    ++step_;
    peers_.meter.steps += 1;
    peers_.meter.dense_bytes += bytes_of(parameters);
    if (step_ % tau_ == 0) move_to_center();
    return base::Status();
  };
  const auto exchange = [&] {
    return step_ % tau_ == 0 ? peers_.allreduce(difference_.arrays(), math::Reduction::kSum) : base::Status();
  };
  const auto finish = [&] {
    if (step_ % tau_ == 0) add_difference();
    return base::Status();
  };
  return peers_.carry_out("mv_ea_average", {count, exchange, finish}, timeout);
}

/// What this rank contributes to an all-reduce of the others. One that is no average, such as that of a
/// loss, gets neutral values.
Arrays AllReduceEa::contribute(const collective::Shape& shape) {
  const bool is_average = shape.reduction == math::Reduction::kSum && check_alike(difference_.arrays(), shape.arrays).ok();
  if (!shape.finished && !is_average) return {};
  add_difference();
  move_to_center();
  return difference_.arrays();
}

base::Status AllReduceEa::end_rounds() {
  return peers_.drain([this](const collective::Shape& shape) { return contribute(shape); }, {});
}

base::Status AllReduceEa::synchronize_center(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = begin(parameters); !status.ok()) return status;
  const auto clear = [&] {
    difference_.fill_zero();  // the last difference has been added already
    return base::Status();
  };
  const auto finish = [&] {
    step_ = 0;
    return base::Status();
  };
  return peers_.carry_out("mv_ea_synchronize_center",
                          {clear, [&] { return end_rounds(); }, [&] { return peers_.broadcast(center_.arrays(), 0); }, finish}, timeout);
}

base::Status AllReduceEa::synchronize_parameters(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = begin(parameters); !status.ok()) return status;
  const auto clear = [&] {
    difference_.fill_zero();
    return base::Status();
  };
  const auto finish = [&] {
    take_center();
    step_ = 0;
    return base::Status();
  };
  return peers_.carry_out("mv_ea_synchronize_parameters",
                          {clear, [&] { return end_rounds(); }, [&] { return peers_.broadcast(parameters, 0); }, finish}, timeout);
}

base::Status AllReduceEa::read_center(const Arrays& parameters) const {
  if (parameters_.empty()) return base::Status(MV_ESTATE, "there is no centre yet: the first average creates it from the parameters");
  if (auto status = check_floats(parameters); !status.ok()) return status;
  if (auto status = check_alike(parameters_, parameters); !status.ok()) return status;
  for_each_element(parameters, []<typename T>(T& p, T& centre) { p = centre; }, center_.arrays());
  return {};
}

}  // namespace mv::distlearn
