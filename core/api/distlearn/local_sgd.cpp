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

base::Status LocalSgd::begin(const Arrays& parameters) {
  if (auto status = check_floats(parameters); !status.ok()) return status;
  if (!parameters_.empty()) {
    if (auto status = check_alike(parameters_, parameters); !status.ok()) return status;
  }
  parameters_ = parameters;
  if (!outer_.empty()) return {};
  outer_ = Buffers(parameters);
  velocity_ = Buffers(parameters);
  moved_ = Buffers(parameters);
  for_each_element(parameters_, []<typename T>(T& p, T& outer) { outer = p; }, outer_.arrays());
  return {};
}

Arrays LocalSgd::fragment(const Arrays& arrays, uint64_t number) const {
  const auto fragments = static_cast<uint64_t>(settings_.fragments);
  const collective::Range range = collective::slice(elements_of(arrays), fragments, number % fragments);
  return cut(arrays, range.first, range.count);
}

/// Whether a step ends with an exchange. Exchanges are spread evenly over the inner steps.
bool LocalSgd::is_due(int64_t step) const {
  const auto exchanges_until = [&](int64_t last) { return last * settings_.fragments / settings_.inner_steps; };
  return exchanges_until(step) != exchanges_until(step - 1);
}

/// Stores how far this rank has moved a fragment, as a gradient.
void LocalSgd::gather(uint64_t number) {
  for_each_element(fragment(parameters_, number), []<typename T>(T& p, T& outer, T& moved) { moved = outer - p; },
                   fragment(outer_.arrays(), number), fragment(moved_.arrays(), number));
}

LocalSgd::Fragment LocalSgd::part(uint64_t number) const {
  return {fragment(parameters_, number), fragment(outer_.arrays(), number), fragment(velocity_.arrays(), number), fragment(moved_.arrays(), number)};
}

/// Makes the outer step by the average movement of the ranks. The outer parameters are bit-equal on all ranks.
void LocalSgd::step_outside(const Fragment& part, After after) {
  const double mixing = after == After::kMix ? settings_.mixing : 0;
  const auto step = [&]<typename T>(T& p, T& outer, T& velocity, T& moved) {
    const auto momentum = static_cast<T>(settings_.outer_momentum);
    velocity = momentum * velocity + moved;
    const T by = static_cast<T>(settings_.outer_rate) * (moved + momentum * velocity);
    outer -= by;
    if (after == After::kFollow)
      p -= by;
    else
      p = mixing == 0 ? outer : static_cast<T>(mixing) * p + static_cast<T>(1 - mixing) * outer;
  };
  for_each_element(part.parameters, step, part.outer, part.velocity, part.moved);
}

base::Status LocalSgd::finish_overlapped() {
  if (!peers_.is_under_way()) return {};
  if (auto status = peers_.finish_allreduce(); !status.ok()) return status;
  step_outside(part(next_++), After::kMix);
  return {};
}

base::Status LocalSgd::exchange_due() {
  if (!is_due()) return {};
  const Arrays moved = fragment(moved_.arrays(), next_);
  if (settings_.overlap > 0) {
    overlapped_until_ = step_ + settings_.overlap;
    return peers_.start_allreduce(moved, math::Reduction::kAverage);
  }
  if (auto status = peers_.allreduce(moved, math::Reduction::kAverage); !status.ok()) return status;
  step_outside(part(next_++), After::kReplace);
  return {};
}

base::Status LocalSgd::step(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = begin(parameters); !status.ok()) return status;
  const auto count = [&] {
    ++step_;
    ++since_exchange_;
    peers_.meter.steps += 1;
    peers_.meter.dense_bytes += bytes_of(parameters);
    return base::Status();
  };
  const auto finish = [&] { return step_ >= overlapped_until_ ? finish_overlapped() : base::Status(); };
  const auto collect = [&] {
    if (is_due()) gather(next_);
    return base::Status();
  };
  const auto exchange = [&] { return exchange_due(); };
  const auto note = [&] {
    if (is_due() && settings_.fragments == 1) since_exchange_ = 0;
    return base::Status();
  };
  return peers_.carry_out("mv_local_sgd_step", {count, finish, collect, exchange, note}, timeout);
}

/// Takes part in the exchanges of others and makes the outer steps of these. This rank's movement since its
/// own last exchange is kept.
base::Status LocalSgd::drain() {
  const auto fill = [&](const collective::Shape& shape) -> Arrays {
    Arrays moved = fragment(moved_.arrays(), next_);
    drains_exchange_ = !shape.finished && shape.reduction == math::Reduction::kAverage && check_alike(moved, shape.arrays).ok();
    if (!drains_exchange_) return {};
    for_each_element(moved, []<typename T>(T& value) { value = 0; });
    return moved;
  };
  const auto take = [&](const Arrays&) {
    if (drains_exchange_) step_outside(part(next_++), After::kFollow);
    return base::Status();
  };
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
  const auto& all = peers_.numbers();
  const auto most = static_cast<Since>(*std::max_element(all.begin(), all.end()));
  if (most == Since::kMoved) step_outside({parameters_, outer_.arrays(), velocity_.arrays(), moved_.arrays()}, After::kReplace);
  if (most == Since::kStepped) for_each_element(parameters_, []<typename T>(T& p, T& outer) { p = outer; }, outer_.arrays());
  if (most == Since::kNothing) {
    for_each_element(parameters_, []<typename T>(T& p, T& outer) { outer = p; }, outer_.arrays());
    if (auto status = velocity_.fill_zero(); !status.ok()) return status;
  }
  step_ = since_exchange_ = overlapped_until_ = 0;
  return {};
}

base::Status LocalSgd::synchronize(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = begin(parameters); !status.ok()) return status;
  const auto compare = [&] {
    const Since mine = since_exchange_ > 0 ? Since::kMoved : step_ > 0 ? Since::kStepped : Since::kNothing;
    return peers_.allgather_number(static_cast<int64_t>(mine));
  };
  const auto gather_all = [&] {
    const auto move = []<typename T>(T& p, T& outer, T& moved) { moved = outer - p; };
    for_each_element(parameters_, move, outer_.arrays(), moved_.arrays());
    return base::Status();
  };
  return peers_.carry_out(
      "mv_local_sgd_synchronize",
      {[&] { return finish_overlapped(); }, [&] { return drain(); }, compare, gather_all, [&] { return meet(); },
       [&] { return have_met(); }},
      timeout);
}

}  // namespace mv::distlearn
