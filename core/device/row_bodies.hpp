#pragma once
// The kernels of work.h that move rows; see bodies.hpp.

#include "device/bodies.hpp"

namespace mv::device {

/// Item i is an element of the output.
template <typename T>
struct Take {
  mv_device_take work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t row = i / work.width, column = i % work.width;
    const T* const in = static_cast<const T*>(work.in);
    if (work.starts == nullptr) {
      static_cast<T*>(work.out)[i] = in[work.from[row] * work.width + column];
      return;
    }
    auto sum = get(in, work.from[work.starts[row]] * work.width + column);
    for (uint64_t k = work.starts[row] + 1; k < work.starts[row + 1]; ++k) sum = plus(sum, get(in, work.from[k] * work.width + column));
    put(static_cast<T*>(work.out), i, sum);
  }
};
template <typename T>
struct Put {
  mv_device_put work;
  MV_BOTH void operator()(uint64_t i) const {
    static_cast<T*>(work.out)[work.to[i / work.width] * work.width + i % work.width] = static_cast<const T*>(work.in)[i];
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
