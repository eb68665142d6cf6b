// DeviceShard: snapshots, and what is restored from them.

#include <algorithm>
#include <utility>

#include "device/must.hpp"
#include "device/shard.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

namespace {

/// Copies of the values and of each state, made at once: on the device, or on the host if the device has no memory for them.
class DeviceSnapshot final : public shard::Snapshot {
 public:
  using Arrays = std::vector<std::shared_ptr<tensor::Block>>;
  DeviceSnapshot(std::shared_ptr<const DeviceShard> shard, size_t stored_bytes, Arrays arrays)
      : shard_(std::move(shard)), row_bytes_(shard_->spec().cols * stored_bytes), arrays_(std::move(arrays)), out_(arrays_.size()) {}

  uint64_t rows() const override { return shard_->rows().count; }
  size_t states() const override { return arrays_.size() - 1; }
  shard::Rows next() override;

 private:
  const std::shared_ptr<const DeviceShard> shard_;
  const size_t row_bytes_;
  const Arrays arrays_;
  std::vector<std::vector<std::byte>> out_;  ///< one for each array: the rows of next()
  uint64_t row_ = 0;                         ///< the next one
};

shard::Rows DeviceSnapshot::next() {
  const shard::Spec& spec = shard_->spec();
  const uint64_t count = std::min(std::max<uint64_t>(1, shard::stripe_elements(spec) / spec.cols), rows() - row_);
  shard::Rows some{.first = shard_->rows().first + row_, .count = count, .ids = {}, .values = {}, .states = {}};
  if (count == 0) return some;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    out_[i].resize(count * row_bytes_);
    const std::byte* const from = arrays_[i]->data() + row_ * row_bytes_;
    tensor::Device* const device = arrays_[i]->device();
    if (device == nullptr)
      std::copy_n(from, out_[i].size(), out_[i].data());
    else
      must(device->to_host(out_[i].data(), from, out_[i].size()));
    if (i > 0) some.states.emplace_back(out_[i]);
  }
  some.values = out_.front();
  row_ += count;
  return some;
}

}  // namespace

base::Result<std::unique_ptr<shard::Snapshot>> DeviceShard::snapshot(shard::Scope) {
  const std::lock_guard lock(mutex_);
  const size_t bytes = elements() * stored_bytes_;
  DeviceSnapshot::Arrays arrays;
  for (size_t i = 0; i <= model_->states.size(); ++i) {
    const BlockRef& array = i == 0 ? values_ : model_->states[i - 1];
    auto copy = device_.copy_of(array->data(), bytes);
    if (!copy.ok()) return base::error(copy.status().code(), "saving table \"{}\": {}", spec_.name, copy.status().text());
    arrays.push_back(std::move(copy).value());
  }
  return std::unique_ptr<shard::Snapshot>(std::make_unique<DeviceSnapshot>(shared_from_this(), stored_bytes_, std::move(arrays)));
}

/// Copies the rows that are this shard's.
void DeviceShard::restore_arrays(const shard::Restored& rows, bool with_values) {
  const uint64_t begin = std::max(rows.first, rows_.first), end = std::min(rows.first + rows.count, rows_.end());
  if (begin >= end) return;
  const size_t row_bytes = spec_.cols * stored_bytes_, bytes = (end - begin) * row_bytes, skipped = (begin - rows.first) * row_bytes;
  const auto write = [&](const BlockRef& array, std::span<const std::byte> from) {
    must(device_.from_host(at(array, (begin - rows_.first) * spec_.cols), from.data() + skipped, bytes));
  };
  if (with_values) write(values_, rows.values);
  if (rows.states.size() != model_->states.size()) return;
  for (size_t i = 0; i < rows.states.size(); ++i) write(model_->states[i], rows.states[i]);
}

base::Status DeviceShard::restore(const shard::Restored& rows) {
  const size_t bytes = rows.count * spec_.cols * stored_bytes_;
  const bool fits = rows.content == shard::Content::kValues && rows.values.size() == bytes &&
                    std::ranges::all_of(rows.states, [&](auto state) { return state.size() == bytes; });
  if (!fits) return base::error(MV_EINVAL, "table \"{}\": {} bytes of values for {} rows", spec_.name, rows.values.size(), rows.count);
  const std::lock_guard lock(mutex_);
  return status_of([&] { restore_arrays(rows, true); });
}

base::Status DeviceShard::restore_states(const shard::Restored& rows) {
  const std::lock_guard lock(mutex_);
  const size_t bytes = rows.count * spec_.cols * stored_bytes_;
  if (rows.states.size() != model_->states.size())
    return base::error(MV_EDISAGREE, "table \"{}\": its updater, {}, has {} states, not {}", spec_.name, model_->spec.name, model_->states.size(),
                       rows.states.size());
  if (!std::ranges::all_of(rows.states, [&](auto state) { return state.size() == bytes; }))
    return base::error(MV_EINVAL, "table \"{}\": the size of the states does not match {} rows", spec_.name, rows.count);
  return status_of([&] { restore_arrays(rows, false); });
}

void DeviceShard::read_stored(uint64_t array, uint64_t first, uint64_t count, std::byte* out) {
  const std::lock_guard lock(mutex_);
  if (array > model_->states.size()) return static_cast<void>(std::fill_n(out, count * stored_bytes_, std::byte{0}));
  const BlockRef& from = array == 0 ? values_ : model_->states[array - 1];
  must(device_.to_host(out, at(from, first), count * stored_bytes_));
}

uint64_t DeviceShard::next_stored(uint64_t array) const {
  const std::lock_guard lock(mutex_);
  return array < model_->states.size() ? array + 1 : 0;
}

}  // namespace mv::device
