#pragma once
// The operations that callers request from a group, independent of the transport.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "math/reduction.hpp"
#include "tensor/dtype.hpp"

namespace mv::collective {

/// The error message for a draining rank that begins something else.
inline constexpr auto kOnlyDraining =
    "this rank is draining (mv_allreduce_drain()): it can only take part in the others' next all-reduce, with MV_DRAINING";

/// The end of the error message for ranks that differ only in their labels.
inline constexpr auto kOtherLabel = ", with arrays of other names or shapes";

enum class Kind : uint8_t {
  kBarrier, kAllreduce, kReduce, kBroadcast, kAllgather, kReduceScatter, kGather, kScatter, kAlltoall, kAlltoallCounts, kCustom, kDrain, kSend, kRecv,
  kGrow  ///< a minimum: see Group::grow() of api/group
};

constexpr const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {"barrier", "allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "gather",
                                    "scatter", "alltoall", "alltoall_counts", "custom allreduce", "drain", "send", "recv", "grow"};
  return kind <= Kind::kGrow ? kNames[static_cast<size_t>(kind)] : "unknown";
}

/// Whether all ranks send their values to one rank.
constexpr bool is_to_root(Kind kind) { return kind == Kind::kReduce || kind == Kind::kGather; }
/// Whether one rank sends values to all ranks.
constexpr bool is_from_root(Kind kind) { return kind == Kind::kBroadcast || kind == Kind::kScatter; }
constexpr bool has_root(Kind kind) { return is_to_root(kind) || is_from_root(kind); }
/// Whether only two ranks take part. Such an operation has no number among those of the group.
constexpr bool is_between_two(Kind kind) { return kind == Kind::kSend || kind == Kind::kRecv; }
/// Whether the values go by messages even if the ranks share memory.
constexpr bool is_by_messages(Kind kind) {
  return kind == Kind::kGather || kind == Kind::kScatter || kind == Kind::kAlltoall || kind == Kind::kAlltoallCounts || kind == Kind::kCustom;
}

/// Whether the labels of two ranks are compatible.
constexpr bool labels_fit(uint64_t a, uint64_t b) { return a == b || a == 0 || b == 0; }

/// kRecv: any rank.
inline constexpr uint64_t kAnyRank = UINT64_MAX;
/// Limits of an alltoall: ranks, and elements from one rank to another. Its elements are numbered by pairs of ranks.
inline constexpr int kPairBits = 40;
inline constexpr uint64_t kMostRanksOfPairs = uint64_t{1} << (64 - kPairBits) / 2;

/// The greatest note on an array.
inline constexpr uint32_t kMostNote = 15;

/// An array in the caller's memory. The elements of MV_RAW, which is not reduced, are bytes.
struct Array {
  std::byte* data = nullptr;
  uint64_t count = 0;
  mv_dtype dtype = MV_F32;
  uint8_t note = 0;  ///< set by the caller for draining ranks; ranks need not agree
  uint64_t bytes() const { return count * tensor::dtype_bytes(dtype); }
};

/// An operation with checked arguments: its dtypes support the reduction, its root is a rank, and pointers are valid
/// where counts are not 0.
struct Operation {
  Kind kind = Kind::kBarrier;
  math::Reduction reduction = math::Reduction::kSum;
  uint64_t root = 0;      ///< a rank of the group
  uint32_t label = 0;     ///< identifies the arrays' names and shapes; ranks that set it must agree
  bool draining = false;  ///< takes part without counting as a contributor
  /// The results, and also the inputs if `in` is empty. An allgather has size * count elements, a reduce_scatter count.
  /// A gather has size * count elements, which only the root writes; a scatter count. For a send, the values.
  std::vector<Array> out;
  /// The inputs for out[i], if they are not in `out` already: as many elements, but count for an allgather or a gather,
  /// and size * count for a reduce_scatter or a scatter, of which only the root reads them.
  std::vector<const std::byte*> in;
  std::vector<uint64_t> send_counts = {}, receive_counts = {};  ///< kAlltoallCounts: elements, by rank
  /// kSend, kRecv: the other rank is `root`. kAnyRank: any rank that sends with this tag.
  int64_t tag = 0;
  int64_t* source = nullptr;         ///< out: the rank that has sent the values of a kRecv; may be null
  uint64_t* contributors = nullptr;  ///< out: the ranks of an allreduce that did not drain; may be null
  /// kAllreduce: if it is set, the ranks only agree on the operation, and its values are reduced elsewhere. In: this rank's
  /// number, 0 or 1; out: the least of all ranks' numbers.
  int64_t* vote = nullptr;
};

/// The next operation of the other ranks, see mv_allreduce_drain().
struct Shape {
  bool finished = false;  ///< there is none: all ranks drain
  math::Reduction reduction = math::Reduction::kSum;
  std::vector<Array> arrays;  ///< without data
  bool custom = false;        ///< their callers reduce; this rank must begin a kCustom operation
};

}  // namespace mv::collective
