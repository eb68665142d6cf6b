#pragma once
// Traits: what an optimizer's file defines in addition to its Kind; and the parameters that all optimizers share.
//
// A spec has an optimizer's own parameters, of which the first is learning_rate; then the common parameters; then the
// steps of a schedule, any number of them.

#include "shard/updater/kind.hpp"

namespace mv::shard::optimizer {

/// The common parameters, in their order; names, defaults and ranges are in schedule.cpp.
enum Common : size_t {
  kWd,
  kRescaleGrad,
  kClipGradient,
  kLrMult,
  kWdMult,
  kBeginNumUpdate,
  kLrScheduler,
  kBaseLr,
  kFactor,
  kStopFactorLr,
  kMaxUpdate,
  kPwr,
  kFinalLr,
  kWarmupSteps,
  kWarmupBeginLr,
  kWarmupMode,
  kCommon  ///< the number of common parameters
};
extern const std::span<const Parameter> kCommonParameters;
/// The parameter after them, the steps of a schedule: one or more numbers, separated by colons.
inline constexpr const char* kSteps = "step";

/// A spec's parameters, split into an optimizer's groups.
struct View {
  std::span<const double> own;  ///< from learning_rate on
  std::span<const double> common;
  std::span<const double> steps;
};
View view(const Kind& kind, std::span<const double> parameters);

/// The schedule's rate after `updates` updates, without lr_mult.
double scheduled_rate(const View& view, uint64_t updates);
/// Checks that the schedule is complete and consistent.
base::Status check_schedule(const Kind& kind, std::span<const double> parameters);

/// Indices in Step::numbers.
enum Number : size_t {
  kRate,     ///< scheduled, times lr_mult
  kDecay,    ///< wd times wd_mult
  kRescale,  ///< rescale_grad
  kClip,     ///< clip_gradient; 0: none
  kOwn       ///< the own parameters after learning_rate, in order; correct() can add numbers after them
};

/// The functions of an optimizer in addition to its Kind's. Null: nothing to do.
struct Traits {
  /// Corrects a step's numbers, which hold the spec's values. `count` is the number of the update, from 1.
  void (*correct)(double* numbers, uint64_t count, std::span<const double> shared) = nullptr;
  std::span<const double> shared = {};  ///< Updater::shared()
  void (*advance)(const double* numbers, uint64_t count, std::span<double> shared) = nullptr;
  size_t (*sums)(std::span<const double> parameters) = nullptr;
  void (*measure)(std::span<const double> numbers, mv_dtype storage, const Block& block, double* sums) = nullptr;
  bool (*is_lazy)(std::span<const double> parameters) = nullptr;  ///< null: never
  bool rate_comes_first = false;  ///< the rate is looked up before the update is counted
};

/// Updater::step() of an optimizer.
Step make_step(const Kind& kind, std::span<const double> parameters, const Turn& turn, std::span<const double> shared);
void advance(const Kind& kind, std::span<const double> parameters, const Turn& turn, std::span<double> shared);

extern const Kind kSgd, kSignum, kFtml, kLbsgd, kDcasgd, kNag, kSgld, kAdam, kAdagrad, kRmsprop, kAdadelta, kTest,
    kFtrl, kAdamax, kNadam, kAdamw, kLamb, kLion;

/// Like MV_INSTANTIATE_FORMULA and MV_DISPATCH_FORMULA, but make a template
/// `name<T>(const double* numbers, const Block&, double* sums)` into a Traits' `measure`.
#define MV_INSTANTIATE_MEASURE(name)                                                                              \
  void name##_f32(const double* numbers, const Block& block, double* sums) { name<float>(numbers, block, sums); } \
  void name##_f64(const double* numbers, const Block& block, double* sums) { name<double>(numbers, block, sums); }
#define MV_DISPATCH_MEASURE(name)                                                                     \
  HWY_EXPORT(name##_f32);                                                                             \
  HWY_EXPORT(name##_f64);                                                                             \
  void measure(std::span<const double> numbers, mv_dtype storage, const Block& block, double* sums) { \
    if (storage == MV_F32) return HWY_DYNAMIC_DISPATCH(name##_f32)(numbers.data(), block, sums);      \
    HWY_DYNAMIC_DISPATCH(name##_f64)(numbers.data(), block, sums);                                    \
  }

inline bool always_lazy(std::span<const double>) { return true; }

}  // namespace mv::shard::optimizer
