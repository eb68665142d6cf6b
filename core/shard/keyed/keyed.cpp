#include "shard/keyed/keyed.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>

#include "base/mix.hpp"
#include "math/kernels.hpp"
#include "shard/updater/apply.hpp"

namespace mv::shard {

namespace {

/// Without a capacity, a shard has 64 partitions: with 10 million keys, a partition grows in 5 to 10 ms, on the thread
/// that adds to it. (Incremental growth cost every add 2 to 10 %.) With a capacity, a shard has only as many partitions
/// as leave each at least kPartRows rows, so that its order of use is close to that of the whole shard.
constexpr unsigned kPartBits = 6;
constexpr uint64_t kPartRows = 1 << 16;
/// Rows that are sorted by partition at a time.
constexpr size_t kBatch = 1024;
/// Rows whose records should be prefetched at the same time, and partitions that may be locked for that.
constexpr size_t kInFlight = 64, kMostLocked = 8;
/// A partition with so many times the rows of a call gets room for all of them, even if it has most: the next call need not look.
constexpr size_t kRoomy = 8;

uint64_t share_of(const Spec& spec, const Position& place) { return (spec.capacity + place.servers - 1) / place.servers; }

unsigned part_bits_for(const Spec& spec, const Position& place) {
  if (spec.capacity == 0) return kPartBits;
  const uint64_t parts = std::max<uint64_t>(1, share_of(spec, place) / kPartRows);
  return std::min<unsigned>(kPartBits, static_cast<unsigned>(std::bit_width(parts)) - 1);
}

/// Adds one number of type T to the record of each place of the batch that was found by prefetching, the usual case; calls add_other(place) for the
/// others, which may make records.
template <typename T, typename Batch, typename AddOther>
void add_numbers(const Records& records, const Batch& batch, const std::byte* values, const AddOther& add_other) {
  const size_t values_at = records.layout().values_at;
  Slab::Pieces pieces = records.pieces();
  for (const uint16_t place : batch.places) {
    const uint32_t slot = batch.likely[place];
    if (slot == Records::kNone || std::memcmp(pieces.at(slot), &batch.rows[place], sizeof(int64_t)) != 0) [[unlikely]] {
      add_other(place);
      pieces = records.pieces();
      continue;
    }
    std::byte* const stored = pieces.at(slot) + values_at;
    T sum, addend;
    std::memcpy(&sum, stored, sizeof(T));
    std::memcpy(&addend, values + (batch.first + place) * sizeof(T), sizeof(T));
    sum += addend;
    std::memcpy(stored, &sum, sizeof(T));
  }
}

}  // namespace

base::Result<std::shared_ptr<Shard>> KeyedShard::make(SpecRef spec, const Position& place) {
  std::shared_ptr<KeyedShard> shard(new KeyedShard(std::move(spec), place));
  if (auto status = shard->set_updater(shard->spec().updater); !status.ok()) return status;
  return std::shared_ptr<Shard>(std::move(shard));
}

KeyedShard::KeyedShard(SpecRef spec, const Position& place)
    : Shard(std::move(spec), Range()),
      servers_(place.servers),
      server_(place.index),
      stored_bytes_(tensor::dtype_bytes(tensor::storage_dtype(spec_.dtype))),
      most_rows_(spec_.capacity == 0 ? 0 : share_of(spec_, place) >> part_bits_for(spec_, place)),
      part_bits_(part_bits_for(spec_, place)),
      initial_(spec_) {
  const RecordLayout layout(spec_, 0);
  const auto pool = Slab::make_pool(layout.stride);
  const size_t parts = size_t{1} << part_bits_;
  const auto indexes = std::make_shared<IndexPool>(parts);
  for (size_t i = 0; i < parts; ++i) parts_.push_back(std::make_unique<Partition>(i, layout, part_bits_, indexes, pool));
}

// ------------------------------------------------------------ batches

template <typename Work>
void KeyedShard::for_parts(std::span<const int64_t> rows, const Work& work) {
  std::array<uint64_t, kBatch> hashes;
  std::array<uint16_t, kBatch> sorted;
  std::array<uint32_t, kBatch> likely;
  std::array<uint16_t, (1 << kPartBits) + 1> ends;
  for (size_t first = 0; first < rows.size(); first += kBatch) {
    const auto some = rows.subspan(first, std::min(kBatch, rows.size() - first));
    ends.fill(0);
    for (size_t i = 0; i < some.size(); ++i) {
      hashes[i] = base::mix(static_cast<uint64_t>(some[i]));
      const size_t part = part_of(hashes[i]);
      ++ends[part + 1];
      parts_[part]->records.prefetch_index(hashes[i]);
    }
    for (size_t part = 1; part < ends.size(); ++part) ends[part] += ends[part - 1];
    for (size_t i = 0; i < some.size(); ++i) sorted[ends[part_of(hashes[i])]++] = static_cast<uint16_t>(i);
    // ends[part] is now the end of the partition's rows in `sorted`. Several partitions are locked at a time, in order,
    // so that the records of many rows are prefetched at once: the rows of one partition are too few for that.
    for (size_t begin = 0; begin < some.size();) {
      std::array<std::unique_lock<std::mutex>, kMostLocked> locks;
      size_t end = begin;
      for (size_t locked = 0; locked < kMostLocked && end < some.size() && end - begin < kInFlight; ++locked) {
        Partition& part = *parts_[part_of(hashes[sorted[end]])];
        locks[locked] = std::unique_lock(part.mutex);
        part.records.prefetch_records(std::span(sorted).subspan(end, ends[part.index] - end), hashes.data(), likely.data());
        end = ends[part.index];
      }
      while (begin < end) {
        Partition& part = *parts_[part_of(hashes[sorted[begin]])];
        work(part, Batch{some, hashes.data(), std::span(sorted).subspan(begin, ends[part.index] - begin), first, likely.data()});
        begin = ends[part.index];
      }
    }
  }
}

// ------------------------------------------------------------ changes

void KeyedShard::note_room(Partition& part) const {
  const size_t room = part.records.room();
  const bool evicts = most_rows_ > 0 && part.records.size() + room >= most_rows_;
  part.room.store(evicts ? SIZE_MAX : room, std::memory_order_relaxed);
}

void KeyedShard::make_room(std::span<const int64_t> rows) {
  std::array<size_t, 1 << kPartBits> counts{}, missing{};
  for (const int64_t id : rows) ++counts[part_of(base::mix(static_cast<uint64_t>(id)))];
  const auto lacks = [&](const Partition& part) { return counts[part.index] > part.room.load(std::memory_order_relaxed); };
  if (std::ranges::none_of(parts_, [&](const auto& part) { return lacks(*part); })) return;
  for_parts(rows, [&](const Partition& part, const Batch& batch) {
    if (!lacks(part)) return;
    for (const uint16_t place : batch.places)
      if (part.records.find(batch.rows[place], batch.hashes[place], batch.likely[place]) == Records::kNone) ++missing[part.index];
  });
  for (const auto& part : parts_) {
    if (!lacks(*part)) continue;
    std::lock_guard lock(part->mutex);
    Records& records = part->records;
    const size_t count = counts[part->index], most = most_rows_ > 0 ? most_rows_ - records.size() : SIZE_MAX;
    const size_t needed = std::min(missing[part->index], most);
    const bool is_roomy = count * kRoomy <= records.size();
    if (needed == 0 && !is_roomy) continue;
    before_change(*part);
    try {
      records.reserve(is_roomy ? std::min(count, most) : needed);
    } catch (const std::bad_alloc&) {
      if (!is_roomy) throw;
      records.reserve(needed);
    }
    note_room(*part);
  }
}

uint32_t KeyedShard::reach(Partition& part, int64_t id, uint64_t hash, uint32_t likely, bool* is_new) {
  Records& records = part.records;
  const uint32_t slot = records.find(id, hash, likely);
  *is_new = slot == Records::kNone;
  if (!*is_new) {
    if (records.layout().is_linked) records.touch(slot);
    return slot;
  }
  if (most_rows_ > 0 && records.size() >= most_rows_) {
    const int64_t oldest = records.id(records.least_recently_used());
    records.erase(oldest, base::mix(static_cast<uint64_t>(oldest)));
  }
  const uint32_t made = records.insert(id, hash);
  if (part.model->updater->keeps_backups())
    records.give_backups_of_absent(id, made, [&](std::byte* backup) {
      initial_.fill(id, backup);
      copy_inverted(backup, backup, records.layout().row_bytes);
    });
  return made;
}

void KeyedShard::add(Partition& part, const Step* step, Worker worker, uint32_t slot, int64_t id, const std::byte* values) {
  Records& records = part.records;
  std::byte* const stored = records.values(slot);
  if (part.model->adds) return math::add_bytes(spec_.dtype, stored, values, spec_.cols);
  std::array<std::byte*, kMostStates> states;
  const size_t count = records.layout().states;
  for (size_t i = 0; i < count; ++i) states[i] = records.state(slot, i);
  const bool wants_backup = part.model->updater->keeps_backups() && worker != kNoWorker;
  const Block block{.count = spec_.cols,
                    .values = stored,
                    .states = states.data(),
                    .backup = wants_backup ? records.backup(worker, slot, false) : nullptr,
                    .step = step,
                    .first = static_cast<uint64_t>(id) * spec_.cols};
  apply_added(*part.model->updater, spec_.dtype, block, count, values);
}

void KeyedShard::change_rows(Write write, Worker worker, std::span<const int64_t> rows, const std::byte* values,
                             ChangePart piece) {
  const uint64_t row_bytes = spec_.row_bytes();
  Steps<ModelRef> steps(piece == ChangePart::kFirst);
  if (rows.empty() && write == Write::Add) {
    std::lock_guard lock(mutex_);
    steps.of(model_);
  }
  if (rows.size() > 1 && write != Write::Erase) make_room(rows);
  bool any = false;  // Halfway is left for what make_room() does not know: what workers got, and other threads
  const auto change_one = [&](Partition& part, const Batch& batch, uint16_t place) {
    const int64_t id = batch.rows[place];
    if (write == Write::Erase) {
      any = true;
      return void(part.records.erase(id, batch.hashes[place]));
    }
    bool is_new;
    const uint32_t slot = reach(part, id, batch.hashes[place], batch.likely[place], &is_new);
    any = true;
    const std::byte* const source = values + (batch.first + place) * row_bytes;
    if (write == Write::Set) return math::store_bytes(spec_.dtype, part.records.values(slot), source, spec_.cols);
    if (is_new) initial_.fill(id, part.records.values(slot));
    add(part, steps.of(part.model), worker, slot, id, source);
  };
  const auto change_batch = [&](Partition& part, const Batch& batch) {
    before_change(part);
    const auto change_other = [&](uint16_t place) {
      any |= place != batch.places.front();  // those before it may have been numbers
      change_one(part, batch, place);
    };
    const bool adds_numbers = write == Write::Add && spec_.cols == 1 && part.model->adds && !part.records.layout().is_linked;
    if (adds_numbers && spec_.dtype == MV_F32) return add_numbers<float>(part.records, batch, values, change_other);
    if (adds_numbers && spec_.dtype == MV_F64) return add_numbers<double>(part.records, batch, values, change_other);
    if (adds_numbers && spec_.dtype == MV_I64) return add_numbers<uint64_t>(part.records, batch, values, change_other);
    for (const uint16_t place : batch.places) change_other(place);
  };
  try {
    for_parts(rows, [&](Partition& part, const Batch& batch) {
      change_batch(part, batch);
      note_room(part);
      any = true;
    });
  } catch (const std::bad_alloc&) {
    if (any) throw Halfway();
    throw;
  }
}

// Elements of keyed shards have no numbers: the engine uses change_rows() and read_rows().
void KeyedShard::change(Write, Worker, uint64_t, uint64_t, const std::byte*, ChangePart) { assert(false); }
void KeyedShard::read(Worker, uint64_t, uint64_t, std::byte*) { assert(false); }

// ------------------------------------------------------------ reading

void KeyedShard::get(Partition& part, Worker worker, int64_t id, uint64_t hash, uint32_t likely, std::byte* out) {
  Records& records = part.records;
  const uint32_t slot = records.find(id, hash, likely);
  const bool backs_up = worker != kNoWorker && part.model->updater->keeps_backups();
  if (backs_up) before_get(part);
  if (slot == Records::kNone) {
    if (backs_up) records.note_absent(worker, id, most_rows_);
    return initial_.read(id, out);
  }
  const std::byte* const stored = records.values(slot);
  math::load_bytes(spec_.dtype, stored, out, spec_.cols);
  if (records.layout().is_linked) {
    before_change(part);
    records.touch(slot);
  }
  if (!backs_up) return;
  copy_inverted(records.backup(worker, slot, true), stored, records.layout().row_bytes);
}

void KeyedShard::read_rows(Worker worker, std::span<const int64_t> rows, std::byte* out) {
  const uint64_t row_bytes = spec_.row_bytes();
  for_parts(rows, [&](Partition& part, const Batch& batch) {
    for (const uint16_t place : batch.places)
      get(part, worker, batch.rows[place], batch.hashes[place], batch.likely[place], out + (batch.first + place) * row_bytes);
  });
}

// ------------------------------------------------------------ restoring

base::Status KeyedShard::restore_states(const Restored&) {
  return base::error(MV_ENOSYS, "table \"{}\" is {}: its states are restored with its rows", spec_.name, spec_.describe());
}

base::Status KeyedShard::restore_got(const Restored& rows) {
  if (!keeps_backups() || rows.worker < 0)
    return base::error(MV_EINVAL, "table \"{}\": its updater does not keep what workers got", spec_.name);
  const size_t row_bytes = spec_.cols * stored_bytes_;
  for_parts(rows.ids, [&](Partition& part, const Batch& batch) {
    before_change(part);
    for (const uint16_t place : batch.places) {
      const int64_t id = batch.rows[place];
      if (!spec_.has_row(id) || server_of(spec_, servers_, id) != server_) continue;
      const uint32_t slot = part.records.find(id, batch.hashes[place]);
      if (rows.content == Content::kAbsent && slot == Records::kNone) part.records.note_absent(rows.worker, id, most_rows_);
      if (rows.content == Content::kAbsent || slot == Records::kNone) continue;
      std::memcpy(part.records.backup(rows.worker, slot, true), rows.values.data() + (batch.first + place) * row_bytes, row_bytes);
    }
  });
  return {};
}

base::Status KeyedShard::restore(const Restored& rows) {
  const size_t row_bytes = spec_.cols * stored_bytes_, bytes = rows.content == Content::kAbsent ? 0 : rows.ids.size() * row_bytes;
  const bool fits = rows.values.size() == bytes &&
                    std::ranges::all_of(rows.states, [&](auto state) { return state.size() == bytes; });
  if (!fits)
    return base::error(MV_EINVAL, "table \"{}\": {} bytes of values for {} rows", spec_.name, rows.values.size(),
                       rows.ids.size());
  if (rows.content != Content::kValues) return restore_got(rows);
  for_parts(rows.ids, [&](Partition& part, const Batch& batch) {
    before_change(part);
    for (const uint16_t place : batch.places) {
      const int64_t id = batch.rows[place];
      if (!spec_.has_row(id) || server_of(spec_, servers_, id) != server_) continue;
      bool is_new;
      const uint32_t slot = reach(part, id, batch.hashes[place], batch.likely[place], &is_new);
      const size_t source = (batch.first + place) * row_bytes;
      std::memcpy(part.records.values(slot), rows.values.data() + source, row_bytes);
      if (part.records.layout().states != rows.states.size()) continue;
      for (size_t i = 0; i < rows.states.size(); ++i)
        std::memcpy(part.records.state(slot, i), rows.states[i].data() + source, row_bytes);
    }
    note_room(part);
  });
  return {};
}

// ------------------------------------------------------------ the updater

base::Status KeyedShard::set_updater(const UpdaterSpec& updater) {
  if (auto status = check_keyed(updater); !status.ok()) return status;
  auto model = std::make_shared<Model>();
  model->spec = updater;
  model->updater = make_updater(updater, tensor::storage_dtype(spec_.dtype));
  model->adds = updater.name == "add";

  std::lock_guard lock(mutex_);
  if (model->updater->counts())
    model->progress = model_ != nullptr && model_->spec.name == updater.name
                          ? model_->progress
                          : std::make_shared<Progress>(*model->updater);
  const RecordLayout layout(spec_, model->updater->states());
  const bool keeps =
      model_ != nullptr && model_->spec.name == updater.name && model_->updater->states() == layout.states;
  const auto pool = Slab::make_pool(layout.stride);
  for (const auto& part : parts_) {
    std::lock_guard part_lock(part->mutex);
    if (!keeps) {
      before_change(*part);
      if (part->records.layout() == layout)
        part->records.clear_states();
      else
        part->records.relayout(layout, pool);
      note_room(*part);
      part->records.drop_backups();
    }
    part->model = model;
  }
  backs_up_.store(model->updater->keeps_backups(), std::memory_order_relaxed);
  model_ = std::move(model);
  return {};
}

void KeyedShard::with_updater(const UseUpdater& use) const {
  std::lock_guard lock(mutex_);
  use(model_->spec, model_->progress.get());
}

Usage KeyedShard::usage() const {
  Usage usage;
  usage.updates = mark().updates;
  for (const auto& part : parts_) {
    std::lock_guard lock(part->mutex);
    const Records& records = part->records;
    usage.stored += records.size();
    usage.memory_bytes += records.bytes();
    usage.state_bytes += records.size() * records.layout().states * records.layout().row_bytes + records.backup_bytes();
  }
  return usage;
}

}  // namespace mv::shard
