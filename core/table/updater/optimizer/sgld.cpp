// Stochastic gradient Langevin dynamics (Welling and Teh, ICML 2011): g' = clip(rescale_grad g);
// w += sqrt(lr) N - lr / 2 (g' + wd w), where N is normal: a function of seed, update and element number only.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "table/updater/optimizer/sgld.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "table/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::table::optimizer {
namespace HWY_NAMESPACE {

constexpr size_t kBatch = 32, kSide = kBatch / 2;

/// c0 + c1 x + c2 x^2 + ...
template <class D, typename... Rest>
HWY_INLINE hn::Vec<D> polynomial(D tag, hn::Vec<D> x, float first, Rest... rest) {
  if constexpr (sizeof...(Rest) == 0)
    return hn::Set(tag, first);
  else
    return hn::Add(hn::Mul(polynomial(tag, x, rest...), x), hn::Set(tag, first));
}

/// Normal numbers by their places: element e is in batch e / 32, whose first 16 are the cosines and the last 16 the sines
/// of Box and Muller's transform (1958). Multiplications, additions, divisions and roots alone: all instruction sets give
/// the same bits. The polynomials are minimax ones, to within 1e-6.
class Noise {
 public:
  explicit Noise(uint64_t key) : key0_(static_cast<uint32_t>(mix(key))), key1_(static_cast<uint32_t>(mix(key) >> 32)) {}

  /// Of the batch that begins with this element.
  HWY_INLINE void fill(uint64_t first, float* out) const {
    const hn::CappedTag<float, kSide> tag;
    const hn::RebindToUnsigned<decltype(tag)> bits;
    // Elements 2^32 apart in one tensor would share their numbers, but for this.
    const uint32_t key = key0_ ^ static_cast<uint32_t>(mix(first >> 32));
    for (size_t i = 0; i < kSide; i += hn::Lanes(tag)) {
      const auto places = hn::Iota(bits, static_cast<uint32_t>(first + i));
      const auto one = hashed(bits, hn::Xor(places, hn::Set(bits, key)));
      const auto other = hashed(bits, hn::Add(one, hn::Set(bits, key1_)));
      // Above 0 and up to 1; half the angle, from -pi/2 to pi/2.
      const auto size = hn::Mul(upper_bits(tag, one, 1), hn::Set(tag, 0x1p-24f));
      const auto half =
          hn::Sub(hn::Mul(upper_bits(tag, other, 0), hn::Set(tag, 0x1.921fb6p-23f)), hn::Set(tag, 1.57079633f));
      const auto radius = hn::Sqrt(hn::Mul(hn::Set(tag, -2.0f), logarithm(tag, size)));
      const auto square = hn::Mul(half, half);
      const auto sine =
          hn::Mul(half, polynomial(tag, square, 0.999996616f, -0.166648284f, 8.30632523e-3f, -1.83636539e-4f));
      const auto cosine =
          polynomial(tag, square, 0.999999953f, -0.499999053f, 0.0416635847f, -1.38537043e-3f, 2.31539316e-5f);
      const auto doubled = hn::Mul(hn::Add(sine, sine), radius);
      store(hn::Sub(radius, hn::Mul(doubled, sine)), tag, out + i);
      store(hn::Mul(doubled, cosine), tag, out + kSide + i);
    }
  }

 private:
  /// A bijection of 32 bits that leaves no trace of its argument: two rounds of xor-shift and multiply, with Wellons's
  /// "lowbias32" constants.
  template <class B>
  static HWY_INLINE hn::Vec<B> hashed(B bits, hn::Vec<B> x) {
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(bits, 0x7feb352d));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(bits, 0x846ca68b));
    return hn::Xor(x, hn::ShiftRight<16>(x));
  }
  /// The upper 24 bits and a little more, as a number.
  template <class D>
  static HWY_INLINE hn::Vec<D> upper_bits(D tag, hn::Vec<hn::RebindToUnsigned<D>> value, uint32_t more) {
    const hn::RebindToUnsigned<D> bits;
    const auto upper = hn::Add(hn::ShiftRight<8>(value), hn::Set(bits, more));
    return hn::ConvertTo(tag, hn::BitCast(hn::RebindToSigned<D>(), upper));
  }
  /// ln x of normal x > 0: x = 2^e m with m near 1, ln m = 2 artanh((m - 1) / (m + 1)).
  template <class D>
  static HWY_INLINE hn::Vec<D> logarithm(D tag, hn::Vec<D> x) {
    const hn::RebindToUnsigned<D> bits;
    const hn::RebindToSigned<D> numbers;
    const auto from_root = hn::Sub(hn::BitCast(bits, x), hn::Set(bits, 0x3f3504f3));  // the root of 1/2
    const auto exponent = hn::ShiftRight<23>(hn::BitCast(numbers, from_root));
    const auto mantissa =
        hn::BitCast(tag, hn::Add(hn::And(from_root, hn::Set(bits, 0x007fffff)), hn::Set(bits, 0x3f3504f3)));
    const auto one = hn::Set(tag, 1.0f), s = hn::Div(hn::Sub(mantissa, one), hn::Add(mantissa, one));
    const auto series = polynomial(tag, hn::Mul(s, s), 2.00000084f, 0.66644078f, 0.415177059f);
    return hn::Add(hn::Mul(hn::ConvertTo(tag, exponent), hn::Set(tag, 0.693147181f)), hn::Mul(s, series));
  }

  const uint32_t key0_, key1_;
};

template <typename T>
HWY_INLINE void sgld(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T half = static_cast<T>(n[kRate] / 2), deviation = static_cast<T>(std::sqrt(n[kRate]));
  const Noise noise(mix(static_cast<uint64_t>(n[kOwn])) + block.step->stream);
  const Arrays<T> a(block);
  alignas(64) float normals[kAtOnce];
  for (size_t done = 0; done < block.count;) {
    const uint64_t at = block.first + done;
    const size_t skipped = at % kBatch;
    Block some = block;
    some.count = std::min(kAtOnce - skipped, block.count - done);
    for (size_t i = 0; i < skipped + some.count; i += kBatch) noise.fill(at - skipped + i, normals + i);
    T* const w = a.w + done;
    const T* const g = a.g + done;
    const float* const drawn = normals + skipped;
    each<T>(some, [&](auto tag, size_t i) HWY_ATTR {
      const auto old = load(tag, w + i);
      const auto drift = hn::Sub(old, hn::Mul(all(tag, half), gradient.then_decayed(tag, g + i, old)));
      store(hn::Add(drift, hn::Mul(all(tag, deviation), load_as(tag, drawn + i))), tag, w + i);
    });
    done += some.count;
  }
}
MV_INSTANTIATE_FORMULA(sgld)

}  // namespace HWY_NAMESPACE
}  // namespace mv::table::optimizer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::table::optimizer {
namespace {

MV_DISPATCH_FORMULA(sgld)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "the rate, where a schedule begins"},
    {"seed", 0, 0, 1e15, "of its random numbers", {}, true},
};

constexpr Traits kTraits = {};

}  // namespace

constinit const Kind kSgld = {"mx.sgld", kParameters, true, false, always<0>, apply, &kTraits};

}  // namespace mv::table::optimizer
#endif  // HWY_ONCE
