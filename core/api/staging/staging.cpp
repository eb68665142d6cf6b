#include "api/staging/staging.hpp"

namespace mv::api {

base::Result<std::byte*> Staging::stage(const std::byte* memory, size_t bytes, Use use, const FindDevice& find) {
  auto* const own = const_cast<std::byte*>(memory);
  if (memory == nullptr || bytes == 0 || use == Use::kNone || !find) return own;
  const auto device = find(memory);
  if (!device.ok()) return device.status();
  if (device.value() == nullptr) return own;
  return stage(memory, bytes, use, *device.value());
}

base::Result<std::byte*> Staging::stage(const std::byte* memory, size_t bytes, Use use, tensor::Device& device) {
  auto block = device.staging().allocate(bytes, tensor::Allocator::Content::kAnything);
  if (!block.ok()) return block.status();
  std::byte* const copy = block.value()->data();
  if (use != Use::kWritten)
    if (auto status = device.to_host(copy, memory, bytes); !status.ok()) return status;
  copies_.push_back({&device, const_cast<std::byte*>(memory), std::move(block).value(), bytes, use != Use::kRead});
  return copy;
}

base::Status Staging::finish() const {
  for (const Copy& copy : copies_)
    if (copy.is_result)
      if (auto status = copy.device->from_host(copy.memory, copy.block->data(), copy.bytes); !status.ok()) return status;
  return {};
}

}  // namespace mv::api
