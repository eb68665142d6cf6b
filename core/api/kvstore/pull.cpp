#include "api/kvstore/pull.hpp"

#include <algorithm>
#include <utility>

#include "shard/on_device.hpp"
#include "tensor/device.hpp"
#include "tensor/sparse.hpp"

namespace mv::kvstore {

namespace {

/// Whether a table can write its values there.
bool is_simple_out(const Tensor& out) { return !out.is_row_sparse() && tensor::device_of(out) == nullptr; }

}  // namespace

/// A key on a device, and tensors of devices.
bool Pull::add_on_device(Entry& entry, std::span<const Tensor> outs, base::Status* status) {
  if (entry.device == nullptr || std::ranges::all_of(outs, is_simple_out) || std::ranges::any_of(outs, &Tensor::is_row_sparse)) return false;
  shard::OnDevice* const shard = entry.table->on_device_here(false, status);
  if (shard == nullptr) return !status->ok();
  OnDevice& same = on_devices_[entry.device];
  same.readings.push_back({shard, outs});
  same.name = entry.name;
  return true;
}

/// The keys of each device together.
base::Status Pull::read_on_devices() {
  for (const auto& [device, same] : on_devices_) {
    const base::Status status = same.readings.front().shard->read_together(node_.identity().worker_id, same.readings);
    if (status.ok()) continue;
    return same.readings.size() == 1 ? base::error(status.code(), "key \"{}\": {}", same.name, status.text()) : status;
  }
  on_devices_.clear();
  return {};
}

bool Pull::read_here(Entry& entry, std::span<const Tensor> outs, base::Status* status) {
  if (add_on_device(entry, outs, status)) return true;
  places_.clear();
  for (const Tensor& out : outs) {
    if (!is_simple_out(out)) return false;
    if (std::ranges::find(places_, out.data) == places_.end()) places_.push_back(out.data);
  }
  if (!entry.table->get_here(places_, status)) return false;
  return true;
}

base::Status Pull::add(const EntryRef& entry, std::span<const Tensor> outs, size_t first, bool sparse_too, codec::CodecRef codec) {
  if (base::Status status; codec == nullptr && read_here(*entry, outs, &status))
    return status.ok() ? status : base::error(status.code(), "key \"{}\": {}", entry->name, status.text());
  if (codec == nullptr && outs.size() == 1 && is_simple_out(outs.front()) && entry->table->joins_many()) {
    small_.push_back({entry.get(), outs.front().data});
    return {};
  }
  Fetch fetch{entry, {}, {}, {}, std::move(codec)};
  for (size_t i = 0; i < outs.size(); ++i) {
    if (outs[i].is_row_sparse()) {
      if (sparse_too) fetch.places.push_back(first + i);
    } else if (tensor::device_of(outs[i]) != nullptr) {
      fetch.copies.push_back(outs[i]);
    } else if (fetch.into.data == nullptr) {
      fetch.into = outs[i];
    } else if (outs[i].data != fetch.into.data) {
      fetch.copies.push_back(outs[i]);
    }
  }
  if (const base::Status failed = decode_on_devices(fetch); !failed.ok()) return base::error(failed.code(), "key \"{}\": {}", entry->name, failed.text());
  const bool needs_host = fetch.encoded == nullptr || !fetch.places.empty();
  if (fetch.into.data == nullptr && needs_host) {
    if (fetch.is_simple()) return {};
    tensor::Allocator& memory = fetch.copies.empty() ? static_cast<tensor::Allocator&>(heap_) : tensor::device_of(fetch.copies.front())->staging();
    auto room = tensor::make_dense(memory, fetch.entry->dtype, fetch.entry->shape, tensor::Heap::Content::kAnything);
    if (!room.ok()) return room.status();
    fetch.into = std::move(room).value();
  }
  fetches_.push_back(std::move(fetch));
  return {};
}

/// Takes the tensors out of `copies` that are on devices, if these can decode.
base::Status Pull::decode_on_devices(Fetch& fetch) {
  const auto there = std::ranges::stable_partition(fetch.copies, [](const Tensor& copy) { return tensor::device_of(copy) == nullptr; });
  if (fetch.codec == nullptr || there.empty() || !EncodedPull::suits(*fetch.entry, *fetch.codec, there)) return {};
  auto encoded = EncodedPull::make(*fetch.entry, fetch.codec, there);
  if (!encoded.ok()) return encoded.status();
  fetch.encoded = std::move(encoded).value();
  fetch.copies.erase(there.begin(), there.end());
  return {};
}

base::Status Pull::add_rows(EntryRef entry, std::vector<int64_t> rows, std::vector<size_t> places) {
  tensor::Allocator& memory = entry->device != nullptr ? static_cast<tensor::Allocator&>(*entry->device) : heap_;
  auto room = tensor::make_rows(memory, entry->dtype, entry->shape, rows);
  if (!room.ok()) return room.status();
  fetches_.push_back({std::move(entry), std::move(room).value(), {}, std::move(places), nullptr});
  return {};
}

/// Rows of a key on a device are read at once.
base::Status Pull::read_rows_on_device(const Entry& entry, const Tensor& into) const {
  base::Status status;
  if (shard::OnDevice* const shard = entry.table->on_device_here(false, &status); shard != nullptr) return shard->read_held(node_.identity().worker_id, into);
  return status.ok() ? base::Status(MV_EINTERNAL, "rows on a device can't be read") : status;
}

api::Started Pull::begin(const Fetch& fetch, const api::CallOptions& options) const {
  const Tensor& into = fetch.into;
  if (into.is_row_sparse() && tensor::device_of(into) != nullptr) {
    const base::Status status = read_rows_on_device(*fetch.entry, into);
    return {status.ok() ? status : base::error(status.code(), "key \"{}\": {}", fetch.entry->name, status.text()), nullptr};
  }
  const api::Rows rows = into.is_row_sparse() ? api::Rows{into.held.ids, into.held.count, false} : api::Rows{};
  api::Table& table = *fetch.entry->table;
  const auto begin = [&] {
    if (fetch.encoded != nullptr) return fetch.encoded->begin(table, options);
    const api::MutableData data{into.data, into.stored(), into.dtype};
    return fetch.codec != nullptr ? table.get_encoded(data, fetch.codec, options) : table.get(rows, data, options);
  };
  api::Started started = begin();
  if (!started.status.ok())
    started.status = base::error(started.status.code(), "key \"{}\": {}", fetch.entry->name, started.status.text());
  return started;
}

api::Started Pull::begin(const Small& small, const api::CallOptions& options) {
  const Entry& entry = *small.entry;
  api::Started started = entry.table->get({}, {small.out, entry.shape.count(), entry.dtype}, options);
  if (!started.status.ok()) started.status = base::error(started.status.code(), "key \"{}\": {}", entry.name, started.status.text());
  return started;
}

/// In few messages, unless the call has a priority.
base::Status Pull::begin_small(const api::CallOptions& options) {
  base::Status status;
  if (options.priority != 0) {
    for (size_t i = 0; i < small_.size() && status.ok(); ++i) status = begin(small_[i], options).status;
    return status;
  }
  std::vector<api::ManyGet> many;
  many.reserve(small_.size());
  for (const Small& small : small_) many.push_back({small.entry->table.get(), small.out});
  return many.empty() ? status : node_.get_many(many, options);
}

api::Started Pull::run(const api::CallOptions& options) {
  if (base::Status failed = read_on_devices(); !failed.ok()) return {std::move(failed), nullptr};
  const bool blocking = options.mode == api::Mode::kBlocking;
  if (blocking && fetches_.empty() && small_.empty()) return {};
  if (blocking && fetches_.empty() && small_.size() == 1) return begin(small_.front(), options);
  if (blocking && small_.empty() && fetches_.size() == 1) {  // without a group of calls
    api::CallOptions how = options;
    how.keep_on_interrupt = options.keep_on_interrupt && fetches_.front().is_simple();
    api::Started started = begin(fetches_.front(), how);
    if (started.status.ok() && started.call == nullptr) started.status = finish();
    return started;
  }
  api::CallOptions part = options;
  part.mode = api::Mode::kAsync;
  part.tag = 0;
  part.group = node_.group(options);
  api::Started started;
  for (size_t i = 0; i < fetches_.size() && started.status.ok(); ++i) started.status = begin(fetches_[i], part).status;
  if (started.status.ok()) started.status = begin_small(part);
  node_.close_group(part.group, [self = shared_from_this()] { return self->finish(); });
  if (!started.status.ok()) {
    static_cast<void>(node_.cancel(part.group));
    return {std::move(started.status), nullptr};
  }
  if (!blocking) return {{}, std::move(part.group)};
  bool alive = false;
  started.status = node_.wait(part.group, base::Nanos(0), &alive);
  if (!alive) return started;
  if (options.keep_on_interrupt) return {std::move(started.status), std::move(part.group)};
  static_cast<void>(node_.cancel(part.group));
  return started;
}

/// All values have arrived: copies them to the other tensors.
base::Status Pull::finish() {
  for (Fetch& fetch : fetches_) {
    if (fetch.encoded != nullptr) {
      if (auto status = fetch.encoded->finish(); !status.ok()) return status;
      if (fetch.into.data != nullptr) fetch.encoded->decode(fetch.into);
    }
    for (const Tensor& copy : fetch.copies)
      if (auto status = tensor::copy_bytes(copy, fetch.into.data, nullptr, fetch.into.stored_bytes()); !status.ok()) return status;
    if (fetch.places.empty()) continue;
    Tensor made = fetch.into;
    if (!made.is_row_sparse()) {
      auto sparse = tensor::to_sparse(fetch.entry->name.c_str(), heap_, fetch.into);
      if (!sparse.ok()) return sparse.status();
      made = std::move(sparse).value();
    }
    for (size_t i = 0; i + 1 < fetch.places.size(); ++i) {
      auto copy = tensor::clone(heap_, made);
      if (!copy.ok()) return copy.status();
      if (auto status = replace_(fetch.places[i], copy.value()); !status.ok()) return status;
    }
    if (auto status = replace_(fetch.places.back(), made); !status.ok()) return status;
  }
  fetches_.clear();
  return {};
}

}  // namespace mv::kvstore
