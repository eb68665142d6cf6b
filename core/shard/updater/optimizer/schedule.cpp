// The parameters that all optimizers share, and the schedules of the learning rate. Names, defaults and meaning are
// MXNet's.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "shard/updater/optimizer/traits.hpp"

namespace mv::shard::optimizer {

namespace {

enum Scheduler { kNone, kFactorScheduler, kMultiFactorScheduler, kPolyScheduler, kCosineScheduler };
constexpr const char* kSchedulers[] = {"none", "factor", "multifactor", "poly", "cosine"};
enum WarmupMode { kLinear, kConstant };
constexpr const char* kWarmupModes[] = {"linear", "constant"};

constexpr Parameter kList[] = {
    {"wd", 0, 0, kAnySize, "weight decay"},
    {"rescale_grad", 1, -kAnySize, kAnySize, "factor by which gradients are multiplied first"},
    {"clip_gradient", 0, 0, kAnySize, "gradients are clipped to +- this; 0: no clipping"},
    {"lr_mult", 1, 0, kAnySize, "this tensor's factor for the learning rate"},
    {"wd_mult", 1, 0, kAnySize, "this tensor's factor for wd"},
    {"begin_num_update", 0, 0, 1e15, "updates counted as already made", {}, true},
    {"lr_scheduler", 0, 0, 4, "schedule of the learning rate", kSchedulers},
    {"base_lr", 0.01, 0, kAnySize, "the rate at which poly and cosine start and every warm-up ends"},
    {"factor", 1, 0, 1, "factor, multifactor: factor by which the rate is multiplied at a step"},
    {"stop_factor_lr", 1e-8, 0, kAnySize, "factor: the lowest rate"},
    {"max_update", 0, 0, 1e15, "poly, cosine: the update at which final_lr is reached", {}, true},
    {"pwr", 2, 0, kAnySize, "poly: the exponent"},
    {"final_lr", 0, 0, kAnySize, "poly, cosine: the final rate"},
    {"warmup_steps", 0, 0, 1e15, "updates before the schedule begins", {}, true},
    {"warmup_begin_lr", 0, 0, kAnySize, "the rate at the first warm-up step"},
    {"warmup_mode", 0, 0, 1, "linear: up to base_lr; constant: stays", kWarmupModes},
};
static_assert(std::size(kList) == kCommon);

}  // namespace

const std::span<const Parameter> kCommonParameters = kList;

View view(const Kind& kind, std::span<const double> parameters) {
  const size_t own = kind.parameters.size();
  return {parameters.first(own), parameters.subspan(own, kCommon), parameters.subspan(own + kCommon)};
}

// ------------------------------------------------------------ schedules

double scheduled_rate(const View& view, uint64_t updates) {
  const auto common = view.common;
  const double rate = view.own[0], base = common[kBaseLr], warmup = common[kWarmupSteps];
  const auto now = static_cast<double>(updates);
  const auto scheduler = static_cast<int>(common[kLrScheduler]);
  if (scheduler == kNone) return rate;
  if (now < warmup) {
    const double begin = common[kWarmupBeginLr];
    return static_cast<int>(common[kWarmupMode]) == kConstant ? begin : begin + (base - begin) * now / warmup;
  }
  if (scheduler == kFactorScheduler) {
    const double times =
        now > 0 ? std::ceil(now / view.steps[0]) - 1 : 0;  // the update at a step still has the old rate
    return times > 0 ? std::max(rate * std::pow(common[kFactor], times), common[kStopFactorLr]) : rate;
  }
  if (scheduler == kMultiFactorScheduler) {
    const auto passed = std::ranges::lower_bound(view.steps, now) - view.steps.begin();
    return rate * std::pow(common[kFactor], static_cast<double>(passed));
  }
  const double span = common[kMaxUpdate] - warmup, part = std::min(1.0, (now - warmup) / span);
  const double left =
      scheduler == kPolyScheduler ? std::pow(1 - part, common[kPwr]) : (1 + std::cos(std::numbers::pi * part)) / 2;
  return common[kFinalLr] + (base - common[kFinalLr]) * left;
}

base::Status check_schedule(const Kind& kind, std::span<const double> parameters) {
  const auto [own, common, steps] = view(kind, parameters);
  const auto wrong = [&](std::string_view what) { return base::error(MV_EINVAL, "updater {}: {}", kind.name, what); };
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!(steps[i] >= 1 && steps[i] <= 1e15 && steps[i] == std::floor(steps[i])))
      return wrong(fmt::format("{}={} must be a whole number, at least 1", kSteps, steps[i]));
    if (i > 0 && steps[i] <= steps[i - 1])
      return wrong(fmt::format("{}: {} comes after {}; they must increase", kSteps, steps[i], steps[i - 1]));
  }
  const auto scheduler = static_cast<int>(common[kLrScheduler]);
  if (scheduler == kFactorScheduler && steps.size() != 1)
    return wrong("lr_scheduler=factor needs step=, the number of updates after which the rate is multiplied by factor");
  if (scheduler == kMultiFactorScheduler && steps.empty())
    return wrong(
        "lr_scheduler=multifactor needs step=, the updates at which the rate is multiplied by factor: step=100:200");
  if ((scheduler == kNone || scheduler > kMultiFactorScheduler) && !steps.empty())
    return wrong("step= is for lr_scheduler=factor and multifactor");
  if (scheduler > kMultiFactorScheduler && common[kMaxUpdate] <= common[kWarmupSteps])
    return wrong(fmt::format("lr_scheduler={}: max_update={} must be larger than warmup_steps={}",
                             kSchedulers[scheduler], common[kMaxUpdate], common[kWarmupSteps]));
  if (scheduler != kNone && common[kWarmupBeginLr] > common[kBaseLr])
    return wrong(
        fmt::format("warmup_begin_lr={} must not be above base_lr={}", common[kWarmupBeginLr], common[kBaseLr]));
  return {};
}

}  // namespace mv::shard::optimizer
