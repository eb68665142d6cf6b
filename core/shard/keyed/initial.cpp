#include "shard/keyed/initial.hpp"

#include <algorithm>
#include <cstring>

#include "base/mix.hpp"
#include "math/kernels.hpp"

namespace mv::shard {

namespace {

void put_as(mv_dtype storage, std::byte* row, uint64_t column, double value) {
  math::with_number(storage, [&](auto type) { math::set_element(row, column, math::nearest<decltype(type)>(value)); });
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
