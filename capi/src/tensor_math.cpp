// Tensors computed from other tensors' elements: copies, arithmetic, random numbers.

#include <polyverso/tensor.h>

#include "tensor/cast.hpp"
#include "tensor/device.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/matmul.hpp"
#include "tensor/random.hpp"
#include "tensor/reduce.hpp"
#include "tensor/sparse.hpp"
#include "tensor/sparse_arithmetic.hpp"
#include "tensor_calls.hpp"

namespace mv::capi {
namespace {

/// Calls compute(State&, a, b, out) on two open tensors.
template <typename Compute>
mv_status compute_pair(const char* function, mv_tensor a, mv_tensor b, mv_tensor out, mv_tensor* result,
                       Compute compute) {
  return compute_into(function, out, result, [&](State& state, const Tensor* into) -> base::Result<Tensor> {
    auto first = find_tensor(state, function, a);
    if (!first.ok()) return first.status();
    auto second = find_tensor(state, function, b);
    if (!second.ok()) return second.status();
    return compute(state, *first.value(), *second.value(), into);
  });
}

/// compute_pair() on one tensor.
template <typename Compute>
mv_status compute_one(const char* function, mv_tensor a, mv_tensor out, mv_tensor* result, Compute compute) {
  return compute_into(function, out, result, [&](State& state, const Tensor* into) -> base::Result<Tensor> {
    auto pin = find_tensor(state, function, a);
    if (!pin.ok()) return pin.status();
    return compute(state, *pin.value(), into);
  });
}

/// Calls use(a, b) -> Result<T>, and stores the result in *result as To.
template <typename To, typename Use>
mv_status measure_pair(const char* function, mv_tensor a, mv_tensor b, To* result, Use use) {
  return with_tensor(function, a, [&](State& state, const Tensor& first) -> base::Status {
    if (result == nullptr) return base::error(MV_EINVAL, "{}: the pointer for the result is NULL", function);
    auto second = find_tensor(state, function, b);
    if (!second.ok()) return second.status();
    const auto measured = use(first, *second.value());
    if (!measured.ok()) return measured.status();
    *result = static_cast<To>(measured.value());
    return {};
  });
}

/// y += alpha * x of a row-sparse y, which then holds the rows of both.
base::Status add_rows(State& state, double alpha, const Tensor& x, TensorPin& open) {
  constexpr const char* kName = "mv_tensor_axpy";
  const Tensor& y = *open;
  const auto rows = tensor::to_sparse(kName, state.heap, x);
  if (!rows.ok()) return rows.status();
  auto sum = tensor::add_rows(kName, state.heap, alpha, rows.value(), y);
  if (sum.ok()) sum = as_rows_of(state, kName, y, std::move(sum).value());
  if (!sum.ok()) return sum.status();
  open.pin()->replace(std::move(sum).value());
  return {};
}

}  // namespace
}  // namespace mv::capi

using namespace mv::capi;

mv_status mv_tensor_copy(mv_tensor tensor, mv_tensor out, mv_tensor* result) {
  return compute_one("mv_tensor_copy", tensor, out, result, [&](State& state, const Tensor& a, const Tensor* into) -> mv::base::Result<Tensor> {
    if (into != nullptr || out == 0) return mv::tensor::copy("mv_tensor_copy", state.heap, a, into);
    auto pin = find_tensor(state, "mv_tensor_copy", out);  // a row-sparse one, which may be in another place
    return pin.ok() ? mv::tensor::move_to(mv::tensor::home_of(*pin.value(), state.heap), a) : mv::base::Result<Tensor>(pin.status());
  });
}

mv_status mv_tensor_cast(mv_tensor tensor, mv_dtype dtype, mv_tensor* result) {
  return derive_tensor("mv_tensor_cast", tensor, result, [&](State& state, const Tensor& of) {
    return mv::tensor::cast("mv_tensor_cast", state.heap, of, dtype);
  });
}

mv_status mv_tensor_take(mv_tensor tensor, const int64_t* rows, uint64_t row_count, mv_tensor* result) {
  return derive_tensor("mv_tensor_take", tensor, result, [&](State& state, const Tensor& of) {
    return mv::tensor::take("mv_tensor_take", state.heap, of, rows, row_count);
  });
}

mv_status mv_tensor_transpose(mv_tensor tensor, mv_tensor* result) {
  return derive_tensor("mv_tensor_transpose", tensor, result, [&](State& state, const Tensor& of) {
    return mv::tensor::transpose("mv_tensor_transpose", state.heap, of);
  });
}

