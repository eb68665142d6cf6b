#include "device/keyed/slots.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mix.hpp"
#include "device/must.hpp"
#include "shard/keyed/initial.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

namespace {

/// Keeps the capacity growing in large steps.
template <typename Values>
void reserve(Values& values, size_t size) {
  if (size > values.capacity()) values.reserve(std::max(size, 2 * values.capacity()));
}

}  // namespace

Slots::Slots(TensorDevice& device, const shard::Spec& spec)
    : device_(device),
      spec_(spec),
      stored_(tensor::storage_dtype(spec.dtype)),
      row_bytes_(spec.cols * tensor::dtype_bytes(stored_)),
      seed_(base::mix(spec.seed)),
      index_(device, ChunkedRows::shift_for(sizeof(int64_t))),
      values_(device, row_bytes_, ChunkedRows::shift_for(row_bytes_)),
      used_at_(device, sizeof(uint32_t), ChunkedRows::shift_for(sizeof(uint32_t))) {
  if (spec.initial_range != 0) return;
  std::vector<std::byte> row(row_bytes_);
  shard::InitialValues(spec).fill(0, row.data());
  std::memcpy(initial_.data(), row.data(), tensor::dtype_bytes(stored_));
}

std::vector<mv_device_rows> Slots::state_rows() const {
  std::vector<mv_device_rows> rows;
  for (const ChunkedRows& state : states_) rows.push_back(state.rows());
  return rows;
}

size_t Slots::bytes() const {
  size_t bytes = index_.bytes() + values_.bytes() + used_at_.bytes();
  for (const ChunkedRows& state : states_) bytes += state.bytes();
  return bytes;
}

size_t Slots::host_bytes() const {
  size_t bytes = index_.host_bytes() + values_.host_bytes() + used_at_.host_bytes();
  for (const ChunkedRows& state : states_) bytes += state.host_bytes();
  return bytes;
}

base::Status Slots::set_states(size_t count) {
  std::vector<ChunkedRows> states(count, ChunkedRows(device_, row_bytes_, ChunkedRows::shift_for(row_bytes_)));
  for (ChunkedRows& state : states)
    if (auto status = state.reach(is_used_.size()); !status.ok()) return status;
  states_ = std::move(states);
  return {};
}

uint64_t* Slots::find(Scratch& scratch, const int64_t* ids, uint64_t count, uint64_t* misses) {
  auto* const slots = static_cast<uint64_t*>(must(scratch.make(count * sizeof(uint64_t))));
  if (should_balance()) balance();
  if (++finds_ == 0) finds_ = 1;
  must(index_.find(ids, count, slots, misses, used_at_.rows(), finds_));
  found_ += count;
  return slots;
}

mv_device_initial Slots::initial(const mv_device_rows& out, const int64_t* ids, uint64_t count) const {
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

/// Makes room for new rows. If it throws, nothing has changed that others see.
void Slots::make_room(uint64_t more) {
  const uint64_t fresh = more > free_.size() ? more - free_.size() : 0, slots = is_used_.size() + fresh;
  reserve(is_used_, slots);
  reserve(free_, free_.size() + more);  // if they are given back
  must(values_.reach(slots));
  for (ChunkedRows& state : states_) must(state.reach(slots));
  if (is_spilled()) must(used_at_.reach(slots));
  must(index_.reserve(more, slots));
}

uint64_t Slots::take() {
  if (free_.empty()) {
    is_used_.push_back(true);
    return is_used_.size() - 1;
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  is_used_[slot] = true;
  return slot;
}

void Slots::give_back(std::span<const uint64_t> slots) {
  for (const uint64_t slot : slots) {
    is_used_[slot] = false;
    free_.push_back(static_cast<uint32_t>(slot));
  }
}

/// Erases rows with these slots, which are given twice: on the device and on the host.
void Slots::erase_entries(const Stream& stream, const int64_t* ids, const uint64_t* slots, std::span<const uint64_t> host_slots) {
  must(index_.erase(ids, slots, host_slots.size()));
  give_back(host_slots);
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

void Slots::erase(std::span<const int64_t> given) {
  if (given.empty()) return;
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  std::vector<int64_t> ids(given.begin(), given.end()), erased;
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  const uint64_t* const there = find(scratch, must(scratch.of(std::span<const int64_t>(ids))), ids.size(), nullptr);
  std::vector<uint64_t> found(ids.size()), slots;
  to_host(stream, found.data(), there, found.size() * sizeof found[0]);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i] == MV_DEVICE_NO_ROW) continue;
    erased.push_back(ids[i]);
    slots.push_back(found[i]);
  }
  if (erased.empty()) return;
  reserve(free_, free_.size() + slots.size());
  const int64_t* const erased_there = must(scratch.of(std::span<const int64_t>(erased)));
  erase_entries(stream, erased_there, must(scratch.of(std::span<const uint64_t>(slots))), slots);
}

