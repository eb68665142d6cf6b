#pragma once
// The kernels of work.h for the codec topk; see bodies.hpp.

#include <atomic>

#include "device/codec_bodies.hpp"

namespace mv::device {

// Numbers that several threads of a kernel add to.
MV_BOTH inline void add_shared(uint32_t* to, uint32_t value) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  atomicAdd(to, value);
#else
  std::atomic_ref(*to).fetch_add(value, std::memory_order_relaxed);
#endif
}
MV_BOTH inline void add_shared(uint64_t* to, uint64_t value) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  std::atomic_ref(*to).fetch_add(value, std::memory_order_relaxed);
#endif
}

/// The magnitude as an integer: floats of the same sign are ordered like their bits. A NaN is greater than all others.
MV_BOTH inline uint32_t magnitude_of(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  return bits & 0x7fff'ffff;
}
/// The bits of a magnitude behind those of a digit, and how many values the digit has.
MV_BOTH constexpr uint32_t shift_of(uint32_t digit) { return 20 - 10 * digit; }
MV_BOTH constexpr uint32_t digits_of(uint32_t digit) { return digit == 0 ? 2048 : 1024; }

/// MV_DEVICE_TOP_K_ADD of a gradient of T, and with void MV_DEVICE_TOP_K_COUNT. A thread takes four neighbours.
template <typename T>
struct CountMagnitudes {
  static constexpr bool kAdds = !std::is_void_v<T>;
  static constexpr uint32_t kSteps = 3;
  static constexpr uint64_t kLong = 8 * kTile;  ///< so that the counts of a tile are few beside its elements
  struct Shared {
    uint32_t counts[2048];
  };
  mv_device_top_k work;
  uint64_t tiles() const { return parts(work.count, kLong); }

  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    const uint32_t digits = digits_of(work.digit);
    if constexpr (kStep == 0)
      for (uint32_t digit = lane; digit < digits; digit += lanes) shared.counts[digit] = 0;
    if constexpr (kStep == 1) {
      const uint64_t end = least((tile + 1) * kLong, work.count);
      for (uint64_t i = tile * kLong + lane * 4; i < end; i += lanes * 4) count_four(i, end, shared);
    }
    if constexpr (kStep == 2)
      for (uint32_t digit = lane; digit < digits; digit += lanes)
        if (shared.counts[digit] > 0) add_shared(&work.state->counts[digit], uint64_t{shared.counts[digit]});
  }

 private:
  MV_BOTH void count_four(uint64_t i, uint64_t end, Shared& shared) const {
    if (i + 4 <= end) {
      Floats<4> values = some_at<4>(static_cast<const float*>(work.residual + i));
      if constexpr (kAdds) {
        const Floats<4> gradient = floats_at<4>(static_cast<const T*>(work.gradient) + i);
        MV_UNROLL
        for (uint32_t k = 0; k < 4; ++k) values.at[k] = values.at[k] + gradient.at[k];
        put_some(work.residual + i, values);
      }
      MV_UNROLL
      for (uint32_t k = 0; k < 4; ++k) count(values.at[k], shared);
      return;
    }
    for (; i < end; ++i) {
      if constexpr (kAdds) work.residual[i] = work.residual[i] + get(static_cast<const T*>(work.gradient), i);
      count(work.residual[i], shared);
    }
  }
  MV_BOTH void count(float value, Shared& shared) const {
    const uint32_t upper = magnitude_of(value) >> shift_of(work.digit), digits = digits_of(work.digit);
    if (kAdds || upper / digits == work.state->found) add_shared(&shared.counts[upper % digits], 1u);
  }
};

/// One tile, whose threads sum the counts of some digits each, from the greatest digits on.
struct FindDigit {
  static constexpr uint32_t kSteps = 3, kParts = 256;
  struct Shared {
    uint64_t sums[kParts];
  };
  mv_device_top_k work;
  uint64_t tiles() const { return 1; }

