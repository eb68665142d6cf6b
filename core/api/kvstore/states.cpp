// Store: optimizer states, saved and loaded, and optimizer parameters of single keys.

#include <algorithm>
#include <memory>
#include <utility>

#include "api/kvstore/store.hpp"
#include "checkpoint/states_file.hpp"
#include "shard/on_device.hpp"
#include "shard/updater/updater.hpp"

namespace mv::kvstore {

namespace {

using checkpoint::KeyStates;
using checkpoint::StatesFile;

bool is_none(const shard::UpdaterSpec& updater) { return updater.name == shard::kReplacing; }

std::vector<uint64_t> lengths_of(const tensor::Shape& shape) {
  return {shape.lengths.begin(), shape.lengths.begin() + shape.dims};
}

std::string text_of(mv_dtype dtype, const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t length : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", length);
  return fmt::format("{} ({})", tensor::dtype_name(dtype), text);
}

size_t states_of(const shard::UpdaterSpec& updater, mv_dtype dtype) {
  return shard::make_updater(updater, tensor::storage_dtype(dtype))->states();
}

/// Checks that saved states belong to the key and to its current optimizer.
base::Status check_key(const Entry& entry, const shard::UpdaterSpec& now, const KeyStates& saved) {
  if (saved.dtype != entry.dtype || saved.shape != lengths_of(entry.shape))
    return base::error(MV_EDISAGREE, "key \"{}\": {} in the file, {} in the store", entry.name, text_of(saved.dtype, saved.shape),
                       text_of(entry.dtype, lengths_of(entry.shape)));
  if (is_none(now) && !saved.updater)
    return base::error(MV_ESTATE, "key \"{}\": the file holds states of {} without its parameters: call kv_set_optimizer() first", entry.name, saved.optimizer);
  if (!is_none(now) && now.name != saved.optimizer)
    return base::error(MV_EDISAGREE, "key \"{}\": the file holds states of {}, the store's optimizer is {}", entry.name, saved.optimizer, now.name);
  const size_t wanted = states_of(saved.updater ? *saved.updater : now, entry.dtype);
  if (saved.states.size() == wanted) return {};
  return base::error(MV_EDISAGREE, "key \"{}\": the file holds {} states, {} with its parameters keeps {}", entry.name, saved.states.size(), saved.optimizer,
                     wanted);
}

}  // namespace

Entries Store::all_entries() {
  Entries entries;
  std::unique_lock lock(mutex_);
  for (const auto& [key, entry] : entries_) entries.push_back(entry);
  lock.unlock();
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

/// Requires mutex_.
void Store::use_optimizer(const shard::UpdaterSpec& optimizer) {
  const auto updater = shard::make_updater(optimizer, MV_F32);
  shares_state_ = updater != nullptr && !updater->shared().empty();
  optimizer_ = optimizer;
}

// ---- per key

/// The optimizer to set on a key: the store's, with the key's own parameters.
base::Result<shard::UpdaterSpec> Store::optimizer_of(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto known = key_parameters_.find(key);
  if (is_none(optimizer_) || known == key_parameters_.end()) return optimizer_;
  auto spec = with_key_parameters(optimizer_, known->second);
  return spec.ok() ? spec : base::error(spec.status().code(), "key \"{}\": {}", key, spec.status().text());
}

/// Checks that the key can have the optimizer, so that an error is found before any key has it.
base::Status Store::check_optimizer(const Entry& entry, const shard::UpdaterSpec& optimizer) const {
  if (const base::Status wrong = shard::check_updater(optimizer, entry.dtype); !wrong.ok())
    return base::error(wrong.code(), "key \"{}\": {}", entry.name, wrong.text());
  if (entry.device != nullptr)
    if (const base::Status wrong = shard::DeviceShards::used()->check(optimizer); !wrong.ok())
      return base::error(wrong.code(), "key \"{}\": {}", entry.name, wrong.text());
  if (!type_.dist || shard::make_updater(optimizer, tensor::storage_dtype(entry.dtype))->sums() == 0) return {};
  if (entry.spec->home == 0 && node_.identity().num_parts > 1)
    return base::error(MV_EINVAL,
                       "key \"{}\": {} needs norms of the whole tensor, but {} is spread over {} servers: use one server, or set "
                       "MXNET_KVSTORE_BIGARRAY_BOUND above {} in the environment of all workers",
                       entry.name, optimizer.name, entry.text(), node_.identity().num_parts, entry.shape.count());
  if (entry.row_sparse && entry.shape.count() > shard::stripe_elements(*entry.spec))
    return base::error(MV_EINVAL,
                       "key \"{}\": {} needs norms of the whole tensor, but {} is pushed by rows, in several messages: in a dist store it "
                       "may have {} elements",
                       entry.name, optimizer.name, entry.text(), shard::stripe_elements(*entry.spec));
  return {};
}

base::Status Store::set_key_parameters(const Keys& keys, std::string_view text) {
  if (const base::Status wrong = check_keys(keys); !wrong.ok()) return wrong;
  const auto parameters = parse_key_parameters(text);
  if (!parameters.ok()) return parameters.status();
  Entries entries;
  {
    std::lock_guard lock(mutex_);
    if (!is_none(optimizer_)) {
      const auto fits = with_key_parameters(optimizer_, parameters.value());
      if (!fits.ok()) return fits.status();
      for (const std::string& key : keys.names)
        if (const auto known = entries_.find(key); known != entries_.end())
          if (const base::Status wrong = check_optimizer(*known->second, fits.value()); !wrong.ok()) return wrong;
    }
    for (const std::string& key : keys.names) {
      if (parameters.value().empty())
        key_parameters_.erase(key);
      else
        key_parameters_[key] = parameters.value();
      if (const auto known = entries_.find(key); known != entries_.end()) entries.push_back(known->second);
    }
    if (is_none(optimizer_)) return {};  // they apply to the next optimizer
  }
  return set_optimizers(entries);
}

// ---- states

base::Status Store::save_states(const std::string& path, bool with_optimizer) {
  if (updates_.is_on()) return base::Status(MV_ESTATE, "the store's updater is a callback: save its states yourself");
  StatesFile file;
  file.dumped = with_optimizer;
  const auto entries = all_entries();
  if (entries.empty()) return base::Status(MV_ESTATE, "the store has no keys");
  for (const EntryRef& entry : entries) {
    auto states = entry->table->states();
    if (!states.ok()) return base::error(states.status().code(), "key \"{}\": {}", entry->name, states.status().text());
    api::TableStates& known = states.value();
    if (is_none(known.updater)) return base::error(MV_ESTATE, "key \"{}\" has no optimizer: call kv_set_optimizer() first", entry->name);
    KeyStates key{entry->name, entry->dtype, lengths_of(entry->shape), known.updater.name, {}, {}, std::move(known.states), {}};
    if (with_optimizer) {
      key.updater = std::move(known.updater);
      key.marks = std::move(known.marks);
    }
    file.keys.push_back(std::move(key));
  }
  auto left = gather_residuals();
  if (!left.ok()) return left.status();
  for (size_t i = 0; i < entries.size(); ++i) {
    file.keys[i].residuals = std::move(left.value()[entries[i]->name]);
    for (auto& sender : file.keys[i].residuals) sender.resize(entries[i]->residual_bytes());  // zeros if the sender has left out nothing so far
  }
  if (with_optimizer) {
    std::lock_guard lock(mutex_);
    if (!is_none(optimizer_)) file.optimizer = optimizer_;
  }
  return checkpoint::write_states(path, file);
}

/// Checks everything before it changes anything.
base::Status Store::load_states(const std::string& path) {
  if (updates_.is_on()) return base::Status(MV_ESTATE, "the store's updater is a callback: load its states yourself");
  auto file = checkpoint::read_states(path);
  if (!file.ok()) return file.status();
  const auto entries = all_entries();
  const auto wrong = [&](mv_status code, const std::string& what) { return base::error(code, "{}: {}", path, what); };
  for (const KeyStates& saved : file.value().keys)
    if (!std::ranges::any_of(entries, [&](const EntryRef& entry) { return entry->name == saved.key; }))
      return wrong(MV_EDISAGREE, fmt::format("it holds key \"{}\", which the store does not have", saved.key));
  std::vector<KeyStates*> states;
  for (const EntryRef& entry : entries) {
    const auto saved = std::ranges::find(file.value().keys, entry->name, &KeyStates::key);
    if (saved == file.value().keys.end()) return wrong(MV_EDISAGREE, fmt::format("it does not hold the store's key \"{}\"", entry->name));
    const auto info = entry->table->info();
    if (!info.ok()) return info.status();
    if (const base::Status bad = check_key(*entry, info.value().spec.updater, *saved); !bad.ok()) return wrong(bad.code(), bad.text());
    states.push_back(&*saved);
  }
  std::map<std::string, Senders> left;
  for (size_t i = 0; i < entries.size(); ++i) {
    api::Table& table = *entries[i]->table;
    base::Status failed = states[i]->updater ? table.set_updater(*states[i]->updater, {}).status : base::Status();
    if (failed.ok()) failed = table.set_states({{}, std::move(states[i]->states), std::move(states[i]->marks)});
    left[entries[i]->name] = std::move(states[i]->residuals);
    if (!failed.ok()) return base::error(failed.code(), "key \"{}\": {}", entries[i]->name, failed.text());
  }
  {
    std::lock_guard lock(mutex_);
    if (file.value().optimizer) use_optimizer(*file.value().optimizer);
  }
  return hand_out_residuals(left);
}

}  // namespace mv::kvstore
