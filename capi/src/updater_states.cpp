// The states of updaters that programs keep themselves, as bytes.

#include <polyverso/kvstore.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/per_thread.hpp"
#include "checkpoint/updater_states.hpp"
#include "options.hpp"
#include "tensor/device.hpp"
#include "tensor_calls.hpp"

namespace mv::capi {
namespace {

using checkpoint::StateArray;
using checkpoint::UpdaterStates;

constexpr const char* kEncode = "kv_encode_states";
constexpr const char* kDecode = "kv_decode_states";
constexpr uint32_t kFirstStatesValues = 32;

/// What the last kv_decode_states() of a thread returned.
struct Decoded {
  std::string about;
  std::vector<mv_tensor> tensors;
};

base::Result<std::vector<Tensor>> dense_tensors(State& state, const kv_values* given) {
  std::vector<Tensor> tensors;
  if (given == nullptr) return tensors;
  const auto values = read_struct(kEncode, "kv_values", given, kv_values KV_VALUES_INIT, kFirstStatesValues);
  if (!values.ok()) return values.status();
  if (values.value().tensors == nullptr && values.value().count > 0) return base::error(MV_EINVAL, "{}: tensors is NULL", kEncode);
  for (uint64_t i = 0; i < values.value().count; ++i) {
    auto pin = find_tensor(state, kEncode, values.value().tensors[i]);
    if (!pin.ok()) return pin.status();
    if (auto status = tensor::need_dense(kEncode, *pin.value()); !status.ok()) return status;
    auto here = tensor::on_host(*pin.value());
    if (!here.ok()) return here.status();
    tensors.push_back(std::move(here).value());
  }
  return tensors;
}

base::Result<Tensor> encode(State& state, const char* format, const char* about, const kv_values* given) {
  if (format == nullptr || about == nullptr) return base::error(MV_EINVAL, "{}: format or about is NULL", kEncode);
  const auto tensors = dense_tensors(state, given);
  if (!tensors.ok()) return tensors.status();
  UpdaterStates states{.about = about, .arrays = {}};
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors.value()) {
    const auto lengths = std::span(tensor.shape.lengths).first(tensor.shape.dims);
    states.arrays.push_back({tensor.dtype, {lengths.begin(), lengths.end()}, {tensor.data, tensor.stored_bytes()}});
    bytes += tensor.stored_bytes();
  }
  const auto header = checkpoint::write_updater_header(format, states);
  if (!header.ok()) return named(kEncode, header.status());
  const auto length = static_cast<int64_t>(header.value().size() + bytes);
  const auto shape = tensor::make_shape(kEncode, &length, 1);
  if (!shape.ok()) return shape.status();
  auto file = tensor::make_dense(state.heap, MV_U8, shape.value(), tensor::Heap::Content::kAnything);
  if (!file.ok()) return file;
  std::byte* at = std::ranges::copy(std::as_bytes(std::span(header.value())), file.value().data).out;
  for (const StateArray& array : states.arrays) at = std::ranges::copy(array.bytes, at).out;
  return file;
}

base::Result<Tensor> tensor_of(State& state, const StateArray& array) {
  std::vector<int64_t> lengths;
  for (const uint64_t extent : array.shape) {
    if (extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return base::error(MV_EINVAL, "{}: the states are damaged: a dimension of length {}", kDecode, extent);
    lengths.push_back(static_cast<int64_t>(extent));
  }
  const auto shape = tensor::make_shape(kDecode, lengths.data(), lengths.size());
  if (!shape.ok()) return shape.status();
  return tensor::make_copy_of(kDecode, state.heap, array.bytes.data(), shape.value().count(), array.dtype, shape.value());
}

/// All handles, or none.
std::vector<mv_tensor> open_all(State& state, std::vector<Tensor> made) {
  std::vector<mv_tensor> handles;
  handles.reserve(made.size());
  try {
    for (Tensor& tensor : made) handles.push_back(open_tensor(state, std::move(tensor)));
  } catch (...) {
    for (const mv_tensor handle : handles) static_cast<void>(mv_tensor_free(handle));
    throw;
  }
  return handles;
}

base::Status decode(State& state, const char* format, std::span<const std::byte> file, Decoded& decoded) {
  auto read = checkpoint::read_updater_states(format, file);
  if (!read.ok()) return named(kDecode, read.status());
  std::vector<Tensor> made;
  for (const StateArray& array : read.value().arrays) {
    auto tensor = tensor_of(state, array);
    if (!tensor.ok()) return tensor.status();
    made.push_back(std::move(tensor).value());
  }
  decoded = {std::move(read.value().about), open_all(state, std::move(made))};
  return {};
}

}  // namespace
}  // namespace mv::capi

using namespace mv::capi;

mv_status kv_encode_states(const char* format, const char* about, const kv_values* states, mv_tensor* bytes) {
  return give_tensor(kEncode, bytes, [&](State& state) { return encode(state, format, about, states); });
}

mv_status kv_decode_states(const char* format, const void* values, uint64_t count, mv_dtype dtype, const char** about, const mv_tensor** tensors,
                           uint64_t* tensor_count) {
  return tensor_boundary(kDecode, [&](State& state) -> mv::base::Status {
    if (format == nullptr || about == nullptr || tensors == nullptr || tensor_count == nullptr)
      return mv::base::error(MV_EINVAL, "{}: format, about, tensors or tensor_count is NULL", kDecode);
    if (values == nullptr && count > 0) return mv::base::error(MV_EINVAL, "{}: values is NULL, but count is {}", kDecode, count);
    if (dtype != MV_RAW && dtype != MV_U8)
      return mv::base::error(MV_EDTYPE, "{}: the file is given as {}, not as bytes", kDecode, mv::tensor::dtype_name(dtype));
    Decoded& decoded = mv::base::per_thread<Decoded>();
    const auto status = decode(state, format, {static_cast<const std::byte*>(values), count}, decoded);
    if (!status.ok()) return status;
    *about = decoded.about.c_str();
    *tensors = decoded.tensors.data();
    *tensor_count = decoded.tensors.size();
    return {};
  });
}
