#pragma once
// The kernels of work.h that move rows; see bodies.hpp.

#include "device/update_bodies.hpp"

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

/// An update's formula for an element of a row.
template <typename T, typename Formula>
struct UpdateRows {
  static constexpr uint32_t kAtOnce = 4, kStates = Formula::kStates > 0 ? Formula::kStates : 1;
  struct Made {
    T value, states[kStates];
  };
  mv_device_update_rows work;
  MV_BOTH T* at(const mv_device_rows& array, uint64_t i) const {
    const uint64_t row = divided(i, work.width);
    return row_of<T>(array, work.rows[row], work.width) + (i - row * work.width);
  }
  MV_BOTH static bool is_there(const mv_device_rows& array) { return array.data != nullptr || array.chunks != nullptr; }
  MV_BOTH Made make(uint64_t i) const {
    Made made;
    made.value = *at(work.values, i);
    const T gradient = get_as<T>(work.gradient_dtype, work.gradient, i);
    T backup{};
    if (work.backup != nullptr) backup = *at({const_cast<void*>(work.backup), nullptr, 0, 0}, i);
    std::byte* states[kStates];
    MV_UNROLL
    for (uint32_t s = 0; s < kStates; ++s) {
      if (is_there(work.states[s])) made.states[s] = *at(work.states[s], i);
      states[s] = reinterpret_cast<std::byte*>(&made.states[s]);
    }
    const shard::Step step{};
    shard::Block block;
    block.count = 1;
    block.values = reinterpret_cast<std::byte*>(&made.value);
    block.added = reinterpret_cast<const std::byte*>(&gradient);
    block.states = states;
    block.backup = work.backup != nullptr ? reinterpret_cast<const std::byte*>(&backup) : nullptr;
    block.step = &step;
    if constexpr (Formula::kHasSums)
      apply_at<T, Formula>(work.numbers, block, rate_of<T, Formula>(work.numbers, step));
    else
      Formula::template apply<T>(work.numbers, block);
    return made;
  }
  MV_BOTH void put(uint64_t i, const Made& made) const {
    *at(work.values, i) = made.value;
    MV_UNROLL
    for (uint32_t s = 0; s < kStates; ++s)
      if (is_there(work.states[s])) *at(work.states[s], i) = made.states[s];
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
