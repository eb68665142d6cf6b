// Stochastic gradient Langevin dynamics (Welling and Teh, ICML 2011): g' = clip(rescale_grad g);
// w += sqrt(lr) N - lr / 2 (g' + wd w), where N is normally distributed, a function of seed, Turn::stream and element
// number only.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/sgld.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "base/mix.hpp"
#include "base/prefetch.hpp"
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

constexpr size_t kBatch = 32, kSide = kBatch / 2;
/// Elements for which numbers are drawn at a time: so few that the processor begins with the loads of the next ones meanwhile.
constexpr size_t kDrawn = kAtOnce < 4 * kBatch ? kAtOnce : 4 * kBatch;

/// c0 + c1 x + c2 x^2 + ...
template <class D, typename... Rest>
HWY_INLINE hn::Vec<D> polynomial(D tag, hn::Vec<D> x, float first, Rest... rest) {
  if constexpr (sizeof...(Rest) == 0)
    return hn::Set(tag, first);
  else
    return hn::Add(hn::Mul(polynomial(tag, x, rest...), x), hn::Set(tag, first));
}

/// Normally distributed numbers as a function of the element number. Element e is in batch e / 32, of which the first
/// 16 are the cosines and the last 16 the sines of the Box-Muller transform (1958). It uses only multiplications,
/// additions, divisions and square roots, so that all instruction sets give the same bits. The polynomials are minimax
/// approximations with an error below 1e-6.
class Noise {
 public:
  HWY_INLINE explicit Noise(uint64_t key) : key0_(static_cast<uint32_t>(base::mix(key))), key1_(static_cast<uint32_t>(base::mix(key) >> 32)) {}

  /// Writes the numbers of `batches` batches, of which the first begins with element `first`. Each step is done for all
  /// batches before the next step, so that the processor overlaps the latencies of different batches. Calls before(i)
  /// and after(i) for each batch, where i is its offset in `out`.
  template <typename Before, typename After>
  HWY_INLINE void fill(uint64_t first, size_t batches, float* out, const Before& before, const After& after) const {
    const size_t count = batches * kBatch;
    for (size_t i = 0; i < count; i += kBatch) {
      before(i);
      draw(first + i, out + i);
    }
    for (size_t i = 0; i < count; i += kBatch) find_radius(out + i);
    for (size_t i = 0; i < count; i += kBatch) {
      turn(out + i);
      after(i);
    }
  }

 private:
  /// Uniform numbers above 0 and up to 1, for the radius, and half the angle, from -pi/2 to pi/2.
  HWY_INLINE void draw(uint64_t first, float* out) const {
    const hn::CappedTag<float, kSide> tag;
    const hn::RebindToUnsigned<decltype(tag)> bits;
    // Without this, elements of a tensor that are 2^32 apart would have the same numbers.
    const uint32_t key = key0_ ^ (first >> 32 == 0 ? kLowest : static_cast<uint32_t>(base::mix(first >> 32)));
    for (size_t i = 0; i < kSide; i += hn::Lanes(tag)) {
      const auto places = hn::Iota(bits, static_cast<uint32_t>(first + i));
      const auto one = hashed(bits, hn::Xor(places, hn::Set(bits, key)));
      const auto other = hn::Mul(hn::Add(shifted<16>(one), hn::Set(bits, key1_)), hn::Set(bits, 0xac4c1b51));
      store(hn::Sub(hn::Set(tag, 2.0f), from_one(tag, one)), tag, out + i);
      const auto angle = hn::Mul(from_one(tag, other), hn::Set(tag, 3.14159265f));
      store(hn::Sub(angle, hn::Set(tag, 4.71238898f)), tag, out + kSide + i);
    }
  }
  static HWY_INLINE void find_radius(float* out) {
    const hn::CappedTag<float, kSide> tag;
    for (size_t i = 0; i < kSide; i += hn::Lanes(tag))
      store(hn::Sqrt(minus_two_logarithms(tag, load(tag, out + i))), tag, out + i);
  }
  static HWY_INLINE void turn(float* out) {
    const hn::CappedTag<float, kSide> tag;
    for (size_t i = 0; i < kSide; i += hn::Lanes(tag)) {
      const auto radius = load(tag, out + i), half = load(tag, out + kSide + i), square = hn::Mul(half, half);
      const auto sine =
          hn::Mul(half, polynomial(tag, square, 0.999996616f, -0.166648284f, 8.30632523e-3f, -1.83636539e-4f));
      const auto cosine =
          polynomial(tag, square, 0.999999953f, -0.499999053f, 0.0416635847f, -1.38537043e-3f, 2.31539316e-5f);
      const auto doubled = hn::Mul(hn::Add(sine, sine), radius);
      store(hn::Sub(radius, hn::Mul(doubled, sine)), tag, out + i);
      store(hn::Mul(doubled, cosine), tag, out + kSide + i);
    }
  }
  template <int kBits, class V>
  static HWY_INLINE V shifted(V x) {
    return hn::Xor(x, hn::ShiftRight<kBits>(x));
  }
  /// A bijection of 32 bits of which the upper bits look random: two rounds of xor-shift and multiply, with the
  /// constants of Wellons's "triple32" (the angle's multiplication is the third round).
  template <class B>
  static HWY_INLINE hn::Vec<B> hashed(B bits, hn::Vec<B> x) {
    x = hn::Mul(shifted<17>(x), hn::Set(bits, 0xed5ad4bb));
    return hn::Mul(shifted<11>(x), hn::Set(bits, 0x31848bab));
  }
  /// The upper 23 bits, as a number from 1 up to, but not including, 2.
  template <class D>
  static HWY_INLINE hn::Vec<D> from_one(D tag, hn::Vec<hn::RebindToUnsigned<D>> value) {
    const hn::RebindToUnsigned<D> bits;
    return hn::BitCast(tag, hn::Or(hn::ShiftRight<9>(value), hn::Set(bits, 0x3f800000)));
  }
  /// -2 ln x of normal x > 0: x = 2^e m with m near 1, ln m = 2 artanh((m - 1) / (m + 1)).
  template <class D>
  static HWY_INLINE hn::Vec<D> minus_two_logarithms(D tag, hn::Vec<D> x) {
    const hn::RebindToUnsigned<D> bits;
    const hn::RebindToSigned<D> numbers;
    const auto from_root = hn::Sub(hn::BitCast(bits, x), hn::Set(bits, 0x3f3504f3));  // the square root of 1/2
    const auto exponent = hn::ShiftRight<23>(hn::BitCast(numbers, from_root));
    const auto mantissa =
        hn::BitCast(tag, hn::Add(hn::And(from_root, hn::Set(bits, 0x007fffff)), hn::Set(bits, 0x3f3504f3)));
    const auto one = hn::Set(tag, 1.0f), s = hn::Div(hn::Sub(mantissa, one), hn::Add(mantissa, one));
    const auto series = polynomial(tag, hn::Mul(s, s), -4.00000168f, -1.33288156f, -0.830354118f);
    return hn::Add(hn::Mul(hn::ConvertTo(tag, exponent), hn::Set(tag, -1.38629436f)), hn::Mul(s, series));
  }

