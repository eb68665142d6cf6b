#include "api/kvstore/store.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>

#include "api/kvstore/devices.hpp"
#include "api/kvstore/placement.hpp"
#include "api/kvstore/rows.hpp"
#include "base/prefetch.hpp"
#include "math/kernels.hpp"
#include "shard/on_device.hpp"
#include "tensor/sparse.hpp"

namespace mv::kvstore {

namespace {

base::Status is_nonfinite(const std::string& key, const Tensor& value) {
  return base::error(MV_ENONFINITE, "key \"{}\": {} holds NaN or infinity, which this store rejects", key, value.text());
}

base::Status check_form(const Entry& entry, const Tensor& value) {
  if (value.dtype != entry.dtype)
    return base::error(MV_EDTYPE, "key \"{}\" holds {}, not {}: convert the values to {}", entry.name, entry.text(), value.text(),
                       tensor::dtype_name(entry.dtype));
  if (!(value.shape == entry.shape)) return base::error(MV_ESHAPE, "key \"{}\" holds {}, not {}", entry.name, entry.text(), value.text());
  return {};
}

/// Thousands of keys are scattered in memory. This prefetches what the next ones need while one is processed.
void look_ahead(const Entries& entries, size_t at) {
  constexpr size_t kEntry = 12, kTable = 9, kShard = 6, kValues = 3, kLine = 64;
  if (at + kEntry >= entries.size()) return;
  const auto* const entry = reinterpret_cast<const std::byte*>(entries[at + kEntry].get());
  base::prefetch(entry);
  base::prefetch(entry + kLine);
  base::prefetch(entry + 2 * kLine);
  const auto* const table = reinterpret_cast<const std::byte*>(entries[at + kTable]->table.get());
  for (size_t i = 0; i < 3; ++i) base::prefetch(table + i * kLine);
  entries[at + kShard]->table->expect(false);
  entries[at + kValues]->table->expect(true);
}

/// Prefetches what a check of a tensor's form reads.
void expect_form(const Entries& entries, size_t at) {
  constexpr size_t kAhead = 8;
  if (at + kAhead >= entries.size()) return;
  const Entry& entry = *entries[at + kAhead];
  base::prefetch(&entry.dtype);
  base::prefetch(&entry.shape);
}

/// Checks that each tensor has the form of its key. `reject`: whether any key rejects NaN and infinity.
base::Status check_forms(const Entries& entries, const Values& values, bool* reject) {
  for (size_t i = 0; i < entries.size(); expect_form(entries, i++)) {
    *reject = *reject || entries[i]->rejects_nonfinite;
    for (const Tensor& value : values[i])
      if (const base::Status wrong = check_form(*entries[i], value); !wrong.ok()) return wrong;
  }
  return {};
}

/// Checks the values of keys that reject NaN and infinity, where they are.
base::Status check_finite(const Entries& entries, const Values& values) {
  struct There {
    std::vector<tensor::Device::Floats> arrays;
    std::vector<std::pair<size_t, const Tensor*>> from;  ///< keys, and their values
  };
  std::map<tensor::Device*, There> there;
  std::pair<size_t, const Tensor*> wrong(entries.size(), nullptr);  // the first key
  for (size_t i = 0; i < entries.size() && wrong.second == nullptr; ++i) {
    if (!entries[i]->rejects_nonfinite || !tensor::is_floating(entries[i]->dtype)) continue;
    for (const Tensor& value : values[i]) {
      if (tensor::Device* const device = tensor::device_of(value); device != nullptr) {
        there[device].arrays.push_back({value.dtype, value.data, value.stored()});
        there[device].from.emplace_back(i, &value);
      } else if (wrong.second == nullptr && !math::all_finite_bytes(value.dtype, value.data, value.stored())) {
        wrong = {i, &value};
      }
    }
  }
  for (const auto& [device, some] : there) {
    const auto found = device->first_nonfinite(some.arrays);
    if (!found.ok()) return found.status();
    if (found.value() < some.from.size()) wrong = std::min(wrong, some.from[found.value()]);
  }
  return wrong.second != nullptr ? is_nonfinite(entries[wrong.first]->name, *wrong.second) : base::Status();
}

/// Likewise for tensors to pull into. Row-sparse tensors that are ignored may have any form.
base::Status check_outs(const Entries& entries, const Values& outs, Sparse sparse) {
  for (size_t i = 0; i < entries.size(); expect_form(entries, i++))
    for (const Tensor& out : outs[i])
      if (!out.is_row_sparse() || sparse == Sparse::kFilled)
        if (const base::Status wrong = check_form(*entries[i], out); !wrong.ok()) return wrong;
  return {};
}

base::Status check_sparse_outs(const Entries& entries, const Values& outs, const Values& ids) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = *entries[i];
    if (!entry.row_sparse) return base::error(MV_EINVAL, "key \"{}\" holds {}, which is not row-sparse: use kv_pull()", entry.name, entry.text());
    if (ids[i].size() != 1 && ids[i].size() != outs[i].size())
      return base::error(MV_ESHAPE, "key \"{}\": {} lists of row ids for {} tensors", entry.name, ids[i].size(), outs[i].size());
    for (const Tensor& out : outs[i]) {
      if (!out.is_row_sparse()) return base::error(MV_EINVAL, "key \"{}\": rows are pulled into row-sparse tensors, not into {}", entry.name, out.text());
      if (const base::Status wrong = check_form(entry, out); !wrong.ok()) return wrong;
    }
  }
  return {};
}

}  // namespace