  template <uint32_t kStep>
  MV_BOTH void step(uint64_t, uint32_t lane, uint32_t lanes, Shared& shared) const {
    mv_device_top_k_state& state = *work.state;
    const uint32_t digits = digits_of(work.digit), each = digits / kParts;
    if constexpr (kStep == 0)
      for (uint32_t part = lane; part < kParts; part += lanes) {
        uint64_t sum = 0;
        for (uint32_t k = 0; k < each; ++k) sum += state.counts[digits - 1 - part * each - k];
        shared.sums[part] = sum;
      }
    if (kStep == 1 && lane == 0) {
      uint64_t wanted = work.digit == 0 ? work.k : state.wanted;
      uint32_t part = 0;
      for (; part + 1 < kParts && shared.sums[part] < wanted; ++part) wanted -= shared.sums[part];
      uint32_t digit = digits - 1 - part * each;
      for (uint32_t k = 1; k < each && state.counts[digit] < wanted; ++k) wanted -= state.counts[digit--];
      state.found = work.digit == 0 ? digit : state.found * digits + digit;
      state.wanted = wanted;
    }
    if constexpr (kStep == 2)
      for (uint32_t digit = lane; digit < digits; digit += lanes) state.counts[digit] = 0;
  }
};

struct CountTile {
  static constexpr uint32_t kSteps = 3;
  struct Shared {
    uint32_t above, equal;
  };
  mv_device_top_k work;
  uint64_t tiles() const { return parts(work.count, kTile); }

  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    if (kStep == 0 && lane == 0) shared.above = shared.equal = 0;
    if constexpr (kStep == 1) {
      const uint32_t limit = work.state->found;
      uint32_t above = 0, equal = 0;
      for (uint64_t i = tile * kTile + lane; i < least((tile + 1) * kTile, work.count); i += lanes) {
        const uint32_t magnitude = magnitude_of(work.residual[i]);
        above += magnitude > limit;
        equal += magnitude == limit;
      }
      if (above > 0) add_shared(&shared.above, above);
      if (equal > 0) add_shared(&shared.equal, equal);
    }
    if (kStep == 2 && lane == 0) {
      work.tiles[2 * tile] = shared.above;
      work.tiles[2 * tile + 1] = shared.equal;
    }
  }
};

/// One tile, whose threads sum the pairs of some neighbours each.
struct PlaceTiles {
  static constexpr uint32_t kSteps = 3, kParts = 256;
  struct Shared {
    uint64_t above[kParts], equal[kParts];
  };
  mv_device_top_k work;
  uint64_t tiles() const { return 1; }

  template <uint32_t kStep>
  MV_BOTH void step(uint64_t, uint32_t lane, uint32_t lanes, Shared& shared) const {
    [[maybe_unused]] const uint64_t count = parts(work.count, kTile), each = parts(count, kParts);
    if constexpr (kStep == 1) {
      if (lane != 0) return;
      sum_before(shared.above, kParts);
      sum_before(shared.equal, kParts);
    } else {
      for (uint32_t part = lane; part < kParts; part += lanes) {
        uint64_t above = kStep == 0 ? 0 : shared.above[part], equal = kStep == 0 ? 0 : shared.equal[part];
        for (uint64_t tile = part * each; tile < least((part + 1) * each, count); ++tile) {
          uint64_t* const pair = work.tiles + 2 * tile;
          const uint64_t of_above = pair[0], of_equal = pair[1];
          if constexpr (kStep == 2) {
            pair[0] = above;
            pair[1] = equal;
          }
          above += of_above;
          equal += of_equal;
        }
        if constexpr (kStep == 0) {
          shared.above[part] = above;
          shared.equal[part] = equal;
        }
      }
    }
  }

