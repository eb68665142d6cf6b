#include "api/kvstore/rows.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "math/kernels.hpp"
#include "tensor/cast.hpp"
#include "tensor/sparse.hpp"

namespace mv::kvstore {

namespace {

/// Appends the ids of a tensor's rows in the table. The table's rows are elements if it could not be split by rows.
void add_ids(const Entry& entry, const Tensor& value, std::vector<int64_t>& ids) {
  const uint64_t each = value.shape.row_count() / entry.spec->cols, first = ids.size();
  if (!value.is_row_sparse()) {
    ids.resize(first + value.shape.rows() * each);
    return std::iota(ids.begin() + static_cast<ptrdiff_t>(first), ids.end(), int64_t{0});
  }
  if (each == 1) {
    ids.insert(ids.end(), value.held.ids, value.held.ids + value.held.count);
    return;
  }
  ids.reserve(first + value.held.count * each);
  for (uint64_t i = 0; i < value.held.count; ++i)
    for (uint64_t element = 0; element < each; ++element) ids.push_back(value.held.ids[i] * static_cast<int64_t>(each) + static_cast<int64_t>(element));
}

base::Result<int64_t> whole(double value) {
  if (value == std::trunc(value) && std::fabs(value) < 0x1p63) return static_cast<int64_t>(value);
  return base::error(MV_EINVAL, "row id {} is not an integer", value);
}

}  // namespace

bool goes_by_rows(const Entry& entry, std::span<const Tensor> values) {
  return entry.row_sparse || std::ranges::any_of(values, &Tensor::is_row_sparse);
}

base::Status check_held(const Entry& entry, const Tensor& value) {
  if (!value.is_row_sparse()) return {};
  const int64_t* const end = value.held.ids + value.held.count;
  const int64_t* const bad = std::find_if(value.held.ids, end, [&](int64_t id) { return id < 0 || id >= entry.shape.lengths[0]; });
  return bad == end ? base::Status() : base::error(MV_ERANGE, "{} holds an invalid row {}", value.text(), *bad);
}

base::Result<PushedRows> rows_of(const Entry& entry, std::span<const Tensor> values) {
  PushedRows rows;
  for (const Tensor& value : values) {
    if (const base::Status wrong = check_held(entry, value); !wrong.ok()) return wrong;
    add_ids(entry, value, rows.ids);
    if (values.size() > 1) rows.joined.insert(rows.joined.end(), value.data, value.data + value.stored_bytes());
  }
  rows.values = values.size() > 1 ? rows.joined.data() : values.front().data;
  return rows;
}

base::Result<Tensor> merge_rows(tensor::Heap& heap, tensor::Device* device, const Entry& entry, std::span<const Tensor> values) {
  if (values.size() == 1 && values.front().is_row_sparse())
    return device != nullptr ? tensor::move_to(*device, values.front()) : tensor::clone(heap, values.front());
  std::vector<int64_t> ids;
  size_t bytes = 0;
  for (const Tensor& value : values) {
    bytes += value.stored_bytes();
    if (value.is_row_sparse()) {
      ids.insert(ids.end(), value.held.ids, value.held.ids + value.held.count);
    } else {
      ids.resize(ids.size() + value.shape.rows());
      std::iota(ids.end() - static_cast<ptrdiff_t>(value.shape.rows()), ids.end(), int64_t{0});
    }
  }
  tensor::Allocator& memory = device != nullptr ? static_cast<tensor::Allocator&>(*device) : heap;
  auto joined = memory.allocate(std::max<size_t>(bytes, 1), tensor::Allocator::Content::kAnything);
  if (!joined.ok()) return joined.status();
  Tensor all;
  all.dtype = entry.dtype;
  all.shape = entry.shape.with_rows(static_cast<int64_t>(ids.size()));
  all.block = std::move(joined).value();
  all.data = all.block->data();
  Tensor next = all;
  for (const Tensor& value : values) {
    if (auto status = tensor::copy_bytes(next, value.data, tensor::device_of(value), value.stored_bytes()); !status.ok()) return status;
    next.data += value.stored_bytes();
  }
  return tensor::make_sparse("push", heap, ids.data(), ids.size(), all, entry.shape.lengths[0]);
}

base::Result<std::vector<int64_t>> read_ids(const Tensor& ids, int64_t height) {
  if (ids.is_row_sparse()) return base::error(MV_EINVAL, "row ids must be a dense tensor, not {}", ids.text());
  std::vector<int64_t> rows(ids.stored());
  if (tensor::is_floating(ids.dtype)) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto id = whole(tensor::load_element(ids.dtype, ids.data + i * tensor::dtype_bytes(ids.dtype)));
      if (!id.ok()) return id.status();
      rows[i] = id.value();
    }
  } else {
    tensor::cast_elements(MV_I64, reinterpret_cast<std::byte*>(rows.data()), ids.dtype, ids.data, rows.size());
  }
  const auto bad = std::ranges::find_if(rows, [&](int64_t id) { return id < 0 || id >= height; });
  if (bad != rows.end()) return base::error(MV_ERANGE, "row id {} is outside 0 .. {}", *bad, height - 1);
  if (!math::strictly_increasing(rows)) {
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
  return rows;
}

}  // namespace mv::kvstore
