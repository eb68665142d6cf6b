// DeviceShard: rows.

#include "device/must.hpp"
#include "device/shard.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

PackedRows DeviceShard::packed(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows) const {
  return {stream, scratch, spec_, rows.size(), reinterpret_cast<const uint64_t*>(must(scratch.of(rows)))};
}

void DeviceShard::clear(const Stream& stream) const {
  if (elements() == 0) return;
  must(stream.launch(MV_DEVICE_FILL, mv_device_fill{.out = values_->data(), .count = elements() * stored_bytes_, .value = {}, .dtype = MV_U8}));
}

void DeviceShard::set_rows(std::span<const int64_t> rows, const std::byte* values) {
  const Stream& stream = device_.current();
  in_pieces(rows.size(), spec_.row_bytes(), [&](uint64_t first, uint64_t count) {
    Scratch scratch(stream);
    PackedRows some = packed(stream, scratch, rows.subspan(first, count));
    some.values = copied(scratch, values, first, count);
    some.put(one_array(values_->data()), some.widened());
  });
}

void DeviceShard::add_rows(shard::Worker worker, std::span<const int64_t> rows, shard::ChangePart piece, const Values& values) {
  const Stream& stream = device_.current();
  count_add(model_, piece, [&](const shard::Step* step) {
    const bool clears = model_->updater->replaces() && piece == shard::ChangePart::kFirst;
    if (rows.empty() && clears) clear(stream);
    in_pieces(rows.size(), wants_whole() ? 0 : spec_.row_bytes(), [&](uint64_t first, uint64_t count) {
      Scratch scratch(stream);
      const auto some = rows.subspan(first, count);
      PackedRows given = packed(stream, scratch, some);
      given.values = values(scratch, first, count);
      add_packed(given, worker, step, some, clears && first == 0);
    });
  });
}

void DeviceShard::add_packed(const PackedRows& packed, shard::Worker worker, const shard::Step* step, std::span<const int64_t> rows, bool clears) {
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
    return add(stream, worker, step, 0, elements(), gradient);
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
  packed.update(*model_, step, one_array(values_->data()), states, backup(*model_, worker, 0));
}

void DeviceShard::read_to(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, void* out) {
  const void* const taken = packed(stream, scratch, rows).take(one_array(values_->data()));
  must(cast(stream, spec_.dtype, out, stored_, taken, rows.size() * spec_.cols));
}

base::Result<shard::Scanned> DeviceShard::scan(int64_t, size_t, bool) {
  return base::error(MV_EINVAL, "table \"{}\" is {}: it stores all rows; only sparse and key-value tables can be scanned", spec_.name, spec_.describe());
}

}  // namespace mv::device