  /// Replaces each number by the sum of those before it. Returns the sum of all.
  template <typename T>
  static MV_BOTH T sum_before(T* numbers, uint32_t count) {
    T sum = 0;
    for (uint32_t k = 0; k < count; ++k) {
      const T number = numbers[k];
      numbers[k] = sum;
      sum += number;
    }
    return sum;
  }
};

/// A tile has kParts parts of neighbours, each of them one thread's. What is sent before an element tells its place.
struct SendTopK {
  static constexpr uint32_t kSteps = 5, kParts = 256, kEach = kTile / kParts, kSome = 16;
  struct Shared {
    float values[kTile + kTile / 32];  ///< see at()
    uint32_t above[kParts], equal[kParts], more_above[kParts / kSome], more_equal[kParts / kSome];
  };
  mv_device_top_k work;
  uint64_t tiles() const { return parts(work.count, kTile); }

  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    const auto count = static_cast<uint32_t>(least(work.count - tile * kTile, kTile));
    if constexpr (kStep == 0)
      for (uint32_t i = lane; i < count; i += lanes) shared.values[at(i)] = work.residual[tile * kTile + i];
    if constexpr (kStep == 1 || kStep == 4)
      for (uint32_t part = lane; part < kParts; part += lanes) {
        if constexpr (kStep == 1)
          count_part(part, count, shared);
        else
          send_part(tile, part, count, shared);
      }
    if constexpr (kStep == 2)
      for (uint32_t some = lane; some < kParts / kSome; some += lanes) {
        shared.more_above[some] = PlaceTiles::sum_before(shared.above + some * kSome, kSome);
        shared.more_equal[some] = PlaceTiles::sum_before(shared.equal + some * kSome, kSome);
      }
    if (kStep == 3 && lane == 0) {
      PlaceTiles::sum_before(shared.more_above, kParts / kSome);
      PlaceTiles::sum_before(shared.more_equal, kParts / kSome);
    }
  }

 private:
  /// Threads that read the same place of their parts find it in different banks of the shared memory.
  static MV_BOTH uint32_t at(uint32_t i) { return i + i / 32; }
  MV_BOTH void count_part(uint32_t part, uint32_t count, Shared& shared) const {
    uint32_t above = 0, equal = 0;
    for (uint32_t i = part * kEach; i < least((part + 1) * kEach, count); ++i) {
      const uint32_t magnitude = magnitude_of(shared.values[at(i)]);
      above += magnitude > work.state->found;
      equal += magnitude == work.state->found;
    }
    shared.above[part] = above;
    shared.equal[part] = equal;
  }
  MV_BOTH void send_part(uint64_t tile, uint32_t part, uint32_t count, Shared& shared) const {
    const uint32_t limit = work.state->found;
    const uint64_t ties = work.state->wanted;
    uint64_t above = work.tiles[2 * tile] + shared.more_above[part / kSome] + shared.above[part];
    uint64_t equal = work.tiles[2 * tile + 1] + shared.more_equal[part / kSome] + shared.equal[part];
    for (uint32_t i = part * kEach; i < least((part + 1) * kEach, count); ++i) {
      const float value = shared.values[at(i)];
      const uint32_t magnitude = magnitude_of(value);
      const bool is_tie = magnitude == limit;
      if (magnitude > limit || (is_tie && equal < ties)) {
        const uint64_t place = above + least(equal, ties), index = tile * kTile + i;
        work.out[place] = static_cast<uint32_t>(index);
        reinterpret_cast<float*>(work.out)[work.k + place] = value;
        work.residual[index] = 0;
      }
      above += magnitude > limit;
      equal += is_tie;
    }
  }
};

/// Item i is the i-th element that was sent.
struct PutTopK {
  mv_device_put_top_k work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t place = work.encoded[i];
    if (place >= work.count) return;
    const float value = reinterpret_cast<const float*>(work.encoded)[work.k + i];
    work.values[place] = work.adds != 0 ? work.values[place] + value : value;
  }
};

}  // namespace mv::device
