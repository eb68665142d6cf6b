#pragma once
// What callers ask a group for, on whatever transport it is carried out.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "math/reduction.hpp"
#include "tensor/dtype.hpp"

namespace mv::collective {

/// What there is to say to a rank that drains and begins something else.
inline constexpr auto kOnlyDraining =
    "this rank waits for the others' next all-reduce (mv_allreduce_drain()): until that is over, it can take part in it only, with MV_DRAINING";

enum class Kind : uint8_t { kBarrier, kAllreduce, kReduce, kBroadcast, kAllgather, kReduceScatter, kCustom, kDrain };

constexpr const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {"barrier", "allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "custom allreduce", "drain"};
  return kind <= Kind::kDrain ? kNames[static_cast<size_t>(kind)] : "unknown";
}

/// The greatest note on an array.
inline constexpr uint32_t kMostNote = 15;

/// Elements in the caller's memory. Of MV_RAW, which is not reduced, elements are bytes.
struct Array {
  std::byte* data = nullptr;
  uint64_t count = 0;
  mv_dtype dtype = MV_F32;
  uint8_t note = 0;  ///< the caller's, for those who drain; ranks need not agree
  uint64_t bytes() const { return count * tensor::dtype_bytes(dtype); }
};

/// Arguments that a group has checked before: dtypes that can be reduced so, a root that is a rank, pointers where counts are not 0.
struct Operation {
  Kind kind = Kind::kBarrier;
  math::Reduction reduction = math::Reduction::kSum;
  uint64_t root = 0;      ///< a rank of the group
  bool draining = false;  ///< takes part without counting as a contributor
  /// The result, and where `in` is empty the values, too. Of an allgather size * count elements, of a reduce_scatter count.
  std::vector<Array> out;
  /// The values of out[i], where they are not there already: as many elements, of an allgather count, of a reduce_scatter size * count.
  std::vector<const std::byte*> in;
  uint64_t* contributors = nullptr;  ///< out: of an allreduce, how many ranks were not draining. Or null
};

/// What the others do next, see mv_allreduce_drain().
struct Shape {
  bool finished = false;  ///< nothing: all ranks are draining
  math::Reduction reduction = math::Reduction::kSum;
  std::vector<Array> arrays;  ///< without data
  bool custom = false;        ///< they reduce by hand: a kCustom operation is to follow
};

}  // namespace mv::collective
