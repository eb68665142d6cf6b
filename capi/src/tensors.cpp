// Creates, frees and describes tensors, gives access to their elements, and makes views of them.

#include <polyverso/tensor.h>

#include <algorithm>
#include <cstring>

#include "options.hpp"
#include "tensor/cast.hpp"
#include "tensor/device.hpp"
#include "tensor/sparse.hpp"
#include "tensor_calls.hpp"

namespace mv::capi {
namespace {

constexpr uint32_t kFirstTensorInfo = 136;
static_assert(sizeof(mv_tensor_info) >= kFirstTensorInfo);

base::Result<Tensor> create(State& state, const char* function, mv_dtype dtype, const int64_t* shape, uint64_t dims) {
  if (auto status = tensor::check_dtype(function, dtype); !status.ok()) return status;
  auto checked = tensor::make_shape(function, shape, dims);
  if (!checked.ok()) return checked.status();
  return tensor::make_dense(state.heap, dtype, checked.value(), tensor::Heap::Content::kZeros);
}

/// Adds `more` to the count of handles that use a tensor's memory.
void count_handle(const Tensor& tensor, int64_t more) {
  tensor.block->handles.fetch_add(static_cast<uint64_t>(more), std::memory_order_acq_rel);
  if (tensor.held.block != nullptr) tensor.held.block->handles.fetch_add(static_cast<uint64_t>(more), std::memory_order_acq_rel);
}

base::Status free_tensor(State& state, mv_tensor handle) {
  const auto pin = state.tensors.pin(handle);
  if (!pin || !state.tensors.close(pin)) return not_a(state, "mv_tensor_free", HandleKind::kTensor, handle);
  pin->let_go();
  return {};
}

base::Status describe(const Tensor& tensor, mv_tensor_info* about) {
  if (about == nullptr) return base::error(MV_EINVAL, "mv_tensor_describe: about is NULL");
  mv_tensor_info known = MV_TENSOR_INFO_INIT;
  auto read = read_struct("mv_tensor_describe", "mv_tensor_info", about, known, kFirstTensorInfo);
  if (!read.ok()) return read.status();
  const uint32_t size = about->size;
  known.size = size;
  known.dtype = tensor.dtype;
  known.dims = tensor.shape.dims;
  std::copy_n(tensor.shape.lengths.begin(), tensor.shape.dims, known.shape);
  known.count = tensor.shape.count();
  known.bytes = tensor.stored_bytes();
  known.is_view = tensor.is_view;
  known.is_lent = tensor.block->is_lent();
  known.is_shared = tensor.block->is_shared();
  known.row_sparse = tensor.is_row_sparse();
  known.rows_held = tensor.held.count;
  known.storage = tensor.block->number();
  known.sharers = tensor.block->handles.load(std::memory_order_acquire);
  known.device = tensor.block->device() != nullptr ? tensor.block->device()->number() : MV_HOST;
  std::memcpy(about, &known, std::min<size_t>(size, sizeof(known)));
  return {};
}

base::Status give_text(const Tensor& tensor, char* picture, uint64_t capacity, uint64_t* length) {
  if (length == nullptr) return base::error(MV_EINVAL, "mv_tensor_text: length is NULL");
  if (picture == nullptr && capacity != 0)
    return base::error(MV_EINVAL, "mv_tensor_text: picture is NULL, but capacity is {}", capacity);
  const auto made = tensor::whole_text(tensor);
  if (!made.ok()) return made.status();
  const std::string& text = made.value();
  if (capacity > 0) {
    const size_t kept = std::min<size_t>(text.size(), capacity - 1);
    std::memcpy(picture, text.data(), kept);
    picture[kept] = '\0';
  }
  *length = text.size();
  return {};
}

base::Status get_element(const Tensor& tensor, const int64_t* index, uint64_t dims, double* value, int64_t* integer) {
  if (value == nullptr || integer == nullptr) return base::error(MV_EINVAL, "mv_tensor_get: value or integer is NULL");
  auto at = tensor::locate("mv_tensor_get", tensor, index, dims);
  if (!at.ok()) return at.status();
  std::byte element[sizeof(double)] = {};
  if (at.value() != nullptr)
    if (auto status = tensor::read_bytes(tensor, at.value(), element, tensor::dtype_bytes(tensor.dtype)); !status.ok()) return status;
  *value = tensor::load_element(tensor.dtype, element);
  tensor::cast_elements(MV_I64, reinterpret_cast<std::byte*>(integer), tensor.dtype, element, 1);
  return {};
}

base::Status give_parts(State& state, mv_tensor handle, mv_tensor* ids, mv_tensor* values) {
  if (ids == nullptr || values == nullptr) return base::error(MV_EINVAL, "mv_tensor_parts: ids or values is NULL");
  auto pin = find_tensor(state, "mv_tensor_parts", handle);
  if (!pin.ok()) return pin.status();
  auto parts = tensor::parts("mv_tensor_parts", *pin.value());
  if (!parts.ok()) return parts.status();
  const mv_tensor first = open_tensor(state, std::move(parts.value().ids));
  try {
    *values = open_tensor(state, std::move(parts.value().values));
  } catch (...) {
    static_cast<void>(free_tensor(state, first));
    throw;
  }
  *ids = first;
  return {};
}

}  // namespace

mv_tensor open_tensor(State& state, Tensor made) {
  watch_forks();  // a child must not write into its parent's memory
  const mv_tensor handle = state.tensors.reserve();
  state.tensors.publish(handle, OpenTensor(std::move(made)));
  return handle;
}

OpenTensor::OpenTensor(Tensor tensor) : is_row_sparse_(tensor.is_row_sparse()), tensor_(std::move(tensor)) { count_handle(tensor_, 1); }

Tensor OpenTensor::now() const {
  std::lock_guard lock(tensor_space().replacing);
  return tensor_;
}

void OpenTensor::replace(Tensor made) {
  std::lock_guard lock(tensor_space().replacing);
  if (holds_) {
    count_handle(made, 1);
    count_handle(tensor_, -1);
  }
  std::swap(tensor_, made);
}

void OpenTensor::let_go() {
  if (!is_row_sparse_) return count_handle(tensor_, -1);
  std::lock_guard lock(tensor_space().replacing);
  count_handle(tensor_, -1);
  holds_ = false;
}

base::Result<Tensor> as_rows_of(State& state, const char* function, const Tensor& out, Tensor made) {
  if (!made.is_row_sparse())
    return base::error(MV_EINVAL, "{}: the result is {}, but out is {}: convert it with mv_tensor_to_sparse()", function, made.text(), out.text());
  if (made.shape != out.shape) return base::error(MV_ESHAPE, "{}: the result is {}, but out is {}", function, made.text(), out.text());
  if (auto status = tensor::same_place(function, made, out); !status.ok()) return status;
  if (made.dtype == out.dtype) return made;
  return tensor::cast(function, state.heap, made, out.dtype);
}

}  // namespace mv::capi

