// DeviceShard: rows.

#include "device/must.hpp"
#include "device/shard.hpp"
#include "math/kernels.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

PackedRows DeviceShard::packed(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows) const {
  return {stream, scratch, spec_, rows.size(), reinterpret_cast<const uint64_t*>(must(scratch.of(rows)))};
}

void DeviceShard::clear(const Stream& stream) const {
  if (elements() == 0) return;
  must(stream.launch(MV_DEVICE_FILL, mv_device_fill{.out = values_->data(), .count = elements() * stored_bytes_, .value = {}, .dtype = MV_U8}));
}

void DeviceShard::change_rows(shard::Write write, shard::Worker, std::span<const int64_t> rows, const std::byte* values, shard::ChangePart piece) {
  const std::lock_guard lock(mutex_);
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  const auto pack = [&](std::span<const int64_t> some, const std::byte* theirs) {
    PackedRows made = packed(stream, scratch, some);
    if (!some.empty()) made.values = must(scratch.of(std::span(theirs, some.size() * spec_.row_bytes())));
    return made;
  };
  if (write == shard::Write::Add) return add_packed(pack(rows, values), rows, piece);
  if (rows.empty()) return;
  if (math::strictly_increasing(rows)) return put_values(pack(rows, values));
  const LastOnes last(rows, values, spec_.row_bytes());
  put_values(pack(last.rows, last.values.data()));
}

void DeviceShard::put_values(const PackedRows& packed) const { packed.put(one_array(values_->data()), packed.widened()); }

base::Status DeviceShard::add_held(shard::Worker, const tensor::Tensor& rows) {
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    const Stream& stream = device_.current();
    Scratch scratch(stream);
    const std::span ids(rows.held.ids, rows.held.count);
    PackedRows given = packed(stream, scratch, ids);
    given.values = rows.data;
    add_packed(given, ids, shard::ChangePart::kFirst);
  });
}

void DeviceShard::add_packed(const PackedRows& packed, std::span<const int64_t> rows, shard::ChangePart piece) {
  count_add(model_, piece, [&](const shard::Step* step) {
    const bool clears = model_->updater->replaces() && piece == shard::ChangePart::kFirst;
    if (!rows.empty()) return add_rows(packed, step, rows, clears);
    if (clears) clear(packed.stream);
  });
}

void DeviceShard::add_rows(const PackedRows& packed, const shard::Step* step, std::span<const int64_t> rows, bool clears) {
  const Stream& stream = packed.stream;
  if (model_->work == Work::kCopies) {
    const void* const stored = packed.widened();
    if (clears) clear(stream);
    return packed.put(one_array(values_->data()), stored);
  }
  if (wants_whole()) {  // the gradients of the other rows count as zeros
    const size_t bytes = elements() * spec_.element_bytes();
    void* const gradient = must(packed.scratch.make(bytes));
    must(stream.launch(MV_DEVICE_FILL, mv_device_fill{.out = gradient, .count = bytes, .value = {}, .dtype = MV_U8}));
    must(stream.launch(MV_DEVICE_PUT, mv_device_put{one_array(gradient), packed.values, packed.rows, packed.count, spec_.cols, spec_.dtype}));
    return add(stream, step, 0, elements(), gradient);
  }
  if (model_->spec.name == kRandomUpdater) {
    return packed.update_each(*model_, step, [&](size_t i, Target& target) {
      const uint64_t first = static_cast<uint64_t>(rows[i]) * spec_.cols;
      target.values = at(values_, first);
      target.first = rows_.first * spec_.cols + first;
    });
  }
  std::vector<mv_device_rows> states;
  for (void* const state : model_->places) states.push_back(one_array(state));
  packed.update(*model_, step, one_array(values_->data()), states);
}

void DeviceShard::read_rows(shard::Worker, std::span<const int64_t> rows, std::byte* out) {
  if (rows.empty()) return;
  const std::lock_guard lock(mutex_);
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  void* const room = must(scratch.make(rows.size() * spec_.row_bytes()));
  must(cast(stream, spec_.dtype, room, stored_, packed(stream, scratch, rows).take(one_array(values_->data())), rows.size() * spec_.cols));
  to_host(stream, out, room, rows.size() * spec_.row_bytes());
}

base::Status DeviceShard::read_held(shard::Worker, const tensor::Tensor& rows) {
  if (rows.held.count == 0) return {};
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    const Stream& stream = device_.current();
    Scratch scratch(stream);
    const void* const taken = packed(stream, scratch, {rows.held.ids, rows.held.count}).take(one_array(values_->data()));
    must(cast(stream, spec_.dtype, rows.data, stored_, taken, rows.stored()));
  });
}

base::Result<shard::Scanned> DeviceShard::scan(int64_t, size_t, bool) {
  return base::error(MV_EINVAL, "table \"{}\" is {}: it stores all rows; only sparse and key-value tables can be scanned", spec_.name, spec_.describe());
}

}  // namespace mv::device
