// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/outer_step.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "math/lanes-inl.hpp"
#include "math/outer_step.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math::HWY_NAMESPACE {

template <typename T>
HWY_INLINE double step_floats(std::byte* model_bytes, std::byte* slow_bytes, std::byte* momentum_bytes, const SlowModel& own, const SlowModel& peer,
                             size_t count, const OuterFactors& factors) {
  const auto of = [](auto* bytes) { return reinterpret_cast<const T*>(bytes); };
  auto *model = reinterpret_cast<T*>(model_bytes), *slow = reinterpret_cast<T*>(slow_bytes), *momentum = reinterpret_cast<T*>(momentum_bytes);
  const T *own_slow = of(own.slow), *own_delta = of(own.delta), *peer_slow = of(peer.slow), *peer_delta = of(peer.delta);
  const T alpha = static_cast<T>(factors.alpha), half_beta = static_cast<T>(factors.beta / 2), half_gamma = static_cast<T>(factors.gamma / 2);
  return sum_of_squares<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto phi = load(tag, own_slow + i), delta = load(tag, own_delta + i);
    const auto their_phi = load(tag, peer_slow + i), their_delta = load(tag, peer_delta + i);
    const auto published = hn::Add(phi, delta);
    const auto trained_since = hn::Sub(load(tag, model + i), published);
    const auto kept = hn::Mul(hn::Set(tag, alpha), load(tag, momentum + i));
    const auto gained = hn::Mul(hn::Set(tag, half_beta), hn::Add(delta, their_delta));
    const auto drawn = hn::Mul(hn::Set(tag, half_gamma), hn::Sub(their_phi, phi));
    const auto moved = hn::Add(hn::Add(kept, gained), drawn);
    const auto fresh = hn::Add(phi, moved);
    store(moved, tag, momentum + i);
    store(fresh, tag, slow + i);
    store(hn::Add(fresh, trained_since), tag, model + i);
    return hn::Sub(hn::Add(their_phi, their_delta), published);
  });
}

double outer_step(mv_dtype dtype, std::byte* model, std::byte* slow, std::byte* momentum, const SlowModel& own, const SlowModel& peer,
                  size_t count, const OuterFactors& factors) {
  return with_float(dtype, [&](auto type) HWY_ATTR { return step_floats<decltype(type)>(model, slow, momentum, own, peer, count, factors); });
}

}  // namespace mv::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
HWY_EXPORT(outer_step);

double outer_step_bytes(mv_dtype dtype, std::byte* model, std::byte* slow, std::byte* momentum, const SlowModel& own, const SlowModel& peer,
                        size_t count, const OuterFactors& factors) noexcept {
  return HWY_DYNAMIC_DISPATCH(outer_step)(dtype, model, slow, momentum, own, peer, count, factors);
}

}  // namespace mv::math
#endif  // HWY_ONCE
