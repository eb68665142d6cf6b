#include "engine/gossip/receive_buffer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "math/copy.hpp"
#include "math/kernels.hpp"
#include "tensor/dtype.hpp"

namespace mv::gossip {

namespace {
/// After a larger snapshot was copied, an average finds none of it in a cache.
constexpr uint64_t kLargeSnapshot = 16 << 20;

bool is_bytes(std::span<const ArraySpec> parts) { return parts.size() == 1 && parts.front().dtype == MV_RAW; }
}  // namespace

base::Status ReceiveBuffer::begin(Description description, std::span<const ArraySpec> own) {
  const auto& parts = description.parts;
  const auto bytes = layout_bytes(parts);
  if (!bytes.ok()) return bytes.status();
  if (bytes.value() != description.bytes)
    return base::error(MV_EPROTOCOL, "a snapshot of {} bytes, but its arrays take {}", description.bytes, bytes.value());
  if (!parts_fit(parts, own) && !(is_bytes(parts) && is_bytes(own))) {
    const auto [theirs, mine] = std::ranges::mismatch(parts, own, [](const ArraySpec& one, const ArraySpec& other) { return one.fits(other); });
    const bool only_shape = theirs != parts.end() && mine != own.end() && theirs->count == mine->count && theirs->dtype == mine->dtype;
    return base::error(MV_ESHAPE, "it has {}, but this node has {}{}", describe_parts(parts), describe_parts(own),
                       only_shape ? fmt::format(": the dimensions of array {} differ", theirs - parts.begin()) : "");
  }
  if (!std::isfinite(description.clock) || !std::isfinite(description.loss))
    return base::error(MV_ENONFINITE, "its clock is {}, its loss {}: expected finite numbers", description.clock, description.loss);
  if (description.bytes > memory_.bytes()) {
    memory_ = {};
    auto made = base::Memory::make(description.bytes);
    if (!made.ok()) return made.status();
    memory_ = std::move(made).value();
  }
  starts_ = part_starts(parts);
  description_ = std::move(description);
  arrived_ = 0;
  return {};
}

/// Calls is_finite(dtype, its first byte in the snapshot, elements) for each part in the range.
template <typename Work>
base::Status ReceiveBuffer::each_part(uint64_t first, uint64_t count, const Work& is_finite) const {
  const uint64_t end = first + count;
  // Begin with the first part that reaches beyond `first`. Parts begin on multiples of 64, and pieces end there or with
  // the snapshot.
  auto start = std::ranges::upper_bound(starts_, first);
  for (size_t i = start == starts_.begin() ? 0 : static_cast<size_t>(start - starts_.begin()) - 1; i < starts_.size() && starts_[i] < end; ++i) {
    const ArraySpec& part = description_.parts[i];
    const uint64_t from = std::max(first, starts_[i]), to = std::min(end, starts_[i] + part.bytes());
    if (from < to && !is_finite(part.dtype, from, (to - from) / tensor::dtype_bytes(part.dtype)))
      return base::error(MV_ENONFINITE, "array {} holds NaN or infinity", i);
  }
  return {};
}

base::Status ReceiveBuffer::check(uint64_t first, uint64_t count) const {
  return each_part(first, count, [&](mv_dtype dtype, uint64_t at, uint64_t elements) {
    return math::all_finite_bytes(dtype, memory_.data() + at, elements);
  });
}

base::Status ReceiveBuffer::copy(uint64_t first, uint64_t count, const std::byte* from) {
  const auto how = description_.bytes >= kLargeSnapshot ? math::Copied::kPastCaches : math::Copied::kByCaches;
  return each_part(first, count, [&](mv_dtype dtype, uint64_t at, uint64_t elements) {
    return math::copy_finite_bytes(dtype, memory_.data() + at, from + (at - first), elements, tensor::dtype_bytes(dtype), how);
  });
}

}  // namespace mv::gossip
