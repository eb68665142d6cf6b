#pragma once
// The values of rows that a sparse or key-value table does not store.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mix.hpp"
#include "shard/spec.hpp"

namespace mv::shard {

/// spec.initial everywhere; with a range, uniform in initial +- range, as a function of seed, id and column:
///
///   r = base::mix(base::mix(base::mix(seed) + id) + column)       sums modulo 2^64, ids as two's complement
///   u = (r >> 11) * 2^-52 - 1                   in [-1, 1), exact
///   value = initial + initial_range * u         in double, then rounded once to the storage dtype
///
/// Integers are rounded to the nearest one of the dtype.
class InitialValues {
 public:
  explicit InitialValues(const Spec& spec);

  /// A whole row of the storage dtype.
  void fill(int64_t id, std::byte* stored) const;
  /// A whole row of the table's dtype.
  void read(int64_t id, std::byte* out) const;

 private:
  double value(int64_t id, uint64_t column) const;

  const mv_dtype dtype_;
  const uint64_t cols_;
  const double initial_, range_;
  const uint64_t seed_;
  std::vector<std::byte> stored_row_, out_row_;  ///< only without a range: all rows are equal
};

}  // namespace mv::shard
