#include "device/packed_rows.hpp"

#include <cstring>
#include <unordered_map>

#include "device/must.hpp"

namespace mv::device {

void Model::use(const shard::UpdaterSpec& updater_spec, mv_dtype stored) {
  spec = updater_spec;
  updater = shard::make_updater(updater_spec, stored);
  work = spec.name == "add" ? Work::kAdds : spec.name == "assign" || updater->replaces() ? Work::kCopies : Work::kUpdates;
}

base::Status check_updater(const shard::UpdaterSpec& updater, bool is_keyed) {
  if (is_keyed && shard::make_updater(updater, MV_F32)->keeps_backups())
    return base::error(MV_ENOSYS,
                       "the updater {} keeps what each worker last got, for which sparse and key-value tables on devices have no room: keep the "
                       "table on the host",
                       updater.name);
  if (updater.name == "add" || updater.name == "assign" || updater.name == shard::kReplacing || has_formula(updater)) return {};
  return base::error(MV_ENOSYS, "devices have no formula for the updater {}: keep the table on the host", updater.name);
}

void to_host(const Stream& stream, void* to, const void* from, size_t bytes) {
  must(stream.copy(to, from, bytes));
  must(stream.wait());
}

LastOnes::LastOnes(std::span<const int64_t> given, const std::byte* given_values, size_t row_bytes) {
  std::unordered_map<int64_t, size_t> places;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto [known, is_new] = places.emplace(given[i], rows.size());
    if (is_new) {
      rows.push_back(given[i]);
      values.resize(values.size() + row_bytes);
    }
    std::memcpy(&values[known->second * row_bytes], given_values + i * row_bytes, row_bytes);
  }
}

const void* PackedRows::widened() const {
  if (stored() == spec.dtype) return values;
  void* const wide = must(scratch.make(count * spec.cols * tensor::dtype_bytes(stored())));
  must(cast(stream, stored(), wide, spec.dtype, values, count * spec.cols));
  return wide;
}

void* PackedRows::take(const mv_device_rows& array, void* unknown) const {
  void* const out = unknown != nullptr ? unknown : must(scratch.make(count * spec.cols * tensor::dtype_bytes(stored())));
  must(stream.launch(MV_DEVICE_TAKE, mv_device_take{out, array, rows, nullptr, count, spec.cols, stored()}));
  return out;
}

void PackedRows::put(const mv_device_rows& array, const void* of) const {
  must(stream.launch(MV_DEVICE_PUT, mv_device_put{array, of, rows, count, spec.cols, stored()}));
}

void PackedRows::update(const Model& model, const shard::Step* step, const mv_device_rows& values_of, std::span<const mv_device_rows> states_of,
                        void* backup) const {
  if (model.work == Model::Work::kUpdates)
    return must(update_rows(stream, model.spec, stored(), spec.dtype, {values_of, states_of, values, backup, rows, count, spec.cols}, step));
  void* const taken = take(values_of);
  must(stream.launch(MV_DEVICE_AXPY, mv_device_axpy{taken, values, count * spec.cols, 1, stored(), spec.dtype}));
  put(values_of, taken);
}

void PackedRows::update_targets(const Model& model, std::span<const Target> targets) const {
  must(device::update(stream, model.spec, stored(), spec.dtype, targets));
}

}  // namespace mv::device
