#pragma once
// The kernels of work.h: what one thread of a device computes. A plug-in's compiler compiles them for its devices, and the
// tests' emulation for the processor, so that the tests check the very code that devices run.
//
// A body divides its work into tiles. It is called for each tile by `lanes` threads, which share the tile's items; no body
// depends on the order of the calls, or on the number of lanes.

#include "device/formulas.hpp"
#include "device/plugin.h"
#include "device/work.h"
#include "math/elements.hpp"
#include "tensor/cast-inl.hpp"
#include "tensor/random-inl.hpp"

namespace mv::device {

namespace hn = hwy::HWY_NAMESPACE;
using math::Computed;

inline constexpr uint64_t kTile = MV_DEVICE_TILE;
/// The library's sums: 16 sums of each chunk of 512.
inline constexpr uint64_t kChunk = 512, kLanes = 16;

MV_BOTH constexpr uint64_t parts(uint64_t count, uint64_t size) { return count / size + (count % size != 0 ? 1 : 0); }
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

/// A body of `count` independent items: item(i) for each.
template <typename Item, uint64_t kItems>
struct Over {
  Item item;
  uint64_t count;
  uint64_t tiles() const { return parts(count, kItems); }
  MV_BOTH void operator()(uint64_t tile, uint32_t lane, uint32_t lanes) const {
    const uint64_t end = least((tile + 1) * kItems, count);
    for (uint64_t i = tile * kItems + lane; i < end; i += lanes) item(i);
  }
};
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
  mv_device_fill work;
  MV_BOTH void operator()(uint64_t i) const { static_cast<T*>(work.out)[i] = from_bytes<T>(work.value); }
};
template <typename T>
struct Range {
  mv_device_range work;
  MV_BOTH void operator()(uint64_t i) const { put_as(static_cast<T*>(work.out), i, work.start + static_cast<double>(i) * work.step); }
};
template <typename To, typename From>
struct Cast {
  mv_device_cast work;
  MV_BOTH void operator()(uint64_t i) const { put_as(static_cast<To*>(work.out), i, get(static_cast<const From*>(work.in), i)); }
};
template <typename T>
struct Arrange {
  mv_device_arrange work;
  MV_BOTH void operator()(uint64_t i) const {
    uint64_t left = i, at = 0;
    for (uint32_t d = work.dims; d-- > 0; left /= work.lengths[d]) at += left % work.lengths[d] * work.steps[d];
    static_cast<T*>(work.out)[i] = static_cast<const T*>(work.in)[at];
  }
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
  mv_device_unary work;
  MV_BOTH void operator()(uint64_t i) const {
    using C = Computed<T>;
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
    put(static_cast<T*>(work.out), i, result);
  }
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
  mv_device_binary work;
  static MV_BOTH Computed<T> operand(const mv_device_operand& of, uint64_t i) {
    if (of.data != nullptr) return get(static_cast<const T*>(of.data), of.is_single != 0 ? 0 : i);
    const T value = from_bytes<T>(of.value);
    return get(&value, 0);
  }
  MV_BOTH void operator()(uint64_t i) const {
    const auto result = combined<kOp>(operand(work.a, i), operand(work.b, i));
    if constexpr (kOp >= MV_EQ)
      static_cast<uint8_t*>(work.out)[i] = result;
    else
      put(static_cast<T*>(work.out), i, result);
  }
};

template <typename T, typename From>
struct Axpy {
  mv_device_axpy work;
  MV_BOTH void operator()(uint64_t i) const {
    using C = Computed<T>;
    T* const y = static_cast<T*>(work.y);
    const C x = tensor::both::convert<C>(get(static_cast<const From*>(work.x), i));
    put(y, i, plus(get(y, i), times(tensor::both::convert<C>(work.alpha), x)));
  }
};
template <typename T>
struct Mix {
  mv_device_mix work;
  MV_BOTH void operator()(uint64_t i) const {
    using C = Computed<T>;
    T* const dst = static_cast<T*>(work.dst);
    const C theirs = static_cast<C>(work.factor), own = static_cast<C>(1 - work.factor);
    put(dst, i, theirs * get(static_cast<const T*>(work.src), i) + own * get(dst, i));
  }
};

