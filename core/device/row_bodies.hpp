#pragma once
// The kernels of work.h that move rows; see bodies.hpp.

#include "device/bodies.hpp"

namespace mv::device {

/// Item i is an element of the output.
template <typename T>
struct Take {
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_take work;
  MV_BOTH T make(uint64_t i) const {
    const uint64_t row = divided(i, work.width), column = i - row * work.width;
    const T* const in = static_cast<const T*>(work.in);
    if (work.starts == nullptr) return in[work.from[row] * work.width + column];
    auto sum = get(in, work.from[work.starts[row]] * work.width + column);
    for (uint64_t k = work.starts[row] + 1; k < work.starts[row + 1]; ++k) sum = plus(sum, get(in, work.from[k] * work.width + column));
    T made;
    device::put(&made, 0, sum);
    return made;
  }
  MV_BOTH void put(uint64_t i, T value) const { static_cast<T*>(work.out)[i] = value; }
};
template <typename T>
struct Put {
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_put work;
  MV_BOTH T make(uint64_t i) const { return static_cast<const T*>(work.in)[i]; }
  MV_BOTH void put(uint64_t i, T value) const {
    const uint64_t row = divided(i, work.width);
    static_cast<T*>(work.out)[work.to[row] * work.width + (i - row * work.width)] = value;
  }
};
/// Item i is a row.
template <typename T>
struct Used {
  mv_device_used work;
  MV_BOTH void operator()(uint64_t i) const {
    uint8_t used = 0;
    for (uint64_t column = 0; column < work.width && used == 0; ++column)
      used = get(static_cast<const T*>(work.in), i * work.width + column) != 0;
    work.out[i] = used;
  }
};

}  // namespace mv::device