std::string Entry::text() const { return fmt::format("{}{} {}", row_sparse ? "row-sparse " : "", tensor::dtype_name(dtype), shape.text()); }

Store::~Store() {
  if (type_.dist) return;  // its keys belong to the cluster
  for (const auto& [key, entry] : entries_) static_cast<void>(entry->table->destroy());
}

base::Status Store::check_keys(const Keys& keys) {
  base::NameSet seen;
  seen.reserve(keys.names.size());
  if (keys.names.size() > 1)
    for (const std::string& key : keys.names)
      if (!seen.insert(key).second) return base::error(MV_EINVAL, "key \"{}\" is given twice", key);
  std::lock_guard lock(mutex_);
  return check_kind(keys);
}

/// Requires the lock.
base::Status Store::check_kind(const Keys& keys) const {
  if (any_key_ && !keys.names.empty() && keys_are_numbers_ != keys.are_numbers)
    return base::error(MV_EINVAL, "key \"{}\" is a {}, but this store's keys are {}", keys.names.front(),
                       keys.are_numbers ? "number" : "name", keys_are_numbers_ ? "numbers" : "names");
  return {};
}

base::Status Store::init(const Keys& keys, const Values& given) {
  if (keys.names.empty()) return {};
  if (const base::Status wrong = check_keys(keys); !wrong.ok()) return wrong;
  auto host = PlacedValues::make(given, [](size_t) { return PlacedValues::Place::kHost; });
  if (!host.ok()) return host.status();
  if (auto status = host.value().arrive(); !status.ok()) return status;
  const Values& values = host.value().values();
  const auto found = std::make_shared<Entries>(keys.names.size());
  Entries& entries = *found;
  auto names = keys.names;  // copied here: once the other workers have continued, nothing may allocate
  for (size_t i = 0; i < keys.names.size(); ++i) {
    const Tensor& value = values[i].front();
    if (value.shape.count() == 0) return base::error(MV_ESHAPE, "key \"{}\": {} holds nothing", keys.names[i], value.text());
    if (rejects_nonfinite_ && !math::all_finite_bytes(value.dtype, value.data, value.stored())) return is_nonfinite(keys.names[i], value);
    const uint64_t longest = type_.sliced ? shard::kSliceBytes : shard::kStripeBytes;
    if (value.is_row_sparse() && value.shape.row_count() * tensor::dtype_bytes(value.dtype) > longest)
      return base::error(MV_ESHAPE, "key \"{}\": a row of {} has more than {} bytes", keys.names[i], value.text(), longest);
    std::lock_guard lock(mutex_);
    const auto known = entries_.find(keys.names[i]);
    if (known == entries_.end()) continue;
    if (known->second->is_ready) return base::error(MV_EDISAGREE, "key \"{}\" is already initialised", keys.names[i]);
    if (const base::Status wrong = check_form(*known->second, value); !wrong.ok()) return wrong;
    entries[i] = known->second;
  }
  if (base::Status failed = make(keys, values, given, entries); !failed.ok()) return failed;
  if (base::Status failed = set_first_optimizers(entries); !failed.ok()) return failed;
  // If only one worker has set an optimizer, the pushes of the others must find it. A worker that joins later finds the keys in use: the others have
  // passed this barrier, and their next pushes may wait for its own.
  const bool others_have_begun = node_.identity().is_late && !has_begun_;
  if (type_.dist && !others_have_begun)
    if (base::Status failed = barrier(base::Nanos(0)); !failed.ok()) return failed;  // the same call again meets the others
  std::lock_guard lock(mutex_);
  for (const EntryRef& entry : entries) entry->is_ready = true;
  recent_names_ = std::move(names);
  recent_ = found;  // most later calls have the same keys
  return {};
}

