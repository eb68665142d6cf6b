#include "api/group/group.hpp"

namespace mv::api {

namespace {
using collective::Kind;

/// Whether an output overlaps an input that is still to be read. The same address is allowed. If one side has a part
/// for each rank, the other side may be any of these parts.
bool overlaps(const collective::Operation& operation, size_t i, uint64_t ranks) {
  const collective::Array& array = operation.out[i];
  const std::byte* const in = operation.in[i];
  const uint64_t bytes = array.bytes(), part = operation.kind == Kind::kAllgather ? bytes / ranks : bytes;
  const uint64_t in_bytes = operation.kind == Kind::kReduceScatter ? bytes * ranks : part;
  const auto apart = [](const std::byte* a, uint64_t a_bytes, const std::byte* b) {
    return reinterpret_cast<uintptr_t>(b) - reinterpret_cast<uintptr_t>(a) >= a_bytes;
  };
  if (bytes == 0 || in == nullptr || (apart(in, in_bytes, array.data) && apart(array.data, bytes, in))) return false;
  const auto distance = static_cast<uint64_t>(in > array.data ? in - array.data : array.data - in);
  const bool has_parts = operation.kind == Kind::kAllgather ? in > array.data : operation.kind == Kind::kReduceScatter && in < array.data;
  return distance != 0 && !(has_parts && distance % part == 0);
}

bool reduces(Kind kind) { return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter; }
}  // namespace

base::Status check_operation(const collective::Operation& operation, int64_t size) {
  const char* const name = collective::kind_name(operation.kind);
  const auto ranks = static_cast<uint64_t>(size);
  if (operation.root >= ranks) return base::error(MV_EINVAL, "{}: root {} is not a rank of a group of {}", name, operation.root, size);
  for (size_t i = 0; i < operation.out.size(); ++i) {
    const collective::Array& array = operation.out[i];
    if (tensor::dtype_bytes(array.dtype) == 0) return base::error(MV_EINVAL, "{}: {} is not an mv_dtype", name, array.dtype);
    if (array.count > UINT64_MAX / 16 / ranks) return base::error(MV_EINVAL, "{}: count {} is too large", name, array.count);
    const bool in_place = operation.in.empty() || operation.in[i] == nullptr;
    if (array.count > 0 && (array.data == nullptr || (!operation.in.empty() && in_place)))
      return base::error(MV_EINVAL, "{}: data is NULL, but count is {}", name, array.count);
    if (!operation.in.empty() && overlaps(operation, i, ranks)) return base::error(MV_EINVAL, "{}: the input and the output overlap", name);
    if (!reduces(operation.kind)) continue;
    if (array.dtype == MV_RAW) return base::error(MV_EDTYPE, "{}: bytes (MV_RAW) can't be reduced", name);
    if (operation.reduction == math::Reduction::kAverage && !tensor::is_floating(array.dtype))
      return base::error(MV_EDTYPE, "{}: {} values can't be averaged, only floats", name, tensor::dtype_name(array.dtype));
  }
  return {};
}

}  // namespace mv::api
