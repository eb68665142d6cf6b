#include "device/keyed/keyed.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "device/must.hpp"
#include "math/kernels.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

using shard::Worker;
using shard::Write;

base::Result<std::shared_ptr<shard::Shard>> KeyedDeviceShard::make(shard::SpecRef spec, const shard::Position& place, TensorDevice& device,
                                                                   std::mutex& mutex) {
  std::shared_ptr<KeyedDeviceShard> made(new KeyedDeviceShard(std::move(spec), place, device, mutex));
  if (auto status = made->set_updater(made->spec_.updater); !status.ok()) return status;
  return std::shared_ptr<shard::Shard>(std::move(made));
}

KeyedDeviceShard::KeyedDeviceShard(shard::SpecRef spec, const shard::Position& place, TensorDevice& device, std::mutex& mutex)
    : ModelShard(std::move(spec), shard::Range(), device, mutex),
      servers_(place.servers),
      server_(place.index),
      slots_(device, spec_) {}

// ------------------------------------------------------------ changes

void KeyedDeviceShard::change_rows(Write write, Worker, std::span<const int64_t> rows, const std::byte* values, shard::ChangePart piece) {
  const std::lock_guard lock(mutex_);
  if (write == Write::Erase) return slots_.erase(rows);
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  const auto sent = [&](const std::byte* from, size_t count) -> const void* {
    return count > 0 ? must(scratch.of(std::span(from, count * spec_.row_bytes()))) : nullptr;
  };
  if (write == Write::Add) return add_rows(stream, scratch, rows, sent(values, rows.size()), piece);
  if (rows.empty()) return;
  const auto set = [&](std::span<const int64_t> ids, const std::byte* theirs) {
    const void* const there = sent(theirs, ids.size());
    ReachedRows reached(slots_, stream, scratch, ids, ReachedRows::Fill::kAnything);
    reached.packed().values = there;
    reached.packed().put(slots_.values().rows(), reached.packed().widened());
    reached.keep();
  };
  if (math::strictly_increasing(rows)) return set(rows, values);
  const LastOnes last(rows, values, spec_.row_bytes());
  set(last.rows, last.values.data());
}

base::Status KeyedDeviceShard::add_held(Worker, const tensor::Tensor& rows) {
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    Scratch scratch(device_.current());
    add_rows(device_.current(), scratch, {rows.held.ids, rows.held.count}, rows.data, shard::ChangePart::kFirst);
  });
}

void KeyedDeviceShard::add_rows(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, const void* values, shard::ChangePart piece) {
  count_add(model_, piece, [&](const shard::Step* step) {
    if (rows.empty()) return;
    ReachedRows reached(slots_, stream, scratch, rows, model_->work == Model::Work::kCopies ? ReachedRows::Fill::kAnything : ReachedRows::Fill::kInitial);
    reached.packed().values = values;
    add(reached, rows, step);
    reached.keep();
  });
}

void KeyedDeviceShard::add(ReachedRows& reached, std::span<const int64_t> rows, const shard::Step* step) {
  const PackedRows& packed = reached.packed();
  if (model_->work == Model::Work::kCopies) return packed.put(slots_.values().rows(), packed.widened());
  if (model_->spec.name != kRandomUpdater) return packed.update(*model_, step, slots_.values().rows(), slots_.state_rows());
  const std::vector<uint64_t> slots = reached.slots();
  packed.update_each(*model_, step, [&](size_t i, Target& target) {
    target.values = slots_.values().at(slots[i]);
    target.first = static_cast<uint64_t>(rows[i]) * spec_.cols;
  });
}

/// Puts the rows that are this server's.
void KeyedDeviceShard::restore_rows(const shard::Restored& rows) {
  std::vector<int64_t> ids;
  std::vector<size_t> places;
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    if (!spec_.has_row(rows.ids[i]) || shard::server_of(spec_, servers_, rows.ids[i]) != server_) continue;
    ids.push_back(rows.ids[i]);
    places.push_back(i);
  }
  if (ids.empty()) return;
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  ReachedRows reached(slots_, stream, scratch, ids, ReachedRows::Fill::kAnything);
  const auto put = [&](const ChunkedRows& array, std::span<const std::byte> from) {
    std::vector<std::byte> mine(ids.size() * slots_.row_bytes());
    for (size_t i = 0; i < places.size(); ++i) std::memcpy(&mine[i * slots_.row_bytes()], &from[places[i] * slots_.row_bytes()], slots_.row_bytes());
    reached.packed().put(array.rows(), must(scratch.of(std::span<const std::byte>(mine))));
  };
  put(slots_.values(), rows.values);
  if (rows.states.size() == slots_.states().size())
    for (size_t i = 0; i < rows.states.size(); ++i) put(slots_.states()[i], rows.states[i]);
  reached.keep();
}

