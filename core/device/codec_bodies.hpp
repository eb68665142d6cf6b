#pragma once
// The kernels of work.h that encode and decode; see bodies.hpp.

#include "device/bodies.hpp"

namespace mv::device {

/// kCount neighbours, which are read and written in one access if the address allows it.
template <typename T, uint32_t kCount>
struct alignas(kCount * sizeof(T)) Some {
  T at[kCount];
};
template <uint32_t kCount>
using Floats = Some<float, kCount>;
template <uint32_t kCount, typename T>
MV_BOTH Some<T, kCount> some_at(const T* from) {
  if (reinterpret_cast<uintptr_t>(from) % alignof(Some<T, kCount>) == 0) return *reinterpret_cast<const Some<T, kCount>*>(from);
  Some<T, kCount> some;
  MV_UNROLL
  for (uint32_t k = 0; k < kCount; ++k) some.at[k] = from[k];
  return some;
}
/// The same of an array of any floats.
template <uint32_t kCount, typename T>
MV_BOTH Floats<kCount> floats_at(const T* from) {
  if constexpr (!kIsHalf<T>) {
    return some_at<kCount>(from);
  } else {
    const Some<T, kCount> some = some_at<kCount>(from);
    Floats<kCount> floats;
    MV_UNROLL
    for (uint32_t k = 0; k < kCount; ++k) floats.at[k] = get(some.at, k);
    return floats;
  }
}
template <typename T, uint32_t kCount>
MV_BOTH void put_some(T* to, const Some<T, kCount>& some) {
  if (reinterpret_cast<uintptr_t>(to) % alignof(Some<T, kCount>) == 0) {
    *reinterpret_cast<Some<T, kCount>*>(to) = some;
    return;
  }
  MV_UNROLL
  for (uint32_t k = 0; k < kCount; ++k) to[k] = some.at[k];
}

/// Item i is a byte, that is, the next 8 or 4 floats. A whole number of words is written: bits without a float are 0.
template <uint32_t kBits, typename T>
struct EncodeBits {
  static constexpr uint32_t kValues = 8 / kBits, kFours = kValues / 4, kAtOnce = kBits;
  struct Made {
    Floats<4> left[kFours];
    uint8_t byte;
  };
  mv_device_encode_bits work;
  MV_BOTH Made make(uint64_t i) const {
    const auto* const from = static_cast<const T*>(work.gradient);
    Made made{};
    MV_UNROLL
    for (uint32_t four = 0; four < kFours; ++four) {
      const uint64_t first = i * kValues + four * 4;
      Floats<4> residual{}, gradient{};
      if (first + 4 <= work.count) {
        residual = some_at<4>(work.residual + first);
        gradient = floats_at<4>(from + first);
      } else {
        MV_UNROLL
        for (uint32_t k = 0; k < 4; ++k) {
          if (first + k >= work.count) continue;
          residual.at[k] = work.residual[first + k];
          gradient.at[k] = get(from, first + k);
        }
      }
      MV_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        const float total = residual.at[k] + gradient.at[k];
        const bool is_there = first + k < work.count;
        const bool above = is_there && (kBits == 1 ? total > work.threshold : total >= work.threshold);
        const bool below = kBits == 1 ? !above : total <= -work.scale;
        made.left[four].at[k] = total - (above ? work.scale : below ? -work.scale : 0.0f);
        const uint32_t bits = above ? (kBits == 1 ? 1 : 3) : kBits == 2 && below && is_there ? 2 : 0;
        made.byte |= static_cast<uint8_t>(bits << (8 - kBits - kBits * (four * 4 + k)));
      }
    }
    return made;
  }
  MV_BOTH void put(uint64_t i, const Made& made) const {
    MV_UNROLL
    for (uint32_t four = 0; four < kFours; ++four) {
      const uint64_t first = i * kValues + four * 4;
      if (first + 4 <= work.count) {
        put_some(work.residual + first, made.left[four]);
        continue;
      }
      MV_UNROLL
      for (uint32_t k = 0; k < 4; ++k)
        if (first + k < work.count) work.residual[first + k] = made.left[four].at[k];
    }
    reinterpret_cast<uint8_t*>(work.out)[i] = made.byte;
  }
};
/// Some floats of an array that is decoded, or that takes decoded values: what they were, if these are added.
template <uint32_t kValues, bool kAdds>
struct Decoded {
  struct Old {
    Floats<kValues> values;
  };
  struct None {};
  using Before = std::conditional_t<kAdds, Old, None>;
  static MV_BOTH Before before(const float* values) {
    if constexpr (kAdds)
      return {some_at<kValues>(values)};
    else
      return {};
  }
  static MV_BOTH float after(const Before& before, uint32_t k, float sent) {
    if constexpr (kAdds)
      return before.values.at[k] + sent;
    else
      return sent;
  }
};
/// Item i is the next 4 floats; with kFours false, the next one.
template <uint32_t kBits, bool kAdds, bool kFours>
struct DecodeBits {
  static constexpr uint32_t kAtOnce = kAdds && kFours ? 4 : 8, kValues = kFours ? 4 : 1;
  using Values = Decoded<kValues, kAdds>;
  struct Made {
    uint32_t byte;
    typename Values::Before before;
  };
  mv_device_decode_bits work;
  MV_BOTH Made make(uint64_t i) const {
    return {reinterpret_cast<const uint8_t*>(work.encoded)[i * kValues * kBits / 8], Values::before(work.values + i * kValues)};
  }
  MV_BOTH void put(uint64_t i, const Made& made) const {
    const uint32_t first = static_cast<uint32_t>(i) * kValues % (8 / kBits);
    Floats<kValues> values;
    MV_UNROLL
    for (uint32_t k = 0; k < kValues; ++k) {
      const uint32_t bits = made.byte >> (8 - kBits - kBits * (first + k)) & ((1u << kBits) - 1);
      float sent = (bits & 1) != 0 ? work.scale : -work.scale;
      if (kBits == 2 && bits < 2) sent = 0;
      values.at[k] = Values::after(made.before, k, sent);
    }
    put_some(work.values + i * kValues, values);
  }
};
template <typename T, typename From>
struct EncodeHalf {
  static constexpr uint32_t kAtOnce = 4;
  struct Made {
    T half;
    float left;
  };
  mv_device_encode_half work;
  MV_BOTH Made make(uint64_t i) const {
    const float largest = std::is_same_v<T, math::Half<MV_F16>> ? 65504.0f : 0x1.fep127f;
    const float total = work.residual[i] + get(static_cast<const From*>(work.gradient), i);
    Made made;
    device::put(&made.half, 0, std::fabs(total) > largest ? std::copysign(largest, total) : total);
    made.left = total - get(&made.half, 0);
    return made;
  }
  MV_BOTH void put(uint64_t i, const Made& made) const {
    static_cast<T*>(work.out)[i] = made.half;
    work.residual[i] = made.left;
  }
};
/// A tile is some blocks, or one that is longer than a tile. Each block's greatest value is found in kParts / blocks parts. A thread takes
/// kValues neighbours, which are of one block.
template <bool kFours, typename T>
struct EncodeInt8 {
  static constexpr uint32_t kSteps = 4, kParts = 256, kValues = kFours ? 4 : 1;
  struct Shared {
    alignas(16) float totals[kTile];
    float greatest[kParts], scales[kParts], inverses[kParts];
  };
  mv_device_encode_int8 work;
  MV_BOTH uint32_t blocks() const { return work.block > kTile ? 1 : static_cast<uint32_t>(least(kTile / work.block, kParts)); }
  uint64_t tiles() const { return parts(work.count, blocks() * work.block); }

  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    const uint32_t block_count = blocks(), size = static_cast<uint32_t>(work.block), each = kParts / block_count;
    const uint64_t first = tile * block_count * size;
    const auto count = static_cast<uint32_t>(least(work.count - first, uint64_t{block_count} * size));
    const bool fits = count <= kTile;
    const auto total = [&](uint32_t i) {
      Floats<kValues> sum = some_at<kValues>(work.residual + first + i);
      const Floats<kValues> gradient = floats_at<kValues>(static_cast<const T*>(work.gradient) + first + i);
      MV_UNROLL
      for (uint32_t k = 0; k < kValues; ++k) sum.at[k] = sum.at[k] + gradient.at[k];
      return sum;
    };
    if constexpr (kStep == 0) {
      for (uint32_t i = lane * kValues; fits && i < count; i += lanes * kValues) put_some(shared.totals + i, total(i));
    }
    if constexpr (kStep == 1) {
      for (uint32_t part = lane; part < block_count * each; part += lanes) {
        const uint32_t begin = part / each * size, end = static_cast<uint32_t>(least(begin + size, count));
        float greatest = 0;
        for (uint32_t i = begin + part % each * kValues; i < end; i += each * kValues) {
          const Floats<kValues> values = fits ? some_at<kValues>(static_cast<const float*>(shared.totals + i)) : total(i);
          MV_UNROLL
          for (uint32_t k = 0; k < kValues; ++k)
            if (greatest < std::fabs(values.at[k])) greatest = std::fabs(values.at[k]);
        }
        shared.greatest[part] = greatest;
      }
    }
    if constexpr (kStep == 2) {
      for (uint32_t block = lane; block < block_count && block * size < count; block += lanes) {
        float greatest = 0;
        for (uint32_t part = block * each; part < (block + 1) * each; ++part)
          if (greatest < shared.greatest[part]) greatest = shared.greatest[part];
        const bool any = greatest >= 128 * 0x1p-126f;
        shared.scales[block] = work.scales[tile * block_count + block] = any ? greatest / 127 : 0;
        shared.inverses[block] = any ? 127 / greatest : 0;
      }
    }
    if constexpr (kStep == 3) {
      // i / size by a multiplication, which is exact for i and size up to a tile.
      const uint64_t inverse = ((uint64_t{1} << 32) + size - 1) / size;
      for (uint32_t i = lane * kValues; i < count; i += lanes * kValues) {
        const auto block = fits ? static_cast<uint32_t>(i * inverse >> 32) : 0;
        Floats<kValues> values = fits ? some_at<kValues>(static_cast<const float*>(shared.totals + i)) : total(i);
        const float scale = shared.scales[block], inverse_scale = shared.inverses[block];
        Some<int8_t, kValues> numbers;
        MV_UNROLL
        for (uint32_t k = 0; k < kValues; ++k) {
          const float whole = std::nearbyint(values.at[k] * inverse_scale);
          const float within = whole < -127 ? -127.0f : whole > 127 ? 127.0f : whole + 0.0f;  // no -0, which an integer is not
          const float number = within == within ? within : 0.0f;                            // of NaN
          values.at[k] = values.at[k] - number * scale;
          numbers.at[k] = static_cast<int8_t>(number);
        }
        put_some(work.residual + first + i, values);
        put_some(work.out + first + i, numbers);
      }
    }
  }
};
/// Item i is the next 4 values, which are of one block if `block` is a multiple of 4; with kFours false, the next one.
template <bool kAdds, bool kFours>
struct DecodeInt8 {
  static constexpr uint32_t kAtOnce = kFours ? 2 : 8, kValues = kFours ? 4 : 1;
  using Values = Decoded<kValues, kAdds>;
  struct Made {
    Some<int8_t, kValues> numbers;
    float scale;
    typename Values::Before before;
  };
  mv_device_decode_int8 work;
  MV_BOTH Made make(uint64_t i) const {
    const uint64_t first = i * kValues;
    return {some_at<kValues>(work.encoded + first), work.scales[divided(first, work.block)], Values::before(work.values + first)};
  }
  MV_BOTH void put(uint64_t i, const Made& made) const {
    Floats<kValues> values;
    MV_UNROLL
    for (uint32_t k = 0; k < kValues; ++k) values.at[k] = Values::after(made.before, k, static_cast<float>(made.numbers.at[k]) * made.scale);
    put_some(work.values + i * kValues, values);
  }
};

}  // namespace mv::device
