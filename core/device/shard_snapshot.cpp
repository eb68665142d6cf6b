// DeviceShard: snapshots, and what is restored from them.

#include <algorithm>
#include <utility>

#include "device/must.hpp"
#include "device/shard.hpp"
#include "shard/updater/apply.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

namespace {

/// Copies of the values, of each state and of what workers last got, made at once: on the device, or on the host if the device has no memory for
/// them.
class DeviceSnapshot final : public shard::Snapshot {
 public:
  using Arrays = std::vector<std::shared_ptr<tensor::Block>>;
  /// @param workers  those to which the last arrays belong
  DeviceSnapshot(std::shared_ptr<const DeviceShard> shard, size_t stored_bytes, Arrays arrays, std::vector<shard::Worker> workers)
      : shard_(std::move(shard)),
        row_bytes_(shard_->spec().cols * stored_bytes),
        arrays_(std::move(arrays)),
        workers_(std::move(workers)),
        out_(arrays_.size()) {}

  uint64_t rows() const override { return shard_->rows().count; }
  size_t states() const override { return arrays_.size() - workers_.size() - 1; }
  shard::Rows next() override;

 private:
  void copy(size_t array);
  const std::shared_ptr<const DeviceShard> shard_;
  const size_t row_bytes_;
  const Arrays arrays_;
  const std::vector<shard::Worker> workers_;
  std::vector<std::vector<std::byte>> out_;  ///< one for each array: the rows of next()
  uint64_t row_ = 0, count_ = 0;             ///< the rows that next() has returned last
  size_t next_worker_ = 0;                   ///< for these rows
};

/// Reads the present rows of an array.
void DeviceSnapshot::copy(size_t array) {
  std::vector<std::byte>& out = out_[array];
  out.resize(count_ * row_bytes_);
  const std::byte* const from = arrays_[array]->data() + row_ * row_bytes_;
  tensor::Device* const device = arrays_[array]->device();
  if (device == nullptr)
    std::copy_n(from, out.size(), out.data());
  else
    must(device->to_host(out.data(), from, out.size()));
}

shard::Rows DeviceSnapshot::next() {
  while (count_ > 0 && next_worker_ < workers_.size()) {
    const size_t array = states() + 1 + next_worker_;
    copy(array);
    const shard::Worker worker = workers_[next_worker_++];
    if (shard::is_zero(out_[array])) continue;
    const uint64_t first = shard_->rows().first + row_;
    return {.first = first, .count = count_, .ids = {}, .values = out_[array], .states = {}, .content = shard::Content::kGot, .worker = worker};
  }
  const shard::Spec& spec = shard_->spec();
  row_ += std::exchange(count_, 0);
  next_worker_ = 0;
  count_ = std::min(std::max<uint64_t>(1, shard::stripe_elements(spec) / spec.cols), rows() - row_);
  shard::Rows some{.first = shard_->rows().first + row_, .count = count_, .ids = {}, .values = {}, .states = {}};
  if (count_ == 0) return some;
  for (size_t i = 0; i <= states(); ++i) {
    copy(i);
    if (i > 0) some.states.emplace_back(out_[i]);
  }
  some.values = out_.front();
  return some;
}

}  // namespace

base::Result<std::unique_ptr<shard::Snapshot>> DeviceShard::snapshot(shard::Scope scope) {
  const std::lock_guard lock(mutex_);
  const size_t bytes = elements() * stored_bytes_;
  DeviceSnapshot::Arrays arrays;
  std::vector<const tensor::Block*> wanted;
  std::vector<shard::Worker> workers;
  for (size_t i = 0; i <= model_->states.size(); ++i) wanted.push_back(stored(i));
  if (scope == shard::Scope::kAll && model_->backups != nullptr)
    for (const auto& [worker, block] : model_->backups->of) {
      wanted.push_back(block.get());
      workers.push_back(worker);
    }
  for (const tensor::Block* const array : wanted) {
    auto copy = device_.copy_of(array->data(), bytes);
    if (!copy.ok()) return base::error(copy.status().code(), "saving table \"{}\": {}", spec_.name, copy.status().text());
    arrays.push_back(std::move(copy).value());
  }
  return std::unique_ptr<shard::Snapshot>(std::make_unique<DeviceSnapshot>(shared_from_this(), stored_bytes_, std::move(arrays), std::move(workers)));
}