mv_status mv_tensor_to_dense(mv_tensor tensor, mv_tensor* result) {
  return derive_tensor("mv_tensor_to_dense", tensor, result, [&](State& state, const Tensor& of) {
    return mv::tensor::to_dense("mv_tensor_to_dense", state.heap, of);
  });
}

mv_status mv_tensor_to_sparse(mv_tensor tensor, mv_tensor* result) {
  return derive_tensor("mv_tensor_to_sparse", tensor, result, [&](State& state, const Tensor& of) {
    return mv::tensor::to_sparse("mv_tensor_to_sparse", state.heap, of);
  });
}

mv_status mv_tensor_fill(mv_tensor tensor, double value) {
  return with_tensor("mv_tensor_fill", tensor,
                     [&](State&, const Tensor& filled) { return mv::tensor::fill("mv_tensor_fill", filled, value); });
}

mv_status mv_tensor_range(mv_tensor tensor, double start, double step) {
  return with_tensor("mv_tensor_range", tensor, [&](State&, const Tensor& filled) {
    return mv::tensor::range("mv_tensor_range", filled, start, step);
  });
}

mv_status mv_tensor_uniform(mv_tensor tensor, int64_t seed, double low, double high) {
  return with_tensor("mv_tensor_uniform", tensor, [&](State&, const Tensor& filled) {
    return mv::tensor::fill_uniform("mv_tensor_uniform", filled, seed, low, high);
  });
}

mv_status mv_tensor_normal(mv_tensor tensor, int64_t seed, double mean, double deviation) {
  return with_tensor("mv_tensor_normal", tensor, [&](State&, const Tensor& filled) {
    return mv::tensor::fill_normal("mv_tensor_normal", filled, seed, mean, deviation);
  });
}

mv_status mv_tensor_unary(int32_t op, mv_tensor tensor, mv_tensor out, mv_tensor* result) {
  return compute_one("mv_tensor_unary", tensor, out, result, [&](State& state, const Tensor& a, const Tensor* into) {
    return mv::tensor::unary("mv_tensor_unary", state.heap, op, a, into);
  });
}

mv_status mv_tensor_binary(int32_t op, mv_tensor a, mv_tensor b, mv_tensor out, mv_tensor* result) {
  return compute_pair("mv_tensor_binary", a, b, out, result,
                      [&](State& state, const Tensor& first, const Tensor& second, const Tensor* into) {
                        return mv::tensor::binary("mv_tensor_binary", state.heap, op, first, second, into);
                      });
}

mv_status mv_tensor_scalar(int32_t op, mv_tensor a, double value, int32_t swapped, mv_tensor out, mv_tensor* result) {
  return compute_one("mv_tensor_scalar", a, out, result, [&](State& state, const Tensor& first, const Tensor* into) {
    return mv::tensor::scalar("mv_tensor_scalar", state.heap, op, first, value, swapped != 0, into);
  });
}

mv_status mv_tensor_axpy(double alpha, mv_tensor x, mv_tensor y) {
  return with_tensor("mv_tensor_axpy", x, [&](State& state, const Tensor& added) -> mv::base::Status {
    auto pin = find_tensor(state, "mv_tensor_axpy", y);
    if (!pin.ok()) return pin.status();
    if (pin.value()->is_row_sparse()) return add_rows(state, alpha, added, pin.value());
    return mv::tensor::axpy("mv_tensor_axpy", state.heap, alpha, added, *pin.value());
  });
}

mv_status mv_tensor_reduce(int32_t op, mv_tensor tensor, int64_t axis, mv_tensor* result) {
  return derive_tensor("mv_tensor_reduce", tensor, result, [&](State& state, const Tensor& of) {
    return mv::tensor::reduce("mv_tensor_reduce", state.heap, op, of, axis);
  });
}

mv_status mv_tensor_dot(mv_tensor a, mv_tensor b, double* value) {
  return measure_pair("mv_tensor_dot", a, b, value, [&](const Tensor& first, const Tensor& second) {
    return mv::tensor::dot("mv_tensor_dot", first, second);
  });
}

mv_status mv_tensor_close(mv_tensor a, mv_tensor b, double relative, double absolute, int32_t* close) {
  return measure_pair("mv_tensor_close", a, b, close, [&](const Tensor& first, const Tensor& second) {
    return mv::tensor::close("mv_tensor_close", first, second, relative, absolute);
  });
}

mv_status mv_tensor_matmul(mv_tensor a, mv_tensor b, int32_t flags, mv_tensor out, mv_tensor* result) {
  return compute_pair("mv_tensor_matmul", a, b, out, result,
                      [&](State& state, const Tensor& first, const Tensor& second, const Tensor* into) {
                        return mv::tensor::matmul("mv_tensor_matmul", state.heap, first, second, flags, into);
                      });
}
