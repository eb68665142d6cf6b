#include "engine/gossip/intake.hpp"

#include <algorithm>
#include <cmath>
#include <new>

#include "math/kernels.hpp"
#include "tensor/dtype.hpp"

namespace mv::gossip {

namespace {
bool is_bytes(std::span<const Part> parts) { return parts.size() == 1 && parts.front().dtype == MV_RAW; }
}  // namespace

base::Status Intake::begin(Description description, std::span<const Part> own) {
  const auto& parts = description.parts;
  const auto bytes = layout_bytes(parts);
  if (!bytes.ok()) return bytes.status();
  if (bytes.value() != description.bytes)
    return base::error(MV_EPROTOCOL, "a snapshot of {} bytes, though its arrays take {}", description.bytes, bytes.value());
  if (!parts_fit(parts, own) && !(is_bytes(parts) && is_bytes(own))) {
    const auto [theirs, mine] = std::ranges::mismatch(parts, own, [](const Part& one, const Part& other) { return one.fits(other); });
    const bool only_shape = theirs != parts.end() && mine != own.end() && theirs->count == mine->count && theirs->dtype == mine->dtype;
    return base::error(MV_ESHAPE, "it has {}, this node {}{}", describe_parts(parts), describe_parts(own),
                       only_shape ? fmt::format(": the dimensions of array {} are others", theirs - parts.begin()) : "");
  }
  if (!std::isfinite(description.clock) || !std::isfinite(description.loss))
    return base::error(MV_ENONFINITE, "its clock is {}, its loss {}: finite numbers are wanted", description.clock, description.loss);
  if (description.bytes > capacity_) {
    memory_.reset(new (std::nothrow) std::byte[description.bytes]);
    capacity_ = memory_ != nullptr ? description.bytes : 0;
    if (memory_ == nullptr) return base::error(MV_ENOMEM, "there is no memory for its {} bytes", description.bytes);
  }
  starts_ = part_starts(parts);
  description_ = std::move(description);
  arrived_ = 0;
  return {};
}

base::Status Intake::check(uint64_t first, uint64_t count) const {
  const uint64_t end = first + count;
  // The first part that reaches beyond `first`; parts lie on multiples of 64, and pieces end there or with the snapshot.
  auto start = std::ranges::upper_bound(starts_, first);
  for (size_t i = start == starts_.begin() ? 0 : static_cast<size_t>(start - starts_.begin()) - 1; i < starts_.size() && starts_[i] < end; ++i) {
    const Part& part = description_.parts[i];
    const uint64_t from = std::max(first, starts_[i]), to = std::min(end, starts_[i] + part.bytes());
    if (from >= to) continue;
    if (!math::all_finite_bytes(part.dtype, memory_.get() + from, (to - from) / tensor::dtype_bytes(part.dtype)))
      return base::error(MV_ENONFINITE, "array {} holds NaN or infinity", i);
  }
  return {};
}

base::Status Intake::arrived(uint64_t first, uint64_t count) {
  if (auto status = check(first, count); !status.ok()) return status;
  arrived_ += count;
  return {};
}

}  // namespace mv::gossip