using namespace mv::capi;

mv_status mv_tensor_create(mv_dtype dtype, const int64_t* shape, uint64_t dims, mv_tensor* tensor) {
  return give_tensor("mv_tensor_create", tensor,
                     [&](State& state) { return create(state, "mv_tensor_create", dtype, shape, dims); });
}

mv_status mv_tensor_from(const void* values, uint64_t count, mv_dtype dtype, const int64_t* shape, uint64_t dims,
                         mv_tensor* tensor) {
  return give_tensor("mv_tensor_from", tensor, [&](State& state) -> mv::base::Result<Tensor> {
    auto checked = mv::tensor::make_shape("mv_tensor_from", shape, dims);
    if (!checked.ok()) return checked.status();
    return mv::tensor::make_copy_of("mv_tensor_from", state.heap, values, count, dtype, checked.value());
  });
}

mv_status mv_tensor_view(void* values, uint64_t count, mv_dtype dtype, const int64_t* shape, uint64_t dims,
                         mv_tensor* tensor) {
  return give_tensor("mv_tensor_view", tensor, [&](State&) -> mv::base::Result<Tensor> {
    auto checked = mv::tensor::make_shape("mv_tensor_view", shape, dims);
    if (!checked.ok()) return checked.status();
    return mv::tensor::make_lent("mv_tensor_view", values, count, dtype, checked.value());
  });
}

