#pragma once
// How an updater's file describes it: its name, its parameters, and its formula for any number of elements.

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "shard/updater/updater.hpp"

namespace mv::shard {

/// The one place where a parameter's name, default and range are written.
struct Parameter {
  const char* name;
  double fallback;
  double least;  ///< inclusive, as is `most`
  double most;
  const char* help;
  std::span<const char* const> choices = {};  ///< words for 0, 1, ...
  bool is_whole = false;                      ///< a whole number
  const char* alias = nullptr;                ///< another spelling
};

inline constexpr double kAnySize = std::numeric_limits<double>::max();  ///< finite
/// The least of a parameter that must be above zero, and stay there as a float.
inline constexpr double kAboveZero = 1e-30;
/// The most of a parameter that must be below one, and stay there as a float.
inline constexpr double kBelowOne = 1 - 1e-7;

namespace optimizer {
struct Traits;
}

struct Kind {
  const char* name;
  std::span<const Parameter> parameters;
  bool floating_only;  ///< wants a floating-point dtype
  bool keeps_backups;
  size_t (*states)(std::span<const double> parameters);
  /// storage: a storage dtype, floating if floating_only. An optimizer's gets a Step's numbers instead of parameters.
  void (*apply)(std::span<const double> parameters, mv_dtype storage, const Block& block);
  const optimizer::Traits* optimizer = nullptr;  ///< for those that have the common parameters, and count
  bool replaces = false;
};

extern const Kind kAdd, kAssign, kReplace, kSgd, kMomentum, kAdagrad, kFtrl, kDcasgd;

/// What makes a formula, a template `name<T>(const double* parameters, const Block&)`, into a Kind's `apply`: first, for each
/// instruction set, its two types behind plain names; then, once, the choice among them.
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
