#pragma once
// Kind: the description of an updater, with its name, its parameters and its formula. Each updater's file defines one.

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "shard/updater/updater.hpp"

namespace mv::shard {

/// A parameter of an updater: the only place that defines its name, default and range.
struct Parameter {
  const char* name;
  double fallback;
  double least;  ///< inclusive, as is `most`
  double most;
  const char* help;
  std::span<const char* const> choices = {};  ///< names of the values 0, 1, ...
  bool is_whole = false;                      ///< a whole number
  const char* alias = nullptr;                ///< another spelling
};

inline constexpr double kAnySize = std::numeric_limits<double>::max();  ///< finite
/// The minimum of a parameter that must be above zero, also when rounded to a float.
inline constexpr double kAboveZero = 1e-30;
/// The maximum of a parameter that must be below one, also when rounded to a float.
inline constexpr double kBelowOne = 1 - 1e-7;

namespace optimizer {
struct Traits;
}

struct Kind {
  const char* name;
  std::span<const Parameter> parameters;
  bool floating_only;  ///< needs a floating-point dtype
  bool keeps_backups;
  size_t (*states)(std::span<const double> parameters);
  /// `storage` is a storage dtype, floating-point if floating_only. An optimizer gets a Step's numbers, not parameters.
  void (*apply)(std::span<const double> parameters, mv_dtype storage, const Block& block);
  const optimizer::Traits* optimizer = nullptr;  ///< optimizers only: they have the common parameters and count updates
  bool replaces = false;
};

extern const Kind kAdd, kAssign, kReplace, kSgd, kMomentum, kAdagrad, kFtrl, kDcasgd;

/// Make a formula, a template `name<T>(const double* parameters, const Block&)`, into a Kind's `apply`. The first
/// macro, in the code of each instruction set, instantiates both types. The second one, used once, dispatches to them
/// at run time.
#define MV_INSTANTIATE_FORMULA(name)                                                                \
  void name##_f32(const double* parameters, const Block& block) { name<float>(parameters, block); } \
  void name##_f64(const double* parameters, const Block& block) { name<double>(parameters, block); }
#define MV_DISPATCH_FORMULA(name)                                                             \
  HWY_EXPORT(name##_f32);                                                                     \
  HWY_EXPORT(name##_f64);                                                                     \
  void apply(std::span<const double> parameters, mv_dtype storage, const Block& block) {      \
    if (storage == MV_F32) return HWY_DYNAMIC_DISPATCH(name##_f32)(parameters.data(), block); \
    HWY_DYNAMIC_DISPATCH(name##_f64)(parameters.data(), block);                               \
  }

template <size_t kStates>
size_t always(std::span<const double>) {
  return kStates;
}

}  // namespace mv::shard
