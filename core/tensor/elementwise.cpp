#include "tensor/elementwise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>

#include "tensor/arithmetic.hpp"
#include "tensor/cast.hpp"
#include "tensor/device.hpp"
#include "tensor/sparse_arithmetic.hpp"
#include "tensor/walk.hpp"

namespace mv::tensor {

namespace {

/// The result, unless its computation failed.
base::Result<Tensor> result_of(const base::Status& status, base::Result<Tensor> result) { return status.ok() ? std::move(result) : status; }

bool is_comparison(int op) { return op >= MV_EQ && op <= MV_GE; }

Source source_of(const Tensor& tensor) { return {tensor.dtype, tensor.shape, tensor.data}; }

/// Memory of a device and of the host never overlaps, but their addresses may.
bool overlaps(const Tensor& a, const Tensor& b) {
  if (device_of(a) != device_of(b)) return false;
  const std::less<const std::byte*> before;
  return before(a.data, b.data + b.stored_bytes()) && before(b.data, a.data + a.stored_bytes());
}

/// The operand, or a copy of it if writing the elements of `out` in order would overwrite elements not yet read.
base::Result<Tensor> readable(Heap& heap, const Tensor& operand, const Tensor* out) {
  if (out == nullptr || !overlaps(operand, *out)) return operand;
  const bool in_step =
      operand.data == out->data && operand.shape == out->shape && dtype_bytes(operand.dtype) == dtype_bytes(out->dtype);
  return in_step ? base::Result<Tensor>(operand) : clone(heap, operand);
}

/// `out` after checks, or a new tensor.
base::Result<Tensor> prepare(const char* function, Heap& heap, const Tensor& operand, mv_dtype dtype, const Shape& shape,
                             const Tensor* out) {
  if (out == nullptr) return make_dense(home_of(operand, heap), dtype, shape, Heap::Content::kAnything);
  if (auto status = need_dense(function, *out); !status.ok()) return status;
  if (auto status = same_place(function, operand, *out); !status.ok()) return status;
  if (out->shape == shape) return *out;
  return base::error(MV_ESHAPE, "{}: the result is {} {}, but out is {}", function, dtype_name(dtype), shape.text(),
                     out->text());
}

/// `count` elements of a source as elements of `dtype`: in place, or converted into the chunk.
const std::byte* fetch(mv_dtype dtype, mv_dtype from, const std::byte* at, size_t count, Chunk* chunk) {
  if (dtype == from) return at;
  cast_elements(dtype, chunk->bytes, from, at, count);
  return chunk->bytes;
}

/// Stores the results of a computation, of dtype `made`: rounded to `shown`, then converted to `out`.
void deliver(mv_dtype made, mv_dtype shown, mv_dtype out, std::byte* at, Chunk* chunk, size_t count) {
  if (shown != made && shown != out) {
    Chunk between;
    cast_elements(shown, between.bytes, made, chunk->bytes, count);
    return cast_elements(out, at, shown, between.bytes, count);
  }
  cast_elements(out, at, made, chunk->bytes, count);
}

/// An element-wise computation on up to two sources: run(out, operands, count) takes elements of dtype `computed` and
/// gives elements of dtype `made`, which are rounded to `shown`.
template <size_t kOperands, typename Run>
void compute(const std::array<Source, kOperands>& sources, mv_dtype computed, mv_dtype made, mv_dtype shown,
             const Tensor& out, Run run) {
  std::array<const Shape*, kOperands> shapes;
  bool needs_chunks = made != out.dtype;
  for (size_t k = 0; k < kOperands; ++k) {
    shapes[k] = &sources[k].shape;
    needs_chunks = needs_chunks || sources[k].dtype != computed;
  }
  const Walk<kOperands> walk(out.shape, shapes);
  const size_t longest = needs_chunks ? kChunk : walk.run();
  walk.each([&](size_t first, const std::array<size_t, kOperands>& offsets) {
    for (size_t i = 0; i < walk.run(); i += longest) {
      const size_t count = std::min(longest, walk.run() - i);
      std::array<Chunk, kOperands> chunks;
      std::array<Operand, kOperands> operands;
      for (size_t k = 0; k < kOperands; ++k) {
        const Source& source = sources[k];
        const bool is_single = walk.is_single(k);
        const std::byte* at = source.data + (offsets[k] + (is_single ? 0 : i)) * dtype_bytes(source.dtype);
        operands[k] = {fetch(computed, source.dtype, at, is_single ? 1 : count, &chunks[k]), is_single};
      }
      std::byte* const to = out.data + (first + i) * dtype_bytes(out.dtype);
      if (made == out.dtype) {
        run(to, operands, count);
      } else {
        Chunk results;
        run(results.bytes, operands, count);
        deliver(made, shown, out.dtype, to, &results, count);
      }
    }
  });
}

/// `operand` is one of the two.
base::Result<Tensor> combine(const char* function, Heap& heap, int op, const Tensor& operand, const Source& a, const Source& b,
                             mv_dtype dtype, const Tensor* out) {
  auto shape = broadcast(function, a.shape, b.shape);
  if (!shape.ok()) return shape.status();
  const mv_dtype computed = storage_dtype(dtype);
  const mv_dtype made = is_comparison(op) ? MV_U8 : computed;
  const mv_dtype shown = is_comparison(op) ? MV_U8 : dtype;
  auto result = prepare(function, heap, operand, shown, shape.value(), out);
  if (!result.ok()) return result;
  if (Device* const device = device_of(operand); device != nullptr)
    return result_of(device->compute({Elementwise::Kind::kBinary, op, dtype, shown}, std::array{a, b}, result.value()), std::move(result));
  compute<2>({a, b}, computed, made, shown, result.value(),
             [&](std::byte* to, const std::array<Operand, 2>& operands, size_t count) {
               const auto run = is_comparison(op) ? compare_run : binary_run;
               run(op, computed, to, operands[0], operands[1], count);
             });
  return result;
}

/// The least element is below 0.
base::Result<bool> has_negative_on_device(Device& device, const Tensor& tensor) {
  if (tensor.stored() == 0) return false;
  auto least = make_dense(device, tensor.dtype, Shape{}, Heap::Content::kAnything);
  if (!least.ok()) return least.status();
  if (auto status = device.reduce(MV_LEAST, tensor, {1, tensor.stored(), 1}, least.value()); !status.ok()) return status;
  std::byte element[sizeof(double)];
  if (auto status = device.to_host(element, least.value().data, dtype_bytes(tensor.dtype)); !status.ok()) return status;
  return load_element(tensor.dtype, element) < 0;
}

base::Status check_binary_op(const char* function, int op) {
  if (op >= MV_ADD && op <= MV_GE) return {};
  return base::error(MV_EINVAL, "{}: {} is not an mv_tensor_binary_op", function, op);
}

base::Result<bool> has_negative(const Tensor& tensor) {
  if (device_of(tensor) != nullptr) return has_negative_on_device(*device_of(tensor), tensor);
  for (size_t i = 0; i < tensor.stored(); ++i)
    if (load_element(tensor.dtype, tensor.data + i * dtype_bytes(tensor.dtype)) < 0) return true;
  return false;
}

base::Status no_negative_power(const char* function, const base::Result<bool>& is_negative) {
  if (!is_negative.ok()) return is_negative.status();
  if (!is_negative.value()) return {};
  return base::error(MV_EINVAL, "{}: MV_POW of integers with a negative exponent: cast the base to f64 first",
                     function);
}

/// Whether an integer dtype can represent this value.
bool has_value(mv_dtype dtype, double value) {
  if (value != std::trunc(value)) return false;
  if (dtype == MV_U8) return value >= 0 && value <= 255;
  const double beyond = dtype == MV_I8 ? 0x1p7 : dtype == MV_I32 ? 0x1p31 : 0x1p63;
  return value >= -beyond && value < beyond;
}

/// The dtype in which a tensor and a value are combined.
base::Result<mv_dtype> dtype_with(const char* function, int op, const Tensor& a, double value) {
  if (is_floating(a.dtype)) return a.dtype;
  if (op == MV_DIV) return mv_dtype{MV_F64};
  if (has_value(a.dtype, value)) return a.dtype;
  if (is_comparison(op)) return mv_dtype{MV_F64};
  return base::error(MV_EDTYPE, "{}: {} {} of {}: its dtype can't represent this value; cast it to f64 first", function,
                     binary_name(op), value, a.text());
}

base::Status axpy_on_device(const char* function, Device& device, mv_dtype computed, double alpha, const Tensor& x, const Tensor& y) {
  if (!x.is_row_sparse()) return device.axpy(computed, alpha, x, y);
  // The rows of y are copied, changed and put back.
  const size_t cols = y.shape.row_count();
  std::vector<uint64_t> rows;
  for (size_t r = 0; r < x.held.count; ++r) {
    if (static_cast<uint64_t>(x.held.ids[r]) >= y.shape.rows())  // the caller has overwritten the ids
      return base::error(MV_ERANGE, "{}: {} has an invalid row id {}", function, x.text(), x.held.ids[r]);
    rows.push_back(static_cast<uint64_t>(x.held.ids[r]));
  }
  Tensor added = x;
  added.held = {};
  added.shape = x.stored_shape();
  auto picked = make_dense(device, y.dtype, added.shape, Heap::Content::kAnything);
  if (!picked.ok()) return picked.status();
  auto status = device.take_rows(picked.value(), y, cols, rows, {});
  if (status.ok()) status = device.axpy(computed, alpha, added, picked.value());
  return status.ok() ? device.put_rows(y, picked.value(), cols, rows) : status;
}

base::Status axpy_rows(const char* function, double alpha, const Tensor& x, const Tensor& y) {
  const mv_dtype computed = storage_dtype(common_dtype(x.dtype, y.dtype));
  if (!is_floating(computed) && !has_value(computed, alpha))
    return base::error(MV_EDTYPE, "{}: alpha is {}, which the dtype of {} and {} can't represent", function, alpha, x.text(), y.text());
  if (Device* const device = device_of(y); device != nullptr) return axpy_on_device(function, *device, computed, alpha, x, y);
  std::byte factor[sizeof(double)];
  store_element(computed, factor, alpha);
  const size_t cols = y.shape.row_count(), runs = x.is_row_sparse() ? x.held.count : 1;
  const size_t run = x.is_row_sparse() ? cols : x.stored();
  const bool in_place = x.dtype == computed && y.dtype == computed;
  const size_t longest = in_place ? std::max<size_t>(run, 1) : kChunk;
  for (size_t r = 0; r < runs; ++r) {
    const auto to_row = x.is_row_sparse() ? static_cast<size_t>(x.held.ids[r]) : 0;
    if (to_row >= y.shape.rows() && x.is_row_sparse())  // the caller has overwritten the ids
      return base::error(MV_ERANGE, "{}: {} has an invalid row id {}", function, x.text(), x.held.ids[r]);
    for (size_t i = 0; i < run; i += longest) {
      const size_t count = std::min(longest, run - i);
      const std::byte* from = x.data + (r * run + i) * dtype_bytes(x.dtype);
      std::byte* to = y.data + (to_row * cols + i) * dtype_bytes(y.dtype);
      Chunk values, sums;
      from = fetch(computed, x.dtype, from, count, &values);
      if (y.dtype == computed) {
        axpy_run(computed, to, factor, from, count);
      } else {
        cast_elements(computed, sums.bytes, y.dtype, to, count);
        axpy_run(computed, sums.bytes, factor, from, count);
        cast_elements(y.dtype, to, computed, sums.bytes, count);
      }
    }
  }
  return {};
}

}  // namespace

const char* binary_name(int op) {
  constexpr const char* kNames[] = {"MV_ADD", "MV_SUB", "MV_MUL", "MV_DIV", "MV_POW", "MV_MIN", "MV_MAX",
                                    "MV_EQ",  "MV_NE",  "MV_LT",  "MV_LE",  "MV_GT",  "MV_GE"};
  return op >= MV_ADD && op <= MV_GE ? kNames[op - MV_ADD] : "no operator";
}

base::Result<Tensor> unary(const char* function, Heap& heap, int op, const Tensor& a, const Tensor* out) {
  if (op < MV_NEG || op > MV_LOG) return base::error(MV_EINVAL, "{}: {} is not an mv_tensor_unary_op", function, op);
  if (auto status = need_dense(function, a); !status.ok()) return status;
  const bool stays = is_floating(a.dtype) || op == MV_NEG || op == MV_ABS;
  const mv_dtype dtype = stays ? a.dtype : MV_F64;
  const mv_dtype computed = storage_dtype(dtype);
  auto operand = readable(heap, a, out);
  if (!operand.ok()) return operand;
  auto result = prepare(function, heap, a, dtype, a.shape, out);
  if (!result.ok()) return result;
  if (Device* const device = device_of(a); device != nullptr)
    return result_of(device->compute({Elementwise::Kind::kUnary, op, dtype, dtype}, std::array{source_of(operand.value())}, result.value()),
                     std::move(result));
  compute<1>({source_of(operand.value())}, computed, computed, dtype, result.value(),
             [&](std::byte* to, const std::array<Operand, 1>& operands, size_t count) {
               unary_run(op, computed, to, operands[0].data, count);
             });
  return result;
}

base::Result<Tensor> binary(const char* function, Heap& heap, int op, const Tensor& a, const Tensor& b,
                            const Tensor* out) {
  if (auto status = check_binary_op(function, op); !status.ok()) return status;
  if (a.is_row_sparse() && b.is_row_sparse() && out == nullptr && (op == MV_ADD || op == MV_SUB))
    return add_rows(function, heap, op == MV_ADD ? 1 : -1, b, a);
  if (auto status = need_dense(function, a); !status.ok()) return status;
  if (auto status = need_dense(function, b); !status.ok()) return status;
  mv_dtype dtype = common_dtype(a.dtype, b.dtype);
  if (op == MV_DIV && !is_floating(dtype)) dtype = MV_F64;
  if (auto status = same_place(function, a, b); !status.ok()) return status;
  if (op == MV_POW && !is_floating(dtype))
    if (auto status = no_negative_power(function, has_negative(b)); !status.ok()) return status;
  auto first = readable(heap, a, out), second = readable(heap, b, out);
  if (!first.ok()) return first;
  if (!second.ok()) return second;
  return combine(function, heap, op, a, source_of(first.value()), source_of(second.value()), dtype, out);
}

base::Result<Tensor> scalar(const char* function, Heap& heap, int op, const Tensor& a, double value, bool is_swapped,
                            const Tensor* out) {
  if (auto status = check_binary_op(function, op); !status.ok()) return status;
  if (a.is_row_sparse() && out == nullptr && !is_swapped && keeps_zeros(op)) return scale_rows(function, heap, op, a, value);
  if (auto status = need_dense(function, a); !status.ok()) return status;
  auto dtype = dtype_with(function, op, a, value);
  if (!dtype.ok()) return dtype.status();
  if (op == MV_POW && !is_floating(dtype.value()))
    if (auto status = no_negative_power(function, is_swapped ? has_negative(a) : value < 0); !status.ok()) return status;
  auto operand = readable(heap, a, out);
  if (!operand.ok()) return operand;
  std::byte element[sizeof(double)];
  store_element(dtype.value(), element, value);
  const Source tensor = source_of(operand.value()), single{dtype.value(), Shape{}, element, true};
  return is_swapped ? combine(function, heap, op, a, single, tensor, dtype.value(), out)
                    : combine(function, heap, op, a, tensor, single, dtype.value(), out);
}

base::Result<Tensor> copy(const char* function, Heap& heap, const Tensor& a, const Tensor* out) {
  if (out == nullptr) return clone(heap, a);
  if (auto status = need_dense(function, a); !status.ok()) return status;
  if (auto status = need_dense(function, *out); !status.ok()) return status;
  auto shape = broadcast(function, a.shape, out->shape);
  if (!shape.ok() || shape.value() != out->shape)
    return base::error(MV_ESHAPE, "{}: {} can't be broadcast to {}", function, a.text(), out->text());
  auto operand = device_of(a) == device_of(*out) ? readable(heap, a, out) : move_to(home_of(*out, heap), a);
  if (!operand.ok()) return operand;
  const Tensor& from = operand.value();
  if (Device* const device = device_of(*out); device != nullptr)
    return result_of(device->compute({Elementwise::Kind::kCopy, 0, out->dtype, out->dtype}, std::array{source_of(from)}, *out), *out);
  const Walk<1> walk(out->shape, {&from.shape});
  const size_t size = dtype_bytes(out->dtype), from_size = dtype_bytes(from.dtype);
  walk.each([&](size_t first, const std::array<size_t, 1>& offsets) {
    const std::byte* at = from.data + offsets[0] * from_size;
    std::byte* to = out->data + first * size;
    cast_elements(out->dtype, to, from.dtype, at, walk.is_single(0) ? 1 : walk.run());
    if (!walk.is_single(0)) return;
    for (size_t done = 1; done < walk.run(); done *= 2)
      std::memcpy(to + done * size, to, std::min(done, walk.run() - done) * size);
  });
  return *out;
}

base::Status axpy(const char* function, Heap& heap, double alpha, const Tensor& x, const Tensor& y) {
  if (auto status = need_dense(function, y); !status.ok()) return status;
  if (x.shape != y.shape) return base::error(MV_ESHAPE, "{}: x is {}, y is {}", function, x.text(), y.text());
  if (auto status = same_place(function, x, y); !status.ok()) return status;
  auto operand = readable(heap, x, &y);
  if (!operand.ok()) return operand.status();
  return axpy_rows(function, alpha, operand.value(), y);
}

base::Status fill(const char* function, const Tensor& tensor, double value) {
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  const size_t count = tensor.stored(), size = dtype_bytes(tensor.dtype);
  if (count == 0) return {};
  if (Device* const device = device_of(tensor); device != nullptr) {
    std::byte element[sizeof(double)];
    store_element(tensor.dtype, element, value);
    return device->fill(tensor, element);
  }
  store_element(tensor.dtype, tensor.data, value);
  // Doubles the copied part, up to a size that stays in the cache.
  for (size_t done = 1, step = 1; done < count; done += step, step = std::min(done, kChunk))
    std::memcpy(tensor.data + done * size, tensor.data, std::min(step, count - done) * size);
  return {};
}

base::Status range(const char* function, const Tensor& tensor, double start, double step) {
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  if (device_of(tensor) != nullptr) return device_of(tensor)->range(tensor, start, step);
  double values[kChunk];
  for (size_t i = 0; i < tensor.stored(); i += kChunk) {
    const size_t count = std::min(kChunk, tensor.stored() - i);
    for (size_t j = 0; j < count; ++j) values[j] = start + static_cast<double>(i + j) * step;
    cast_elements(tensor.dtype, tensor.data + i * dtype_bytes(tensor.dtype), MV_F64,
                  reinterpret_cast<const std::byte*>(values), count);
  }
  return {};
}

}  // namespace mv::tensor
