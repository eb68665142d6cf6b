// Devices, and tensors in their memory.

#include <polyverso/tensor.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "device/tensors.hpp"
#include "options.hpp"
#include "spec.hpp"
#include "tensor/device.hpp"
#include "tensor_calls.hpp"

namespace mv::capi {

base::Result<tensor::Device*> find_device_of(const void* memory) { return tensor_space().devices.find(memory); }

base::Result<int32_t> find_device(std::string_view name) {
  std::string_view rest = name;
  if (rest == "cpu" || rest == "host") return MV_HOST;
  for (const std::string_view kind : {"cuda", "gpu"}) {
    if (!rest.starts_with(kind)) continue;
    rest.remove_prefix(kind.size());
    int32_t device = 0;
    if (rest.empty()) return device;
    const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), device);
    if (rest.front() == ':' && error == std::errc() && end == rest.data() + rest.size() && device >= 0) return device;
    break;
  }
  return base::error(MV_EINVAL, "\"{}\" is not a device: \"cpu\", \"cuda:0\" or \"gpu:0\" are", name);
}

namespace {

constexpr uint32_t kFirstDeviceInfo = sizeof(mv_device_info);

base::Status find(const char* name, int32_t* device) {
  if (name == nullptr || device == nullptr) return base::error(MV_EINVAL, "mv_device_find: name or device is NULL");
  const auto found = find_device(name);
  if (!found.ok()) return base::error(found.status().code(), "mv_device_find: {}", found.status().text());
  *device = found.value();
  return {};
}

base::Status describe(device::TensorDevice& device, mv_device_info* about) {
  if (about == nullptr) return base::error(MV_EINVAL, "mv_device_describe: about is NULL");
  mv_device_info known = MV_DEVICE_INFO_INIT;
  auto read = read_struct("mv_device_describe", "mv_device_info", about, known, kFirstDeviceInfo);
  if (!read.ok()) return read.status();
  const uint32_t size = about->size;
  const auto found = device.device().describe();
  if (!found.ok()) return found.status();
  const mv_device_about& told = found.value();
  const auto copy = [](auto& to, std::string_view from) { to[from.copy(to, sizeof to - 1)] = '\0'; };
  known.size = size;
  copy(known.name, device.name());
  copy(known.model, told.name);
  copy(known.bus, told.bus);
  copy(known.driver, told.driver);
  copy(known.runtime, told.runtime);
  known.architecture = told.major * 10 + told.minor;
  known.processors = told.processors;
  known.memory = told.memory;
  known.unused = told.unused;
  std::memcpy(about, &known, std::min<size_t>(size, sizeof(known)));
  return {};
}

base::Result<device::TensorDevice*> open_device(const char* function, int32_t number) {
  if (number < 0) return base::error(MV_ENOTFOUND, "{}: {} is not the number of a device", function, number);
  watch_forks();  // a child must not call its parent's driver
  auto device = tensor_space().devices.get(number);
  return device.ok() ? device : base::Result<device::TensorDevice*>(named(function, device.status()));
}

/// Calls use(TensorDevice&) -> Status.
template <typename Use>
mv_status with_device(const char* function, int32_t number, Use use) {
  return tensor_boundary(function, [&](State&) -> base::Status {
    const auto device = open_device(function, number);
    return device.ok() ? named(function, use(*device.value())) : device.status();
  });
}

/// Where tensors of this device are made.
base::Result<tensor::Allocator*> allocator(State& state, const char* function, int32_t number) {
  if (number == MV_HOST) return &state.heap;
  const auto device = open_device(function, number);
  if (!device.ok()) return device.status();
  return device.value();
}

mv_device_stream stream_of(uint64_t number) { return reinterpret_cast<mv_device_stream>(static_cast<uintptr_t>(number)); }

base::Result<Tensor> view_on(int32_t number, uint64_t address, uint64_t count, mv_dtype dtype, const int64_t* shape, uint64_t dims) {
  constexpr const char* kName = "mv_tensor_view_on";
  auto checked = tensor::make_shape(kName, shape, dims);
  if (!checked.ok()) return checked.status();
  auto* const values = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  auto made = tensor::make_lent(kName, values, count, dtype, checked.value());
  if (!made.ok() || number == MV_HOST) return made;
  const auto device = open_device(kName, number);
  if (!device.ok()) return device.status();
  made.value().block = device.value()->lend(made.value().data, made.value().stored_bytes());
  return made;
}

}  // namespace
}  // namespace mv::capi

