#pragma once
// The kernels of work.h that update tensors by an optimizer; see bodies.hpp.

#include "device/bodies.hpp"
#include "device/formulas.hpp"

namespace mv::device {

namespace formula {
using namespace shard::HWY_NAMESPACE;
namespace optimizer {
using namespace shard::optimizer::HWY_NAMESPACE;
}
}  // namespace formula

// The formulas as types: apply<T>(), and measure<T>() of those with sums.
#define XX(number, text, function, batch, states, has_sums)                       \
  struct Formula##number {                                                        \
    static constexpr uint32_t kBatch = batch, kStates = states;                   \
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

/// Formulas with sums: the factor of all steps of a key, and the rest.
template <typename T, typename Formula>
MV_BOTH T rate_of(const double* numbers, const shard::Step& sums) {
  if constexpr (std::is_same_v<Formula, FormulaMX_LAMB>)
    return formula::optimizer::lamb_rate<T>(numbers, sums);
  else
    return formula::optimizer::lbsgd_rate<T>(numbers, sums);
}
template <typename T, typename Formula>
MV_BOTH void apply_at(const double* numbers, const shard::Block& block, T rate) {
  if constexpr (std::is_same_v<Formula, FormulaMX_LAMB>)
    formula::optimizer::lamb_at<T>(numbers, block, rate);
  else
    formula::optimizer::lbsgd_at<T>(numbers, block, rate);
}

/// 256 terms become one, in an order that depends on nothing else. Terms come in pairs: both sums of a formula.
struct Tree {
  static constexpr uint32_t kTerms = 256, kMiddle = 16;
  struct Shared {
    double terms[kTerms][2], middle[kMiddle][2];
  };
  static MV_BOTH void fold(const double (*from)[2], uint32_t count, double (*to)[2], uint32_t lane, uint32_t lanes) {
    for (uint32_t k = lane; k < count; k += lanes) {
      double sums[2] = {0, 0};
      for (uint32_t j = 0; j < kMiddle; ++j)
        for (uint32_t s = 0; s < 2; ++s) sums[s] += from[k + j * count][s];
      to[k][0] = sums[0];
      to[k][1] = sums[1];
    }
  }
  /// The steps of a body: add(k, sums) adds to both sums what belongs to term k.
  template <uint32_t kStep, typename Add>
  static MV_BOTH void step(Shared& shared, double* to, uint32_t lane, uint32_t lanes, const Add& add) {
    if constexpr (kStep == 0)
      for (uint32_t k = lane; k < kTerms; k += lanes) {
        double sums[2] = {0, 0};
        add(k, sums);
        shared.terms[k][0] = sums[0];
        shared.terms[k][1] = sums[1];
      }
    if constexpr (kStep == 1) fold(shared.terms, kMiddle, shared.middle, lane, lanes);
    if constexpr (kStep == 2) fold(shared.middle, 1, reinterpret_cast<double(*)[2]>(to), lane, lanes);
  }
};

/// What a formula computes for some elements of a key. They are in the thread's own memory meanwhile, so that they may be of other types outside.
template <typename T, typename Formula, bool kMeasures>
struct Elements {
  static constexpr uint32_t kBatch = Formula::kBatch, kStates = Formula::kStates > 0 ? Formula::kStates : 1;
  /// So many batches are read before the first one is written.
  static constexpr uint32_t kAtOnce = kBatch > 1 ? 1 : 4;

  const mv_device_update& work;
  const mv_device_key& key;
  T rate{};

  MV_BOTH Elements(const mv_device_update& w, const mv_device_key& k) : work(w), key(k) {
    if constexpr (Formula::kHasSums && !kMeasures) rate = rate_of<T, Formula>(key.numbers, step());
  }
  /// Batches `first`, `first + step`, ... until `stop`.
  MV_BOTH void all(uint64_t first, uint64_t step, uint64_t stop, double* sums) const {
    for (; kAtOnce > 1 && first + (kAtOnce - 1) * step < stop; first += kAtOnce * step) some<kAtOnce>(first, step, 1, sums);
    for (; first < stop; first += step) some<1>(first, step, kBatch == 1 ? 1 : least(kBatch, stop - first), sums);
  }

