#pragma once
// The kernels of work.h: what one thread of a device computes. A plug-in's compiler compiles them for its devices, and the
// tests' emulation for the processor, so that the tests check the very code that devices run.
//
// A body divides its work into tiles. It is called for each tile by `lanes` threads, which share the tile's items; no body
// depends on the order of the calls, or on the number of lanes. A body with kSteps has step<k>() instead, with memory that
// the tile's threads share: all of them have ended a step before one begins the next.

#include <hwy/highway.h>

#ifndef MV_ONE_LANE
#error "before core, the include path needs core/device/one_lane"
#endif

#include "base/both.hpp"
#include "device/plugin.h"
#include "device/work.h"
#include "math/elements.hpp"
#include "math/lanes-inl.hpp"
#include "tensor/cast-inl.hpp"
#include "tensor/random-inl.hpp"

namespace mv::device {

namespace hn = hwy::HWY_NAMESPACE;
using math::Computed;

inline constexpr uint64_t kTile = MV_DEVICE_TILE;
/// The library's sums: 16 sums of each chunk of 512.
inline constexpr uint64_t kChunk = 512, kLanes = 16;

MV_BOTH constexpr uint64_t parts(uint64_t count, uint64_t size) { return count / size + (count % size != 0 ? 1 : 0); }
/// count / size, where a division of 64 bits, which takes much longer, is mostly not needed.
MV_BOTH constexpr uint64_t divided(uint64_t count, uint64_t size) {
  return (count | size) <= UINT32_MAX ? static_cast<uint32_t>(count) / static_cast<uint32_t>(size) : count / size;
}
MV_BOTH constexpr uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

template <typename T>
constexpr bool kIsHalf = !std::is_same_v<T, Computed<T>>;

/// An element as the type in which it is computed, and back.
template <typename T>
MV_BOTH Computed<T> get(const T* from, uint64_t i) {
  if constexpr (std::is_same_v<T, math::Half<MV_F16>>)
    return math::HWY_NAMESPACE::widen_f16(hn::OneLane<float>(), from[i].bits);
  else if constexpr (std::is_same_v<T, math::Half<MV_BF16>>)
    return math::HWY_NAMESPACE::widen_bf16(hn::OneLane<float>(), from[i].bits);
  else
    return from[i];
}
template <typename T>
MV_BOTH void put(T* to, uint64_t i, Computed<T> value) {
  if constexpr (std::is_same_v<T, math::Half<MV_F16>>)
    to[i].bits = math::HWY_NAMESPACE::narrow_f16(hn::OneLane<float>(), value);
  else if constexpr (std::is_same_v<T, math::Half<MV_BF16>>)
    to[i].bits = math::HWY_NAMESPACE::narrow_bf16(hn::OneLane<float>(), value);
  else
    to[i] = value;
}
/// Converts as tensor::cast_elements() does: rounds once.
template <typename T, typename From>
MV_BOTH void put_as(T* to, uint64_t i, From value) {
  if constexpr (!kIsHalf<T>)
    put(to, i, tensor::both::convert<T>(value));
  else if constexpr (std::is_same_v<From, float>)
    put(to, i, value);
  else if constexpr (std::is_same_v<From, int64_t>)
    put(to, i, tensor::both::round_to_odd(tensor::both::upper_bits(value)));
  else
    put(to, i, tensor::both::round_to_odd(tensor::both::convert<double>(value)));
}
/// An element of a float dtype that is known only at run time.
template <typename T>
MV_BOTH T get_as(mv_dtype dtype, const void* from, uint64_t i) {
  if (dtype == MV_F32) return static_cast<T>(static_cast<const float*>(from)[i]);
  if (dtype == MV_F64) return static_cast<T>(static_cast<const double*>(from)[i]);
  if (dtype == MV_F16) return static_cast<T>(get(static_cast<const math::Half<MV_F16>*>(from), i));
  return static_cast<T>(get(static_cast<const math::Half<MV_BF16>*>(from), i));
}
template <typename T>
MV_BOTH T from_bytes(const uint8_t (&bytes)[8]) {
  T value;
  memcpy(&value, bytes, sizeof(T));
  return value;
}

/// A body of `count` independent items: item(i) for each. An item may have two functions instead, make(i) and put(i, made). A thread makes
/// kAtOnce of these before it puts the first one, so that it waits for memory once. make_some(i, step, made), if there is one, makes them all.
template <typename Item, uint64_t kItems>
struct Over {
  Item item;
  uint64_t count;
  uint64_t tiles() const { return parts(count, kItems); }
  MV_BOTH void operator()(uint64_t tile, uint32_t lane, uint32_t lanes) const {
    const uint64_t end = least((tile + 1) * kItems, count);
    uint64_t i = tile * kItems + lane;
    if constexpr (requires { item.make(i); }) {
      constexpr uint32_t kAtOnce = Item::kAtOnce;
      for (; kAtOnce > 1 && i + (kAtOnce - 1) * lanes < end; i += kAtOnce * lanes) {
        decltype(item.make(i)) made[kAtOnce];
        if constexpr (requires { item.make_some(i, lanes, made); }) {
          item.make_some(i, lanes, made);
        } else {
          MV_UNROLL
          for (uint32_t k = 0; k < kAtOnce; ++k) made[k] = item.make(i + k * lanes);
        }
        MV_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) item.put(i + k * lanes, made[k]);
      }
      for (; i < end; i += lanes) item.put(i, item.make(i));
    } else {
      for (; i < end; i += lanes) item(i);
    }
  }
};
/// kAtOnce of items that do little with an element.
template <typename T>
inline constexpr uint32_t kFew = sizeof(T) >= 4 ? 4 : 8;