using namespace mv::capi;

mv_status mv_device_count(int32_t* count) {
  return tensor_boundary("mv_device_count", [&](State&) -> mv::base::Status {
    if (count == nullptr) return mv::base::error(MV_EINVAL, "mv_device_count: count is NULL");
    const auto found = mv::device::TensorDevices::count();
    *count = found.ok() ? found.value() : 0;
    return {};
  });
}

mv_status mv_device_find(const char* name, int32_t* device) {
  return tensor_boundary("mv_device_find", [&](State&) { return find(name, device); });
}

mv_status mv_device_describe(int32_t device, mv_device_info* about) {
  return with_device("mv_device_describe", device, [&](mv::device::TensorDevice& on) { return describe(on, about); });
}

mv_status mv_device_wait(int32_t device) {
  return with_device("mv_device_wait", device, [](mv::device::TensorDevice& on) { return on.wait(); });
}

mv_status mv_device_set_stream(int32_t device, uint64_t stream) {
  return with_device("mv_device_set_stream", device, [&](mv::device::TensorDevice& on) { return on.use_stream(stream_of(stream)); });
}

mv_status mv_device_current_stream(int32_t device, uint64_t* stream) {
  return with_device("mv_device_current_stream", device, [&](mv::device::TensorDevice& on) -> mv::base::Status {
    if (stream == nullptr) return mv::base::error(MV_EINVAL, "mv_device_current_stream: stream is NULL");
    *stream = reinterpret_cast<uintptr_t>(on.stream());
    return {};
  });
}

mv_status mv_device_order(int32_t device, uint64_t stream) {
  return with_device("mv_device_order", device, [&](mv::device::TensorDevice& on) { return on.order(stream_of(stream)); });
}

mv_status mv_device_follow(int32_t device, uint64_t stream) {
  return with_device("mv_device_follow", device, [&](mv::device::TensorDevice& on) { return on.follow(stream_of(stream)); });
}

mv_status mv_tensor_create_on(int32_t device, mv_dtype dtype, const int64_t* shape, uint64_t dims, mv_tensor* tensor) {
  return give_tensor("mv_tensor_create_on", tensor, [&](State& state) -> mv::base::Result<Tensor> {
    if (auto status = mv::tensor::check_dtype("mv_tensor_create_on", dtype); !status.ok()) return status;
    auto checked = mv::tensor::make_shape("mv_tensor_create_on", shape, dims);
    if (!checked.ok()) return checked.status();
    auto at = allocator(state, "mv_tensor_create_on", device);
    if (!at.ok()) return at.status();
    return mv::tensor::make_dense(*at.value(), dtype, checked.value(), mv::tensor::Heap::Content::kZeros);
  });
}

mv_status mv_tensor_to(mv_tensor tensor, int32_t device, mv_tensor* result) {
  return derive_tensor("mv_tensor_to", tensor, result, [&](State& state, const Tensor& of) -> mv::base::Result<Tensor> {
    auto at = allocator(state, "mv_tensor_to", device);
    return at.ok() ? mv::tensor::move_to(*at.value(), of) : mv::base::Result<Tensor>(at.status());
  });
}

mv_status mv_tensor_view_on(int32_t device, uint64_t address, uint64_t count, mv_dtype dtype, const int64_t* shape, uint64_t dims,
                            mv_tensor* tensor) {
  return give_tensor("mv_tensor_view_on", tensor, [&](State&) { return view_on(device, address, count, dtype, shape, dims); });
}

mv_status mv_tensor_address(mv_tensor tensor, uint64_t* address) {
  return with_tensor("mv_tensor_address", tensor, [&](State&, const Tensor& asked) -> mv::base::Status {
    if (address == nullptr) return mv::base::error(MV_EINVAL, "mv_tensor_address: address is NULL");
    if (auto status = mv::tensor::need_dense("mv_tensor_address", asked); !status.ok()) return status;
    *address = reinterpret_cast<uintptr_t>(asked.data);
    return {};
  });
}
