#include "api/group/group.hpp"

#include <algorithm>

#include "base/per_thread.hpp"

namespace mv::api {

using collective::Kind;

Sizes sizes_of(const collective::Operation& operation, size_t i, uint64_t rank, uint64_t ranks) {
  const uint64_t bytes = operation.out[i].bytes();
  const bool is_root = rank == operation.root;
  switch (operation.kind) {
    case Kind::kAllgather:
      return {bytes, bytes / ranks, bytes / ranks};
    case Kind::kGather:
      return {is_root ? bytes : 0, bytes / ranks, bytes / ranks};
    case Kind::kReduceScatter:
      return {bytes, bytes * ranks, bytes};
    case Kind::kScatter:
      return {bytes, is_root ? bytes * ranks : 0, bytes};
    case Kind::kAlltoallCounts: {
      uint64_t sent = 0;
      for (const uint64_t count : operation.send_counts) sent += count;
      return {bytes, sent * tensor::dtype_bytes(operation.out[i].dtype), 0};
    }
    default:
      return {bytes, bytes, 0};
  }
}

namespace {

bool reduces(Kind kind) { return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter; }

/// Whether an output overlaps an input that is still to be read. The same address is allowed, except in an alltoall. If
/// one side has a part for each rank, the other side may be any of these parts.
bool overlaps(const collective::Operation& operation, size_t i, const Sizes& sizes) {
  const collective::Array& array = operation.out[i];
  const std::byte* const in = operation.in[i];
  const auto apart = [](const std::byte* a, uint64_t a_bytes, const std::byte* b) {
    return reinterpret_cast<uintptr_t>(b) - reinterpret_cast<uintptr_t>(a) >= a_bytes;
  };
  if (sizes.out == 0 || sizes.in == 0 || in == nullptr || (apart(in, sizes.in, array.data) && apart(array.data, sizes.out, in))) return false;
  if (operation.kind == Kind::kAlltoall || operation.kind == Kind::kAlltoallCounts) return true;
  const auto distance = static_cast<uint64_t>(in > array.data ? in - array.data : array.data - in);
  const bool has_parts = sizes.part > 0 && (sizes.out > sizes.in ? in > array.data : in < array.data);
  return distance != 0 && !(has_parts && distance % sizes.part == 0);
}

/// MV_EINVAL if a result is where another array of the operation is. Several arrays are reduced piece by piece in an order
/// of the algorithm's, so the values would depend on it.
base::Status check_apart(const collective::Operation& operation) {
  struct Place {
    uintptr_t begin, end;
    size_t array;
    bool is_written;
  };
  auto& places = base::per_thread<std::vector<Place>>();  // calls are repeated
  places.clear();
  const auto add = [&](const std::byte* data, size_t i, bool is_written) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    if (const uint64_t bytes = operation.out[i].bytes(); data != nullptr && bytes > 0) places.push_back({begin, begin + bytes, i, is_written});
  };
  for (size_t i = 0; i < operation.out.size(); ++i) {
    add(operation.out[i].data, i, true);
    if (!operation.in.empty() && operation.in[i] != operation.out[i].data) add(operation.in[i], i, false);
  }
  std::ranges::sort(places, {}, &Place::begin);
  const Place *furthest = nullptr, *furthest_written = nullptr;
  for (const Place& place : places) {
    const Place* const before = place.is_written ? furthest : furthest_written;
    if (before != nullptr && place.begin < before->end)
      return base::error(MV_EINVAL, "{}: arrays {} and {} overlap: name each array once", collective::kind_name(operation.kind),
                         std::min(place.array, before->array), std::max(place.array, before->array));
    if (furthest == nullptr || place.end > furthest->end) furthest = &place;
    if (place.is_written && (furthest_written == nullptr || place.end > furthest_written->end)) furthest_written = &place;
  }
  return {};
}

base::Status check_pairs(const collective::Operation& operation, uint64_t ranks) {
  const char* const name = collective::kind_name(operation.kind);
  if (ranks > collective::kMostRanksOfPairs)
    return base::error(MV_EINVAL, "{}: a group of {} ranks; at most {}", name, ranks, collective::kMostRanksOfPairs);
  uint64_t most = operation.out.front().count / ranks;
  if (operation.kind == Kind::kAlltoallCounts) {
    most = 0;
    for (const auto* counts : {&operation.send_counts, &operation.receive_counts})
      for (const uint64_t count : *counts) most = std::max(most, count);
  }
  if (most >> collective::kPairBits != 0) return base::error(MV_EINVAL, "{}: {} elements for one rank are too many", name, most);
  return {};
}

}  // namespace

base::Status check_operation(const collective::Operation& operation, int64_t rank, int64_t size) {
  const char* const name = collective::kind_name(operation.kind);
  const auto ranks = static_cast<uint64_t>(size), self = static_cast<uint64_t>(rank);
  if (collective::is_between_two(operation.kind)) {
    const bool any = operation.kind == Kind::kRecv && operation.root == collective::kAnyRank;
    if (operation.root >= ranks && !any)
      return base::error(MV_EINVAL, "{}: {} is not a rank of a group of {}", name, static_cast<int64_t>(operation.root), size);
    if (operation.root == self) return base::error(MV_EINVAL, "{}: rank {} is this rank itself; copy the values", name, operation.root);
    if (any && ranks == 1) return base::error(MV_EINVAL, "{}: this rank is the only one of its group", name);
  } else if (operation.root >= ranks) {
    return base::error(MV_EINVAL, "{}: root {} is not a rank of a group of {}", name, operation.root, size);
  }
  for (size_t i = 0; i < operation.out.size(); ++i) {
    const collective::Array& array = operation.out[i];
    if (tensor::dtype_bytes(array.dtype) == 0) return base::error(MV_EINVAL, "{}: {} is not an mv_dtype", name, array.dtype);
    if (array.count > UINT64_MAX / 16 / ranks) return base::error(MV_EINVAL, "{}: count {} is too large", name, array.count);
    const Sizes sizes = sizes_of(operation, i, self, ranks);
    if ((sizes.out > 0 && array.data == nullptr) || (!operation.in.empty() && sizes.in > 0 && operation.in[i] == nullptr))
      return base::error(MV_EINVAL, "{}: data is NULL, but count is {}", name, array.count);
    if (!operation.in.empty() && overlaps(operation, i, sizes)) return base::error(MV_EINVAL, "{}: the input and the output overlap", name);
    if (!reduces(operation.kind)) continue;
    if (array.dtype == MV_RAW) return base::error(MV_EDTYPE, "{}: bytes (MV_RAW) can't be reduced", name);
    if (operation.reduction == math::Reduction::kAverage && !tensor::is_floating(array.dtype))
      return base::error(MV_EDTYPE, "{}: {} values can't be averaged, only floats", name, tensor::dtype_name(array.dtype));
  }
  if (operation.kind == Kind::kAlltoall || operation.kind == Kind::kAlltoallCounts) return check_pairs(operation, ranks);
  return reduces(operation.kind) && operation.out.size() > 1 ? check_apart(operation) : base::Status();
}

}  // namespace mv::api
