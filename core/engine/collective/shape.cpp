#include "engine/collective/shape.hpp"

namespace mv::collective {

base::Status check_shape(const Shape& shape) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // more than any group reduces at once
  const auto wrong = [](const char* what) { return base::error(MV_EPROTOCOL, "draining: another rank describes an operation with {}", what); };
  if (!shape.custom && (shape.reduction < math::Reduction::kSum || shape.reduction > math::Reduction::kAverage)) return wrong("an unknown reduction");
  uint64_t bytes = 0;
  for (const Array& array : shape.arrays) {
    if (tensor::dtype_bytes(array.dtype) == 0) return wrong("values of an unknown dtype");
    if (!shape.custom && array.dtype == MV_RAW) return wrong("values that can't be reduced");
    if (!shape.custom && shape.reduction == math::Reduction::kAverage && !tensor::is_floating(array.dtype)) return wrong("an average of integers");
    if (array.note > kMostNote) return wrong("a note that is too large");
    if (array.count > kMostBytes || (bytes += array.bytes()) > kMostBytes) return wrong("too many values");
  }
  return {};
}

}  // namespace mv::collective