/// Creates the null entries in one operation. An earlier call that failed, or that a signal interrupted, has made the others.
base::Status Store::make(const Keys& keys, const Values& values, const Values& given, Entries& entries) {
  std::deque<Tensor> filled;  // row-sparse values as dense ones
  std::vector<api::NewTable> tables;
  tables.reserve(keys.names.size());
  for (size_t i = 0; i < keys.names.size(); ++i) {
    if (entries[i] != nullptr) continue;
    const Tensor* value = &values[i].front();
    auto entry = prepare(keys.names[i], *value, given[i].front());
    if (!entry.ok()) return base::error(entry.status().code(), "key \"{}\": {}", keys.names[i], entry.status().text());
    // Only worker 0's values count, so only worker 0 needs all rows.
    if (value->is_row_sparse() && rank() == 0) {
      auto dense = tensor::to_dense("all rows", heap_, *value);
      if (!dense.ok()) return base::error(dense.status().code(), "key \"{}\": {}", keys.names[i], dense.status().text());
      value = &filled.emplace_back(std::move(dense).value());
    }
    tables.push_back({entry.value()->spec, value->is_row_sparse() ? api::ConstData{} : api::ConstData{value->data, value->shape.count(), value->dtype}});
    entries[i] = std::move(entry).value();
  }
  {
    std::lock_guard lock(mutex_);
    base::expect_names(entries_, tables.size());  // first: the store must have room for what the cluster creates
  }
  auto created = node_.create_tables(std::move(tables));
  if (!created.ok()) return naming_key(created.status());
  std::lock_guard lock(mutex_);
  auto next = created.value().begin();
  for (const EntryRef& entry : entries) {
    if (entry->table != nullptr) continue;
    entry->table = std::move(*next++);
    entries_.emplace(entry->name, entry);
    accept_residuals(*entry);
    any_key_ = true;
    keys_are_numbers_ = keys.are_numbers;
  }
  return {};
}

/// Puts the key in place of the table that an error begins with, or before one that names one of the call's tables.
base::Status Store::naming_key(const base::Status& status) const {
  const std::string table = "\"" + prefix_;
  const size_t begin = status.text().find(table), end = begin != std::string::npos ? status.text().find('"', begin + 1) : begin;
  if (end == std::string::npos) return status;
  const size_t key = begin + table.size();
  const std::string first = "table \"" + status.text().substr(begin + 1, end - begin) + ": ";
  const std::string rest = status.text().starts_with(first) ? status.text().substr(first.size()) : status.text();
  return base::error(status.code(), "key \"{}\": {}", status.text().substr(key, end - key), rest);
}

/// A key without its table. `given` is the value where the caller has it.
base::Result<EntryRef> Store::prepare(const std::string& key, const Tensor& value, const Tensor& given) {
  auto entry = std::make_shared<Entry>();
  entry->name = key;
  entry->dtype = value.dtype;
  entry->shape = value.shape;
  entry->row_sparse = value.is_row_sparse();
  const auto optimizer = optimizer_of(key);
  if (!optimizer.ok()) return optimizer.status();
  const uint32_t flags = (type_.sync ? MV_MERGE : 0) | (type_.sliced ? shard::kSliced : 0) | (rejects_nonfinite_ ? MV_REJECT_NONFINITE : 0);
  shard::Spec spec = spec_of(prefix_ + key, value, flags, type_.spread_from);
  if (type_.on_devices) entry->device = tensor::device_of(given);
  if (entry->device != nullptr) spec.device = entry->device->number();
  entry->spec = std::make_shared<const shard::Spec>(std::move(spec));
  entry->rejects_nonfinite = entry->spec->rejects_nonfinite();
  if (const base::Status wrong = check_optimizer(*entry, optimizer.value()); !wrong.ok()) return wrong;  // before its table exists
  return entry;
}