/// Copies the rows that are this shard's.
void DeviceShard::restore_arrays(const shard::Restored& rows, const BlockRef& values) {
  const uint64_t begin = std::max(rows.first, rows_.first), end = std::min(rows.first + rows.count, rows_.end());
  if (begin >= end) return;
  const size_t row_bytes = spec_.cols * stored_bytes_, bytes = (end - begin) * row_bytes, skipped = (begin - rows.first) * row_bytes;
  const auto write = [&](const BlockRef& array, std::span<const std::byte> from) {
    must(device_.from_host(at(array, (begin - rows_.first) * spec_.cols), from.data() + skipped, bytes));
  };
  if (values != nullptr) write(values, rows.values);
  if (rows.states.size() != model_->states.size()) return;
  for (size_t i = 0; i < rows.states.size(); ++i) write(model_->states[i], rows.states[i]);
}

base::Status DeviceShard::restore(const shard::Restored& rows) {
  const size_t bytes = rows.count * spec_.cols * stored_bytes_;
  const bool fits = rows.content != shard::Content::kAbsent && rows.values.size() == bytes &&
                    std::ranges::all_of(rows.states, [&](auto state) { return state.size() == bytes; });
  if (!fits) return base::error(MV_EINVAL, "table \"{}\": {} bytes of values for {} rows", spec_.name, rows.values.size(), rows.count);
  const bool is_got = rows.content == shard::Content::kGot;
  const std::lock_guard lock(mutex_);
  if (is_got && (model_->backups == nullptr || rows.worker < 0))
    return base::error(MV_EINVAL, "table \"{}\": its updater does not keep what workers got", spec_.name);
  return status_of([&] { restore_arrays(rows, is_got ? make_backup(rows.worker) : values_); });
}

base::Status DeviceShard::restore_states(const shard::Restored& rows) {
  const std::lock_guard lock(mutex_);
  const size_t bytes = rows.count * spec_.cols * stored_bytes_;
  if (rows.states.size() != model_->states.size())
    return base::error(MV_EDISAGREE, "table \"{}\": its updater, {}, has {} states, not {}", spec_.name, model_->spec.name, model_->states.size(),
                       rows.states.size());
  if (!std::ranges::all_of(rows.states, [&](auto state) { return state.size() == bytes; }))
    return base::error(MV_EINVAL, "table \"{}\": the size of the states does not match {} rows", spec_.name, rows.count);
  return status_of([&] { restore_arrays(rows, nullptr); });
}

void DeviceShard::read_stored(uint64_t array, uint64_t first, uint64_t count, std::byte* out) {
  const std::lock_guard lock(mutex_);
  const tensor::Block* const from = stored(array);
  if (from == nullptr) return static_cast<void>(std::fill_n(out, count * stored_bytes_, std::byte{0}));
  must(device_.to_host(out, from->data() + first * stored_bytes_, count * stored_bytes_));
}

const tensor::Block* DeviceShard::stored(uint64_t array) const {
  const size_t states = model_->states.size();
  if (array == 0) return values_.get();
  if (array <= states) return model_->states[array - 1].get();
  if (model_->backups == nullptr) return nullptr;
  const auto found = model_->backups->of.find(static_cast<shard::Worker>(array - states - 1));
  return found != model_->backups->of.end() ? found->second.get() : nullptr;
}

uint64_t DeviceShard::next_stored(uint64_t array) const {
  const std::lock_guard lock(mutex_);
  const size_t states = model_->states.size();
  if (array < states) return array + 1;
  if (model_->backups == nullptr) return 0;
  const auto next = model_->backups->of.lower_bound(static_cast<shard::Worker>(array - states));
  return next != model_->backups->of.end() ? states + 1 + static_cast<uint64_t>(next->first) : 0;
}

}  // namespace mv::device