mv_status mv_tensor_sparse(const int64_t* rows, uint64_t row_count, mv_tensor values, int64_t height,
                           mv_tensor* tensor) {
  return derive_tensor("mv_tensor_sparse", values, tensor, [&](State& state, const Tensor& held) {
    return mv::tensor::make_sparse("mv_tensor_sparse", state.heap, rows, row_count, held, height);
  });
}

mv_status mv_tensor_free(mv_tensor tensor) {
  return tensor_boundary("mv_tensor_free", [&](State& state) { return free_tensor(state, tensor); });
}

mv_status mv_tensor_describe(mv_tensor tensor, mv_tensor_info* about) {
  return with_tensor("mv_tensor_describe", tensor,
                     [&](State&, const Tensor& described) { return describe(described, about); });
}

mv_status mv_tensor_data(mv_tensor tensor, void** data, uint64_t* count, mv_dtype* dtype) {
  return with_tensor("mv_tensor_data", tensor, [&](State&, const Tensor& asked) -> mv::base::Status {
    if (data == nullptr) return mv::base::error(MV_EINVAL, "mv_tensor_data: data is NULL");
    if (auto status = mv::tensor::need_dense("mv_tensor_data", asked); !status.ok()) return status;
    if (auto status = mv::tensor::need_host("mv_tensor_data", asked); !status.ok()) return status;
    *data = asked.data;
    if (count != nullptr) *count = asked.stored();
    if (dtype != nullptr) *dtype = asked.dtype;
    return {};
  });
}

mv_status mv_tensor_text(mv_tensor tensor, char* picture, uint64_t capacity, uint64_t* length) {
  return with_tensor("mv_tensor_text", tensor,
                     [&](State&, const Tensor& shown) { return give_text(shown, picture, capacity, length); });
}

mv_status mv_tensor_get(mv_tensor tensor, const int64_t* index, uint64_t dims, double* value, int64_t* integer) {
  return with_tensor("mv_tensor_get", tensor,
                     [&](State&, const Tensor& asked) { return get_element(asked, index, dims, value, integer); });
}

mv_status mv_tensor_set(mv_tensor tensor, const int64_t* index, uint64_t dims, double value) {
  return with_tensor("mv_tensor_set", tensor, [&](State&, const Tensor& changed) -> mv::base::Status {
    if (auto status = mv::tensor::need_dense("mv_tensor_set", changed); !status.ok()) return status;
    auto at = mv::tensor::locate("mv_tensor_set", changed, index, dims);
    if (!at.ok()) return at.status();
    std::byte element[sizeof(double)];
    mv::tensor::store_element(changed.dtype, element, value);
    return mv::tensor::write_bytes(changed, at.value(), element, mv::tensor::dtype_bytes(changed.dtype));
  });
}

mv_status mv_tensor_reshape(mv_tensor tensor, const int64_t* shape, uint64_t dims, mv_tensor* result) {
  return derive_tensor("mv_tensor_reshape", tensor, result, [&](State&, const Tensor& of) {
    return mv::tensor::reshape("mv_tensor_reshape", of, shape, dims);
  });
}

mv_status mv_tensor_slice(mv_tensor tensor, int64_t begin, int64_t end, mv_tensor* result) {
  return derive_tensor("mv_tensor_slice", tensor, result,
                       [&](State&, const Tensor& of) { return mv::tensor::slice("mv_tensor_slice", of, begin, end); });
}

mv_status mv_tensor_row(mv_tensor tensor, int64_t row, mv_tensor* result) {
  return derive_tensor("mv_tensor_row", tensor, result,
                       [&](State&, const Tensor& of) { return mv::tensor::row("mv_tensor_row", of, row); });
}

mv_status mv_tensor_parts(mv_tensor tensor, mv_tensor* ids, mv_tensor* values) {
  return tensor_boundary("mv_tensor_parts", [&](State& state) { return give_parts(state, tensor, ids, values); });
}