/// Sets the store's optimizer on new keys, which have none yet.
base::Status Store::set_first_optimizers(const Entries& entries) {
  {
    std::lock_guard lock(mutex_);
    if (optimizer_.name == shard::kReplacing) return {};
  }
  return set_optimizers(entries);
}

/// Sets the store's optimizer with each key's own parameters, on all keys in one operation.
base::Status Store::set_optimizers(const Entries& entries) {
  if (entries.empty()) return {};
  api::CallOptions part;
  part.mode = api::Mode::kAsync;
  part.group = node_.group({});
  base::Status failed;
  for (size_t i = 0; i < entries.size() && failed.ok(); ++i) {
    const auto optimizer = optimizer_of(entries[i]->name);
    failed = optimizer.ok() ? entries[i]->table->set_updater(optimizer.value(), part).status : optimizer.status();
    if (!failed.ok() && optimizer.ok()) failed = base::error(failed.code(), "key \"{}\": {}", entries[i]->name, failed.text());
  }
  node_.close_group(part.group, [] { return base::Status(); });
  bool alive = failed.ok();
  if (alive) failed = naming_key(node_.wait(part.group, base::Nanos(0), &alive));
  if (alive || !failed.ok()) static_cast<void>(node_.cancel(part.group));
  return failed;
}

base::Result<EntriesRef> Store::find(const Keys& keys) {
  {
    std::lock_guard lock(mutex_);
    if (recent_ != nullptr && recent_names_ == keys.names && check_kind(keys).ok()) return recent_;
  }
  if (const base::Status wrong = check_keys(keys); !wrong.ok()) return wrong;
  const auto found = std::make_shared<Entries>();
  found->reserve(keys.names.size());
  std::lock_guard lock(mutex_);
  for (const std::string& key : keys.names) {
    const auto known = entries_.find(key);
    if (known == entries_.end()) return base::error(MV_ENOTFOUND, "there is no key \"{}\": call kv_init() first", key);
    found->push_back(known->second);
  }
  recent_ = nullptr;
  recent_names_ = keys.names;
  recent_ = found;
  return recent_;
}

base::Status Store::push(const Keys& keys, const Values& given, const How& how) {
  has_begun_.store(true, std::memory_order_relaxed);
  if (left_) return base::Status(MV_ESTATE, "this worker has left the store's rounds");
  const auto found = find(keys);
  if (!found.ok()) return found.status();
  const Entries& entries = *found.value();
  bool reject = false;
  if (const base::Status wrong = check_forms(entries, given, &reject); !wrong.ok()) return wrong;
  const bool any_on_devices = type_.on_devices && std::ranges::any_of(entries, [](const EntryRef& entry) { return entry->device != nullptr; });
  if (type_.dist && !type_.sync)
    for (const EntryRef& entry : entries)
      if (const base::Status wrong = need_optimizer(*entry); !wrong.ok()) return wrong;
  PushPath path;
  path.codec = compression().push;
  path.options.timeout = how.timeout;
  path.options.priority = how.priority;
  path.options.mode = type_.dist ? api::Mode::kOneWay : api::Mode::kBlocking;
  Updates::Pushing pushing;
  if (updates_.is_on()) path.updater = &pushing;
  PlacedValues placed(given);
  std::vector<Course> courses;
  if (any_on_devices || any_on_device(given)) {
    for (size_t i = 0; i < entries.size(); ++i) courses.push_back(course_of(*entries[i], given[i], path));
    if (path.updater == nullptr && shares_state() && !are_in_order(entries, given, courses)) return push_in_order(keys, given, how);
    using Place = PlacedValues::Place;
    auto made = PlacedValues::make(given, [&](size_t key) {
      if (courses[key] == Course::kCopied && !type_.dist) return Place::kHost;
      if (courses[key] == Course::kCopied) return goes_in_parts(*entries[key], given[key], path) ? Place::kSum : Place::kHostSum;
      const Entry& entry = *entries[key];
      const bool checks_sum = entry.rejects_nonfinite && courses[key] == Course::kAdded && !goes_by_rows(entry, given[key]);  // finite values may have an infinite one
      return type_.dist || checks_sum ? Place::kSum : Place::kGiven;
    });
    if (!made.ok()) return made.status();
    placed = std::move(made).value();
  }
  if (reject) {
    if (const base::Status failed = placed.arrive(); !failed.ok()) return failed;
    if (const base::Status wrong = check_finite(entries, placed.values()); !wrong.ok()) return wrong;
  }
  if (path.updater != nullptr)
    if (const base::Status wrong = updates_.begin(entries, how.wait, how.timeout, &pushing); !wrong.ok()) return wrong;
  base::Status failed = push_checked(keys, entries, placed, courses, path);
  if (failed.ok() && !courses.empty()) failed = push_on_devices(entries, placed.values(), courses, path.codec);
  if (path.updater == nullptr) return failed;
  const base::Status updated = updates_.finish(pushing);
  return failed.ok() ? updated : failed;
}

