#include "device/keyed/keyed.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "device/must.hpp"
#include "math/kernels.hpp"
#include "shard/keyed/initial.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

using shard::Worker;
using shard::Write;

namespace {
/// Keeps the capacity growing in large steps.
template <typename Values>
void reserve(Values& values, size_t size) {
  if (size > values.capacity()) values.reserve(std::max(size, 2 * values.capacity()));
}
}  // namespace

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
      stored_bytes_(spec_.cols * tensor::dtype_bytes(stored_)),
      shift_(ChunkedRows::shift_for(stored_bytes_)),
      seed_(base::mix(spec_.seed)),
      index_(device, ChunkedRows::shift_for(sizeof(int64_t))),
      values_(device, stored_bytes_, shift_) {
  if (spec_.initial_range != 0) return;
  std::vector<std::byte> row(stored_bytes_);
  shard::InitialValues(spec_).fill(0, row.data());
  std::memcpy(initial_.data(), row.data(), tensor::dtype_bytes(stored_));
}

// ------------------------------------------------------------ slots

uint64_t* KeyedDeviceShard::find(Scratch& scratch, const int64_t* ids, uint64_t count, uint64_t* misses) const {
  auto* const slots = static_cast<uint64_t*>(must(scratch.make(count * sizeof(uint64_t))));
  must(index_.find(ids, count, slots, misses));
  return slots;
}

/// Makes room for new rows. If it throws, nothing has changed that others see.
void KeyedDeviceShard::make_room(uint64_t more) {
  const uint64_t fresh = more > free_.size() ? more - free_.size() : 0, slots = is_used_.size() + fresh;
  reserve(is_used_, slots);
  reserve(free_, free_.size() + more);  // if they are given back
  must(values_.reach(slots));
  for (ChunkedRows& state : states_) must(state.reach(slots));
  must(index_.reserve(more, slots));
}

