#include "device/sum.hpp"

#include <algorithm>

#include "tensor/dtype.hpp"

namespace mv::device {

namespace {
/// Whether a sum of so many halves needs memory for floats: no kernel takes as many sources.
bool is_widened(mv_dtype dtype, size_t values) { return values > MV_DEVICE_SOURCES && tensor::storage_dtype(dtype) != dtype; }
}  // namespace

void Sums::add(std::span<const tensor::Tensor> values, void* out) { sums_.push_back({values, out}); }

/// Bytes that gather() and list() take.
size_t Sums::room_of(const Sum& sum) const {
  const tensor::Tensor& first = sum.values.front();
  const size_t bytes = Room::part_of(first.stored_bytes()), elsewhere = static_cast<size_t>(std::ranges::count_if(sum.values, [this](const auto& one) { return !is_here(one); }));
  const size_t own = sum.out == nullptr && sum.values.size() > 1 ? bytes : 0;
  const size_t wide = is_widened(first.dtype, sum.values.size()) ? Room::part_of(first.stored() * tensor::dtype_bytes(tensor::storage_dtype(first.dtype))) : 0;
  return elsewhere * bytes + own + wide;
}

base::Status Sums::run() {
  size_t bytes = 0;
  for (const Sum& sum : sums_) bytes += room_of(sum);
  auto room = Room::make(stream_, bytes);
  if (!room.ok()) return room.status();
  room_ = std::move(room).value();
  for (Sum& sum : sums_) {
    const auto here = gather(sum);
    if (!here.ok()) return here.status();
    list(sum, here.value());
  }
  // Their earlier work writes what is copied, and their later work may overwrite it.
  for (const TensorDevice* const source : sources_)
    if (auto status = source->current().order(stream_); !status.ok()) return status;
  base::Status status = device_.graphs().run(stream_, work_);
  for (const TensorDevice* const source : sources_)  // after an error, too: some copies may have begun
    if (auto ordered = stream_.order(source->current()); status.ok()) status = ordered;
  return status;
}

/// The addresses of a sum's values on this device, to which other values are copied. Only copies from the host begin at once.
base::Result<std::vector<const void*>> Sums::gather(const Sum& sum) {
  std::vector<const void*> here;
  here.reserve(sum.values.size());
  for (const tensor::Tensor& value : sum.values) {
    if (is_here(value)) {
      here.push_back(value.data);
      continue;
    }
    void* const to = room_->take(value.stored_bytes());
    here.push_back(to);
    auto* const source = static_cast<TensorDevice*>(tensor::device_of(value));
    if (source == nullptr) {
      if (auto status = stream_.copy_staged(to, value.data, value.stored_bytes()); !status.ok()) return status;
      continue;
    }
    if (std::ranges::find(sources_, source) == sources_.end()) sources_.push_back(source);
    work_.copy(to, value.data, value.stored_bytes(), source->number());
  }
  return here;
}

void Sums::list(Sum& sum, std::span<const void* const> here) {
  if (here.size() == 1 && sum.out == nullptr) {
    sum.out = const_cast<void*>(here.front());
    return;
  }
  const mv_dtype dtype = sum.values.front().dtype, wide = tensor::storage_dtype(dtype);
  const size_t count = sum.values.front().stored();
  if (sum.out == nullptr) sum.out = room_->take(sum.values.front().stored_bytes());
  if (count == 0) return;
  if (here.size() <= MV_DEVICE_SOURCES) {
    mv_device_merge merge{.dst = sum.out, .sources = {}, .count = count, .source_count = here.size(), .divisor = 1, .op = MV_DEVICE_MERGE_SUM, .dtype = dtype};
    std::ranges::copy(here, merge.sources);
    return work_.launch(MV_DEVICE_MERGE, merge);
  }
  void* const sums = is_widened(dtype, here.size()) ? room_->take(count * tensor::dtype_bytes(wide)) : sum.out;
  work_.cast(wide, sums, dtype, here.front(), count, device_.number());
  for (const void* const more : here.subspan(1)) work_.launch(MV_DEVICE_AXPY, mv_device_axpy{sums, more, count, 1, wide, dtype});
  if (sums != sum.out) work_.cast(dtype, sum.out, wide, sums, count, device_.number());
}

}  // namespace mv::device
