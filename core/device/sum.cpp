#include "device/sum.hpp"

#include <algorithm>
#include <vector>

#include "device/operations.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

base::Result<const void*> sum_on(TensorDevice& device, const Stream& stream, Scratch& scratch, std::span<const tensor::Tensor> values, void* out) {
  const mv_dtype dtype = values.front().dtype, wide = tensor::storage_dtype(dtype);
  const size_t count = values.front().stored(), bytes = values.front().stored_bytes();
  std::vector<const void*> here;
  for (const tensor::Tensor& value : values) {
    tensor::Device* const on = tensor::device_of(value);
    const auto room = on == &device ? base::Result<void*>(value.data) : scratch.make(bytes);
    if (!room.ok()) return room.status();
    here.push_back(room.value());
    if (on == &device) continue;
    if (auto status = on != nullptr ? device.copy_from(*on, room.value(), value.data, bytes) : stream.copy_staged(room.value(), value.data, bytes); !status.ok())
      return status;
  }
  if (here.size() == 1 && out == nullptr) return here.front();
  const auto room = out != nullptr ? base::Result<void*>(out) : scratch.make(bytes);
  if (!room.ok() || count == 0) return room.ok() ? base::Result<const void*>(room.value()) : room.status();
  if (here.size() <= MV_DEVICE_SOURCES) {
    mv_device_merge work{.dst = room.value(), .sources = {}, .count = count, .source_count = here.size(), .divisor = 1, .op = MV_DEVICE_MERGE_SUM, .dtype = dtype};
    std::ranges::copy(here, work.sources);
    if (auto status = stream.launch(MV_DEVICE_MERGE, work); !status.ok()) return status;
    return room.value();
  }
  const auto sums = wide == dtype ? room : scratch.make(count * tensor::dtype_bytes(wide));
  if (!sums.ok()) return sums.status();
  auto status = device::cast(stream, wide, sums.value(), dtype, here.front(), count);
  for (size_t i = 1; i < here.size() && status.ok(); ++i) status = stream.launch(MV_DEVICE_AXPY, mv_device_axpy{sums.value(), here[i], count, 1, wide, dtype});
  if (status.ok() && wide != dtype) status = device::cast(stream, dtype, room.value(), wide, sums.value(), count);
  return status.ok() ? base::Result<const void*>(room.value()) : status;
}

}  // namespace mv::device
