// Stochastic gradient descent: w -= rate (g + decay w).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "table/updater/sgd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "table/updater/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::table {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void sgd(const double* parameters, const Block& block) {
  const T rate = static_cast<T>(parameters[0]), decay = static_cast<T>(parameters[1]);
  const Arrays<T> a(block);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i);
    const auto g = decayed(tag, load(tag, a.g + i), w, decay);
    store(hn::Sub(w, hn::Mul(hn::Set(tag, rate), g)), tag, a.w + i);
  });
}
void sgd_f32(const double* parameters, const Block& block) { sgd<float>(parameters, block); }
void sgd_f64(const double* parameters, const Block& block) { sgd<double>(parameters, block); }

}  // namespace HWY_NAMESPACE
}  // namespace mv::table
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::table {
namespace {

HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_f64);

void apply(std::span<const double> parameters, mv_dtype storage, const Block& block) {
  if (storage == MV_F32) return HWY_DYNAMIC_DISPATCH(sgd_f32)(parameters.data(), block);
  HWY_DYNAMIC_DISPATCH(sgd_f64)(parameters.data(), block);
}

constexpr Parameter kParameters[] = {
    {"rate", 0.01, 0, kAnySize, "the learning rate"},
    {"decay", 0, 0, kAnySize, "weight decay: how much of w is added to the gradient"},
};

}  // namespace

constinit const Kind kSgd = {"sgd", kParameters, true, false, always<0>, apply};

}  // namespace mv::table
#endif  // HWY_ONCE