/// For items of one element, and for items of many: these have small tiles, so that more threads share the work.
template <typename Item>
Over<Item, kTile> over(uint64_t count, const Item& item) {
  return {item, count};
}
template <typename Item>
Over<Item, 256> over_large(uint64_t count, const Item& item) {
  return {item, count};
}

template <typename T>
struct Fill {
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_fill work;
  MV_BOTH T make(uint64_t) const { return from_bytes<T>(work.value); }
  MV_BOTH void put(uint64_t i, T value) const { static_cast<T*>(work.out)[i] = value; }
};
template <typename T>
struct Range {
  mv_device_range work;
  MV_BOTH void operator()(uint64_t i) const { put_as(static_cast<T*>(work.out), i, work.start + static_cast<double>(i) * work.step); }
};
template <typename To, typename From>
struct Cast {
  static constexpr uint32_t kAtOnce = kFew<From>;
  mv_device_cast work;
  MV_BOTH auto make(uint64_t i) const { return static_cast<const From*>(work.in)[i]; }
  MV_BOTH void put(uint64_t i, From value) const { put_as(static_cast<To*>(work.out), i, get(&value, 0)); }
};
template <typename T>
struct Nonfinite {
  using C = Computed<T>;
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_nonfinite work;
  MV_BOTH C make(uint64_t i) const { return get(static_cast<const T*>(work.in), i); }
  MV_BOTH void put(uint64_t, C value) const {
    if (!(value - value == 0)) *work.found = 1;
  }
};
template <typename T>
struct Arrange {
  static constexpr uint32_t kAtOnce = 4;
  mv_device_arrange work;
  MV_BOTH T make(uint64_t i) const {
    uint64_t left = i, at = 0;
    for (uint32_t d = work.dims; d-- > 0; left /= work.lengths[d]) at += left % work.lengths[d] * work.steps[d];
    return static_cast<const T*>(work.in)[at];
  }
  MV_BOTH void put(uint64_t i, T value) const { static_cast<T*>(work.out)[i] = value; }
};

/// Unsigned, and wide enough that integers wrap instead of overflowing.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <typename T>
MV_BOTH T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  else
    return a + b;
}
template <typename T>
MV_BOTH T minus(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  else
    return a - b;
}
template <typename T>
MV_BOTH T times(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  else
    return a * b;
}
template <typename T>
MV_BOTH T power(T base, T exponent) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(std::pow(double{base}, double{exponent}));
  } else {
    if constexpr (std::is_signed_v<T>)
      if (exponent < 0) return 0;
    T result = 1;
    for (auto left = static_cast<uint64_t>(exponent); left > 0; left >>= 1, base = times(base, base))
      if ((left & 1) != 0) result = times(result, base);
    return result;
  }
}

