// DeviceShard: rows.

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "device/must.hpp"
#include "device/shard.hpp"
#include "math/kernels.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

namespace {

/// Rows, each once, and their values: the last ones that were given.
struct LastOnes {
  std::vector<int64_t> rows;
  std::vector<std::byte> values;
};
LastOnes last_ones(std::span<const int64_t> rows, const std::byte* values, size_t row_bytes) {
  std::unordered_map<int64_t, size_t> places;
  LastOnes last;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto [known, is_new] = places.emplace(rows[i], last.rows.size());
    if (is_new) {
      last.rows.push_back(rows[i]);
      last.values.resize(last.values.size() + row_bytes);
    }
    std::memcpy(&last.values[known->second * row_bytes], values + i * row_bytes, row_bytes);
  }
  return last;
}

}  // namespace

DeviceShard::Packed DeviceShard::pack(Scratch& scratch, std::span<const int64_t> rows, const std::byte* values) const {
  const int64_t* const numbers = must(scratch.of(rows));
  const void* const given = values != nullptr ? must(scratch.of(std::span(values, rows.size() * spec_.row_bytes()))) : nullptr;
  return {reinterpret_cast<const uint64_t*>(numbers), given, rows.size()};
}

/// The rows' values in the storage dtype.
const void* DeviceShard::widened(const Stream& stream, Scratch& scratch, const Packed& packed) const {
  if (stored_ == spec_.dtype) return packed.values;
  void* const wide = must(scratch.make(packed.count * spec_.cols * stored_bytes_));
  must(cast(stream, stored_, wide, spec_.dtype, packed.values, packed.count * spec_.cols));
  return wide;
}

const void* DeviceShard::take(const Stream& stream, Scratch& scratch, const BlockRef& array, const Packed& packed) const {
  void* const out = must(scratch.make(packed.count * spec_.cols * stored_bytes_));
  must(stream.launch(MV_DEVICE_TAKE, mv_device_take{out, array->data(), packed.rows, nullptr, packed.count, spec_.cols, stored_}));
  return out;
}

void DeviceShard::put(const Stream& stream, const BlockRef& array, const Packed& packed, const void* stored) const {
  must(stream.launch(MV_DEVICE_PUT, mv_device_put{array->data(), stored, packed.rows, packed.count, spec_.cols, stored_}));
}

void DeviceShard::clear(const Stream& stream) const {
  if (elements() == 0) return;
  must(stream.launch(MV_DEVICE_FILL, mv_device_fill{.out = values_->data(), .count = elements() * stored_bytes_, .value = {}, .dtype = MV_U8}));
}

void DeviceShard::change_rows(shard::Write write, shard::Worker, std::span<const int64_t> rows, const std::byte* values, shard::ChangePart piece) {
  const std::lock_guard lock(mutex_);
  const Stream& stream = device_.current();
  if (write == shard::Write::Set) {
    if (rows.empty()) return;
    const LastOnes last = math::strictly_increasing(rows) ? LastOnes() : last_ones(rows, values, spec_.row_bytes());
    Scratch scratch(stream);
    const Packed packed = last.rows.empty() ? pack(scratch, rows, values) : pack(scratch, last.rows, last.values.data());
    return put(stream, values_, packed, widened(stream, scratch, packed));
  }
  Scratch scratch(stream);
  add_packed(stream, scratch, pack(scratch, rows, rows.empty() ? nullptr : values), rows, piece);
}

base::Status DeviceShard::add_held(shard::Worker, const tensor::Tensor& rows) {
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    const Stream& stream = device_.current();
    Scratch scratch(stream);
    const std::span ids(rows.held.ids, rows.held.count);
    Packed packed = pack(scratch, ids, nullptr);
    packed.values = rows.data;
    add_packed(stream, scratch, packed, ids, shard::ChangePart::kFirst);
  });
}

void DeviceShard::add_packed(const Stream& stream, Scratch& scratch, const Packed& packed, std::span<const int64_t> rows, shard::ChangePart piece) {
  count_add(piece, [&](const shard::Step* step) {
    const bool clears = model_->updater->replaces() && piece == shard::ChangePart::kFirst;
    if (!rows.empty()) return add_rows(stream, scratch, packed, step, rows, clears);
    if (clears) clear(stream);
  });
}