/// Pushes to the keys whose values do not reach them on devices. While the values of one key go to the servers, those of the next ones arrive on
/// the host.
base::Status Store::push_checked(const Keys& keys, const Entries& entries, PlacedValues& placed, const std::vector<Course>& courses, PushPath& path) {
  const Values& values = placed.values();
  base::Status failed;
  std::vector<api::ManyAdd> many;
  many.reserve(values.size());
  for (size_t i = 0; i < values.size() && failed.ok(); ++i) {
    look_ahead(entries, i);
    if (!courses.empty() && is_whole(courses[i])) continue;
    if (const base::Status arrived = placed.arrive(i); !arrived.ok()) return base::error(arrived.code(), "key \"{}\": {}", keys.names[i], arrived.text());
    if (values.size() > 1 && joins_many(*entries[i], values[i], path)) {
      if (!entries[i]->pushed.load(std::memory_order_relaxed)) entries[i]->pushed = true;
      many.push_back({entries[i]->table.get(), values[i].front().data});
      continue;
    }
    base::Status status;
    do {
      status = push_one(*entries[i], values[i], path);
    } while (status.code() == MV_EINTR && i > 0);  // the interrupted key has not begun, but the keys before it have
    if (!status.ok()) failed = base::error(status.code(), "key \"{}\": {}", keys.names[i], status.text());
  }
  while (failed.ok() && !many.empty()) {
    failed = naming_key(node_.add_many(many, path.options));
    if (failed.code() != MV_EINTR || many.size() == values.size()) break;
    failed = {};
  }
  return failed;
}

/// Whether the table copies the values of a device itself, and sends the first ones meanwhile.
bool Store::goes_in_parts(Entry& entry, std::span<const Tensor> values, const PushPath& path) const {
  return type_.dist && path.updater == nullptr && entry.shape.count() * tensor::dtype_bytes(entry.dtype) >= api::kCopiedAlongBytes &&
         !entry.rejects_nonfinite && !goes_by_rows(entry, values) && (path.codec == nullptr || !entry.can_compress()) && !has_rest(entry);
}

/// Whether a push may share a message with others: its value needs no processing here.
bool Store::joins_many(Entry& entry, std::span<const Tensor> values, const PushPath& path) const {
  return type_.dist && path.updater == nullptr && path.options.priority == 0 && values.size() == 1 && entry.table->joins_many() &&
         !goes_by_rows(entry, values) && (path.codec == nullptr || !entry.can_compress()) && !has_rest(entry);
}

/// In an asynchronous store without an optimizer, the last value to arrive would win. MXNet refuses such pushes too.
base::Status Store::need_optimizer(Entry& entry) {
  if (entry.updates) return {};
  auto info = entry.table->info();
  if (!info.ok()) return info.status();
  if (info.value().spec.updater.name == shard::kReplacing)
    return base::error(MV_ESTATE, "key \"{}\": a {} store needs an optimizer: call kv_set_optimizer()", entry.name, type_.name);
  entry.updates = true;
  return {};
}

