#include "shard/shard.hpp"

#include <cassert>
#include <cstring>
#include <vector>

#include "shard/dense.hpp"
#include "shard/keyed/keyed.hpp"
#include "shard/on_device.hpp"
#include "shard/updater/progress.hpp"
#include "shard/updater/updater.hpp"

namespace mv::shard {

base::Result<std::shared_ptr<Shard>> Shard::make(SpecRef spec, const Position& place) {
  if (!spec->is_on_device()) return spec->is_keyed() ? KeyedShard::make(std::move(spec), place) : DenseShard::make(std::move(spec), place);
  if (DeviceShards* const devices = DeviceShards::used()) return devices->make(std::move(spec), place);
  return base::error(MV_ENOSYS, "table \"{}\": this program keeps no tables on devices", spec->name);
}

base::Status Shard::check_dense(const UpdaterSpec& updater, uint64_t stripes) const {
  if (auto status = check_updater(updater, spec_.dtype); !status.ok()) return base::error(status.code(), "table \"{}\": {}", spec_.name, status.text());
  if (make_updater(updater, tensor::storage_dtype(spec_.dtype))->sums() == 0) return {};
  const bool is_key = (spec_.flags & kStoreKey) != 0, is_whole = rows_.count == spec_.rows;
  if (is_key && rows_.count > 0 && !is_whole)
    return base::error(MV_EINVAL, "table \"{}\", updater {} needs norms of the whole tensor, which is spread over several servers", spec_.name,
                       updater.name);
  if (is_key || (is_whole && stripes <= 1)) return {};
  return base::error(MV_EINVAL,
                     "table \"{}\", updater {} needs norms of the whole tensor, which must be on one server and have at "
                     "most {} elements; for larger tensors, use keys of a key-value store",
                     spec_.name, updater.name, stripe_elements(spec_));
}

base::Status Shard::check_keyed(const UpdaterSpec& updater) const {
  if (auto status = check_updater(updater, spec_.dtype); !status.ok()) return base::error(status.code(), "table \"{}\": {}", spec_.name, status.text());
  const auto made = make_updater(updater, tensor::storage_dtype(spec_.dtype));
  if (made->sums() > 0)
    return base::error(MV_EINVAL, "table \"{}\", updater {} needs norms of whole tensors; {} has only rows", spec_.name, updater.name, spec_.describe());
  if (made->replaces())
    return base::error(MV_EINVAL, "table \"{}\", updater {} is for arrays and matrices, not for {}", spec_.name, updater.name, spec_.describe());
  return {};
}

std::shared_ptr<Progress> Shard::make_progress(const std::string& name, const Updater& updater, Families* families) const {
  const bool has_family = families != nullptr && !spec_.store().empty() && !updater.shared().empty();
  return std::make_shared<Progress>(updater, has_family ? families->of(spec_.store(), name, updater) : nullptr);
}

UpdaterSpec Shard::updater() const {
  UpdaterSpec result;
  with_updater([&](const UpdaterSpec& spec, Progress*) { result = spec; });
  return result;
}

Mark Shard::mark() const {
  Mark mark;
  with_updater([&](const UpdaterSpec&, const Progress* progress) { mark = progress != nullptr ? progress->mark() : Mark(); });
  return mark;
}

void Shard::set_mark(const Mark& mark) {
  with_updater([&](const UpdaterSpec&, Progress* progress) {
    if (progress != nullptr) progress->set(mark);
  });
}

WithinAdd Shard::within_add() const {
  WithinAdd within;
  with_updater([&](const UpdaterSpec&, const Progress* progress) { within = progress != nullptr ? progress->within_add() : WithinAdd(); });
  return within;
}

void Shard::set_within_add(const WithinAdd& within) {
  with_updater([&](const UpdaterSpec&, Progress* progress) {
    if (progress != nullptr) progress->set_within_add(within);
  });
}

namespace {
std::atomic<DeviceShards*> device_shards{nullptr};
}

void DeviceShards::use(DeviceShards& shards) { device_shards.store(&shards, std::memory_order_release); }
DeviceShards* DeviceShards::used() { return device_shards.load(std::memory_order_acquire); }

void Shard::add_made(Worker worker, uint64_t first, uint64_t count, const Make& make, ChangePart piece) {
  std::vector<std::byte> values(count * spec_.element_bytes());
  make(first, count, values.data());
  change(Write::Add, worker, first, count, values.data(), piece);
}

void Shard::read_each(Worker worker, std::span<std::byte* const> outs) {
  read(worker, 0, elements(), outs.front());
  for (std::byte* const out : outs.subspan(1)) std::memcpy(out, outs.front(), elements() * spec_.element_bytes());
}

void Shard::read_stored(uint64_t, uint64_t, uint64_t, std::byte*) { assert(false); }

base::Result<Scanned> Shard::scan_stored(int64_t cursor, size_t most) { return scan(cursor, most, true); }

}  // namespace mv::shard
