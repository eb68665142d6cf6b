#include "tensor/sparse_arithmetic.hpp"

#include <cstring>
#include <vector>

#include "tensor/cast.hpp"
#include "tensor/device.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/sparse.hpp"

namespace mv::tensor {

namespace {

base::Result<Tensor> with_ids_of(const char* function, Heap& heap, const Tensor& rows, const Tensor& values) {
  return make_sparse(function, heap, rows.held.ids, rows.held.count, values, rows.shape.lengths[0]);
}

}  // namespace

bool keeps_zeros(int op) { return op == MV_MUL || op == MV_DIV; }

base::Result<Tensor> scale_rows(const char* function, Heap& heap, int op, const Tensor& rows, double value) {
  const auto held = parts(function, rows);
  if (!held.ok()) return held.status();
  const auto scaled = scalar(function, heap, op, held.value().values, value, false, nullptr);
  return scaled.ok() ? with_ids_of(function, heap, rows, scaled.value()) : scaled;
}

base::Result<Tensor> add_rows(const char* function, Heap& heap, double alpha, const Tensor& x, const Tensor& y) {
  if (x.shape != y.shape) return base::error(MV_ESHAPE, "{}: {} and {} have different shapes", function, x.text(), y.text());
  if (auto status = same_place(function, x, y); !status.ok()) return status;
  const mv_dtype dtype = common_dtype(x.dtype, y.dtype), computed = storage_dtype(dtype);
  auto first = cast(function, heap, y, computed), second = cast(function, heap, x, computed);
  if (!first.ok()) return first;
  if (!second.ok()) return second;
  if (alpha != 1) second = scale_rows(function, heap, MV_MUL, second.value(), alpha);
  if (!second.ok()) return second;
  // One tensor with the rows of both; make_sparse() sums the rows that occur twice.
  const Tensor &a = first.value(), &b = second.value();
  std::vector<int64_t> ids(a.held.ids, a.held.ids + a.held.count);
  ids.insert(ids.end(), b.held.ids, b.held.ids + b.held.count);
  auto both = make_dense(home_of(a, heap), computed, y.shape.with_rows(static_cast<int64_t>(ids.size())), Heap::Content::kAnything);
  if (!both.ok()) return both;
  Tensor upper = both.value(), lower = upper;
  lower.data += a.stored_bytes();
  auto status = copy_bytes(upper, a.data, device_of(a), a.stored_bytes());
  if (status.ok()) status = copy_bytes(lower, b.data, device_of(b), b.stored_bytes());
  if (!status.ok()) return status;
  auto sum = make_sparse(function, heap, ids.data(), ids.size(), both.value(), y.shape.lengths[0]);
  return sum.ok() && dtype != computed ? cast(function, heap, sum.value(), dtype) : std::move(sum);
}

}  // namespace mv::tensor