base::Status Store::push_rows(Entry& entry, std::span<const Tensor> values, const PushPath& path) {
  if (path.updater != nullptr) {
    auto merged = merge_rows(heap_, nullptr, entry, values);
    return merged.ok() ? updates_.add(*path.updater, entry.shared_from_this(), std::move(merged).value()) : merged.status();
  }
  const auto rows = rows_of(entry, values);
  if (!rows.ok()) return rows.status();
  const std::vector<int64_t>& ids = rows.value().ids;
  return entry.table->add({ids.data(), ids.size(), false}, {rows.value().values, ids.size() * entry.spec->cols, entry.dtype}, path.options).status;
}

base::Status Store::push_one(Entry& entry, std::span<const Tensor> values, const PushPath& path) {
  if (goes_by_rows(entry, values)) return push_rows(entry, values, path);  // codecs do not handle rows
  if (!entry.pushed.load(std::memory_order_relaxed)) entry.pushed = true;
  if (path.codec != nullptr && entry.can_compress())
    return type_.dist ? push_encoded(entry, values, path.codec, path) : push_from_devices(entry, values, *path.codec, path);
  if (has_rest(entry)) return push_with_rest(entry, values, path);
  if (tensor::Device* const device = tensor::device_of(values.front()); device != nullptr)
    return entry.table->add({}, {values.front().data, entry.shape.count(), entry.dtype, device}, path.options).status;
  if (values.size() == 1) return give(entry, values.front().data, path);
  if (path.updater == nullptr) {
    const auto sum = [values](uint64_t first, uint64_t count, std::byte* out) { sum_devices(values, first, count, out); };
    if (base::Status status; entry.table->add_here(sum, &status)) return status;
  }
  std::lock_guard lock(entry.merging);
  entry.merged.resize(entry.shape.count() * tensor::dtype_bytes(entry.dtype));
  sum_devices(values, entry.merged.data());
  return give(entry, entry.merged.data(), path);
}

/// Passes this process's sum of a push on to the key. Without memory on its device, nothing has changed.
base::Status Store::give(Entry& entry, const std::byte* merged, const PushPath& path, std::optional<Tensor> room) {
  if (path.updater == nullptr && entry.device != nullptr) {
    base::Status status;
    if (shard::OnDevice* const shard = entry.table->on_device_here(true, &status); shard != nullptr) {
      if (entry.rejects_nonfinite && !math::all_finite_bytes(entry.dtype, merged, entry.shape.count()))
        return base::Status(MV_ENONFINITE, "the sum of the values holds NaN or infinity, which this store rejects");
      Tensor sum;
      sum.dtype = entry.dtype;
      sum.shape = entry.shape;
      sum.data = const_cast<std::byte*>(merged);
      sum.block = tensor::Heap::lend(sum.data, sum.stored_bytes());
      const shard::OnDevice::Addition addition{shard, {&sum, 1}};
      return shard->add_together(rank(), {&addition, 1}, {});
    }
    if (!status.ok()) return status;
  }
  if (path.updater == nullptr)
    if (base::Status status; entry.table->add_here(merged, &status)) return status;
  if (path.updater == nullptr) return entry.table->add({}, {merged, entry.shape.count(), entry.dtype}, path.options).status;
  auto copy = room ? base::Result<Tensor>(*std::move(room)) : room_for(entry);
  if (!copy.ok()) return copy.status();
  std::memcpy(copy.value().data, merged, copy.value().stored_bytes());
  return updates_.add(*path.updater, entry.shared_from_this(), std::move(copy).value());
}

/// Of a sum for the updater callback.
base::Result<Tensor> Store::room_for(const Entry& entry) {
  return tensor::make_dense(heap_, entry.dtype, entry.shape, tensor::Heap::Content::kAnything);
}