uint64_t KeyedDeviceShard::take_slot() {
  if (free_.empty()) {
    is_used_.push_back(true);
    return is_used_.size() - 1;
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  is_used_[slot] = true;
  return slot;
}

mv_device_initial KeyedDeviceShard::initial(const mv_device_rows& out, const int64_t* ids, uint64_t count) const {
  mv_device_initial work{};
  work.out = out;
  work.ids = ids;
  work.rows = count;
  work.width = spec_.cols;
  work.initial = spec_.initial;
  work.range = spec_.initial_range;
  work.seed = seed_;
  std::ranges::copy(initial_, work.value);
  work.dtype = stored_;
  return work;
}

void KeyedDeviceShard::free_slots(std::span<const uint64_t> slots) {
  for (const uint64_t slot : slots) {
    is_used_[slot] = false;
    free_.push_back(static_cast<uint32_t>(slot));
  }
}

/// Erases rows with these slots, which are given twice: on the device and on the host.
void KeyedDeviceShard::erase_slots(const Stream& stream, const int64_t* ids, const uint64_t* slots, std::span<const uint64_t> host_slots) {
  must(index_.erase(ids, slots, host_slots.size()));
  free_slots(host_slots);
  for (const ChunkedRows& state : states_) {
    mv_device_initial zeros{};
    zeros.out = state.rows();
    zeros.to = slots;
    zeros.rows = host_slots.size();
    zeros.width = spec_.cols;
    zeros.dtype = stored_;
    must(stream.launch(MV_DEVICE_INITIAL, zeros));
  }
}

class KeyedDeviceShard::Reached {
 public:
  Reached(KeyedDeviceShard& shard, const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, Fill fill)
      : shard_(shard), stream_(stream), scratch_(scratch), packed_{stream, scratch, shard.spec_, rows.size()} {
    if (rows.empty()) return;
    const int64_t* const ids = must(scratch.of(rows));
    constexpr uint64_t kNone = 0;
    auto* const misses = const_cast<uint64_t*>(must(scratch.of(std::span(&kNone, 1))));
    slots_of_rows_ = shard.find(scratch, ids, rows.size(), misses);
    packed_.rows = slots_of_rows_;
    uint64_t any = 0;
    to_host(stream, &any, misses, sizeof any);
    if (any != 0) make_missing(rows, fill);
  }
  ~Reached() {
    if (kept_ || new_slots_.empty()) return;
    if (!entered_)
      shard_.free_slots(new_slots_);
    else
      static_cast<void>(status_of([&] { shard_.erase_slots(stream_, ids_, slots_, new_slots_); }));
  }
  Reached(const Reached&) = delete;
  Reached& operator=(const Reached&) = delete;

  PackedRows& packed() { return packed_; }
  void keep() { kept_ = true; }
  /// The slots, on the host.
  std::vector<uint64_t> slots() const {
    std::vector<uint64_t> slots(packed_.count);
    to_host(stream_, slots.data(), packed_.rows, slots.size() * sizeof slots[0]);
    return slots;
  }

 private:
  void make_missing(std::span<const int64_t> rows, Fill fill) {
    std::vector<uint64_t> all = slots(), made;
    std::vector<int64_t> ids;
    for (size_t i = 0; i < rows.size(); ++i)
      if (all[i] == MV_DEVICE_NO_ROW) ids.push_back(rows[i]);
    made.reserve(ids.size());
    shard_.make_room(ids.size());
    ids_ = must(scratch_.of(std::span<const int64_t>(ids)));
    auto* const slots_there = static_cast<uint64_t*>(must(scratch_.make(ids.size() * sizeof(uint64_t))));
    for (uint64_t& slot : all)
      if (slot == MV_DEVICE_NO_ROW) made.push_back(slot = shard_.take_slot());
    new_slots_ = std::move(made);  // from here on the destructor gives them back
    slots_ = slots_there;
    must(stream_.copy_staged(slots_there, new_slots_.data(), new_slots_.size() * sizeof(uint64_t)));
    must(shard_.index_.insert(ids_, slots_, ids.size()));
    entered_ = true;
    must(stream_.copy_staged(slots_of_rows_, all.data(), all.size() * sizeof(uint64_t)));
    if (fill != Fill::kInitial) return;
    mv_device_initial work = shard_.initial(shard_.values_.rows(), ids_, ids.size());
    work.to = slots_;
    must(stream_.launch(MV_DEVICE_INITIAL, work));
  }

  KeyedDeviceShard& shard_;
  const Stream& stream_;
  Scratch& scratch_;
  PackedRows packed_;
  uint64_t* slots_of_rows_ = nullptr;
  bool kept_ = false, entered_ = false;
  // The new rows:
  const int64_t* ids_ = nullptr;
  const uint64_t* slots_ = nullptr;
  std::vector<uint64_t> new_slots_;
};

// ------------------------------------------------------------ changes

void KeyedDeviceShard::change_rows(Write write, Worker, std::span<const int64_t> rows, const std::byte* values, shard::ChangePart piece) {
  const std::lock_guard lock(mutex_);
  if (write == Write::Erase) return erase(rows);
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  const auto sent = [&](const std::byte* from, size_t count) -> const void* {
    return count > 0 ? must(scratch.of(std::span(from, count * spec_.row_bytes()))) : nullptr;
  };
  if (write == Write::Add) return add_rows(stream, scratch, rows, sent(values, rows.size()), piece);
  if (rows.empty()) return;
  const auto set = [&](std::span<const int64_t> ids, const std::byte* theirs) {
    const void* const there = sent(theirs, ids.size());
    Reached reached(*this, stream, scratch, ids, Fill::kAnything);
    reached.packed().values = there;
    reached.packed().put(values_.rows(), reached.packed().widened());
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
    Reached reached(*this, stream, scratch, rows, model_->work == Model::Work::kCopies ? Fill::kAnything : Fill::kInitial);
    reached.packed().values = values;
    add(reached, rows, step);
    reached.keep();
  });
}

void KeyedDeviceShard::add(Reached& reached, std::span<const int64_t> rows, const shard::Step* step) {
  const PackedRows& packed = reached.packed();
  if (model_->work == Model::Work::kCopies) return packed.put(values_.rows(), packed.widened());
  if (model_->spec.name != kRandomUpdater) return packed.update(*model_, step, values_.rows(), states());
  const std::vector<uint64_t> slots = reached.slots();
  packed.update_each(*model_, step, [&](size_t i, Target& target) {
    target.values = values_.at(slots[i]);
    target.first = static_cast<uint64_t>(rows[i]) * spec_.cols;
  });
}

