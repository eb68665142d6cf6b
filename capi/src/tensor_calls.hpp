#pragma once
// Shared code of the functions of tensor.h: finds tensors by their handles, and makes handles for results.

#include <polyverso/tensor.h>

#include <utility>

#include "boundary.hpp"
#include "state.hpp"
#include "tensor/tensor.hpp"

namespace mv::capi {

using tensor::Tensor;

/// Makes a handle for a tensor; its memory counts its handles.
mv_tensor open_tensor(State& state, Tensor made);
/// The new value of a row-sparse tensor that gets other rows: of its shape, and converted to its dtype.
base::Result<Tensor> as_rows_of(State& state, const char* function, const Tensor& out, Tensor made);

/// Calls make(State&) -> Result<Tensor>, and returns a handle for the result.
template <typename Make>
mv_status give_tensor(const char* function, mv_tensor* result, Make make) {
  return tensor_boundary(function, [&](State& state) -> base::Status {
    if (result == nullptr) return base::error(MV_EINVAL, "{}: the pointer for the tensor is NULL", function);
    base::Result<Tensor> made = make(state);
    if (!made.ok()) return made.status();
    *result = open_tensor(state, std::move(made).value());
    return {};
  });
}

/// Calls use(State&, const Tensor&) -> Status on an open tensor.
template <typename Use>
mv_status with_tensor(const char* function, mv_tensor handle, Use use) {
  return tensor_boundary(function, [&](State& state) -> base::Status {
    auto pin = find_tensor(state, function, handle);
    if (!pin.ok()) return pin.status();
    return use(state, *pin.value());
  });
}

/// Calls make(State&, const Tensor&) -> Result<Tensor>, which derives a tensor from an open one.
template <typename Make>
mv_status derive_tensor(const char* function, mv_tensor handle, mv_tensor* result, Make make) {
  return give_tensor(function, result, [&](State& state) -> base::Result<Tensor> {
    auto pin = find_tensor(state, function, handle);
    if (!pin.ok()) return pin.status();
    return make(state, *pin.value());
  });
}

/// Calls compute(State&, const Tensor* out) -> Result<Tensor>, into `out` or into a new tensor, which replaces a
/// row-sparse `out`.
template <typename Compute>
mv_status compute_into(const char* function, mv_tensor out, mv_tensor* result, Compute compute) {
  if (out == 0) return give_tensor(function, result, [&](State& state) { return compute(state, nullptr); });
  return with_tensor(function, out, [&](State& state, const Tensor& into) -> base::Status {
    if (result == nullptr) return base::error(MV_EINVAL, "{}: the pointer for the tensor is NULL", function);
    base::Result<Tensor> made = compute(state, into.is_row_sparse() ? nullptr : &into);
    if (made.ok() && into.is_row_sparse()) made = as_rows_of(state, function, into, std::move(made).value());
    if (!made.ok()) return made.status();
    if (into.is_row_sparse()) {
      auto pin = find_tensor(state, function, out);
      if (!pin.ok()) return pin.status();
      pin.value().pin()->replace(std::move(made).value());
    }
    *result = out;
    return {};
  });
}

}  // namespace mv::capi
