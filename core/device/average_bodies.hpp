#pragma once
// Kernels that average models: gossip's means, elastic averaging, and the products of PowerSGD that fuse with other work.

#include "device/bodies.hpp"
#include "device/update_bodies.hpp"
#include "math/local_sgd.hpp"

namespace mv::device {

/// math/average.hpp: average_bytes(), or with a base approach_bytes().
template <typename T, bool kHasBase>
struct Mix {
  using C = Computed<T>;
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_mix work;

  MV_BOTH C theirs(uint64_t i) const { return get(static_cast<const T*>(work.src), i); }
  MV_BOTH C own(uint64_t i) const { return get(static_cast<const T*>(kHasBase ? work.base : work.dst), i); }
  MV_BOTH C mixed(C peer, C from, uint64_t i) const {
    const C part = static_cast<C>(work.factor);
    if constexpr (!kHasBase) {
      return part * peer + static_cast<C>(1 - work.factor) * from;
    } else {
      const C mine = get(static_cast<const T*>(work.dst), i), apart = peer - from, half = static_cast<C>(0.5);
      if (!std::isinf(apart) || std::is_same_v<T, math::Half<MV_F16>>) return mine + part * apart;
      const C half_way = part * (peer * half - from * half);
      return mine + half_way + half_way;
    }
  }
  MV_BOTH C make(uint64_t i) const { return mixed(theirs(i), own(i), i); }
  MV_BOTH void put(uint64_t i, C made) const { device::put(static_cast<T*>(work.dst), i, made); }
  struct Measurement {
    C made;
    double apart;
  };
  MV_BOTH Measurement measure(uint64_t i) const {
    const C peer = theirs(i), from = own(i);
    return {mixed(peer, from, i), static_cast<double>(peer) - static_cast<double>(from)};
  }
};
template <typename T>
struct PairStep {
  struct Made {
    T model, slow, momentum;
  };
  struct Measurement {
    Made made;
    double apart;
  };
  mv_device_pair_step work;
  MV_BOTH Measurement measure(uint64_t i) const {
    const auto at = [i](const void* array) { return static_cast<const T*>(array)[i]; };
    const T phi = at(work.own_slow), delta = at(work.own_delta), their_phi = at(work.peer_slow), their_delta = at(work.peer_delta);
    const T published = phi + delta, trained_since = at(work.model) - published;
    const T kept = static_cast<T>(work.alpha) * at(work.momentum), gained = static_cast<T>(work.beta / 2) * (delta + their_delta);
    const T drawn = static_cast<T>(work.gamma / 2) * (their_phi - phi), moved = (kept + gained) + drawn, fresh = phi + moved;
    return {{fresh + trained_since, fresh, moved}, static_cast<double>((their_phi + their_delta) - published)};
  }
  MV_BOTH void put(uint64_t i, const Made& made) const {
    static_cast<T*>(work.model)[i] = made.model;
    static_cast<T*>(work.slow)[i] = made.slow;
    static_cast<T*>(work.momentum)[i] = made.momentum;
  }
};
/// An item, and the squared distance of two models in each tile. Term k is that of every 256th element, from the kth one on.
template <typename Item>
struct Measured {
  static constexpr uint32_t kSteps = 3, kAtOnce = 4;
  using Shared = Tree::Shared;
  Item item;
  uint64_t tiles() const { return parts(item.work.count, kTile); }
  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    Tree::step<kStep>(shared, item.work.squares + tile * 2, lane, lanes, [&](uint32_t k, double* sums) {
      const uint64_t end = least((tile + 1) * kTile, item.work.count);
      uint64_t i = tile * kTile + k;
      for (; i + (kAtOnce - 1) * Tree::kTerms < end; i += kAtOnce * Tree::kTerms) some<kAtOnce>(i, sums);
      for (; i < end; i += Tree::kTerms) some<1>(i, sums);
    });
  }

 private:
  template <uint32_t kCount>
  MV_BOTH void some(uint64_t first, double* sums) const {
    typename Item::Measurement measured[kCount];
    MV_UNROLL
    for (uint32_t k = 0; k < kCount; ++k) measured[k] = item.measure(first + k * Tree::kTerms);
    MV_UNROLL
    for (uint32_t k = 0; k < kCount; ++k) {
      sums[0] += measured[k].apart * measured[k].apart;
      item.put(first + k * Tree::kTerms, measured[k].made);
    }
  }
};

template <typename T>
struct Elastic {
  using C = Computed<T>;
  struct Made {
    C value, difference;
  };
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_elastic work;
  MV_BOTH Made make(uint64_t i) const {
    const C value = get(static_cast<const T*>(work.values), i);
    const C difference = (value - static_cast<const C*>(work.center)[i]) * static_cast<C>(work.alpha);
    return {value - difference, difference};
  }
  MV_BOTH void put(uint64_t i, Made made) const {
    device::put(static_cast<T*>(work.values), i, made.value);
    static_cast<C*>(work.difference)[i] = made.difference;
  }
};

template <typename T>
struct OuterSteps {
  using C = Computed<T>;
  struct Made {
    C value, outer, velocity, moved;
  };
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_outer work;
  MV_BOTH Made make(uint64_t i) const {
    Made made{get(static_cast<const T*>(work.values), i), static_cast<const C*>(work.outer)[i], static_cast<const C*>(work.velocity)[i],
              static_cast<const C*>(work.moved)[i]};
    const math::OuterStep<C> step(static_cast<math::Outer>(work.what), {work.rate, work.momentum, work.mixing});
    step(made.value, made.outer, made.velocity, made.moved);
    return made;
  }
  MV_BOTH void put(uint64_t i, Made made) const {
    if (work.what <= static_cast<int32_t>(math::Outer::kClear)) {
      static_cast<C*>(work.moved)[i] = made.moved;
      return;
    }
    device::put(static_cast<T*>(work.values), i, made.value);
    static_cast<C*>(work.outer)[i] = made.outer;
    static_cast<C*>(work.velocity)[i] = made.velocity;
  }
};

template <typename T>
struct Expand {
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_expand work;
  MV_BOTH float make(uint64_t i) const {
    const uint64_t row = divided(i, work.cols), col = i - row * work.cols;
    float sum = 0;
    for (uint64_t k = 0; k < work.rank; ++k) sum += work.p[row * work.rank + k] * work.q[col * work.rank + k];
    return work.from != nullptr ? work.from[i] - sum : sum;
  }
  MV_BOTH void put(uint64_t i, float value) const { put_as(static_cast<T*>(work.out), i, value); }
};

}  // namespace mv::device
