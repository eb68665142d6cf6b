#include "tensor/sparse.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tensor/arithmetic.hpp"
#include "tensor/cast.hpp"
#include "tensor/device.hpp"

namespace mv::tensor {

namespace {

base::Status check_ids(const char* function, const int64_t* rows, size_t row_count, int64_t height) {
  if (rows == nullptr && row_count > 0)
    return base::error(MV_EINVAL, "{}: rows is NULL, but row_count is {}", function, row_count);
  for (size_t i = 0; i < row_count; ++i) {
    if (rows[i] < 0 || rows[i] >= height)
      return base::error(MV_ERANGE, "{}: row id {} is outside 0 .. {}", function, rows[i], height - 1);
  }
  return {};
}

size_t row_bytes(const Tensor& tensor) { return tensor.shape.row_count() * dtype_bytes(tensor.dtype); }

void copy_row(const Tensor& to, size_t to_row, const Tensor& from, size_t from_row) {
  if (row_bytes(from) == 0) return;
  std::memcpy(to.data + to_row * row_bytes(to), from.data + from_row * row_bytes(from), row_bytes(from));
}

/// to += from, in a dtype that is its own storage_dtype().
void add_row(const Tensor& to, size_t to_row, const Tensor& from, size_t from_row) {
  std::byte* const sum = to.data + to_row * row_bytes(to);
  binary_run(MV_ADD, to.dtype, sum, {sum, false}, {from.data + from_row * row_bytes(from), false},
             to.shape.row_count());
}

bool is_zero_row(const Tensor& tensor, size_t row) {
  const std::byte* at = tensor.data + row * row_bytes(tensor);
  const size_t size = dtype_bytes(tensor.dtype);
  const size_t sign = is_floating(tensor.dtype) ? size - 1 : size;  // the byte with the sign bit: -0 is 0
  for (size_t i = 0; i < tensor.shape.row_count(); ++i, at += size) {
    for (size_t b = 0; b < size; ++b)
      if ((at[b] & (b == sign ? std::byte{0x7f} : std::byte{0xff})) != std::byte{0}) return false;
  }
  return true;
}

/// For each row whether it holds anything but zeros.
base::Result<std::vector<uint8_t>> used_rows(const Tensor& tensor) {
  const size_t rows = tensor.shape.rows();
  if (Device* const device = device_of(tensor); device != nullptr) return device->used_rows(tensor, rows, tensor.shape.row_count());
  std::vector<uint8_t> used(rows);
  for (size_t row = 0; row < rows; ++row) used[row] = !is_zero_row(tensor, row);
  return used;
}

/// Row i of `to` = the sum of the rows from[starts[i]] .. from[starts[i + 1] - 1] of `tensor`; without `starts`, row
/// from[i]. For sums, the dtype is its own storage_dtype().
base::Status take_rows(const Tensor& to, const Tensor& tensor, std::span<const uint64_t> from, std::span<const uint64_t> starts) {
  if (Device* const device = device_of(tensor); device != nullptr) return device->take_rows(to, tensor, tensor.shape.row_count(), from, starts);
  const size_t rows = starts.empty() ? from.size() : starts.size() - 1;
  for (size_t i = 0; i < rows; ++i) {
    const size_t first = starts.empty() ? i : starts[i], end = starts.empty() ? i + 1 : starts[i + 1];
    copy_row(to, i, tensor, from[first]);
    for (size_t k = first + 1; k < end; ++k) add_row(to, i, tensor, from[k]);
  }
  return {};
}

base::Result<Tensor> gather(const char* function, Heap& heap, const Tensor& tensor, const int64_t* rows, size_t count) {
  const Shape wanted = tensor.shape.with_rows(static_cast<int64_t>(count));
  auto shape = make_shape(function, wanted.lengths.data(), wanted.dims);
  if (!shape.ok()) return shape.status();
  auto made = make_dense(home_of(tensor, heap), tensor.dtype, shape.value(), Heap::Content::kAnything);
  if (!made.ok()) return made;
  auto status = take_rows(made.value(), tensor, std::vector<uint64_t>(rows, rows + count), {});
  return status.ok() ? made : base::Result<Tensor>(status);
}

base::Result<Tensor> retain(Heap& heap, const Tensor& tensor, const int64_t* rows, size_t count) {
  std::vector<int64_t> wanted(rows, rows + count), kept;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  const int64_t* const end = tensor.held.ids + tensor.held.count;
  std::set_intersection(wanted.begin(), wanted.end(), tensor.held.ids, end, std::back_inserter(kept));
  auto made = make_rows(home_of(tensor, heap), tensor.dtype, tensor.shape, kept);
  if (!made.ok()) return made;
  std::vector<uint64_t> from(kept.size());
  for (size_t i = 0; i < kept.size(); ++i) from[i] = static_cast<uint64_t>(std::lower_bound(tensor.held.ids, end, kept[i]) - tensor.held.ids);
  auto status = take_rows(made.value(), tensor, from, {});
  return status.ok() ? made : base::Result<Tensor>(status);
}

}  // namespace

base::Result<Tensor> make_rows(Allocator& allocator, mv_dtype dtype, const Shape& shape, std::span<const int64_t> ids) {
  auto block = allocator.host().allocate(ids.size_bytes(), Heap::Content::kAnything);
  if (!block.ok()) return block.status();
  auto* to = reinterpret_cast<int64_t*>(block.value()->data());
  std::ranges::copy(ids, to);
  auto made = make_dense(allocator, dtype, shape.with_rows(static_cast<int64_t>(ids.size())), Heap::Content::kAnything);
  if (!made.ok()) return made;
  made.value().shape = shape;
  made.value().held = HeldRows{std::move(block).value(), to, ids.size()};
  return made;
}

base::Result<Tensor> make_sparse(const char* function, Heap& heap, const int64_t* rows, size_t row_count,
                                 const Tensor& values, int64_t height) {
  if (auto status = need_dense(function, values); !status.ok()) return status;
  if (values.shape.dims == 0 || values.shape.rows() != row_count)
    return base::error(MV_ESHAPE, "{}: {} row ids given for values of {}", function, row_count, values.text());
  const Shape tall = values.shape.with_rows(height);
  auto shape = make_shape(function, tall.lengths.data(), tall.dims);
  if (!shape.ok()) return shape.status();
  if (auto status = check_ids(function, rows, row_count, height); !status.ok()) return status;

  std::vector<uint64_t> order(row_count);
  std::iota(order.begin(), order.end(), uint64_t{0});
  std::stable_sort(order.begin(), order.end(), [rows](uint64_t a, uint64_t b) { return rows[a] < rows[b]; });
  std::vector<int64_t> ids;
  for (const uint64_t i : order)
    if (ids.empty() || ids.back() != rows[i]) ids.push_back(rows[i]);

  const bool sums_halves = ids.size() < row_count && storage_dtype(values.dtype) != values.dtype;
  auto wide = sums_halves ? cast(function, heap, values, storage_dtype(values.dtype)) : base::Result<Tensor>(values);
  if (!wide.ok()) return wide;
  const Tensor& from = wide.value();
  auto made = make_rows(home_of(from, heap), from.dtype, shape.value(), ids);
  if (!made.ok()) return made;
  std::vector<uint64_t> starts;
  for (size_t i = 0; i < row_count && ids.size() < row_count; ++i)
    if (i == 0 || rows[order[i]] != rows[order[i - 1]]) starts.push_back(i);
  if (!starts.empty()) starts.push_back(row_count);
  if (auto status = take_rows(made.value(), from, order, starts); !status.ok()) return status;
  return sums_halves ? cast(function, heap, made.value(), values.dtype) : std::move(made);
}

base::Result<Tensor> take(const char* function, Heap& heap, const Tensor& tensor, const int64_t* rows,
                          size_t row_count) {
  if (tensor.shape.dims == 0)
    return base::error(MV_ESHAPE, "{}: {} has no dimensions, so no rows", function, tensor.text());
  if (auto status = check_ids(function, rows, row_count, tensor.shape.lengths[0]); !status.ok()) return status;
  return tensor.is_row_sparse() ? retain(heap, tensor, rows, row_count)
                                : gather(function, heap, tensor, rows, row_count);
}

base::Result<Parts> parts(const char* function, const Tensor& tensor) {
  if (!tensor.is_row_sparse())
    return base::error(MV_EINVAL, "{}: a row-sparse tensor is needed, not {}", function, tensor.text());
  Parts parts;
  parts.values = tensor;
  parts.values.held = {};
  parts.values.shape = tensor.stored_shape();
  parts.values.is_view = true;
  parts.ids.dtype = MV_I64;
  parts.ids.shape.dims = 1;
  parts.ids.shape.lengths[0] = static_cast<int64_t>(tensor.held.count);
  parts.ids.block = tensor.held.block;
  parts.ids.data = tensor.held.block->data();
  parts.ids.is_view = true;
  return parts;
}

base::Result<Tensor> to_dense(const char* function, Heap& heap, const Tensor& tensor) {
  if (!tensor.is_row_sparse()) return clone(heap, tensor);
  auto made = make_dense(home_of(tensor, heap), tensor.dtype, tensor.shape, Heap::Content::kZeros);
  if (!made.ok()) return made;
  const std::span<const int64_t> ids(tensor.held.ids, tensor.held.count);
  for (const int64_t id : ids)
    if (id < 0 || id >= tensor.shape.lengths[0])  // the caller has overwritten the ids
      return base::error(MV_ERANGE, "{}: {} has an invalid row id {}", function, tensor.text(), id);
  if (Device* const device = device_of(tensor); device != nullptr) {
    auto status = device->put_rows(made.value(), tensor, tensor.shape.row_count(), std::vector<uint64_t>(ids.begin(), ids.end()));
    return status.ok() ? made : base::Result<Tensor>(status);
  }
  for (size_t i = 0; i < ids.size(); ++i) copy_row(made.value(), static_cast<size_t>(ids[i]), tensor, i);
  return made;
}

base::Result<Tensor> to_sparse(const char* function, Heap& heap, const Tensor& tensor) {
  if (tensor.is_row_sparse()) return clone(heap, tensor);
  if (tensor.shape.dims == 0)
    return base::error(MV_ESHAPE, "{}: {} has no dimensions, so no rows", function, tensor.text());
  const auto used = used_rows(tensor);
  if (!used.ok()) return used.status();
  std::vector<int64_t> ids;
  for (size_t row = 0; row < tensor.shape.rows(); ++row)
    if (used.value()[row] != 0) ids.push_back(static_cast<int64_t>(row));
  auto made = make_rows(home_of(tensor, heap), tensor.dtype, tensor.shape, ids);
  if (!made.ok()) return made;
  auto status = take_rows(made.value(), tensor, std::vector<uint64_t>(ids.begin(), ids.end()), {});
  return status.ok() ? made : base::Result<Tensor>(status);
}

}  // namespace mv::tensor
