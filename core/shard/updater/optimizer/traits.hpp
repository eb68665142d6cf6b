#pragma once
// What an optimizer's file tells besides its Kind, and the parameters that all of them have.
//
// Their parameters in a spec: their own, the first of which is learning_rate; then the common ones; then, for as many
// numbers as there are, the steps of a schedule.

#include "shard/updater/kind.hpp"

namespace mv::shard::optimizer {

/// The common parameters, in their order; names, defaults and ranges are in common.cpp.
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
  kCommon  ///< how many they are
};
extern const std::span<const Parameter> kCommonParameters;
/// The name of what comes behind them: one number or several, divided by colons.
inline constexpr const char* kSteps = "step";

/// A spec's parameters, as an optimizer sees them.
struct View {
  std::span<const double> own;  ///< from learning_rate on
  std::span<const double> common;
  std::span<const double> steps;
};
View view(const Kind& kind, std::span<const double> parameters);

/// The rate that the spec's schedule gives after so many updates, without lr_mult.
double scheduled_rate(const View& view, uint64_t updates);
/// Whether the schedule makes sense.
base::Status check_schedule(const Kind& kind, std::span<const double> parameters);

/// Where things are in Step::numbers.
enum Number : size_t {
  kRate,     ///< scheduled, times lr_mult
  kDecay,    ///< wd times wd_mult
  kRescale,  ///< rescale_grad
  kClip,     ///< clip_gradient; 0: none
  kOwn       ///< the own parameters behind learning_rate, in their order; a correction may put more behind them
};

/// What an optimizer tells besides its Kind. Null functions: nothing to do.
struct Traits {
  /// Corrects a step's numbers, which hold what the spec says. `count` is the update's number, from 1.
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

/// As MV_INSTANTIATE_FORMULA and MV_DISPATCH_FORMULA, for a template `name<T>(const double* numbers, const Block&, double* sums)`
/// that becomes a Traits' `measure`.
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
