// TableHandle: changes from, and gets into, arrays in the memory of a device of this process.

#include <algorithm>
#include <deque>

#include "api/staging/staging.hpp"
#include "api/table/table_handle.hpp"
#include "math/kernels.hpp"
#include "shard/on_device.hpp"
#include "tensor/device.hpp"

namespace mv::api {

/// This process's shard, if it is on this device and a call reaches all of the table there. Null: the values go by the host.
shard::OnDevice* TableHandle::shard_on(const tensor::Device& device, const Rows& rows, const void* values) const {
  const bool is_direct = all_own_ && table_->consistency == shard::Consistency::kAsync;
  const bool can = is_direct && !(rows.all && spec_.is_keyed());  // all rows of a keyed table go one by one
  shard::OnDevice* const shard = can ? own_->on_device() : nullptr;
  const bool is_aligned = reinterpret_cast<uintptr_t>(values) % spec_.element_bytes() == 0;  // kernels need it
  return shard != nullptr && is_aligned && &shard->device() == &device ? shard : nullptr;
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

/// Whether a change is sent while later parts of its values are still copied from a device.
bool TableHandle::copies_along(const Rows& rows) const {
  const bool is_at_once = changes_own_ && (all_own_ || own_->on_device() != nullptr);
  return rows.all && !spec_.is_keyed() && bytes_of(rows) >= kCopiedAlongBytes && table_->consistency != shard::Consistency::kSync && !is_at_once;
}

/// A device does not know the table.
base::Status TableHandle::named(const base::Status& status) const {
  return status.ok() || status.text().starts_with("table ") ? status : base::error(status.code(), "table \"{}\": {}", spec_.name, status.text());
}

/// Carries out work() -> Status, and ends the call with it. The call is made first: then nothing can fail after the work.
template <typename Work>
Started TableHandle::work_here(const CallOptions& options, const Work& work) {
  const CallRef call = options.mode == Mode::kAsync ? calls_.make_call(options, false) : nullptr;
  const base::Status status = named(work());
  if (!status.ok()) return {status, nullptr};
  if (call != nullptr) call->complete({});
  return {{}, call};
}

/// All copies are queued at once, so that they wait for nothing but each other when the first ones have arrived.
Started TableHandle::change_copied_along(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options) {
  if (const base::Status wrong = check_change(rows, data); !wrong.ok()) return {named(wrong), nullptr};
  const auto room = data.device->staging().allocate(bytes_of(rows), tensor::Allocator::Content::kAnything);
  if (!room.ok()) return {named(room.status()), nullptr};
  std::byte* const to = room.value()->data();
  const std::vector<base::Filling::Range> ranges = ranges_of_servers(spec_, table_->servers.size());
  std::deque<std::unique_ptr<tensor::Arrival>> pieces;
  for (const auto& [begin, end] : base::Filling::pieces(ranges)) {
    auto piece = data.device->begin_to_host(to + begin, static_cast<const std::byte*>(data.values) + begin, end - begin);
    if (!piece.ok()) return {named(piece.status()), nullptr};
    pieces.push_back(std::move(piece).value());
  }
  base::Status copied;
  const auto arrive = [&](size_t begin, size_t end) {
    if (copied.ok()) copied = pieces.front()->wait();
    pieces.pop_front();
    if (!copied.ok()) std::fill_n(to + begin, end - begin, std::byte{0});  // the message has begun, and must end
  };
  const auto filling = std::make_shared<base::Filling>(room.value(), ranges, arrive);
  filling->copy_some();
  if (!copied.ok()) return {named(copied), nullptr};
  const Started started = change_checked(write, rows, {to, bytes_of(rows), room.value(), filling}, options);
  return copied.ok() ? started : Started{named(copied), nullptr};
}

Started TableHandle::change_from_device(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options) {
  if (const base::Status wrong = check_shape(rows, data.count, data.dtype); !wrong.ok()) return {wrong, nullptr};
  const bool are_unique = rows.all || math::strictly_increasing({rows.ids, rows.count});  // others are summed on the host
  if (shard::OnDevice* const shard = shard_on(*data.device, rows, data.values); shard != nullptr && write == wire::Write::Add && are_unique) {
    if (const base::Status wrong = check_change(rows, data); !wrong.ok()) return {named(wrong), nullptr};
    count(table::Use::kAdd, table::Path::kHere, rows);
    const shard::Worker worker = calls_.identity().worker_id;
    const tensor::Tensor values = tensor_on(*data.device, rows, data.values);
    const shard::OnDevice::Addition addition{shard, {&values, 1}};
    return work_here(options, [&] { return rows.all ? shard->add_together(worker, {&addition, 1}, {}) : shard->add_held(worker, values); });
  }
  if (copies_along(rows)) return change_copied_along(write, rows, data, options);
  const auto staging = std::make_shared<Staging>();
  const auto copy = staging->stage(static_cast<const std::byte*>(data.values), bytes_of(rows), Staging::Use::kRead, *data.device);
  if (!copy.ok()) return {named(copy.status()), nullptr};
  return change_from_host(write, rows, {copy.value(), data.count, data.dtype}, staging, options);
}

/// `data` is checked.
Started TableHandle::fetch_to_device(bool gated, const Rows& rows, const MutableData& data, const CallOptions& options) {
  if (shard::OnDevice* const shard = shard_on(*data.device, rows, data.values); shard != nullptr) {
    count(gated ? table::Use::kGet : table::Use::kPeek, table::Path::kHere, rows);
    const shard::Worker worker = calls_.identity().worker_id;
    const tensor::Tensor out = tensor_on(*data.device, rows, data.values);
    return work_here(options, [&] { return rows.all ? shard->read_into(worker, {&out, 1}) : shard->read_held(worker, out); });
  }
  const auto staging = std::make_shared<Staging>();
  const auto copy = staging->stage(static_cast<const std::byte*>(data.values), bytes_of(rows), Staging::Use::kWritten, *data.device);
  if (!copy.ok()) return {named(copy.status()), nullptr};
  const bool may_be_in_place = options.mode == Mode::kBlocking && (!rows.all || !spec_.is_keyed());
  if (base::Status status; may_be_in_place && fetch_in_place(gated, rows, copy.value(), options, &status))
    return {status.ok() ? named(staging->finish()) : status, nullptr};
  const MutableData here{copy.value(), data.count, data.dtype};
  return run_staged(calls_, staging, options, [&](const CallOptions& how) { return fetch(gated, rows, here, how); });
}

}  // namespace mv::api
