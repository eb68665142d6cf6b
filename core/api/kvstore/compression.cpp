// Store: compressed pushes, on the way to the servers, or from this process's devices into their sum.

#include "api/kvstore/compression.hpp"

#include <algorithm>
#include <utility>

#include "api/kvstore/devices.hpp"
#include "api/kvstore/encoded_values.hpp"
#include "api/kvstore/store.hpp"
#include "codec/values.hpp"
#include "math/convert.hpp"
#include "math/kernels.hpp"

namespace mv::kvstore {

namespace {

constexpr std::string_view kPull = "pull";

base::Result<codec::CodecRef> parse_pull(const std::string& name) {
  const auto spec = codec::parse(name);
  if (!spec.ok()) return base::error(MV_EINVAL, "pull={}: {}", name, spec.status().text());
  auto codec = codec::make(spec.value());
  if (codec == nullptr || codec->suits_values()) return codec;
  return base::error(MV_EINVAL, "pull={}: pulled values have no residual that a later pull could send; use none, fp16, bf16 or int8", name);
}

/// Rounds `sum`, of the storage dtype, to `dtype` in `out`.
void round_to(mv_dtype dtype, const std::vector<std::byte>& sum, std::vector<std::byte>* out, size_t count) {
  out->resize(count * tensor::dtype_bytes(dtype));
  math::load_bytes(dtype, sum.data(), out->data(), count);
}

}  // namespace

base::Result<Compression> parse_compression(std::string_view text) {
  auto pairs = base::split_pairs(text);
  if (!pairs.ok()) return base::error(MV_EINVAL, "gradient compression \"{}\": {}", text, pairs.status().text());
  Compression compression;
  const auto pull = std::ranges::find(pairs.value(), kPull, &base::TextPair::key);
  if (pull != pairs.value().end()) {
    auto codec = parse_pull(pull->value.value_or(""));
    if (!codec.ok()) return codec.status();
    compression.pull = std::move(codec).value();
    pairs.value().erase(pull);
  }
  const auto spec = codec::parse(pairs.value());
  if (!spec.ok()) return spec.status();
  compression.push = codec::make(spec.value());
  return compression;
}

base::Status Store::set_compression(Compression compression) {
  std::unique_lock lock(mutex_);
  if (compression == compression_) return {};
  const auto pushed = std::ranges::find_if(entries_, [](const auto& entry) { return entry.second->pushed.load(); });
  if (compression.push != nullptr && pushed != entries_.end())
    return base::error(MV_ESTATE, "key \"{}\" was pushed already: set gradient compression before the first push, or switch it off with \"none\"",
                       pushed->first);
  compression_ = std::move(compression);
  const bool compresses = compression_.push != nullptr;
  lock.unlock();
  if (compresses) give_residuals(true);
  return {};
}

Compression Store::compression() {
  std::lock_guard lock(mutex_);
  return compression_;
}

/// Sums what all devices push and sends the sum to the servers through the codec. This worker keeps the residual. A single value may be on
/// a device whose codecs suit.
base::Status Store::push_encoded(Entry& entry, std::span<const Tensor> values, const codec::CodecRef& codec, const PushPath& path) {
  const uint64_t count = entry.shape.count();
  tensor::Device* const device = tensor::device_of(values.front());
  std::lock_guard lock(entry.merging);
  entry.has_left = true;
  const std::byte* gradient = values.front().data;
  if (values.size() > 1) {
    entry.merged.resize(count * tensor::dtype_bytes(entry.dtype));
    sum_devices(values, entry.merged.data());
    gradient = entry.merged.data();
  }
  const auto residual = entry.residuals.beside(device, 0, entry.residual_bytes());
  if (!residual.ok()) return residual.status();
  return entry.table->add_encoded({gradient, count, entry.dtype, device}, residual.value(), codec, path.options).status;
}

/// Passes each device's value through the codec, with a residual of its own, and pushes their sum to the key. Values on devices are
/// encoded there.
base::Status Store::push_from_devices(Entry& entry, std::span<const Tensor> values, const codec::Codec& codec, const PushPath& path) {
  const uint64_t count = entry.shape.count();
  const mv_dtype storage = tensor::storage_dtype(entry.dtype);
  std::lock_guard lock(entry.merging);
  EncodedValues sent(entry, values, codec);
  if (auto status = sent.prepare(); !status.ok()) return status;
  std::optional<Tensor> room;
  if (path.updater != nullptr) {
    auto made = room_for(entry);
    if (!made.ok()) return made.status();
    room = std::move(made).value();
  }
  std::vector<std::byte> encoded(codec.encoded_bytes(count)), rounded(storage != entry.dtype ? count * tensor::dtype_bytes(entry.dtype) : 0);
  entry.merged.resize(entry.residual_bytes());
  // A device may lack memory for the sum, and then the push is repeated.
  const auto before = entry.device != nullptr ? entry.residuals.senders() : base::Result<Senders>(Senders());
  if (!before.ok()) return before.status();
  entry.has_left = true;
  for (size_t sender = 0; sender < values.size(); ++sender) {
    if (auto status = sent.read(sender, encoded.data()); !status.ok()) return status;
    if (sender == 0)
      codec::decode_values(codec, storage, encoded.data(), entry.merged.data(), count);
    else
      codec::decode_add_values(codec, entry.dtype, encoded.data(), entry.merged.data(), count);
  }
  if (storage != entry.dtype) round_to(entry.dtype, entry.merged, &rounded, count);
  const std::byte* const sum = storage != entry.dtype ? rounded.data() : entry.merged.data();
  base::Status status = give(entry, sum, path, std::move(room));
  if (status.code() == MV_ENOMEM && entry.device != nullptr) entry.residuals.restore(before.value());
  return status;
}

bool Store::has_rest(Entry& entry) {
  if (!entry.has_left.load(std::memory_order_relaxed)) return false;
  std::lock_guard lock(entry.merging);
  return entry.residuals.any();
}

/// The first push after a codec was switched off includes that codec's residuals.
base::Status Store::push_with_rest(Entry& entry, std::span<const Tensor> values, const PushPath& path) {
  const uint64_t count = entry.shape.count();
  const mv_dtype storage = tensor::storage_dtype(entry.dtype);
  std::lock_guard lock(entry.merging);
  const auto senders = entry.residuals.senders();
  if (!senders.ok()) return senders.status();
  std::vector<std::byte> sum(count * tensor::dtype_bytes(storage)), rounded;
  math::store_bytes(entry.dtype, sum.data(), values.front().data, count);
  for (const Tensor& value : values.subspan(1)) math::add_bytes(entry.dtype, sum.data(), value.data, count);
  for (const auto& left : senders.value())
    if (left.size() == sum.size()) math::add_bytes(storage, sum.data(), left.data(), count);
  if (storage != entry.dtype) round_to(entry.dtype, sum, &rounded, count);
  const std::byte* const all = storage != entry.dtype ? rounded.data() : sum.data();
  base::Status status = give(entry, all, path);
  if (status.ok()) entry.residuals.clear();
  return status;
}

}  // namespace mv::kvstore
