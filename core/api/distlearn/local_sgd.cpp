#include "api/distlearn/local_sgd.hpp"

#include <algorithm>
#include <cmath>

#include "engine/collective/schedule.hpp"

namespace mv::distlearn {

base::Status LocalSgd::check(const LocalSettings& settings) {
  if (settings.inner_steps < 1) return base::error(MV_EINVAL, "inner_steps is {}: expected 1 or more", settings.inner_steps);
  if (settings.fragments < 1 || settings.fragments > settings.inner_steps)
    return base::error(MV_EINVAL, "fragments is {}: expected 1 to inner_steps, {}", settings.fragments, settings.inner_steps);
  const int64_t between = settings.inner_steps / settings.fragments;
  if (settings.overlap < 0 || (settings.overlap > 0 && settings.overlap >= between))
    return base::error(MV_EINVAL, "overlap is {}: a fragment's exchange must end before the next one begins, {} steps later", settings.overlap, between);
  const auto in_range = [](double value, double most) { return value >= 0 && value <= most; };
  if (!in_range(settings.outer_rate, 1e6)) return base::error(MV_EINVAL, "outer_rate is {}: expected 0 or more", settings.outer_rate);
  if (!in_range(settings.outer_momentum, 1)) return base::error(MV_EINVAL, "outer_momentum is {}: expected 0 to 1", settings.outer_momentum);
  if (!in_range(settings.mixing, 1)) return base::error(MV_EINVAL, "mixing is {}: expected 0 to 1", settings.mixing);
  return {};
}

base::Status LocalSgd::check(const Arrays& parameters) const {
  if (auto status = check_floats(parameters); !status.ok()) return status;
  return outer_.empty() ? base::Status() : check_alike(parameters_, parameters);
}

base::Status LocalSgd::begin(const Arrays& parameters) {
  if (auto status = check(parameters); !status.ok()) return status;
  const bool is_first = outer_.empty();
  if (auto status = settle(parameters); !status.ok()) return status;
  parameters_ = parameters;
  if (!is_first) return {};
  base::Status status = convert(outer_.arrays(), parameters_, outer_.places());
  if (!status.ok()) outer_ = {};
  return status;
}

/// The outer arrays follow the parameters to another place.
base::Status LocalSgd::settle(const Arrays& parameters) {
  const auto places = peers_.places_of(parameters, outer_.places());
  if (!places.ok()) return places.status();
  if (peers_.is_under_way() && places.value() != outer_.places()) {
    if (auto status = peers_.finish_allreduce(); !status.ok()) return status;
    has_arrived_ = true;
  }
  for (Buffers* const own : {&velocity_, &moved_, &outer_})
    if (auto status = own->settle(parameters, places.value()); !status.ok()) return status;
  return {};
}

/// What is exchanged next.
OuterArrays LocalSgd::fragment() const {
  const auto fragments = static_cast<uint64_t>(settings_.fragments);
  const collective::Range range = collective::slice(elements_of(parameters_), fragments, next_ % fragments);
  return cut(all(), range.first, range.count);
}

/// Whether a step ends with an exchange. Exchanges are spread evenly over the inner steps.
bool LocalSgd::is_due(int64_t step) const {
  const auto exchanges_until = [&](int64_t last) { return last * settings_.fragments / settings_.inner_steps; };
  return exchanges_until(step) != exchanges_until(step - 1);
}

base::Status LocalSgd::work(const OuterArrays& arrays, math::Outer what) const {
  return outer_step(arrays, what, {settings_.outer_rate, settings_.outer_momentum, settings_.mixing});
}

/// Makes the outer step by the average movement of the ranks. The outer parameters are bit-equal on all ranks.
base::Status LocalSgd::step_outside(math::Outer what) {
  auto status = work(fragment(), what);
  if (status.ok()) ++next_;
  return status;
}

base::Status LocalSgd::finish_overlapped() {
  if (!is_overlapped()) return {};
  if (!has_arrived_)
    if (auto status = peers_.finish_allreduce(); !status.ok()) return status;
  has_arrived_ = false;
  return step_outside(settings_.mixing == 0 ? math::Outer::kReplace : math::Outer::kMix);
}

base::Status LocalSgd::exchange_due() {
  if (!is_due()) return {};
  const Arrays moved = fragment().moved;
  if (settings_.overlap > 0) {
    overlapped_until_ = step_ + settings_.overlap;
    return peers_.start_allreduce(moved, math::Reduction::kAverage);
  }
  if (auto status = peers_.allreduce(moved, math::Reduction::kAverage); !status.ok()) return status;
  return step_outside(math::Outer::kReplace);
}

base::Status LocalSgd::step(const Arrays& parameters, base::Nanos timeout) {
  const bool is_idle = !uses_parameters();
  if (auto status = is_idle ? check(parameters) : begin(parameters); !status.ok()) return status;
  const auto count = [&] {
    ++step_;
    ++since_exchange_;
    peers_.meter.steps += 1;
    peers_.meter.dense_bytes += bytes_of(parameters);
    return base::Status();
  };
  const auto finish = [&] { return ends_overlap(step_) ? finish_overlapped() : base::Status(); };
  const auto collect = [&] { return is_due() ? work(fragment(), math::Outer::kMeasure) : base::Status(); };
  const auto exchange = [&] { return exchange_due(); };
  const auto note = [&] {
    if (is_due() && settings_.fragments == 1) since_exchange_ = 0;
    return base::Status();
  };
  base::Status status = peers_.carry_out("mv_local_sgd_step", {count, finish, collect, exchange, note}, timeout);
  return is_idle ? status : end_call(outer_.places(), std::move(status));
}

/// Takes part in the exchanges of others and makes the outer steps of these. This rank's movement since its
/// own last exchange is kept.
base::Status LocalSgd::drain() {
  const auto fill = [&](const collective::Shape& shape) -> base::Result<Arrays> {
    const OuterArrays next = fragment();
    drains_exchange_ = !shape.finished && shape.reduction == math::Reduction::kAverage && check_alike(next.moved, shape.arrays).ok();
    if (!drains_exchange_) return Arrays();
    if (auto status = work(next, math::Outer::kClear); !status.ok()) return status;
    return next.moved;
  };
  const auto take = [&](const Arrays&) { return drains_exchange_ ? step_outside(math::Outer::kFollow) : base::Status(); };
  return peers_.drain(fill, take);
}

/// What a rank has done since the last synchronize(); the maximum over the ranks decides for all.
enum class LocalSgd::Since : int64_t { kNothing = 0, kStepped = 1, kMoved = 2 };

base::Status LocalSgd::meet() {
  const auto& all = peers_.numbers();
  const auto most = static_cast<Since>(*std::max_element(all.begin(), all.end()));
  if (most == Since::kNothing) return peers_.broadcast(parameters_, 0);
  if (most == Since::kStepped) return {};
  const bool draining = static_cast<Since>(all[peers_.rank()]) != Since::kMoved;
  return peers_.allreduce(moved_.arrays(), math::Reduction::kAverage, draining);
}

base::Status LocalSgd::have_met() {
  const auto& since = peers_.numbers();
  const auto most = static_cast<Since>(*std::max_element(since.begin(), since.end()));
  base::Status status;
  if (most == Since::kMoved) status = work(all(), math::Outer::kReplace);
  if (most == Since::kStepped) status = convert(parameters_, outer_.arrays(), outer_.places());
  if (most == Since::kNothing) status = convert(outer_.arrays(), parameters_, outer_.places());
  if (most == Since::kNothing && status.ok()) status = velocity_.fill_zero();
  if (!status.ok()) return status;
  step_ = since_exchange_ = overlapped_until_ = 0;
  return {};
}

base::Status LocalSgd::synchronize(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = begin(parameters); !status.ok()) return status;
  const auto compare = [&] {
    const Since mine = since_exchange_ > 0 ? Since::kMoved : step_ > 0 ? Since::kStepped : Since::kNothing;
    return peers_.allgather_number(static_cast<int64_t>(mine));
  };
  const auto gather_all = [&] { return work(all(), math::Outer::kMeasure); };
  return end_call(outer_.places(), peers_.carry_out(
      "mv_local_sgd_synchronize",
      {[&] { return finish_overlapped(); }, [&] { return drain(); }, compare, gather_all, [&] { return meet(); },
       [&] { return have_met(); }},
      timeout));
}

}  // namespace mv::distlearn