void DeviceShard::add_rows(const Stream& stream, Scratch& scratch, const Packed& packed, const shard::Step* step, std::span<const int64_t> rows,
                           bool clears) {
  if (model_->work == Work::kCopies) {
    const void* const stored = widened(stream, scratch, packed);
    if (clears) clear(stream);
    return put(stream, values_, packed, stored);
  }
  if (wants_whole()) {  // the gradients of the other rows count as zeros
    const size_t bytes = elements() * spec_.element_bytes();
    void* const gradient = must(scratch.make(bytes));
    must(stream.launch(MV_DEVICE_FILL, mv_device_fill{.out = gradient, .count = bytes, .value = {}, .dtype = MV_U8}));
    must(stream.launch(MV_DEVICE_PUT, mv_device_put{gradient, packed.values, packed.rows, packed.count, spec_.cols, spec_.dtype}));
    return add(stream, step, 0, elements(), gradient);
  }
  // Random numbers depend on the elements' numbers, which packed rows do not have.
  if (model_->spec.name == "mx.sgld") return update_each(stream, packed, step, rows);
  update_packed(stream, scratch, packed, step);
}

/// Gathers the rows and their states, changes them, and scatters them.
void DeviceShard::update_packed(const Stream& stream, Scratch& scratch, const Packed& packed, const shard::Step* step) const {
  const uint64_t count = packed.count * spec_.cols;
  auto* const values = const_cast<void*>(take(stream, scratch, values_, packed));
  if (model_->work == Work::kAdds) {
    must(stream.launch(MV_DEVICE_AXPY, mv_device_axpy{values, packed.values, count, 1, stored_, spec_.dtype}));
    return put(stream, values_, packed, values);
  }
  std::vector<void*> states;
  for (const BlockRef& state : model_->states) states.push_back(const_cast<void*>(take(stream, scratch, state, packed)));
  Target target = target_of(*model_, step, 0, count, packed.values);
  target.values = values;
  target.states = states;
  must(update(stream, model_->spec, stored_, spec_.dtype, {&target, 1}));
  put(stream, values_, packed, values);
  for (size_t i = 0; i < states.size(); ++i) put(stream, model_->states[i], packed, states[i]);
}

/// Each row as a tensor of its own.
void DeviceShard::update_each(const Stream& stream, const Packed& packed, const shard::Step* step, std::span<const int64_t> rows) const {
  std::vector<Target> targets;
  std::vector<std::array<void*, MV_DEVICE_STATES>> states(rows.size());
  targets.reserve(rows.size());
  const size_t row_bytes = spec_.row_bytes();
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t first = static_cast<uint64_t>(rows[i]) * spec_.cols;
    Target target = target_of(*model_, step, first, spec_.cols, static_cast<const std::byte*>(packed.values) + i * row_bytes);
    for (size_t k = 0; k < model_->states.size(); ++k) states[i][k] = at(model_->states[k], first);
    target.states = std::span(states[i]).first(model_->states.size());
    targets.push_back(target);
  }
  must(update(stream, model_->spec, stored_, spec_.dtype, targets));
}

void DeviceShard::read_rows(shard::Worker, std::span<const int64_t> rows, std::byte* out) {
  if (rows.empty()) return;
  const std::lock_guard lock(mutex_);
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  const Packed packed = pack(scratch, rows, nullptr);
  void* const room = must(scratch.make(rows.size() * spec_.row_bytes()));
  must(cast(stream, spec_.dtype, room, stored_, take(stream, scratch, values_, packed), rows.size() * spec_.cols));
  to_host(stream, out, room, rows.size() * spec_.row_bytes());
}

base::Status DeviceShard::read_held(shard::Worker, const tensor::Tensor& rows) {
  if (rows.held.count == 0) return {};
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    const Stream& stream = device_.current();
    Scratch scratch(stream);
    const Packed packed = pack(scratch, {rows.held.ids, rows.held.count}, nullptr);
    must(cast(stream, spec_.dtype, rows.data, stored_, take(stream, scratch, values_, packed), rows.stored()));
  });
}

base::Result<shard::Scanned> DeviceShard::scan(int64_t, size_t, bool) {
  return base::error(MV_EINVAL, "table \"{}\" is {}: it stores all rows; only sparse and key-value tables can be scanned", spec_.name, spec_.describe());
}

}  // namespace mv::device
