#include "shard/keyed/initial.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/mix.hpp"
#include "math/kernels.hpp"

namespace mv::shard {

namespace {

template <typename T>
T converted(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return 0;
    const double rounded = std::nearbyint(value);
    // The largest i64 is not a double: it is rounded up to a double that is out of range.
    if (rounded >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    if (rounded <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(rounded);
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
void put(std::byte* row, uint64_t column, double value) {
  const T stored = converted<T>(value);
  std::memcpy(row + column * sizeof(T), &stored, sizeof(T));
}

void put_as(mv_dtype storage, std::byte* row, uint64_t column, double value) {
  switch (storage) {
    case MV_F32:
      return put<float>(row, column, value);
    case MV_F64:
      return put<double>(row, column, value);
    case MV_I32:
      return put<int32_t>(row, column, value);
    case MV_I64:
      return put<int64_t>(row, column, value);
    case MV_I8:
      return put<int8_t>(row, column, value);
    default:
      return put<uint8_t>(row, column, value);
  }
}

}  // namespace

InitialValues::InitialValues(const Spec& spec)
    : dtype_(spec.dtype), cols_(spec.cols), initial_(spec.initial), range_(spec.initial_range), seed_(base::mix(spec.seed)) {
  if (range_ != 0) return;
  const mv_dtype storage = tensor::storage_dtype(dtype_);
  stored_row_.resize(cols_ * tensor::dtype_bytes(storage));
  for (uint64_t column = 0; column < cols_; ++column) put_as(storage, stored_row_.data(), column, initial_);
  out_row_.resize(spec.row_bytes());
  math::load_bytes(dtype_, stored_row_.data(), out_row_.data(), cols_);
}

double InitialValues::value(int64_t id, uint64_t column) const {
  const uint64_t random = base::mix(base::mix(seed_ + static_cast<uint64_t>(id)) + column);
  return initial_ + range_ * (static_cast<double>(random >> 11) * 0x1p-52 - 1);
}

void InitialValues::fill(int64_t id, std::byte* stored) const {
  if (range_ == 0) {
    std::memcpy(stored, stored_row_.data(), stored_row_.size());
    return;
  }
  const mv_dtype storage = tensor::storage_dtype(dtype_);
  for (uint64_t column = 0; column < cols_; ++column) put_as(storage, stored, column, value(id, column));
}

void InitialValues::read(int64_t id, std::byte* out) const {
  if (range_ == 0) {
    std::memcpy(out, out_row_.data(), out_row_.size());
    return;
  }
  const mv_dtype storage = tensor::storage_dtype(dtype_);
  if (storage == dtype_) return fill(id, out);
  std::vector<std::byte> stored(cols_ * tensor::dtype_bytes(storage));
  fill(id, stored.data());
  math::load_bytes(dtype_, stored.data(), out, cols_);
}

}  // namespace mv::shard