ReachedRows::ReachedRows(Slots& slots, const Stream& stream, Scratch& scratch, std::span<const int64_t> ids, Fill fill)
    : slots_(slots), packed_{stream, scratch, slots.spec_, ids.size()} {
  if (ids.empty()) return;
  const int64_t* const ids_there = must(scratch.of(ids));
  constexpr uint64_t kNone = 0;
  auto* const misses = const_cast<uint64_t*>(must(scratch.of(std::span(&kNone, 1))));
  places_ = slots.find(scratch, ids_there, ids.size(), misses);
  packed_.rows = places_;
  uint64_t any = 0;
  to_host(stream, &any, misses, sizeof any);
  if (any != 0) make_missing(ids, fill);
}

ReachedRows::~ReachedRows() {
  if (kept_ || !entered_) return;
  // A failure of the device is told by the call that led here.
  static_cast<void>(status_of([&] { slots_.erase_entries(packed_.stream, new_ids_, new_places_, new_slots_); }));
}

std::vector<uint64_t> ReachedRows::slots() const {
  std::vector<uint64_t> slots(packed_.count);
  to_host(packed_.stream, slots.data(), places_, slots.size() * sizeof slots[0]);
  return slots;
}

void ReachedRows::make_missing(std::span<const int64_t> ids, Fill fill) {
  const Stream& stream = packed_.stream;
  std::vector<uint64_t> all = slots(), made;
  std::vector<int64_t> missing;
  for (size_t i = 0; i < ids.size(); ++i)
    if (all[i] == MV_DEVICE_NO_ROW) missing.push_back(ids[i]);
  made.reserve(missing.size());
  slots_.make_room(missing.size());
  new_ids_ = must(packed_.scratch.of(std::span<const int64_t>(missing)));
  auto* const places = static_cast<uint64_t*>(must(packed_.scratch.make(missing.size() * sizeof(uint64_t))));
  for (uint64_t& slot : all)
    if (slot == MV_DEVICE_NO_ROW) made.push_back(slot = slots_.take());
  new_slots_ = std::move(made);
  base::Undo undo([&] { slots_.give_back(new_slots_); });
  must(stream.copy_staged(places, new_slots_.data(), new_slots_.size() * sizeof(uint64_t)));
  must(stream.copy_staged(places_, all.data(), all.size() * sizeof(uint64_t)));
  if (fill == Fill::kInitial) {
    mv_device_initial work = slots_.initial(slots_.values_.rows(), new_ids_, missing.size());
    work.to = places;
    must(stream.launch(MV_DEVICE_INITIAL, work));
  }
  if (slots_.is_spilled()) slots_.note_use(packed_.scratch, places, missing.size());
  must(slots_.index_.insert(new_ids_, places, missing.size()));  // the last step: nobody sees the rows before
  entered_ = true;
  new_places_ = places;
  undo.keep();
}

}  // namespace mv::device