template <typename T, int kOp>
struct Merge {
  mv_device_merge work;
  MV_BOTH void operator()(uint64_t i) const {
    using C = Computed<T>;
    C value = get(static_cast<const T*>(work.sources[0]), i);
    for (uint64_t source = 1; source < work.source_count; ++source) {
      const C next = get(static_cast<const T*>(work.sources[source]), i);
      if constexpr (kOp == MV_DEVICE_MERGE_PROD)
        value = times(value, next);
      else if constexpr (kOp == MV_DEVICE_MERGE_MIN)
        value = combined<MV_MIN>(value, next);
      else if constexpr (kOp == MV_DEVICE_MERGE_MAX)
        value = combined<MV_MAX>(value, next);
      else
        value = plus(value, next);
    }
    if constexpr (kOp == MV_DEVICE_MERGE_MEAN) value = value / static_cast<C>(work.divisor);
    put(static_cast<T*>(work.dst), i, value);
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

/// MV_DEVICE_SUM_LANES
template <typename T>
struct SumLanes {
  mv_device_sum work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t chunks = parts(work.along, kChunk), chunk = i / kLanes % chunks, outer = i / kLanes / chunks;
    const uint64_t end = outer * work.along + least((chunk + 1) * kChunk, work.along);
    double sum = 0;
    for (uint64_t at = outer * work.along + chunk * kChunk + i % kLanes; at < end; at += kLanes) {
      const auto value = tensor::both::convert<double>(get(static_cast<const T*>(work.in), at));
      sum += work.op == MV_NORM ? value * value : value;
    }
    static_cast<double*>(work.out)[i] = sum;
  }
};
struct SumChunks {
  mv_device_sum work;
  MV_BOTH void operator()(uint64_t i) const {
    double sums[kLanes];
    for (uint64_t k = 0; k < kLanes; ++k) sums[k] = static_cast<const double*>(work.in)[i * kLanes + k];
    for (uint64_t half = kLanes / 2; half > 0; half /= 2)
      for (uint64_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    static_cast<double*>(work.out)[i] = sums[0];
  }
};
/// tensor::PairwiseSum over up to kChunk terms, or a level of it.
struct SumPairs {
  mv_device_sum work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t groups = parts(work.along, kChunk), whole = work.along / kChunk, group = i % groups, outer = i / groups;
    const uint64_t first = group * kChunk, count = least(kChunk, work.along - first);
    const double* const terms = static_cast<const double*>(work.in) + outer * work.along + first;
    double sums[10];  // of 2^level terms
    for (uint64_t done = 0; done < count; ++done) {
      double term = terms[done];
      uint32_t level = 0;
      for (uint64_t full = done; (full & 1) != 0; full >>= 1) term = sums[level++] + term;
      sums[level] = term;
    }
    if (count == kChunk) {
      static_cast<double*>(work.out)[outer * whole + group] = sums[9];
      return;
    }
    double total = work.rest != nullptr ? static_cast<const double*>(work.rest)[outer] : 0;
    for (uint32_t level = 0; count >> level != 0; ++level)
      if ((count >> level & 1) != 0) total = sums[level] + total;
    static_cast<double*>(work.rest_out)[outer] = total;
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

namespace formula {
using namespace shard::HWY_NAMESPACE;
namespace optimizer {
using namespace shard::optimizer::HWY_NAMESPACE;
}
}  // namespace formula

// The formulas as types: apply<T>(), and measure<T>() of those with sums.
#define XX(number, text, function, batch, has_sums)                               \
  struct Formula##number {                                                        \
    static constexpr uint64_t kBatch = batch;                                     \
    static constexpr bool kHasSums = has_sums;                                    \
    template <typename T>                                                         \
    static MV_BOTH void apply(const double* numbers, const shard::Block& block) { \
      formula::function<T>(numbers, block);                                       \
    }                                                                             \
  };
MV_DEVICE_FORMULAS(XX)
#undef XX

template <typename T, typename Formula>
MV_BOTH void measure(const double* numbers, const shard::Block& block, double* sums) {
  if constexpr (std::is_same_v<Formula, FormulaMX_LAMB>)
    formula::optimizer::lamb_measure<T>(numbers, block, sums);
  else
    formula::optimizer::lbsgd_measure<T>(numbers, block, sums);
}

/// Both stages that a formula computes. The elements of a batch are in the thread's own memory meanwhile, so that they may
/// be of other types outside.
template <typename T, typename Formula, bool kMeasures>
struct Update {
  mv_device_update work;
  uint64_t tiles() const { return work.tiles; }

