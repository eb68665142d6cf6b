// MXNet's Test: w += rescale_grad g, and the state is a copy of w.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/test.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void test(const double* n, const Block& block) {
  const T rescale = static_cast<T>(n[kRescale]);
  const Arrays<T> a(block);
  T* const copies = a.state(0);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = hn::Add(load(tag, a.w + i), hn::Mul(load(tag, a.g + i), all(tag, rescale)));
    store(w, tag, a.w + i);
    store(w, tag, copies + i);
  });
}
MV_INSTANTIATE_FORMULA(test)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace test {

MV_DISPATCH_FORMULA(test)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "ignored"},
};

constexpr Traits kTraits = {};

}  // namespace test

constinit const Kind kTest = {"mx.test", test::kParameters, true, false, always<1>, test::apply, &test::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