/// kOp is an mv_tensor_unary_op.
template <typename T, int kOp>
struct Unary {
  using C = Computed<T>;
  static constexpr uint32_t kAtOnce = kOp == MV_EXP || kOp == MV_LOG ? 1 : kFew<T>;
  mv_device_unary work;
  MV_BOTH C make(uint64_t i) const {
    const C a = get(static_cast<const T*>(work.in), i);
    C result = a;
    if constexpr (std::is_integral_v<C>) {
      if constexpr (kOp == MV_NEG || std::is_signed_v<C>)
        if (kOp == MV_NEG || a < 0) result = minus(C{0}, a);
    } else {
      if constexpr (kOp == MV_NEG) result = -a;
      if constexpr (kOp == MV_ABS) result = std::fabs(a);
      if constexpr (kOp == MV_SQRT) result = std::sqrt(a);
      if constexpr (kOp == MV_EXP) result = static_cast<C>(tensor::both::exp(double{a}));
      if constexpr (kOp == MV_LOG) result = static_cast<C>(tensor::both::log(double{a}));
    }
    return result;
  }
  MV_BOTH void put(uint64_t i, C result) const { device::put(static_cast<T*>(work.out), i, result); }
};

/// kOp is an mv_tensor_binary_op.
template <int kOp, typename C>
MV_BOTH auto combined(C a, C b) {
  if constexpr (kOp == MV_EQ)
    return static_cast<uint8_t>(a == b);
  else if constexpr (kOp == MV_NE)
    return static_cast<uint8_t>(a != b);
  else if constexpr (kOp == MV_LT)
    return static_cast<uint8_t>(a < b);
  else if constexpr (kOp == MV_LE)
    return static_cast<uint8_t>(a <= b);
  else if constexpr (kOp == MV_GT)
    return static_cast<uint8_t>(a > b);
  else if constexpr (kOp == MV_GE)
    return static_cast<uint8_t>(a >= b);
  else if constexpr (kOp == MV_ADD)
    return plus(a, b);
  else if constexpr (kOp == MV_SUB)
    return minus(a, b);
  else if constexpr (kOp == MV_MUL)
    return times(a, b);
  else if constexpr (kOp == MV_DIV)
    return a / b;
  else if constexpr (kOp == MV_POW)
    return power(a, b);
  else if constexpr (kOp == MV_MIN)
    return a < b || a != a ? a : b;
  else
    return a > b || a != a ? a : b;
}
template <typename T, int kOp>
struct Binary {
  static constexpr uint32_t kAtOnce = kOp == MV_POW ? 1 : kFew<T>;
  mv_device_binary work;
  static MV_BOTH Computed<T> operand(const mv_device_operand& of, uint64_t i) {
    if (of.data != nullptr) return get(static_cast<const T*>(of.data), of.is_single != 0 ? 0 : i);
    const T value = from_bytes<T>(of.value);
    return get(&value, 0);
  }
  MV_BOTH auto make(uint64_t i) const { return combined<kOp>(operand(work.a, i), operand(work.b, i)); }
  template <typename Result>
  MV_BOTH void put(uint64_t i, Result result) const {
    if constexpr (kOp >= MV_EQ)
      static_cast<uint8_t*>(work.out)[i] = result;
    else
      device::put(static_cast<T*>(work.out), i, result);
  }
};

template <typename T, typename From>
struct Axpy {
  using C = Computed<T>;
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_axpy work;
  MV_BOTH C make(uint64_t i) const {
    const C x = tensor::both::convert<C>(get(static_cast<const From*>(work.x), i));
    return plus(get(static_cast<const T*>(work.y), i), times(tensor::both::convert<C>(work.alpha), x));
  }
  MV_BOTH void put(uint64_t i, C sum) const { device::put(static_cast<T*>(work.y), i, sum); }
};

template <typename T, int kOp>
struct Merge {
  using C = Computed<T>;
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_merge work;
  template <uint32_t kCount>
  MV_BOTH void make_some(uint64_t i, uint64_t step, C (&values)[kCount]) const {
    MV_UNROLL
    for (uint32_t k = 0; k < kCount; ++k) values[k] = get(static_cast<const T*>(work.sources[0]), i + k * step);
    for (uint64_t source = 1; source < work.source_count; ++source) {
      C next[kCount];
      MV_UNROLL
      for (uint32_t k = 0; k < kCount; ++k) next[k] = get(static_cast<const T*>(work.sources[source]), i + k * step);
      MV_UNROLL
      for (uint32_t k = 0; k < kCount; ++k) values[k] = merged(values[k], next[k]);
    }
    if constexpr (kOp == MV_DEVICE_MERGE_MEAN) {
      MV_UNROLL
      for (uint32_t k = 0; k < kCount; ++k) values[k] = values[k] / static_cast<C>(work.divisor);
    }
  }
  MV_BOTH C make(uint64_t i) const {
    C value[1];
    make_some(i, 0, value);
    return value[0];
  }
  MV_BOTH void put(uint64_t i, C value) const { device::put(static_cast<T*>(work.dst), i, value); }

