// Store: pushes to keys whose values reach them on devices.

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "api/kvstore/devices.hpp"
#include "api/kvstore/encoded_values.hpp"
#include "api/kvstore/rows.hpp"
#include "api/kvstore/store.hpp"
#include "codec/on_device.hpp"
#include "shard/on_device.hpp"

namespace mv::kvstore {

bool Store::shares_state() {
  const std::lock_guard lock(mutex_);
  return shares_state_;
}

/// Whether one push updates its keys in their order: those on the host go one by one, those of one device and dtype together.
bool Store::are_in_order(const Entries& entries, const Values& values, const std::vector<Course>& courses) {
  if (entries.size() == 1 || std::ranges::none_of(courses, is_whole)) return true;
  const Entry& first = *entries.front();
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = *entries[i];
    if (!is_whole(courses[i]) || goes_by_rows(entry, values[i]) || entry.device != first.device || entry.dtype != first.dtype) return false;
  }
  return true;
}

/// Keys that share a state are updated in the order of the call, wherever they are: as in a store on the host.
base::Status Store::push_in_order(const Keys& keys, const Values& values, const How& how) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Keys one{keys.are_numbers, {keys.names[i]}};
    base::Status failed;
    do {
      failed = push(one, {values[i]}, how);
    } while (failed.code() == MV_EINTR && i > 0);  // the interrupted key has not begun, but the keys before it have
    if (!failed.ok()) return failed;
  }
  return {};
}

Store::Course Store::course_of(Entry& entry, std::span<const Tensor> values, const PushPath& path) const {
  const bool reaches_key = entry.device != nullptr && path.updater == nullptr;
  if (goes_by_rows(entry, values)) return reaches_key && entry.spec->cols == entry.shape.row_count() ? Course::kAdded : Course::kCopied;
  if (path.codec != nullptr && entry.can_compress()) {
    const tensor::Device* const first = tensor::device_of(values.front());
    const tensor::Device* any = first != nullptr || type_.dist ? first : any_device(values);
    if (any == nullptr && reaches_key) any = entry.device;
    if (any == nullptr || !codec::is_on_device(*path.codec, entry.dtype, *any)) return Course::kCopied;
    if (reaches_key && entry.rejects_nonfinite) return Course::kCopied;  // the host checks the decoded sum
    return reaches_key ? Course::kMerged : Course::kEncoded;
  }
  const bool sums_on_host = entry.rejects_nonfinite && values.size() > 1 && tensor::device_of(values.front()) == nullptr;  // which checks the sum
  return reaches_key && !sums_on_host && !has_rest(entry) ? Course::kAdded : Course::kCopied;
}

/// Keys of one device together. All memory for encoded values comes first, so that no residual changes for a push that fails.
base::Status Store::push_on_devices(const Entries& entries, const Values& values, const std::vector<Course>& courses, const codec::CodecRef& codec) {
  const auto named = [](const Entry& entry, const base::Status& status) { return base::error(status.code(), "key \"{}\": {}", entry.name, status.text()); };
  std::vector<shard::OnDevice*> shards(entries.size());
  Values added = values;
  std::deque<Tensor> joined;  // rows of several tensors, or from elsewhere
  std::map<size_t, EncodedValues> encoded;
  std::set<Entry*> merged;  // locked in one order by all threads
  for (size_t i = 0; i < entries.size(); ++i)
    if (courses[i] == Course::kMerged) merged.insert(entries[i].get());
  std::vector<std::unique_lock<std::mutex>> locks;
  locks.reserve(merged.size());
  for (Entry* const entry : merged) locks.emplace_back(entry->merging);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!is_whole(courses[i])) continue;
    base::Status status;
    shards[i] = entries[i]->table->on_device_here(true, &status);
    if (shards[i] == nullptr) return named(*entries[i], status.ok() ? base::Status(MV_EINTERNAL, "it can't be reached on its device") : status);
    if (goes_by_rows(*entries[i], values[i])) {
      for (const Tensor& value : values[i])
        if (status.ok()) status = check_held(*entries[i], value);
      const bool is_there = values[i].size() == 1 && values[i].front().is_row_sparse() && tensor::device_of(values[i].front()) == entries[i]->device;
      if (status.ok() && !is_there) {
        auto rows = merge_rows(heap_, entries[i]->device, *entries[i], values[i]);
        status = rows.status();
        if (rows.ok()) added[i] = {&joined.emplace_back(std::move(rows).value()), 1};
      }
    }
    if (!status.ok()) return named(*entries[i], status);
    if (courses[i] != Course::kMerged) continue;
    status = encoded.try_emplace(i, *entries[i], values[i], *codec).first->second.prepare_sum(*entries[i]->device);
    if (!status.ok()) return named(*entries[i], status);
  }
  struct OfDevice {
    std::vector<shard::OnDevice::Addition> additions;
    std::vector<EncodedValues*> encoded;
  };
  std::map<int, OfDevice> by_device;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!is_whole(courses[i])) continue;
    Entry& entry = *entries[i];
    if (!goes_by_rows(entry, values[i])) entry.pushed = true;
    OfDevice& same = by_device[entry.device->number()];
    const bool is_merged = courses[i] == Course::kMerged;
    if (is_merged) {
      entry.has_left = true;
      same.encoded.push_back(&encoded.at(i));
    }
    same.additions.push_back({shards[i], is_merged ? std::span(&encoded.at(i).sum(), 1) : added[i]});
  }
  for (const auto& [device, same] : by_device) {
    const auto merge = [&] { return same.encoded.empty() ? base::Status() : EncodedValues::merge(same.encoded); };
    if (base::Status failed = same.additions.front().shard->add_together(rank(), same.additions, merge); !failed.ok()) return naming_key(failed);
  }
  return {};
}

}  // namespace mv::kvstore