api::Started Store::pull(const Keys& keys, const Outs& outs, Sparse sparse, const api::CallOptions& options) {
  has_begun_.store(true, std::memory_order_relaxed);
  const auto found = find(keys);
  if (!found.ok()) return {found.status(), nullptr};
  const Entries& entries = *found.value();
  if (const base::Status wrong = check_outs(entries, outs.by_key, sparse); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status failed = updates_.settle(entries, options.timeout); !failed.ok()) return {failed, nullptr};
  const codec::CodecRef codec = type_.dist ? compression().pull : nullptr;
  const auto pull = std::make_shared<Pull>(node_, heap_, found.value(), outs.replace);
  for (size_t i = 0, place = 0; i < outs.by_key.size(); place += outs.by_key[i++].size()) {
    look_ahead(entries, i);
    const codec::CodecRef& travels_as = entries[i]->can_compress() ? codec : nullptr;
    if (base::Status failed = pull->add(entries[i], outs.by_key[i], place, sparse == Sparse::kFilled, travels_as); !failed.ok())
      return {std::move(failed), nullptr};
  }
  return pull->run(options);
}

api::Started Store::row_sparse_pull(const Keys& keys, const Outs& outs, const Values& ids, const api::CallOptions& options) {
  const auto found = find(keys);
  if (!found.ok()) return {found.status(), nullptr};
  const Entries& entries = *found.value();
  if (const base::Status wrong = check_sparse_outs(entries, outs.by_key, ids); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status failed = updates_.settle(entries, options.timeout); !failed.ok()) return {failed, nullptr};
  const auto pull = std::make_shared<Pull>(node_, heap_, found.value(), outs.replace);
  for (size_t i = 0, place = 0; i < ids.size(); ++i) {
    const size_t outs_each = outs.by_key[i].size() / ids[i].size();
    for (const Tensor& list : ids[i]) {
      auto rows = read_ids(list, entries[i]->shape.lengths[0]);
      if (!rows.ok()) return {base::error(rows.status().code(), "key \"{}\": {}", keys.names[i], rows.status().text()), nullptr};
      std::vector<size_t> places(outs_each);
      std::iota(places.begin(), places.end(), place);
      place += outs_each;
      if (base::Status failed = pull->add_rows(entries[i], std::move(rows).value(), std::move(places)); !failed.ok())
        return {std::move(failed), nullptr};
    }
  }
  return pull->run(options);
}

base::Status Store::set_updater(std::shared_ptr<CallbackThread> thread, Updates::Updater updater) {
  if (type_.dist)
    return base::error(MV_ESTATE, "a {} store's values are updated on the servers, where this process's callbacks can't run: use kv_set_optimizer()",
                       type_.name);
  return updates_.set(std::move(thread), std::move(updater));
}

base::Status Store::remove_updater() { return updates_.clear(); }

base::Status Store::set_optimizer(const shard::UpdaterSpec& given) {
  const shard::UpdaterSpec optimizer = given.name == "assign" ? shard::UpdaterSpec{shard::kReplacing, {}} : given;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, parameters] : key_parameters_)
      if (const auto fits = with_key_parameters(optimizer, parameters); optimizer.name != shard::kReplacing && !fits.ok())
        return base::error(fits.status().code(), "key \"{}\", which has its own parameters: {}", key, fits.status().text());
    for (const auto& [key, entry] : entries_)
      if (const base::Status wrong = check_optimizer(*entry, optimizer); !wrong.ok()) return wrong;
  }
  if (const base::Status failed = updates_.clear(); !failed.ok()) return failed;  // the one set last counts
  {
    std::lock_guard lock(mutex_);
    use_optimizer(optimizer);
  }
  return set_optimizers(all_entries());
}

base::Status Store::barrier(base::Nanos timeout) {
  if (!type_.dist) {
    if (const base::Status inside = updates_.check_outside(); !inside.ok()) return inside;
    updates_.run_due();
    return {};
  }
  api::CallOptions options;
  options.timeout = timeout;
  return channel_ != nullptr ? serving_barrier(options) : node_.barrier(options, api::Flush::kNone).status;
}

base::Status Store::leave() {
  if (left_.exchange(true)) return {};
  for (const EntryRef& entry : all_entries())
    if (const base::Status failed = entry->table->leave_rounds(); !failed.ok()) return failed;
  give_residuals(false);
  return {};
}

}  // namespace mv::kvstore