  const uint32_t key0_, key1_, kLowest = static_cast<uint32_t>(base::mix(0));
};

/// Prefetches a batch of elements kAtOnce ahead, if the block has them, so that memory works while numbers are drawn.
template <bool kWrite, typename T>
HWY_INLINE void ask_for(const T* elements, size_t count) {
#ifdef MV_ONE_LANE
  (void)elements, (void)count;  // a device has other threads instead
#else
  constexpr size_t kLine = 64 / sizeof(T);
  if (count < kAtOnce + kBatch) return;
  for (size_t i = 0; i < kBatch; i += kLine) base::prefetch<kWrite>(elements + kAtOnce + i);
#endif
}

template <typename T>
HWY_INLINE void sgld(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T half = static_cast<T>(n[kRate] / 2), deviation = static_cast<T>(std::sqrt(n[kRate]));
  const Noise noise(base::mix(static_cast<uint64_t>(n[kOwn])) + block.step->stream);
  const Arrays<T> a(block);
  alignas(64) float normals[kDrawn];
  for (size_t done = 0; done < block.count;) {
    const uint64_t at = block.first + done;
    const size_t skipped = at % kBatch;
    Block some = block;
    some.count = std::min(kDrawn - skipped, block.count - done);
    T* const w = a.w + done;
    const T* const g = a.g + done;
    const size_t left = block.count - done;
    noise.fill(at - skipped, (skipped + some.count + kBatch - 1) / kBatch, normals,
               [&](size_t i) { ask_for<true>(w + i, left - i); }, [&](size_t i) { ask_for<false>(g + i, left - i); });
    const float* const drawn = normals + skipped;
    some.values = reinterpret_cast<std::byte*>(w);
    each<T>(some, [&](auto tag, size_t i) HWY_ATTR {
      const auto old = load(tag, w + i);
      const auto drift = hn::Sub(old, hn::Mul(all(tag, half), gradient.then_decayed(tag, g + i, old)));
      store(hn::Add(drift, hn::Mul(all(tag, deviation), load_as(tag, drawn + i))), tag, w + i);
    });
    done += some.count;
  }
}
MV_INSTANTIATE_FORMULA(sgld)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace sgld {

MV_DISPATCH_FORMULA(sgld)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"seed", 0, 0, 1e15, "seed of the random numbers", {}, true},
};

constexpr Traits kTraits = {};

}  // namespace sgld

constinit const Kind kSgld = {"mx.sgld", sgld::kParameters, true, false, always<0>, sgld::apply, &sgld::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