  MV_BOTH void operator()(uint64_t tile, uint32_t lane, uint32_t lanes) const {
    uint64_t at = 0, end = work.key_count;  // the key whose tiles include this one
    while (end - at > 1) {
      const uint64_t middle = (at + end) / 2;
      (work.first_tiles[middle] <= tile ? at : end) = middle;
    }
    const mv_device_key& key = work.keys[at];
    const uint64_t begin = (tile - work.first_tiles[at]) * kTile, stop = least(begin + kTile, key.count);
    if constexpr (kMeasures) {
      for (uint64_t part = lane; part < MV_DEVICE_TILE_SUMS; part += lanes) {
        double sums[2] = {0, 0};
        for (uint64_t i = begin + part; i < stop; i += MV_DEVICE_TILE_SUMS) batch(key, i, stop, sums);
        double* const out = work.partials + (tile * MV_DEVICE_TILE_SUMS + part) * 2;
        out[0] = sums[0];
        out[1] = sums[1];
      }
    } else {
      constexpr uint64_t kBatch = Formula::kBatch;
      for (uint64_t i = begin + lane * kBatch; i < stop; i += lanes * kBatch) batch(key, i, stop, nullptr);
    }
  }

 private:
  MV_BOTH void batch(const mv_device_key& key, uint64_t first, uint64_t stop, double* sums) const {
    constexpr uint64_t kBatch = Formula::kBatch;
    const uint64_t count = kBatch == 1 ? 1 : least(kBatch, stop - first);
    constexpr uint32_t kStates = kBatch == 1 ? MV_DEVICE_STATES : 1;  // no formula of batches has states
    T values[kBatch], gradient[kBatch], backup[kBatch], state[kStates][kBatch];
    std::byte* states[kStates];
    T* const all = static_cast<T*>(key.values);
    for (uint64_t i = 0; i < count; ++i) {
      values[i] = all[first + i];
      gradient[i] = get_as<T>(work.gradient_dtype, key.gradient, first + i);
      if (key.backup != nullptr) backup[i] = static_cast<const T*>(key.backup)[first + i];
    }
    for (uint32_t s = 0; s < kStates; ++s) {
      states[s] = reinterpret_cast<std::byte*>(state[s]);
      if (key.states[s] == nullptr) continue;
      for (uint64_t i = 0; i < count; ++i) state[s][i] = static_cast<const T*>(key.states[s])[first + i];
    }
    shard::Step step;
    step.stream = key.stream;
    step.sums = {key.sums[0], key.sums[1]};
    shard::Block block;
    block.count = count;
    block.values = reinterpret_cast<std::byte*>(values);
    block.added = reinterpret_cast<const std::byte*>(gradient);
    block.states = states;
    block.backup = key.backup != nullptr ? reinterpret_cast<const std::byte*>(backup) : nullptr;
    block.step = &step;
    block.first = key.first + first;
    if constexpr (kMeasures)
      measure<T, Formula>(key.numbers, block, sums);
    else
      Formula::template apply<T>(key.numbers, block);
    for (uint64_t i = 0; i < count && !kMeasures; ++i) all[first + i] = values[i];
    for (uint32_t s = 0; s < kStates; ++s)
      for (uint64_t i = 0; i < count && key.states[s] != nullptr; ++i) static_cast<T*>(key.states[s])[first + i] = state[s][i];
  }
};
/// Item i is one of the two sums of a tile.
struct GatherTiles {
  mv_device_update work;
  MV_BOTH void operator()(uint64_t i) const {
    double sum = 0;
    for (uint64_t part = 0; part < MV_DEVICE_TILE_SUMS; ++part) sum += work.partials[(i / 2 * MV_DEVICE_TILE_SUMS + part) * 2 + i % 2];
    work.tile_sums[i] = sum;
  }
};
struct GatherKeys {
  mv_device_update work;
  MV_BOTH void operator()(uint64_t i) const {
    double sum = 0;
    for (uint64_t tile = work.first_tiles[i / 2]; tile < work.first_tiles[i / 2 + 1]; ++tile) sum += work.tile_sums[tile * 2 + i % 2];
    work.keys[i / 2].sums[i % 2] = sum;
  }
};

/// The place of value i of a word: words are little-endian, and their values begin at the highest bits of the first byte.
template <uint32_t kBits>
MV_BOTH constexpr uint32_t lowest_bit(uint32_t i) {
  return UINT32_C(1) << (kBits * i / 8 * 8 + 8 - kBits - kBits * i % 8);
}
/// Item i is a word.
template <uint32_t kBits>
struct EncodeBits {
  mv_device_encode_bits work;
  MV_BOTH void operator()(uint64_t i) const {
    constexpr uint32_t kValues = 32 / kBits;
    uint32_t word = 0;
    for (uint32_t k = 0; k < kValues && i * kValues + k < work.count; ++k) {
      const uint64_t at = i * kValues + k;
      const float total = work.residual[at] + work.gradient[at];
      const bool above = kBits == 1 ? total > work.threshold : total >= work.threshold;
      const bool below = kBits == 1 ? !above : total <= -work.scale;
      work.residual[at] = total - (above ? work.scale : below ? -work.scale : 0.0f);
      if (above)
        word |= lowest_bit<kBits>(k) * (kBits == 1 ? 1 : 3);
      else if (kBits == 2 && below)
        word |= lowest_bit<kBits>(k) * 2;
    }
    work.out[i] = word;
  }
};
template <uint32_t kBits>
struct DecodeBits {
  mv_device_decode_bits work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint32_t word = work.encoded[i * kBits / 32], bit = lowest_bit<kBits>(static_cast<uint32_t>(i % (32 / kBits)));
    float sent = (word & bit) != 0 ? work.scale : -work.scale;
    if (kBits == 2 && (word & bit * 2) == 0) sent = 0;
    work.values[i] = work.adds != 0 ? work.values[i] + sent : sent;
  }
};
template <typename T>
struct EncodeHalf {
  mv_device_encode_half work;
  MV_BOTH void operator()(uint64_t i) const {
    const float largest = std::is_same_v<T, math::Half<MV_F16>> ? 65504.0f : 0x1.fep127f;
    const float total = work.residual[i] + work.gradient[i];
    T* const out = static_cast<T*>(work.out);
    put(out, i, std::fabs(total) > largest ? std::copysign(largest, total) : total);
    work.residual[i] = total - get(out, i);
  }
};
/// Item i is a block.
struct ScaleInt8 {
  mv_device_scale_int8 work;
  MV_BOTH void operator()(uint64_t i) const {
    float greatest = 0;
    for (uint64_t at = i * work.block; at < least((i + 1) * work.block, work.count); ++at) {
      const float total = work.residual[at] + work.gradient[at];
      work.residual[at] = total;
      if (greatest < std::fabs(total)) greatest = std::fabs(total);
    }
    const bool any = greatest >= 128 * 0x1p-126f;
    work.scales[i] = any ? greatest / 127 : 0;
    work.inverses[i] = any ? 127 / greatest : 0;
  }
};
struct EncodeInt8 {
  mv_device_encode_int8 work;
  MV_BOTH void operator()(uint64_t i) const {
    const float total = work.residual[i], whole = std::nearbyint(total * work.inverses[i / work.block]);
    const float number = !(whole > -127) ? -127.0f : whole > 127 ? 127.0f : whole + 0.0f;  // no -0, which an integer is not
    work.residual[i] = total - number * work.scales[i / work.block];
    work.out[i] = static_cast<int8_t>(number);
  }
};
struct DecodeInt8 {
  mv_device_decode_int8 work;
  MV_BOTH void operator()(uint64_t i) const {
    const float sent = static_cast<float>(work.encoded[i]) * work.scales[i / work.block];
    work.values[i] = work.adds != 0 ? work.values[i] + sent : sent;
  }
};

}  // namespace mv::device
