// Tensors as text: "f32 (2, 3)" and the elements in brackets.

#include <string>

#include "tensor/cast.hpp"
#include "tensor/device.hpp"

namespace mv::tensor {

namespace {

/// For a longer dimension, only the first and last kEnd elements are shown.
constexpr int64_t kLongest = 10;
constexpr int64_t kEnd = 3;

std::string element(mv_dtype dtype, const std::byte* at) {
  if (dtype == MV_F64) return fmt::format("{}", *reinterpret_cast<const double*>(at));
  if (is_floating(dtype)) return fmt::format("{}", static_cast<float>(load_element(dtype, at)));
  int64_t value = 0;
  cast_elements(MV_I64, reinterpret_cast<std::byte*>(&value), dtype, at, 1);
  return fmt::format("{}", value);
}

/// Writes the part of the tensor at fixed positions in the first `level` dimensions; `at` is its first element.
void write(const Tensor& tensor, const Shape& shape, uint32_t level, size_t at, std::string* text) {
  if (level == shape.dims) {
    *text += element(tensor.dtype, tensor.data + at * dtype_bytes(tensor.dtype));
    return;
  }
  size_t step = 1;
  for (uint32_t d = level + 1; d < shape.dims; ++d) step *= static_cast<size_t>(shape.lengths[d]);
  const std::string between = level + 1 == shape.dims ? ", " : ",\n" + std::string(level + 1, ' ');
  const int64_t length = shape.lengths[level];
  *text += '[';
  for (int64_t i = 0; i < length; ++i) {
    if (i > 0) *text += between;
    if (length > kLongest && i == kEnd) {
      *text += "...";
      i = length - kEnd - 1;
      continue;
    }
    write(tensor, shape, level + 1, at + static_cast<size_t>(i) * step, text);
  }
  *text += ']';
}

}  // namespace

base::Result<std::string> whole_text(const Tensor& of) {
  std::string text = of.text();
  if (device_of(of) != nullptr) text += " on " + place_of(of);
  const auto here = on_host(of);
  if (!here.ok()) return here.status();
  const Tensor& tensor = here.value();
  if (tensor.is_row_sparse()) {
    text += fmt::format(", {} rows held:", tensor.held.count);
    for (size_t i = 0; i < tensor.held.count; ++i) {
      if (i == kEnd && tensor.held.count > kLongest) {
        text += "\n...";
        i = tensor.held.count - kEnd;
      }
      text += fmt::format("\n{}: ", tensor.held.ids[i]);
      write(tensor, tensor.shape.without(0), 0, i * tensor.shape.row_count(), &text);
    }
    return text;
  }
  text += '\n';
  write(tensor, tensor.shape, 0, 0, &text);
  return text;
}

}  // namespace mv::tensor