 private:
  static MV_BOTH C merged(C a, C b) {
    if constexpr (kOp == MV_DEVICE_MERGE_PROD)
      return times(a, b);
    else if constexpr (kOp == MV_DEVICE_MERGE_MIN)
      return combined<MV_MIN>(a, b);
    else if constexpr (kOp == MV_DEVICE_MERGE_MAX)
      return combined<MV_MAX>(a, b);
    else
      return plus(a, b);
  }
};

/// Item i is a block of random bits, which serves two elements.
template <typename T, bool kIsNormal>
struct Random {
  mv_device_random work;
  MV_BOTH void operator()(uint64_t i) const {
    namespace both = tensor::both;
    const auto seed = static_cast<uint64_t>(work.seed);
    const auto stream = kIsNormal ? both::Stream::kNormal : both::Stream::kUniform;
    const auto made = both::philox({{static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, static_cast<uint32_t>(stream)}},
                                   static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    for (uint64_t k = 0; k < 2 && 2 * i + k < work.count; ++k) {
      const uint64_t word = made.words[2 * k] | uint64_t{made.words[2 * k + 1]} << 32;
      T* const out = static_cast<T*>(work.out);
      if constexpr (std::is_integral_v<T>)
        put_as(out, 2 * i + k, both::integer(word, work.from, work.width));
      else
        put_as(out, 2 * i + k, kIsNormal ? both::normal(word, work.a, work.b) : both::uniform(word, work.a, work.b));
    }
  }
};

/// MV_DEVICE_SUM_CHUNKS: a tile is 16 chunks, and each of their lanes a term.
template <typename T>
struct SumChunks {
  static constexpr uint32_t kSteps = 2, kSome = 16;
  struct Shared {
    double terms[kSome * kLanes];
  };
  mv_device_sum work;
  uint64_t tiles() const { return parts(work.outer * parts(work.along, kChunk), kSome); }
  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    const uint64_t chunks = parts(work.along, kChunk), all = work.outer * chunks;
    if constexpr (kStep == 0) {
      for (uint32_t term = lane; term < kSome * kLanes; term += lanes) {
        const uint64_t number = tile * kSome + term / kLanes;
        if (number >= all) continue;
        const uint64_t outer = divided(number, chunks), chunk = number - outer * chunks;
        const uint64_t end = outer * work.along + least((chunk + 1) * kChunk, work.along);
        shared.terms[term] = sum(outer * work.along + chunk * kChunk + term % kLanes, end);
      }
    } else {
      for (uint32_t chunk = lane; chunk < kSome && tile * kSome + chunk < all; chunk += lanes) {
        double sums[kLanes];
        MV_UNROLL
        for (uint32_t k = 0; k < kLanes; ++k) sums[k] = shared.terms[chunk * kLanes + k];
        MV_UNROLL
        for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
          MV_UNROLL
          for (uint32_t k = 0; k < half; ++k) sums[k] += sums[k + half];
        }
        static_cast<double*>(work.out)[tile * kSome + chunk] = sums[0];
      }
    }
  }

 private:
  MV_BOTH double term(uint64_t at) const {
    const auto value = tensor::both::convert<double>(get(static_cast<const T*>(work.in), at));
    return work.op == MV_NORM ? value * value : value;
  }
  MV_BOTH double sum(uint64_t at, uint64_t end) const {
    constexpr uint32_t kAtOnce = 8;
    double sum = 0;
    for (; at + (kAtOnce - 1) * kLanes < end; at += kAtOnce * kLanes) {
      double terms[kAtOnce];
      MV_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) terms[k] = term(at + k * kLanes);
      MV_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) sum += terms[k];
    }
    for (; at < end; at += kLanes) sum += term(at);
    return sum;
  }
};
/// tensor::PairwiseSum over up to kChunk terms, or a level of it. A tile is a group of terms; each step adds eights of the step before.
struct SumPairs {
  static constexpr uint32_t kSteps = 3, kEight = 8;
  struct Shared {
    double eights[kChunk / kEight], more[kEight];
  };
  mv_device_sum work;
  uint64_t tiles() const { return work.outer * parts(work.along, kChunk); }
  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    const uint64_t groups = parts(work.along, kChunk), whole = work.along / kChunk, outer = divided(tile, groups), group = tile - outer * groups;
    const uint64_t first = group * kChunk;
    const auto count = static_cast<uint32_t>(least(kChunk, work.along - first)), eights = count / kEight, more = eights / kEight;
    const double* const terms = static_cast<const double*>(work.in) + outer * work.along + first;
    if constexpr (kStep == 0)
      for (uint32_t k = lane; k < eights; k += lanes) shared.eights[k] = of_eight(terms + k * kEight);
    if constexpr (kStep == 1)
      for (uint32_t k = lane; k < more; k += lanes) shared.more[k] = of_eight(shared.eights + k * kEight);
    if (kStep < 2 || lane != 0) return;
    if (count == kChunk) {
      static_cast<double*>(work.out)[outer * whole + group] = of_eight(shared.more);
      return;
    }
    double total = work.rest != nullptr ? static_cast<const double*>(work.rest)[outer] : 0;
    total = with_few(terms + eights * kEight, count % kEight, total);
    total = with_few(shared.eights + more * kEight, eights % kEight, total);
    static_cast<double*>(work.rest_out)[outer] = with_few(shared.more, more, total);
  }

 private:
  static MV_BOTH double of_four(const double* terms) { return (terms[0] + terms[1]) + (terms[2] + terms[3]); }
  static MV_BOTH double of_eight(const double* terms) { return of_four(terms) + of_four(terms + 4); }
  /// Less than eight, from the last ones on.
  static MV_BOTH double with_few(const double* terms, uint32_t count, double total) {
    if ((count & 1) != 0) total = terms[count - 1] + total;
    if ((count & 2) != 0) total = (terms[count & 4] + terms[(count & 4) + 1]) + total;
    return (count & 4) != 0 ? of_four(terms) + total : total;
  }
};
template <typename T>
struct SumColumns {
  mv_device_sum work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t outer = i / work.inner, column = i % work.inner;
    double sum = 0, lost = 0;
    for (uint64_t j = 0; j < work.along; ++j) {
      auto term = tensor::both::convert<double>(get(static_cast<const T*>(work.in), (outer * work.along + j) * work.inner + column));
      if (work.op == MV_NORM) term = term * term;
      const double next = sum + term, part = next - sum;
      if constexpr (std::is_same_v<T, double>) lost += (sum - (next - part)) + (term - part);
      sum = next;
    }
    static_cast<double*>(work.out)[i] = std::is_same_v<T, double> && std::isfinite(lost) ? sum + lost : sum;
  }
};
template <typename T>
struct SumFinish {
  mv_device_sum work;
  MV_BOTH void operator()(uint64_t i) const {
    double sum = static_cast<const double*>(work.in)[i];
    if (work.op == MV_NORM) sum = std::sqrt(sum);
    if (work.op == MV_MEAN) sum = sum / static_cast<double>(work.along);
    put_as(static_cast<T*>(work.out), i, sum);
  }
};

