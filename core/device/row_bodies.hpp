#pragma once
// The kernels of work.h that move rows; see bodies.hpp.

#include "device/bodies.hpp"

namespace mv::device {

template <typename T>
MV_BOTH T* row_of(const mv_device_rows& rows, uint64_t row, uint64_t width) {
  if (rows.chunks == nullptr) return static_cast<T*>(rows.data) + row * width;
  return static_cast<T*>(rows.chunks[row >> rows.shift]) + (row & ((uint64_t{1} << rows.shift) - 1)) * width;
}

/// Item i is an element of the output.
template <typename T>
struct Take {
  static constexpr uint32_t kAtOnce = kFew<T>;
  mv_device_take work;
  MV_BOTH T make(uint64_t i) const {
    const uint64_t row = divided(i, work.width), column = i - row * work.width;
    const auto at = [&](uint64_t k) { return row_of<T>(work.in, work.from[k], work.width); };
    if (work.starts == nullptr) return work.from[row] != MV_DEVICE_NO_ROW ? at(row)[column] : static_cast<const T*>(work.out)[i];
    auto sum = get(at(work.starts[row]), column);
    for (uint64_t k = work.starts[row] + 1; k < work.starts[row + 1]; ++k) sum = plus(sum, get(at(k), column));
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
    row_of<T>(work.out, work.to[row], work.width)[i - row * work.width] = value;
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

struct BackUp {
  static constexpr uint32_t kAtOnce = 4;
  struct Made {
    uint64_t at;
    uint32_t word;
  };
  mv_device_back_up work;
  MV_BOTH Made make(uint64_t i) const {
    uint64_t at = i;
    if (work.rows != nullptr) {
      const uint64_t row = divided(i, work.width);
      at = work.rows[row] * work.width + (i - row * work.width);
    }
    return {at, ~work.in[at]};
  }
  MV_BOTH void put(uint64_t, const Made& made) const { work.out[made.at] = made.word; }
};

}  // namespace mv::device