 private:
  MV_BOTH shard::Step step() const {
    shard::Step numbers;
    numbers.stream = key.stream;
    numbers.sums = {key.sums[0], key.sums[1]};
    return numbers;
  }
  /// kBatches batches of `count` elements.
  template <uint32_t kBatches>
  MV_BOTH void some(uint64_t first, uint64_t step, uint64_t count, double* sums) const {
    T values[kBatches][kBatch], gradient[kBatches][kBatch], backup[kBatches][kBatch], state[kStates][kBatches][kBatch];
    T* const all = static_cast<T*>(key.values);
    load<kBatches>(values, all, first, step, count);
    if (work.gradient_dtype == MV_F32)
      load<kBatches>(gradient, static_cast<const float*>(key.gradient), first, step, count);
    else if (work.gradient_dtype == MV_F64)
      load<kBatches>(gradient, static_cast<const double*>(key.gradient), first, step, count);
    else if (work.gradient_dtype == MV_F16)
      load<kBatches>(gradient, static_cast<const math::Half<MV_F16>*>(key.gradient), first, step, count);
    else
      load<kBatches>(gradient, static_cast<const math::Half<MV_BF16>*>(key.gradient), first, step, count);
    if (key.backup != nullptr) load<kBatches>(backup, static_cast<const T*>(key.backup), first, step, count);
    MV_UNROLL
    for (uint32_t s = 0; s < kStates; ++s)
      if (key.states[s] != nullptr) load<kBatches>(state[s], static_cast<const T*>(key.states[s]), first, step, count);
    const shard::Step numbers = this->step();
    MV_UNROLL
    for (uint32_t b = 0; b < kBatches; ++b) {
      std::byte* states[kStates];
      MV_UNROLL
      for (uint32_t s = 0; s < kStates; ++s) states[s] = reinterpret_cast<std::byte*>(state[s][b]);
      shard::Block block;
      block.count = count;
      block.values = reinterpret_cast<std::byte*>(values[b]);
      block.added = reinterpret_cast<const std::byte*>(gradient[b]);
      block.states = states;
      block.backup = key.backup != nullptr ? reinterpret_cast<const std::byte*>(backup[b]) : nullptr;
      block.step = &numbers;
      block.first = key.first + first + b * step;
      if constexpr (kMeasures)
        measure<T, Formula>(key.numbers, block, sums);
      else if constexpr (Formula::kHasSums)
        apply_at<T, Formula>(key.numbers, block, rate);
      else
        Formula::template apply<T>(key.numbers, block);
    }
    if constexpr (!kMeasures) store<kBatches>(values, all, first, step, count);
    MV_UNROLL
    for (uint32_t s = 0; s < kStates; ++s)
      if (key.states[s] != nullptr) store<kBatches>(state[s], static_cast<T*>(key.states[s]), first, step, count);
  }

  template <uint32_t kBatches, typename From>
  static MV_BOTH void load(T (&to)[kBatches][kBatch], const From* from, uint64_t first, uint64_t step, uint64_t count) {
    MV_UNROLL
    for (uint32_t b = 0; b < kBatches; ++b)
      for (uint64_t i = 0; i < count; ++i) to[b][i] = static_cast<T>(get(from, first + b * step + i));
  }
  template <uint32_t kBatches>
  static MV_BOTH void store(const T (&from)[kBatches][kBatch], T* to, uint64_t first, uint64_t step, uint64_t count) {
    MV_UNROLL
    for (uint32_t b = 0; b < kBatches; ++b)
      for (uint64_t i = 0; i < count; ++i) to[first + b * step + i] = from[b][i];
  }
};

template <typename T, typename Formula>
struct Update {
  mv_device_update work;
  uint64_t tiles() const { return work.tiles; }
  MV_BOTH void operator()(uint64_t tile, uint32_t lane, uint32_t lanes) const {
    const mv_device_key key = work.keys[work.tile_keys[tile]];
    const uint64_t begin = (tile - key.first_tile) * kTile;
    Elements<T, Formula, false>(work, key).all(begin + lane * Formula::kBatch, lanes * Formula::kBatch, least(begin + kTile, key.count), nullptr);
  }
};
/// Both sums of a tile. Term k is that of every 256th element, from the kth one on.
template <typename T, typename Formula>
struct Measure {
  static constexpr uint32_t kSteps = 3;
  using Shared = Tree::Shared;
  mv_device_update work;
  uint64_t tiles() const { return work.tiles; }
  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    const mv_device_key key = work.keys[work.tile_keys[tile]];
    const uint64_t begin = (tile - key.first_tile) * kTile;
    Tree::step<kStep>(shared, work.tile_sums + tile * 2, lane, lanes, [&](uint32_t k, double* sums) {
      Elements<T, Formula, true>(work, key).all(begin + k, Tree::kTerms, least(begin + kTile, key.count), sums);
    });
  }
};
/// Both sums of a key, from those of its tiles. Tile i is a key.
struct SumTiles {
  static constexpr uint32_t kSteps = 3;
  using Shared = Tree::Shared;
  mv_device_update work;
  uint64_t tiles() const { return work.key_count; }
  template <uint32_t kStep>
  MV_BOTH void step(uint64_t i, uint32_t lane, uint32_t lanes, Shared& shared) const {
    const uint64_t begin = work.keys[i].first_tile, end = begin + parts(work.keys[i].count, kTile);
    Tree::step<kStep>(shared, work.keys[i].sums, lane, lanes, [&](uint32_t k, double* sums) {
      for (uint64_t tile = begin + k; tile < end; tile += Tree::kTerms)
        for (uint32_t s = 0; s < 2; ++s) sums[s] += work.tile_sums[tile * 2 + s];
    });
  }
};

}  // namespace mv::device
