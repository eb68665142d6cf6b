// LBSGD: sums gradients over batch_scale updates, then makes an SGD step with their mean and a larger rate, lr f. After
// warmup_epochs * updates_per_epoch updates f is batch_scale; until then it grows by warmup_strategy (linear, power2,
// sqrt). lars (You, Gitman and Ginsburg 2017): f = |w| / sqrt(|g|^2 + wd |w|^2), clipped to 0.01 .. 100.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/lbsgd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

/// Values of warmup_strategy.
constexpr double kLinear = 0, kPower2 = 1, kLars = 3;
/// Own parameters, and corrections after them: whether this update makes a step, and the factor of its rate.
enum : size_t { kStrategy = kOwn + 2, kScale = kOwn + 4, kActs = kOwn + 8, kFactorNow };

/// The arrays, and the mean of the summed gradients, including this update's.
template <typename T, bool kHasSpeeds>
struct LbsgdState {
  HWY_INLINE LbsgdState(const double* n, const Block& block)
      : a(block),
        has_sums(n[kScale] > 1),
        speeds(a.state_if(kHasSpeeds, 0)),
        sums(a.state_if(has_sums, kHasSpeeds ? 1 : 0)),
        scale(static_cast<T>(n[kScale])) {}
  template <class D>
  HWY_INLINE hn::Vec<D> mean(D tag, size_t i) const {
    const auto g = load(tag, a.g + i);
    return has_sums ? hn::Div(hn::Add(load(tag, sums + i), g), all(tag, scale)) : g;
  }
  const Arrays<T> a;
  const bool has_sums;
  T* const speeds;
  T* const sums;
  const T scale;
};

/// The factor of all steps of a tensor.
template <typename T>
HWY_INLINE T lbsgd_rate(const double* n, const Step& sums) {
  double factor = n[kFactorNow];
  if (n[kStrategy] == kLars) {
    const auto [w2, g2] = sums.sums;
    factor = std::clamp(std::sqrt(w2 / (g2 + n[kDecay] * w2 + 1e-18)), 0.01, 100.0);
  }
  return static_cast<T>(n[kRate] * factor);
}
template <typename T, bool kHasSpeeds>
HWY_INLINE void lbsgd_with(const double* n, const Block& block, T rate) {
  const LbsgdState<T, kHasSpeeds> state(n, block);
  const Gradient<T> gradient(n);
  if (n[kActs] == 0)
    return each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
      store(hn::Add(load(tag, state.sums + i), load(tag, state.a.g + i)), tag, state.sums + i);
    });
  const T keep = static_cast<T>(n[kOwn]);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, state.a.w + i);
    auto g = hn::Mul(all(tag, gradient.rescale), state.mean(tag, i));
    if (gradient.most > 0) g = clipped(tag, g, gradient.most);
    auto step = hn::Mul(all(tag, rate), hn::Add(g, hn::Mul(all(tag, gradient.decay), w)));
    if constexpr (kHasSpeeds) {
      step = hn::Sub(step, hn::Mul(all(tag, keep), load(tag, state.speeds + i)));
      store(hn::Neg(step), tag, state.speeds + i);
    }
    if (state.has_sums) store(hn::Zero(tag), tag, state.sums + i);
    store(hn::Sub(w, step), tag, state.a.w + i);
  });
}
template <typename T>
HWY_INLINE void lbsgd_at(const double* n, const Block& block, T rate) {
  n[kOwn] != 0 ? lbsgd_with<T, true>(n, block, rate) : lbsgd_with<T, false>(n, block, rate);
}
template <typename T>
HWY_INLINE void lbsgd(const double* n, const Block& block) {
  lbsgd_at(n, block, n[kActs] != 0 ? lbsgd_rate<T>(n, *block.step) : T(0));
}
MV_INSTANTIATE_FORMULA(lbsgd)

template <typename T, bool kHasSpeeds>
HWY_INLINE void lbsgd_measure_with(const double* n, const Block& block, double* sums) {
  const LbsgdState<T, kHasSpeeds> state(n, block);
  Squares w2, g2;
  alignas(64) T means[kAtOnce];
  for (size_t done = 0; done < block.count; done += kAtOnce) {
    Block some = block;
    some.count = std::min(size_t{kAtOnce}, block.count - done);
    each<T>(some, [&](auto tag, size_t i) HWY_ATTR { store(state.mean(tag, done + i), tag, means + i); });
    w2.add(state.a.w + done, some.count);
    g2.add(means, some.count);
  }
  sums[0] += w2.total();
  sums[1] += g2.total();
}
template <typename T>
HWY_INLINE void lbsgd_measure(const double* n, const Block& block, double* sums) {
  if (n[kActs] == 0) return;
  n[kOwn] != 0 ? lbsgd_measure_with<T, true>(n, block, sums) : lbsgd_measure_with<T, false>(n, block, sums);
}
MV_INSTANTIATE_MEASURE(lbsgd_measure)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace lbsgd {

using HWY_NAMESPACE::kFactorNow, HWY_NAMESPACE::kLinear, HWY_NAMESPACE::kPower2, HWY_NAMESPACE::kLars;
using HWY_NAMESPACE::kStrategy, HWY_NAMESPACE::kScale, HWY_NAMESPACE::kActs;

MV_DISPATCH_FORMULA(lbsgd)

MV_DISPATCH_MEASURE(lbsgd_measure)

constexpr const char* kStrategies[] = {"linear", "power2", "sqrt", "lars"};
constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"momentum", 0, 0, 1, "decay factor of the velocity"},
    {"multi_precision", 0, 0, 1, "ignored: 16-bit floats are always updated in 32 bits"},
    {"warmup_strategy", 0, 0, 3, "how the factor of the rate grows", kStrategies, false, "warmup_startegy"},
    {"warmup_epochs", 5, 0, 1e9, "how many epochs it grows", {}, true},
    {"batch_scale",
     1,
     1,
     1e9,
     "updates whose gradients are combined into one step; also the final factor of the rate",
     {},
     true},
    {"updates_per_epoch", 32, 1, 1e9, "updates per epoch", {}, true},
    {"begin_epoch", 0, 0, 1e9, "epochs counted as already made", {}, true},
    {"num_epochs", 60, 0, 1e9, "ignored", {}, true},
};

bool gathers(std::span<const double> parameters) { return parameters[5] > 1; }
size_t states(std::span<const double> parameters) {
  return (parameters[1] != 0 ? 1 : 0) + (gathers(parameters) ? 1 : 0);
}
size_t sums(std::span<const double> parameters) { return parameters[3] == kLars ? 2 : 0; }

double grown(double strategy, double part) {
  if (strategy == kLinear) return part;
  return strategy == kPower2 ? part * part : std::sqrt(part);
}

void correct(double* n, uint64_t count, std::span<const double>) {
  const double scale = n[kScale], now = n[kOwn + 6] * n[kOwn + 5] + static_cast<double>(count);
  const double warmup = n[kOwn + 3] * n[kOwn + 5];
  n[kActs] = std::fmod(now, scale) == 0 ? 1 : 0;
  n[kFactorNow] = now >= warmup ? scale : warmup <= 1 ? 1 : 1 + (scale - 1) * grown(n[kStrategy], now / warmup);
}
constexpr Traits kTraits = {.correct = correct, .sums = sums, .measure = measure, .rate_comes_first = true};

}  // namespace lbsgd

constinit const Kind kLbsgd = {"mx.lbsgd", lbsgd::kParameters, true, false, lbsgd::states, lbsgd::apply, &lbsgd::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
