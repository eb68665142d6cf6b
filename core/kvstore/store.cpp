#include "kvstore/store.hpp"

#include <fmt/format.h>

#include <numeric>
#include <set>

#include "kvstore/devices.hpp"
#include "kvstore/layout.hpp"
#include "kvstore/rows.hpp"
#include "math/kernels.hpp"
#include "tensor/sparse.hpp"

namespace mv::kvstore {

namespace {

base::Status check_finite(const std::string& key, const Tensor& value) {
  if (math::all_finite_bytes(value.dtype, value.data, value.stored())) return {};
  return base::error(MV_ENONFINITE, "key \"{}\": {} holds NaN or infinity, which this store refuses", key, value.text());
}

base::Status check_form(const Entry& entry, const Tensor& value) {
  if (value.dtype != entry.dtype) return base::error(MV_EDTYPE, "key \"{}\" holds {}, not {}", entry.name, entry.text(), value.text());
  if (!(value.shape == entry.shape)) return base::error(MV_ESHAPE, "key \"{}\" holds {}, not {}", entry.name, entry.text(), value.text());
  return {};
}

/// Whether each tensor may be pushed to its key.
base::Status check_values(const std::vector<EntryRef>& entries, const Values& values) {
  for (size_t i = 0; i < entries.size(); ++i)
    for (const Tensor& value : values[i]) {
      base::Status wrong = check_form(*entries[i], value);
      if (wrong.ok() && entries[i]->spec.rejects_nonfinite()) wrong = check_finite(entries[i]->name, value);
      if (!wrong.ok()) return wrong;
    }
  return {};
}

/// The same of what is pulled into; row-sparse tensors that are ignored may be anything.
base::Status check_outs(const std::vector<EntryRef>& entries, const Values& outs, Sparse sparse) {
  for (size_t i = 0; i < entries.size(); ++i)
    for (const Tensor& out : outs[i])
      if (!out.is_row_sparse() || sparse == Sparse::kFilled)
        if (const base::Status wrong = check_form(*entries[i], out); !wrong.ok()) return wrong;
  return {};
}

base::Status check_sparse_outs(const std::vector<EntryRef>& entries, const Values& outs, const Values& ids) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = *entries[i];
    if (!entry.row_sparse) return base::error(MV_EINVAL, "key \"{}\" holds {}, which is not row-sparse: kv_pull()", entry.name, entry.text());
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

base::Status Store::check_keys(const Keys& keys) {
  std::set<std::string_view> seen;
  for (const std::string& key : keys.names)
    if (!seen.insert(key).second) return base::error(MV_EINVAL, "key \"{}\" is there twice", key);
  std::lock_guard lock(mutex_);
  if (any_key_ && keys_are_numbers_ != keys.are_numbers)
    return base::error(MV_EINVAL, "key \"{}\" is a {}, but this store's keys are {}", keys.names.front(),
                       keys.are_numbers ? "number" : "name", keys_are_numbers_ ? "numbers" : "names");
  return {};
}

base::Status Store::init(const Keys& keys, const Values& values) {
  if (keys.names.empty()) return {};
  if (const base::Status wrong = check_keys(keys); !wrong.ok()) return wrong;
  for (size_t i = 0; i < keys.names.size(); ++i) {
    const Tensor& value = values[i].front();
    if (value.shape.count() == 0) return base::error(MV_ESHAPE, "key \"{}\": {} holds nothing", keys.names[i], value.text());
    if (rejects_nonfinite_)
      if (const base::Status wrong = check_finite(keys.names[i], value); !wrong.ok()) return wrong;
    const uint64_t longest = type_.sliced ? table::kSliceBytes : table::kStripeBytes;
    if (value.is_row_sparse() && value.shape.row_count() * tensor::dtype_bytes(value.dtype) > longest)
      return base::error(MV_ESHAPE, "key \"{}\": a row of {} has more than {} bytes", keys.names[i], value.text(), longest);
    std::lock_guard lock(mutex_);
    if (entries_.contains(keys.names[i])) return base::error(MV_EDISAGREE, "key \"{}\" is initialised already", keys.names[i]);
  }
  for (size_t i = 0; i < keys.names.size(); ++i) {
    auto entry = make(keys.names[i], values[i].front());
    if (!entry.ok()) return base::error(entry.status().code(), "key \"{}\": {}", keys.names[i], entry.status().text());
    std::lock_guard lock(mutex_);
    entries_.emplace(keys.names[i], std::move(entry).value());
    any_key_ = true;
    keys_are_numbers_ = keys.are_numbers;
  }
  // Where one worker alone has set an optimizer, the others' pushes must find it.
  return type_.dist ? barrier(base::Nanos(0)) : base::Status();
}

base::Result<EntryRef> Store::make(const std::string& key, const Tensor& value) {
  auto entry = std::make_shared<Entry>();
  entry->name = key;
  entry->dtype = value.dtype;
  entry->shape = value.shape;
  entry->row_sparse = value.is_row_sparse();
  entry->spec = spec_of(prefix_ + key, value, (type_.sync ? MV_MERGE : 0) | (type_.sliced ? table::kSliced : 0) | (rejects_nonfinite_ ? MV_REJECT_NONFINITE : 0));
  // Only worker 0's values count, and only that one needs all of its rows for it.
  Tensor initial = value;
  if (value.is_row_sparse() && rank() == 0) {
    auto dense = tensor::to_dense("all rows", heap_, value);
    if (!dense.ok()) return dense.status();
    initial = std::move(dense).value();
  }
  const bool given = !initial.is_row_sparse();
  auto table = node_.create_table(entry->spec, given ? node::ConstData{initial.data, initial.shape.count(), initial.dtype} : node::ConstData{});
  if (!table.ok()) return table.status();
  entry->table = std::move(table).value();
  table::UpdaterSpec optimizer;
  {
    std::lock_guard lock(mutex_);
    optimizer = optimizer_;
  }
  if (optimizer.name != table::kReplacing)
    if (base::Status failed = entry->table->set_updater(optimizer, {}).status; !failed.ok()) return failed;
  return entry;
}

base::Result<std::vector<EntryRef>> Store::find(const Keys& keys) {
  if (const base::Status wrong = check_keys(keys); !wrong.ok()) return wrong;
  std::vector<EntryRef> found;
  std::lock_guard lock(mutex_);
  for (const std::string& key : keys.names) {
    const auto known = entries_.find(key);
    if (known == entries_.end()) return base::error(MV_ENOTFOUND, "there is no key \"{}\": kv_init() brings it into the store", key);
    found.push_back(known->second);
  }
  return found;
}

base::Status Store::push(const Keys& keys, const Values& values, const How& how) {
  if (left_) return base::Status(MV_ESTATE, "this worker has left the store's rounds");
  const auto entries = find(keys);
  if (!entries.ok()) return entries.status();
  if (const base::Status wrong = check_values(entries.value(), values); !wrong.ok()) return wrong;
  if (type_.dist && !type_.sync)
    for (const EntryRef& entry : entries.value())
      if (const base::Status wrong = need_optimizer(*entry); !wrong.ok()) return wrong;
  node::CallOptions options;
  options.timeout = how.timeout;
  options.priority = how.priority;
  options.mode = type_.dist ? node::Mode::kForget : node::Mode::kBlocking;
  for (size_t i = 0; i < values.size(); ++i)
    if (base::Status failed = push_one(*entries.value()[i], values[i], options); !failed.ok())
      return base::error(failed.code(), "key \"{}\": {}", keys.names[i], failed.text());
  return {};
}

/// In an asynchronous store a value that replaces another one would be whoever's came last: MXNet refuses that too.
base::Status Store::need_optimizer(Entry& entry) {
  if (entry.updates) return {};
  auto info = entry.table->info();
  if (!info.ok()) return info.status();
  if (info.value().spec.updater.name == table::kReplacing)
    return base::error(MV_ESTATE, "key \"{}\": a {} store needs an optimizer: kv_set_optimizer()", entry.name, type_.name);
  entry.updates = true;
  return {};
}

base::Status Store::push_one(Entry& entry, std::span<const Tensor> values, const node::CallOptions& options) {
  if (goes_by_rows(entry, values)) {  // which no codec knows
    const auto rows = rows_of(entry, values);
    if (!rows.ok()) return rows.status();
    const std::vector<int64_t>& ids = rows.value().ids;
    return entry.table->add({ids.data(), ids.size(), false}, {rows.value().values, ids.size() * entry.spec.cols, entry.dtype}, options).status;
  }
  const Compression compression = compression_of(entry);
  const bool pushed = entry.pushed.exchange(true);
  if (compression.push != nullptr)
    return type_.dist ? push_encoded(entry, values, compression.push, options) : push_from_devices(entry, values, *compression.push, options);
  if (pushed && has_rest(entry)) return push_with_rest(entry, values, options);
  if (values.size() == 1) return give(entry, values.front().data, options);
  std::lock_guard lock(entry.merging);
  entry.merged.resize(entry.shape.count() * tensor::dtype_bytes(entry.dtype));
  sum_devices(values, entry.merged.data());
  return give(entry, entry.merged.data(), options);
}

/// What a push comes to in this process, on its way into the key.
base::Status Store::give(Entry& entry, const std::byte* merged, const node::CallOptions& options) {
  return entry.table->add({}, {merged, entry.shape.count(), entry.dtype}, options).status;
}

node::Started Store::pull(const Keys& keys, const Outs& outs, Sparse sparse, const node::CallOptions& options) {
  const auto entries = find(keys);
  if (!entries.ok()) return {entries.status(), nullptr};
  if (const base::Status wrong = check_outs(entries.value(), outs.by_key, sparse); !wrong.ok()) return {wrong, nullptr};
  const auto pull = std::make_shared<Pull>(node_, heap_, outs.replace);
  for (size_t i = 0, place = 0; i < outs.by_key.size(); place += outs.by_key[i++].size()) {
    const EntryRef& entry = entries.value()[i];
    const codec::CodecRef codec = type_.dist ? compression_of(*entry).pull : nullptr;
    if (base::Status failed = pull->add(entry, outs.by_key[i], place, sparse == Sparse::kFilled, codec); !failed.ok())
      return {std::move(failed), nullptr};
  }
  return pull->run(options);
}

node::Started Store::row_sparse_pull(const Keys& keys, const Outs& outs, const Values& ids, const node::CallOptions& options) {
  const auto entries = find(keys);
  if (!entries.ok()) return {entries.status(), nullptr};
  if (const base::Status wrong = check_sparse_outs(entries.value(), outs.by_key, ids); !wrong.ok()) return {wrong, nullptr};
  const auto pull = std::make_shared<Pull>(node_, heap_, outs.replace);
  for (size_t i = 0, place = 0; i < ids.size(); ++i) {
    const size_t outs_each = outs.by_key[i].size() / ids[i].size();
    for (const Tensor& list : ids[i]) {
      auto rows = read_ids(list, entries.value()[i]->shape.lengths[0]);
      if (!rows.ok()) return {base::error(rows.status().code(), "key \"{}\": {}", keys.names[i], rows.status().text()), nullptr};
      std::vector<size_t> places(outs_each);
      std::iota(places.begin(), places.end(), place);
      place += outs_each;
      if (base::Status failed = pull->add_rows(entries.value()[i], std::move(rows).value(), std::move(places)); !failed.ok())
        return {std::move(failed), nullptr};
    }
  }
  return pull->run(options);
}

base::Status Store::set_optimizer(const table::UpdaterSpec& given) {
  const table::UpdaterSpec optimizer = given.name == "assign" ? table::UpdaterSpec{table::kReplacing, {}} : given;
  std::vector<EntryRef> entries;
  {
    std::lock_guard lock(mutex_);
    optimizer_ = optimizer;
    for (const auto& [key, entry] : entries_) entries.push_back(entry);
  }
  for (const EntryRef& entry : entries) {
    const base::Status failed = entry->table->set_updater(optimizer, {}).status;
    if (!failed.ok()) return base::error(failed.code(), "key \"{}\": {}", entry->name, failed.text());
  }
  return {};
}

base::Status Store::barrier(base::Nanos timeout) {
  if (!type_.dist) return {};
  node::CallOptions options;
  options.timeout = timeout;
  return node_.barrier(options, node::Fence::kNone).status;
}

base::Status Store::leave() {
  if (left_.exchange(true)) return {};
  std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_)
    if (const base::Status failed = entry->table->leave_rounds(); !failed.ok()) return failed;
  return {};
}

}  // namespace mv::kvstore
