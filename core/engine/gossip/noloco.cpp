#include "engine/gossip/noloco.hpp"

#include <array>
#include <utility>

#include "math/average.hpp"
#include "tensor/dtype.hpp"

namespace mv::gossip {

base::Status OuterSteps::check(size_t number, const ArraySpec& part) const {
  if (part.dtype == MV_F16 || part.dtype == MV_BF16 || part.dtype == MV_RAW)
    return base::error(MV_EDTYPE, "array {} is {}: NoLoCo's slow models must be f32 or f64", number, tensor::dtype_name(part.dtype));
  if (number < arrays_.size() && !arrays_[number].part.fits(part))
    return base::error(MV_ESHAPE, "array {} was {} before, but is {} now: it does not fit its slow model", number,
                       describe_parts({&arrays_[number].part, 1}), describe_parts(std::array{part}));
  return {};
}

base::Status OuterSteps::publish(Publisher& to, size_t number, const std::byte* values, const ArraySpec& part) {
  auto status = to.add(values, part);
  if (status.code() != MV_ENONFINITE) return status;
  return base::error(MV_ENONFINITE, "array {} holds NaN or infinity, or is too far from its slow model", number);
}

/// To the host.
base::Status OuterSteps::bring(Array& array) {
  if (array.device == nullptr) return {};
  for (const auto& [to, from] : {std::pair(&array.slow, &array.slow_there), std::pair(&array.momentum, &array.momentum_there)}) {
    to->resize(array.part.bytes());
    if (auto status = array.device->to_host(to->data(), (*from)->data(), to->size()); !status.ok()) return status;
  }
  array.slow_there = array.momentum_there = nullptr;
  array.device = nullptr;
  return {};
}

base::Status OuterSteps::bring(Array& array, tensor::Device& device) {
  if (array.device == &device) return {};
  if (auto status = bring(array); !status.ok()) return status;
  std::array<std::shared_ptr<tensor::Block>, 2> there;
  for (const auto& [to, from] : {std::pair(&there[0], &array.slow), std::pair(&there[1], &array.momentum)}) {
    auto made = device.allocate(from->size(), tensor::Allocator::Content::kAnything);
    if (!made.ok()) return made.status();
    *to = std::move(made).value();
    if (auto status = device.from_host((*to)->data(), from->data(), from->size()); !status.ok()) return status;
  }
  array.slow_there = std::move(there[0]);
  array.momentum_there = std::move(there[1]);
  array.slow = array.momentum = {};
  array.device = &device;
  return {};
}

base::Status OuterSteps::add(Publisher& to, size_t number, const void* data, const ArraySpec& part) {
  if (auto status = check(number, part); !status.ok()) return status;
  const auto* const bytes = static_cast<const std::byte*>(data);
  const bool fresh = number == arrays_.size();
  if (!is_slow(part.dtype)) {
    if (auto status = to.add(data, part); !status.ok()) return status;
    if (fresh) arrays_.push_back({part, {}, {}});
    return {};
  }
  if (!fresh)
    if (auto status = bring(arrays_[number]); !status.ok()) return status;
  const std::byte* const slow = fresh ? bytes : arrays_[number].slow.data();
  delta_.assign(part.bytes(), std::byte{0});
  math::approach_bytes(part.dtype, delta_.data(), bytes, slow, part.count, 1);
  for (const std::byte* const values : {slow, static_cast<const std::byte*>(delta_.data())})
    if (auto status = publish(to, number, values, part); !status.ok()) return status;
  if (fresh) arrays_.push_back({part, {bytes, bytes + part.bytes()}, std::vector<std::byte>(part.bytes())});
  return {};
}

/// How far training has moved an array on its slow model's device. A slow model without memory begins as the array.
base::Result<std::shared_ptr<tensor::Block>> OuterSteps::moved(Array& array, const void* data) {
  constexpr auto kZeros = tensor::Allocator::Content::kZeros;
  tensor::Device& device = *array.device;
  const size_t bytes = array.part.bytes();
  auto delta = device.allocate(bytes, kZeros);
  if (!delta.ok()) return delta;
  if (array.slow_there == nullptr) {
    for (auto* const block : {&array.slow_there, &array.momentum_there}) {
      auto made = device.allocate(bytes, kZeros);
      if (!made.ok()) return made;
      *block = std::move(made).value();
    }
    if (auto status = device.copy_from(device, array.slow_there->data(), data, bytes); !status.ok()) return status;
  }
  const auto apart = device.mix(array.part.dtype, delta.value()->data(), data, array.slow_there->data(), array.part.count, 1);
  return apart.ok() ? std::move(delta) : apart.status();
}

base::Result<bool> OuterSteps::add(Publisher& to, size_t number, tensor::Device& device, const void* data, const ArraySpec& part) {
  if (auto status = check(number, part); !status.ok()) return status;
  const bool fresh = number == arrays_.size();
  Array made{part, {}, {}, &device};
  Array& array = fresh ? made : arrays_[number];
  const auto brought = bring(array, device);
  const auto delta = brought.ok() ? moved(array, data) : base::Result<std::shared_ptr<tensor::Block>>(brought);
  if (delta.status().code() == MV_ENOMEM) return false;
  if (!delta.ok()) return delta.status();
  delta_.resize(part.bytes());
  for (const auto& values : {array.slow_there, delta.value()}) {
    if (auto status = device.to_host(delta_.data(), values->data(), delta_.size()); !status.ok()) return status;
    if (auto status = publish(to, number, delta_.data(), part); !status.ok()) return status;
  }
  if (fresh) arrays_.push_back(std::move(made));
  return true;
}

base::Result<double> OuterSteps::step(size_t number, std::byte* model, const math::SlowModel& own, const math::SlowModel& peer) {
  Array& array = arrays_[number];
  if (auto status = bring(array); !status.ok()) return status;
  return math::outer_step_bytes(array.part.dtype, model, array.slow.data(), array.momentum.data(), own, peer, array.part.count, factors_);
}

base::Result<double> OuterSteps::step(size_t number, tensor::Device& device, void* model, const math::SlowModel& own, const math::SlowModel& peer) {
  Array& array = arrays_[number];
  const size_t bytes = array.part.bytes();
  const bool is_alone = own.slow == peer.slow;
  std::array<std::shared_ptr<tensor::Block>, 4> copies;
  const std::array<const std::byte*, 4> given{own.slow, own.delta, peer.slow, peer.delta};
  for (size_t i = 0; i < (is_alone ? 2 : 4); ++i) {
    auto made = device.allocate(bytes, tensor::Allocator::Content::kAnything);
    if (!made.ok()) return made.status();
    copies[i] = std::move(made).value();
    if (auto status = device.from_host(copies[i]->data(), given[i], bytes); !status.ok()) return status;
  }
  if (auto status = bring(array, device); !status.ok()) return status;
  const auto at = [&](size_t slow) { return math::SlowModel{copies[slow]->data(), copies[slow + 1]->data()}; };
  return device.pair_step(array.part.dtype, {model, array.slow_there->data(), array.momentum_there->data(), at(0), at(is_alone ? 0 : 2)}, array.part.count,
                          factors_);
}

}  // namespace mv::gossip
