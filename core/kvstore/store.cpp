#include "kvstore/store.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "kvstore/devices.hpp"

namespace mv::kvstore {

namespace {

/// From this size on a key is spread over all servers. (MXNet's bound is 10^6 elements.)
constexpr uint64_t kSpreadBytes = 4'000'000;

table::Spec spec_of(const std::string& name, const Tensor& value, const Type& type) {
  table::Spec spec;
  spec.name = name;
  spec.dtype = value.dtype;
  const bool spread = value.stored_bytes() >= kSpreadBytes;
  spec.kind = spread ? MV_ARRAY : MV_MATRIX;  // a matrix of one row lies on one server
  spec.rows = spread ? value.shape.count() : 1;
  spec.cols = spread ? 1 : value.shape.count();
  spec.updater = {"assign", {}};
  if (type.sync) spec.flags = MV_MERGE;
  if (type.sliced) spec.flags |= table::kSliced;
  return spec;
}

}  // namespace

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
    if (value.is_row_sparse()) return base::error(MV_EINVAL, "key \"{}\": {} is not dense", keys.names[i], value.text());
    if (value.shape.count() == 0) return base::error(MV_ESHAPE, "key \"{}\": {} holds nothing", keys.names[i], value.text());
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

base::Result<Store::EntryRef> Store::make(const std::string& key, const Tensor& value) {
  auto entry = std::make_shared<Entry>();
  auto table = node_.create_table(spec_of(prefix_ + key, value, type_), {value.data, value.shape.count(), value.dtype});
  if (!table.ok()) return table.status();
  entry->name = key;
  entry->table = std::move(table).value();
  entry->dtype = value.dtype;
  entry->shape = value.shape;
  table::UpdaterSpec optimizer;
  {
    std::lock_guard lock(mutex_);
    optimizer = optimizer_;
  }
  if (optimizer.name != "assign")
    if (base::Status failed = entry->table->set_updater(optimizer, {}).status; !failed.ok()) return failed;
  return entry;
}

base::Result<std::vector<Store::EntryRef>> Store::find(const Keys& keys, const Values& values) {
  if (const base::Status wrong = check_keys(keys); !wrong.ok()) return wrong;
  std::vector<EntryRef> found;
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < keys.names.size(); ++i) {
    const auto known = entries_.find(keys.names[i]);
    if (known == entries_.end())
      return base::error(MV_ENOTFOUND, "there is no key \"{}\": kv_init() brings it into the store", keys.names[i]);
    const Entry& entry = *known->second;
    for (const Tensor& value : values[i]) {
      if (value.is_row_sparse()) return base::error(MV_EINVAL, "key \"{}\": {} is not dense", entry.name, value.text());
      if (value.dtype != entry.dtype)
        return base::error(MV_EDTYPE, "key \"{}\" holds {} {}, not {}", entry.name, tensor::dtype_name(entry.dtype), entry.shape.text(), value.text());
      if (!(value.shape == entry.shape))
        return base::error(MV_ESHAPE, "key \"{}\" holds {} {}, not {}", entry.name, tensor::dtype_name(entry.dtype), entry.shape.text(), value.text());
    }
    found.push_back(known->second);
  }
  return found;
}

base::Status Store::push(const Keys& keys, const Values& values, const How& how) {
  if (left_) return base::Status(MV_ESTATE, "this worker has left the store's rounds");
  const auto entries = find(keys, values);
  if (!entries.ok()) return entries.status();
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
  if (info.value().spec.updater.name == "assign")
    return base::error(MV_ESTATE, "key \"{}\": a {} store needs an optimizer: kv_set_optimizer()", entry.name, type_.name);
  entry.updates = true;
  return {};
}

base::Status Store::push_one(Entry& entry, std::span<const Tensor> values, const node::CallOptions& options) {
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

base::Status Store::pull(const Keys& keys, const Values& values, const How& how) {
  const auto entries = find(keys, values);
  if (!entries.ok()) return entries.status();
  node::CallOptions options;
  options.timeout = how.timeout;
  options.priority = how.priority;
  if (values.size() > 1) options.mode = node::Mode::kAsync;
  base::Status first;
  std::vector<node::CallRef> calls;
  for (size_t i = 0; i < values.size() && first.ok(); ++i) {
    const Tensor& out = values[i].front();
    const node::MutableData data{out.data, out.shape.count(), out.dtype};
    node::Table& table = *entries.value()[i]->table;
    const codec::CodecRef codec = type_.dist ? compression_of(*entries.value()[i]).pull : nullptr;
    node::Started started = codec != nullptr ? table.get_encoded(data, codec, options) : table.get({}, data, options);
    first = std::move(started.status);
    if (started.call != nullptr) calls.push_back(std::move(started.call));
  }
  for (const node::CallRef& call : calls) {
    bool alive = false;
    base::Status status = first.ok() ? node_.wait(call, base::Nanos(0), &alive) : base::Status();
    if (alive || !first.ok()) {
      const base::Status withdrawn = node_.cancel(call);
      if (!alive) status = withdrawn;
    }
    if (first.ok()) first = std::move(status);
  }
  if (!first.ok()) return first;
  for (const auto& outs : values) copy_to_devices(outs);
  return {};
}

base::Status Store::set_optimizer(const table::UpdaterSpec& optimizer) {
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
