#include "device/keyed/keyed.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "device/must.hpp"
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

void KeyedDeviceShard::set_rows(std::span<const int64_t> rows, const std::byte* values) {
  const Stream& stream = device_.current();
  in_pieces(rows.size(), spec_.row_bytes(), [&](uint64_t first, uint64_t count) {
    Scratch scratch(stream);
    const void* const given = copied(scratch, values, first, count);
    ReachedRows reached(slots_, stream, scratch, rows.subspan(first, count), ReachedRows::Fill::kAnything);
    reached.packed().values = given;
    reached.packed().put(slots_.values().rows(), reached.packed().widened());
    reached.keep();
  });
}

void KeyedDeviceShard::add_rows(Worker, std::span<const int64_t> rows, shard::ChangePart piece, const Values& values) {
  const Stream& stream = device_.current();
  const auto fill = model_->work == Model::Work::kCopies ? ReachedRows::Fill::kAnything : ReachedRows::Fill::kInitial;
  count_add(model_, piece, [&](const shard::Step* step) {
    in_pieces(rows.size(), spec_.row_bytes(), [&](uint64_t first, uint64_t count) {
      Scratch scratch(stream);
      const void* const given = values(scratch, first, count);
      const auto some = rows.subspan(first, count);
      ReachedRows reached(slots_, stream, scratch, some, fill);
      reached.packed().values = given;
      add(reached, some, step);
      reached.keep();
    });
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
  std::unordered_map<int64_t, size_t> last;  // of repeated ids, the last one counts
  for (size_t i = 0; i < rows.ids.size(); ++i)
    if (spec_.has_row(rows.ids[i]) && shard::server_of(spec_, servers_, rows.ids[i]) == server_) last[rows.ids[i]] = i;
  std::vector<int64_t> ids;
  std::vector<size_t> places;
  for (const auto& [id, place] : last) {
    ids.push_back(id);
    places.push_back(place);
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

// Elements of keyed shards have no numbers: the engine uses change_rows() and read_rows().
void KeyedDeviceShard::change(Write, Worker, uint64_t, uint64_t, const std::byte*, shard::ChangePart) { assert(false); }
void KeyedDeviceShard::read(Worker, uint64_t, uint64_t, std::byte*) { assert(false); }
base::Status KeyedDeviceShard::add_together(Worker, std::span<const Addition>, const std::function<base::Status()>&) {
  return base::error(MV_EINVAL, "table \"{}\" is {}: it has no elements but its rows", spec_.name, spec_.describe());
}
base::Status KeyedDeviceShard::read_together(Worker, std::span<const Reading>) { return add_together(0, {}, nullptr); }

// ------------------------------------------------------------ the updater

base::Status KeyedDeviceShard::set_updater(const shard::UpdaterSpec& updater) {
  if (auto status = check_keyed(updater); !status.ok()) return status;
  if (auto status = check_updater(updater, true); !status.ok()) return base::error(status.code(), "table \"{}\": {}", spec_.name, status.text());
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