void KeyedDeviceShard::erase(std::span<const int64_t> rows) {
  if (rows.empty()) return;
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  std::vector<int64_t> ids(rows.begin(), rows.end());
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  const uint64_t* const there = find(scratch, must(scratch.of(std::span<const int64_t>(ids))), ids.size(), nullptr);
  std::vector<uint64_t> found(ids.size()), slots;
  std::vector<int64_t> erased;
  to_host(stream, found.data(), there, found.size() * sizeof found[0]);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i] == MV_DEVICE_NO_ROW) continue;
    erased.push_back(ids[i]);
    slots.push_back(found[i]);
  }
  if (erased.empty()) return;
  reserve(free_, free_.size() + slots.size());
  const int64_t* const erased_there = must(scratch.of(std::span<const int64_t>(erased)));
  erase_slots(stream, erased_there, must(scratch.of(std::span<const uint64_t>(slots))), slots);
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
  Reached reached(*this, stream, scratch, ids, Fill::kAnything);
  const auto put = [&](const ChunkedRows& array, std::span<const std::byte> from) {
    std::vector<std::byte> mine(ids.size() * stored_bytes_);
    for (size_t i = 0; i < places.size(); ++i) std::memcpy(&mine[i * stored_bytes_], &from[places[i] * stored_bytes_], stored_bytes_);
    reached.packed().put(array.rows(), must(scratch.of(std::span<const std::byte>(mine))));
  };
  put(values_, rows.values);
  if (rows.states.size() == states_.size())
    for (size_t i = 0; i < states_.size(); ++i) put(states_[i], rows.states[i]);
  reached.keep();
}

// ------------------------------------------------------------ reading

void KeyedDeviceShard::read_to(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, void* out) const {
  const int64_t* const ids = must(scratch.of(rows));
  const PackedRows packed{stream, scratch, spec_, rows.size(), find(scratch, ids, rows.size(), nullptr)};
  void* const stored = stored_ == spec_.dtype ? out : must(scratch.make(rows.size() * stored_bytes_));
  mv_device_initial missing = initial(one_array(stored), ids, rows.size());
  missing.unless = packed.rows;
  must(stream.launch(MV_DEVICE_INITIAL, missing));
  packed.take(values_.rows(), stored);
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

std::vector<mv_device_rows> KeyedDeviceShard::states() const {
  std::vector<mv_device_rows> rows;
  for (const ChunkedRows& state : states_) rows.push_back(state.rows());
  return rows;
}

base::Status KeyedDeviceShard::set_updater(const shard::UpdaterSpec& updater) {
  if (auto status = check_keyed(updater); !status.ok()) return status;
  if (auto status = check_updater(updater); !status.ok()) return base::error(status.code(), "table \"{}\": {}", spec_.name, status.text());
  auto model = std::make_shared<Model>();
  model->use(updater, stored_);
  const std::lock_guard lock(mutex_);
  const bool same = model_ != nullptr && model_->spec.name == updater.name;
  if (model->updater->counts()) model->progress = same ? model_->progress : std::make_shared<shard::Progress>(*model->updater);
  const size_t count = model->updater->states();
  if (!same || states_.size() != count) {
    std::vector<ChunkedRows> states(count, ChunkedRows(device_, stored_bytes_, shift_));
    for (ChunkedRows& state : states)
      if (auto status = state.reach(is_used_.size()); !status.ok())
        return base::error(status.code(), "table \"{}\", updater {}: {}", spec_.name, updater.name, status.text());
    states_ = std::move(states);
  }
  model_ = std::move(model);
  return {};
}

shard::Usage KeyedDeviceShard::usage() const {
  const std::lock_guard lock(mutex_);
  shard::Usage usage{.stored = index_.size(),
                     .memory_bytes = index_.bytes() + values_.bytes(),
                     .state_bytes = index_.size() * states_.size() * stored_bytes_,
                     .updates = model_->progress != nullptr ? model_->progress->mark().updates : 0,
                     .host_bytes = index_.host_bytes() + values_.host_bytes()};
  for (const ChunkedRows& state : states_) {
    usage.memory_bytes += state.bytes();
    usage.host_bytes += state.host_bytes();
  }
  return usage;
}

}  // namespace mv::device
