#include "engine/gossip/noloco.hpp"

#include <array>

#include "math/average.hpp"
#include "tensor/dtype.hpp"

namespace mv::gossip {

base::Status OuterSteps::add(Publisher& to, size_t number, const void* data, const ArraySpec& part) {
  const auto [count, dtype, shape] = part;
  if (dtype == MV_F16 || dtype == MV_BF16 || dtype == MV_RAW)
    return base::error(MV_EDTYPE, "array {} is {}: NoLoCo's slow models must be f32 or f64", number, tensor::dtype_name(dtype));
  if (number < arrays_.size() && !arrays_[number].part.fits(part))
    return base::error(MV_ESHAPE, "array {} was {} before, but is {} now: it does not fit its slow model", number,
                       describe_parts({&arrays_[number].part, 1}), describe_parts(std::array{part}));
  const auto* const bytes = static_cast<const std::byte*>(data);
  if (!is_slow(dtype)) {
    if (auto status = to.add(data, part); !status.ok()) return status;
    if (number == arrays_.size()) arrays_.push_back({part, {}, {}});
    return {};
  }
  const bool fresh = number == arrays_.size();
  const std::byte* const slow = fresh ? bytes : arrays_[number].slow.data();
  delta_.assign(part.bytes(), std::byte{0});
  math::approach_bytes(dtype, delta_.data(), bytes, slow, count, 1);
  for (const std::byte* const values : {slow, static_cast<const std::byte*>(delta_.data())}) {
    const auto status = to.add(values, part);
    if (status.code() == MV_ENONFINITE) return base::error(MV_ENONFINITE, "array {} holds NaN or infinity, or is too far from its slow model", number);
    if (!status.ok()) return status;
  }
  if (fresh) arrays_.push_back({part, {bytes, bytes + part.bytes()}, std::vector<std::byte>(part.bytes())});
  return {};
}

double OuterSteps::step(size_t number, std::byte* model, const math::SlowModel& own, const math::SlowModel& peer) {
  Array& array = arrays_[number];
  return math::outer_step_bytes(array.part.dtype, model, array.slow.data(), array.momentum.data(), own, peer, array.part.count, factors_);
}

}  // namespace mv::gossip