template <typename T>
struct FoldSum {
  mv_device_fold work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t groups = parts(work.along, kChunk), column = i % work.inner, group = i / work.inner % groups, outer = i / work.inner / groups;
    int64_t sum = 0;
    for (uint64_t j = group * kChunk; j < least((group + 1) * kChunk, work.along); ++j)
      sum = plus(sum, tensor::both::convert<int64_t>(get(static_cast<const T*>(work.in), (outer * work.along + j) * work.inner + column)));
    static_cast<int64_t*>(work.out)[i] = sum;
  }
};
template <typename T>
struct FoldExtremes {
  mv_device_fold work;
  MV_BOTH void operator()(uint64_t i) const {
    const bool is_greatest = work.op == MV_GREATEST || work.op == MV_ARGMAX;
    const uint64_t groups = parts(work.along, kChunk), column = i % work.inner, group = i / work.inner % groups, outer = i / work.inner / groups;
    uint64_t best = 0;
    Computed<T> value{};
    for (uint64_t j = group * kChunk; j < least((group + 1) * kChunk, work.along); ++j) {
      const uint64_t at = (outer * work.along + j) * work.inner + column;
      const auto candidate = get(static_cast<const T*>(work.in), at);
      const bool is_nan = candidate != candidate, was_nan = value != value, is_better = is_greatest ? candidate > value : candidate < value;
      if (j > group * kChunk && !is_better && (!is_nan || was_nan)) continue;
      value = candidate;
      best = j;
    }
    const uint64_t at = (outer * work.along + best) * work.inner + column;
    static_cast<T*>(work.out)[i] = static_cast<const T*>(work.in)[at];
    work.positions_out[i] = work.positions != nullptr ? work.positions[at] : static_cast<int64_t>(best);
  }
};

}  // namespace mv::device
