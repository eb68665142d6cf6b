#include "tensor/device.hpp"

#include <cstring>

namespace mv::tensor {

std::string place_of(const Tensor& tensor) { return device_of(tensor) != nullptr ? device_of(tensor)->name() : "the host"; }

base::Status same_place(const char* function, const Tensor& a, const Tensor& b) {
  if (device_of(a) == device_of(b)) return {};
  return base::error(MV_EINVAL, "{}: {} is on {}, {} on {}: copy one of them with mv_tensor_to()", function, a.text(), place_of(a), b.text(),
                     place_of(b));
}

base::Status copy_bytes(const Tensor& to, const std::byte* from, Device* source, size_t bytes) {
  if (bytes == 0) return {};
  Device* const device = device_of(to);
  if (device == nullptr && source == nullptr) {
    std::memcpy(to.data, from, bytes);
    return {};
  }
  if (device == nullptr) return source->to_host(to.data, from, bytes);
  return source == nullptr ? device->from_host(to.data, from, bytes) : device->copy_from(*source, to.data, from, bytes);
}

base::Status read_bytes(const Tensor& tensor, const std::byte* from, void* to, size_t bytes) {
  if (device_of(tensor) != nullptr) return device_of(tensor)->to_host(to, from, bytes);
  std::memcpy(to, from, bytes);
  return {};
}

base::Status write_bytes(const Tensor& tensor, std::byte* to, const void* from, size_t bytes) {
  if (device_of(tensor) != nullptr) return device_of(tensor)->from_host(to, from, bytes);
  std::memcpy(to, from, bytes);
  return {};
}

base::Result<Tensor> move_to(Allocator& allocator, const Tensor& tensor) {
  auto made = make_dense(allocator, tensor.dtype, tensor.stored_shape(), Allocator::Content::kAnything);
  if (!made.ok()) return made;
  Tensor& copy = made.value();
  if (auto status = copy_bytes(copy, tensor.data, device_of(tensor), tensor.stored_bytes()); !status.ok()) return status;
  copy.shape = tensor.shape;
  copy.held = tensor.held;  // never written, so it may be shared
  return made;
}

base::Result<Tensor> on_host(const Tensor& tensor) {
  return device_of(tensor) == nullptr ? base::Result<Tensor>(tensor) : move_to(device_of(tensor)->staging(), tensor);
}

base::Result<std::unique_ptr<Arrival>> begin_on_host(Tensor& tensor, std::shared_ptr<Block> block, std::byte* to) {
  auto arrival = device_of(tensor)->begin_to_host(to, tensor.data, tensor.stored_bytes());
  if (!arrival.ok()) return arrival;
  tensor.data = to;
  tensor.block = std::move(block);  // if that frees a sum, then after the copy, in the order of the device's work
  return arrival;
}

}  // namespace mv::tensor
