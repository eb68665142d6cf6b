#include "api/distlearn/arrays.hpp"

#include <algorithm>

namespace mv::distlearn {

base::Status check_floats(const Arrays& arrays) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!tensor::is_floating(arrays[i].dtype))
      return base::error(MV_EDTYPE, "array {} is {}: parameters and gradients must be f32, f64, f16 or bf16", i, tensor::dtype_name(arrays[i].dtype));
    if (arrays[i].data == nullptr && arrays[i].count > 0)
      return base::error(MV_EINVAL, "array {} has {} elements, but its data is NULL", i, arrays[i].count);
  }
  return {};
}

base::Status check_alike(const Arrays& first, const Arrays& arrays) {
  if (arrays.size() != first.size())
    return base::error(MV_ESHAPE, "{} arrays given, but the first call had {}", arrays.size(), first.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].count == first[i].count && arrays[i].dtype == first[i].dtype) continue;
    return base::error(MV_ESHAPE, "array {} has {} elements of {}, but in the first call {} of {}", i, arrays[i].count,
                       tensor::dtype_name(arrays[i].dtype), first[i].count, tensor::dtype_name(first[i].dtype));
  }
  return {};
}

uint64_t bytes_of(const Arrays& arrays) {
  uint64_t bytes = 0;
  for (const Array& array : arrays) bytes += array.bytes();
  return bytes;
}

uint64_t elements_of(const Arrays& arrays) {
  uint64_t elements = 0;
  for (const Array& array : arrays) elements += array.count;
  return elements;
}

Arrays cut(const Arrays& arrays, uint64_t first, uint64_t count) {
  Arrays parts;
  for (const Array& array : arrays) {
    const uint64_t skipped = std::min(first, array.count);
    const uint64_t taken = std::min(count, array.count - skipped);
    if (taken > 0) parts.push_back({array.data + skipped * tensor::dtype_bytes(array.dtype), taken, array.dtype});
    first -= skipped;
    count -= taken;
  }
  return parts;
}

}  // namespace mv::distlearn
