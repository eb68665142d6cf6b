#include "device/sum.hpp"

#include <algorithm>
#include <bit>

#include "tensor/dtype.hpp"

namespace mv::device {

namespace {

constexpr size_t kFewestSplitting = 3;

/// Whether a sum of so many halves needs memory for floats: no kernel takes as many sources.
bool is_widened(mv_dtype dtype, size_t values) { return values > MV_DEVICE_SOURCES && tensor::storage_dtype(dtype) != dtype; }

TensorDevice* source_of(const tensor::Tensor& value) { return static_cast<TensorDevice*>(tensor::device_of(value)); }
bool is_on(const tensor::Tensor& value, const TensorDevice& device) { return tensor::device_of(value) == &device; }

}  // namespace

Sums::Sums(TensorDevice& device, const Stream& stream) { shares_.push_back({device, stream}); }

void Sums::add(std::span<const tensor::Tensor> values, void* out) { sums_.push_back({values, out}); }

Sums::Share& Sums::share_of(TensorDevice& device) {
  const auto found = std::ranges::find_if(shares_, [&](const Share& share) { return &share.device == &device; });
  return found != shares_.end() ? *found : shares_.emplace_back(Share{device, device.current()});
}

bool Sums::can_split(const Sum& sum) const {
  if (sum.values.front().stored_bytes() < Paths::kLeastBytes || sum.values.size() > MV_DEVICE_SOURCES) return false;
  uint64_t numbers = uint64_t{1} << shares_.front().device.number();
  for (const tensor::Tensor& value : sum.values) {
    if (source_of(value) == nullptr) return false;
    numbers |= uint64_t{1} << source_of(value)->number();
  }
  return static_cast<size_t>(std::popcount(numbers)) >= kFewestSplitting;
}

/// Calls visit(Part&, Slice) for each device that sums some of the elements.
template <typename Visit>
void Sums::for_each_slice(const Sum& sum, const Visit& visit) {
  const size_t count = sum.values.front().stored();
  if (!sum.is_split) return visit(shares_.front(), Slice{0, count});
  std::vector<Share*> shares;
  for (Share& share : shares_)
    if (&share == &shares_.front() || std::ranges::any_of(sum.values, [&](const auto& value) { return is_on(value, share.device); })) shares.push_back(&share);
  Paths::for_each_slice(shares.size(), count, [&](size_t i, size_t first, size_t some) { visit(*shares[i], Slice{first, some}); });
}

/// Bytes that gather() and list() take for so many elements.
size_t Sums::room_for(const Share& share, const Sum& sum, size_t count) const {
  const mv_dtype dtype = sum.values.front().dtype;
  const auto elsewhere = static_cast<size_t>(std::ranges::count_if(sum.values, [&](const auto& value) { return !is_on(value, share.device); }));
  const size_t wide = is_widened(dtype, sum.values.size()) ? Room::part_of(count * tensor::dtype_bytes(tensor::storage_dtype(dtype))) : 0;
  return elsewhere * Room::part_of(count * tensor::dtype_bytes(dtype)) + wide;
}

/// Decides which sums are split, and allocates the memory of all devices.
base::Status Sums::plan(Path path) {
  for (Share& share : shares_) {
    share.bytes = 0;
    share.room.reset();
  }
  for (Sum& sum : sums_) {
    sum.is_split = path == Path::kByParts && can_split(sum);
    const size_t size = tensor::dtype_bytes(sum.values.front().dtype);
    if (sum.out == nullptr && sum.values.size() > 1) shares_.front().bytes += Room::part_of(sum.values.front().stored_bytes());
    for_each_slice(sum, [&](Share& share, Slice slice) {
      share.bytes += room_for(share, sum, slice.count);
      if (&share != &shares_.front()) share.bytes += Room::part_of(slice.count * size);
    });
  }
  for (Share& share : shares_) {
    if (share.bytes == 0 && &share != &shares_.front()) continue;
    auto room = Room::make(share.stream, share.bytes);
    if (!room.ok()) return room.status();
    share.room = std::move(room).value();
  }
  return {};
}

base::Status Sums::run() {
  size_t bytes = 0;
  for (const Sum& sum : sums_) {
    for (const tensor::Tensor& value : sum.values)
      if (TensorDevice* const source = source_of(value)) share_of(*source);  // makes it
    if (can_split(sum)) bytes += sum.values.front().stored_bytes();
  }
  if (bytes == 0) {
    const auto done = run(Path::kDirect);
    return done.ok() ? base::Status() : done.status();
  }
  std::vector<const Stream*> streams;
  for (const Share& share : shares_) streams.push_back(&share.stream);
  return shares_.front().device.sum_paths().run(streams, bytes, [this](Path path) { return run(path); });
}

base::Result<Path> Sums::run(Path path) {
  base::Status planned = plan(path);
  if (planned.code() == MV_ENOMEM) {  // each path needs memory on other devices
    path = path == Path::kDirect ? Path::kByParts : Path::kDirect;
    planned = plan(path);
  }
  if (!planned.ok()) return planned;
  if (auto status = list_all(); !status.ok()) return status;
  const Stream& stream = shares_.front().stream;
  // The sources' earlier work writes what is copied, and their later work may overwrite it, and the memory of their shares. After an error, too: some
  // work may have begun.
  for (const Share& share : shares_)
    if (auto status = share.stream.order(stream); !status.ok()) return status;
  base::Status status = begin();
  for (const Share& share : shares_)
    if (auto ordered = share.stream.order(stream); status.ok()) status = ordered;
  for (const Share& share : shares_)
    if (auto ordered = stream.order(share.stream); status.ok()) status = ordered;
  if (!status.ok()) return status;
  return path;
}

/// Puts the listed work on the streams, so that the devices work at the same time.
base::Status Sums::begin() {
  const Stream& stream = shares_.front().stream;
  for (size_t i = 1; i < shares_.size(); ++i) {
    Share& share = shares_[i];
    if (share.work.size() == 0) continue;
    if (auto status = stream.order(share.stream); !status.ok()) return status;
    if (auto status = share.device.graphs().run(share.stream, share.work); !status.ok()) return status;
  }
  Share& own = shares_.front();
  if (auto status = own.device.graphs().run(stream, own.work); !status.ok()) return status;
  for (size_t i = 1; i < shares_.size() && collected_.size() > 0; ++i)
    if (auto status = shares_[i].stream.order(stream); !status.ok()) return status;
  return own.device.graphs().run(stream, collected_);
}

base::Status Sums::list_all() {
  for (Sum& sum : sums_) {
    const size_t size = tensor::dtype_bytes(sum.values.front().dtype);
    if (sum.out == nullptr && sum.values.size() == 1) {
      const auto here = gather(shares_.front(), sum, {0, sum.values.front().stored()});
      if (!here.ok()) return here.status();
      sum.out = const_cast<void*>(here.value().front());
      continue;
    }
    if (sum.out == nullptr) sum.out = shares_.front().room->take(sum.values.front().stored_bytes());
    base::Status status;
    for_each_slice(sum, [&](Share& share, Slice slice) {
      std::byte* const place = static_cast<std::byte*>(sum.out) + slice.first * size;
      const bool is_own = &share == &shares_.front();
      const auto here = gather(share, sum, slice);
      if (!here.ok()) {
        status = here.status();
        return;
      }
      void* const made = is_own ? place : share.room->take(slice.count * size);
      list(share, sum, made, here.value(), slice.count);
      if (!is_own) collected_.copy(place, made, slice.count * size, share.device.number());
    });
    if (!status.ok()) return status;
  }
  return {};
}

/// The addresses on the part's device of some elements of all values; those of other devices are copied there. Only copies from the host begin at
/// once.
base::Result<std::vector<const void*>> Sums::gather(Share& share, const Sum& sum, Slice slice) {
  std::vector<const void*> here;
  here.reserve(sum.values.size());
  const size_t size = tensor::dtype_bytes(sum.values.front().dtype), bytes = slice.count * size;
  for (const tensor::Tensor& value : sum.values) {
    const std::byte* const from = value.data + slice.first * size;
    if (is_on(value, share.device)) {
      here.push_back(from);
      continue;
    }
    void* const to = share.room->take(bytes);
    here.push_back(to);
    const TensorDevice* const source = source_of(value);
    if (source != nullptr)
      share.work.copy(to, from, bytes, source->number());
    else if (auto status = share.stream.copy_staged(to, from, bytes); !status.ok())
      return status;
  }
  return here;
}

void Sums::list(Share& share, const Sum& sum, void* out, std::span<const void* const> here, size_t count) {
  const mv_dtype dtype = sum.values.front().dtype, wide = tensor::storage_dtype(dtype);
  if (count == 0) return;
  if (here.size() <= MV_DEVICE_SOURCES) {
    mv_device_merge merge{.dst = out, .sources = {}, .count = count, .source_count = here.size(), .divisor = 1, .op = MV_DEVICE_MERGE_SUM, .dtype = dtype};
    std::ranges::copy(here, merge.sources);
    return share.work.launch(MV_DEVICE_MERGE, merge);
  }
  void* const sums = is_widened(dtype, here.size()) ? share.room->take(count * tensor::dtype_bytes(wide)) : out;
  share.work.cast(wide, sums, dtype, here.front(), count, share.device.number());
  for (const void* const more : here.subspan(1)) share.work.launch(MV_DEVICE_AXPY, mv_device_axpy{sums, more, count, 1, wide, dtype});
  if (sums != out) share.work.cast(dtype, out, wide, sums, count, share.device.number());
}

}  // namespace mv::device