// ------------------------------------------------------------ reading

void KeyedDeviceShard::read_to(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, void* out) {
  const int64_t* const ids = must(scratch.of(rows));
  const PackedRows packed{stream, scratch, spec_, rows.size(), slots_.find(scratch, ids, rows.size(), nullptr)};
  void* const stored = stored_ == spec_.dtype ? out : must(scratch.make(rows.size() * slots_.row_bytes()));
  mv_device_initial missing = slots_.initial(one_array(stored), ids, rows.size());
  missing.unless = packed.rows;
  must(stream.launch(MV_DEVICE_INITIAL, missing));
  packed.take(slots_.values().rows(), stored);
  if (stored != out) must(cast(stream, spec_.dtype, out, stored_, stored, rows.size() * spec_.cols));
}

void KeyedDeviceShard::read_rows(Worker, std::span<const int64_t> rows, std::byte* out) {
  if (rows.empty()) return;
  const std::lock_guard lock(mutex_);
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  void* const room = must(scratch.make(rows.size() * spec_.row_bytes()));
  read_to(stream, scratch, rows, room);
  to_host(stream, out, room, rows.size() * spec_.row_bytes());
}

base::Status KeyedDeviceShard::read_held(Worker, const tensor::Tensor& rows) {
  if (rows.held.count == 0) return {};
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    Scratch scratch(device_.current());
    read_to(device_.current(), scratch, {rows.held.ids, rows.held.count}, rows.data);
  });
}

// Elements of keyed shards have no numbers: the engine uses change_rows() and read_rows().
void KeyedDeviceShard::change(Write, Worker, uint64_t, uint64_t, const std::byte*, shard::ChangePart) { assert(false); }
void KeyedDeviceShard::read(Worker, uint64_t, uint64_t, std::byte*) { assert(false); }
base::Status KeyedDeviceShard::add_together(Worker, std::span<const Addition>, const std::function<base::Status()>&) {
  return base::error(MV_EINVAL, "table \"{}\" is {}: it has no elements but its rows", spec_.name, spec_.describe());
}
base::Status KeyedDeviceShard::read_into(Worker, std::span<const tensor::Tensor>) { return add_together(0, {}, nullptr); }

// ------------------------------------------------------------ the updater

base::Status KeyedDeviceShard::set_updater(const shard::UpdaterSpec& updater) {
  if (auto status = check_keyed(updater); !status.ok()) return status;
  if (auto status = check_updater(updater); !status.ok()) return base::error(status.code(), "table \"{}\": {}", spec_.name, status.text());
  auto model = std::make_shared<Model>();
  model->use(updater, stored_);
  const std::lock_guard lock(mutex_);
  const bool same = model_ != nullptr && model_->spec.name == updater.name;
  if (model->updater->counts()) model->progress = same ? model_->progress : std::make_shared<shard::Progress>(*model->updater);
  const size_t states = model->updater->states();
  if (!same || slots_.states().size() != states)
    if (auto status = slots_.set_states(states); !status.ok())
      return base::error(status.code(), "table \"{}\", updater {}: {}", spec_.name, updater.name, status.text());
  model_ = std::move(model);
  return {};
}

shard::Usage KeyedDeviceShard::usage() const {
  const std::lock_guard lock(mutex_);
  return {.stored = slots_.size(),
          .memory_bytes = slots_.bytes(),
          .state_bytes = slots_.size() * slots_.states().size() * slots_.row_bytes(),
          .updates = model_->progress != nullptr ? model_->progress->mark().updates : 0,
          .host_bytes = slots_.host_bytes()};
}

}  // namespace mv::device
