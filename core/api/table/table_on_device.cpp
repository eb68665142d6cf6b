// TableHandle: changes from, and gets into, arrays in the memory of a device of this process.

#include "api/staging/staging.hpp"
#include "api/table/table_handle.hpp"
#include "math/kernels.hpp"
#include "shard/on_device.hpp"
#include "tensor/device.hpp"

namespace mv::api {

/// This process's shard, if it is on this device and a call reaches all of the table there. Null: the values go by the host.
shard::OnDevice* TableHandle::shard_on(const tensor::Device& device) const {
  shard::OnDevice* const shard = is_simple_ ? own_->on_device() : nullptr;
  return shard != nullptr && &shard->device() == &device ? shard : nullptr;
}

tensor::Tensor TableHandle::tensor_on(tensor::Device& device, const Rows& rows, const void* values) const {
  tensor::Tensor tensor;
  tensor.dtype = spec_.dtype;
  tensor.shape = {{static_cast<int64_t>(spec_.rows), static_cast<int64_t>(spec_.cols)}, 2};
  tensor.data = static_cast<std::byte*>(const_cast<void*>(values));
  if (!rows.all)
    tensor.held = {tensor::Heap::lend(reinterpret_cast<std::byte*>(const_cast<int64_t*>(rows.ids)), rows.count * sizeof(int64_t)), rows.ids, rows.count};
  tensor.block = device.lend(tensor.data, tensor.stored_bytes());
  return tensor;
}

Started TableHandle::change_from_device(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options) {
  if (const base::Status wrong = check_shape(rows, data.count, data.dtype); !wrong.ok()) return {wrong, nullptr};
  const bool are_unique = rows.all || math::strictly_increasing({rows.ids, rows.count});  // others are summed on the host
  if (shard::OnDevice* const shard = shard_on(*data.device); shard != nullptr && write == wire::Write::Add && are_unique) {
    if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
    count(table::Use::kAdd, table::Path::kHere, rows);
    const shard::Worker worker = calls_.identity().worker_id;
    const tensor::Tensor values = tensor_on(*data.device, rows, data.values);
    const shard::OnDevice::Addition addition{shard, {&values, 1}};
    const base::Status failed = rows.all ? shard->add_together(worker, {&addition, 1}, {}) : shard->add_held(worker, values);
    return failed.ok() ? finished_here(options) : Started{failed, nullptr};
  }
  Staging staging;
  ConstData here = data;
  here.device = nullptr;
  const auto copy = staging.stage(static_cast<const std::byte*>(data.values), (rows.all ? spec_.rows : rows.count) * spec_.row_bytes(), Staging::Use::kRead, *data.device);
  if (!copy.ok()) return {copy.status(), nullptr};
  here.values = copy.value();
  return change(write, rows, here, options);  // which needs the copy for no longer than the caller's own values
}

/// `data` is checked.
Started TableHandle::fetch_to_device(bool gated, const Rows& rows, const MutableData& data, const CallOptions& options) {
  if (shard::OnDevice* const shard = shard_on(*data.device); shard != nullptr) {
    count(gated ? table::Use::kGet : table::Use::kPeek, table::Path::kHere, rows);
    const shard::Worker worker = calls_.identity().worker_id;
    const tensor::Tensor out = tensor_on(*data.device, rows, data.values);
    const base::Status failed = rows.all ? shard->read_into(worker, {&out, 1}) : shard->read_held(worker, out);
    return failed.ok() ? finished_here(options) : Started{failed, nullptr};
  }
  const auto staging = std::make_shared<Staging>();
  MutableData here = data;
  here.device = nullptr;
  const auto copy = staging->stage(static_cast<const std::byte*>(data.values), (rows.all ? spec_.rows : rows.count) * spec_.row_bytes(), Staging::Use::kWritten, *data.device);
  if (!copy.ok()) return {copy.status(), nullptr};
  here.values = copy.value();
  return run_staged(calls_, staging, options, [&](const CallOptions& how) { return fetch(gated, rows, here, how); });
}

}  // namespace mv::api
