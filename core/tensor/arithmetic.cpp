// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/arithmetic.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "math/lanes-inl.hpp"
#include "tensor/arithmetic.hpp"
#include "tensor/dtype.hpp"
#include "tensor/plain_runs.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::tensor::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::over_lanes;

template <typename T, typename Op>
HWY_INLINE void binary(std::byte* out_bytes, Operand a_operand, Operand b_operand, size_t count, const Op& op) {
  T* out = reinterpret_cast<T*>(out_bytes);
  const T* a = reinterpret_cast<const T*>(a_operand.data);
  const T* b = reinterpret_cast<const T*>(b_operand.data);
  // Read before any write: out may overlap it.
  const T single = a_operand.is_single ? *a : b_operand.is_single ? *b : T{};
  if (a_operand.is_single) {
    over_lanes<T>(count, [&](auto tag, size_t i) HWY_ATTR {
      hn::StoreU(op(hn::Set(tag, single), hn::LoadU(tag, b + i)), tag, out + i);
    });
  } else if (b_operand.is_single) {
    over_lanes<T>(count, [&](auto tag, size_t i) HWY_ATTR {
      hn::StoreU(op(hn::LoadU(tag, a + i), hn::Set(tag, single)), tag, out + i);
    });
  } else {
    over_lanes<T>(count, [&](auto tag, size_t i) HWY_ATTR {
      hn::StoreU(op(hn::LoadU(tag, a + i), hn::LoadU(tag, b + i)), tag, out + i);
    });
  }
}

template <typename T>
HWY_INLINE void binary_of(int op, std::byte* out, Operand a, Operand b, size_t count) {
  const auto with = [&](const auto& function) HWY_ATTR { binary<T>(out, a, b, count, function); };
  switch (op) {
    case MV_ADD:
      return with([](auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
    case MV_SUB:
      return with([](auto x, auto y) HWY_ATTR { return hn::Sub(x, y); });
    case MV_MUL:
      return with([](auto x, auto y) HWY_ATTR { return hn::Mul(x, y); });
    case MV_DIV:
      return with([](auto x, auto y) HWY_ATTR { return hn::Div(x, y); });
    // Highway's own Min and Max treat NaN differently on different instruction sets.
    case MV_MIN:
      return with([](auto x, auto y) HWY_ATTR { return hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y); });
    default:
      return with([](auto x, auto y) HWY_ATTR { return hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y); });
  }
}

template <typename T>
HWY_INLINE void unary_of(int op, std::byte* out_bytes, const std::byte* a_bytes, size_t count) {
  T* out = reinterpret_cast<T*>(out_bytes);
  const T* a = reinterpret_cast<const T*>(a_bytes);
  over_lanes<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(tag, a + i);
    hn::StoreU(op == MV_NEG ? hn::Neg(value) : op == MV_ABS ? hn::Abs(value) : hn::Sqrt(value), tag, out + i);
  });
}

template <typename T>
HWY_INLINE void axpy_of(std::byte* y_bytes, const std::byte* alpha, const std::byte* x_bytes, size_t count) {
  T* y = reinterpret_cast<T*>(y_bytes);
  const T* x = reinterpret_cast<const T*>(x_bytes);
  const T factor = *reinterpret_cast<const T*>(alpha);
  over_lanes<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto product = hn::Mul(hn::Set(tag, factor), hn::LoadU(tag, x + i));
    hn::StoreU(hn::Add(hn::LoadU(tag, y + i), product), tag, y + i);
  });
}

void binary_floats(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t n) {
  dtype == MV_F32 ? binary_of<float>(op, out, a, b, n) : binary_of<double>(op, out, a, b, n);
}
void unary_floats(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t n) {
  dtype == MV_F32 ? unary_of<float>(op, out, a, n) : unary_of<double>(op, out, a, n);
}
void axpy_floats(mv_dtype dtype, std::byte* y, const std::byte* alpha, const std::byte* x, size_t n) {
  dtype == MV_F32 ? axpy_of<float>(y, alpha, x, n) : axpy_of<double>(y, alpha, x, n);
}

}  // namespace mv::tensor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::tensor {
HWY_EXPORT(binary_floats);
HWY_EXPORT(unary_floats);
HWY_EXPORT(axpy_floats);

void binary_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count) {
  if (a.is_single && b.is_single) count = count > 0 ? 1 : 0;
  if (op == MV_POW) return power_run(dtype, out, a, b, count);
  if (!is_floating(dtype)) return integer_binary_run(op, dtype, out, a, b, count);
  HWY_DYNAMIC_DISPATCH(binary_floats)(op, dtype, out, a, b, count);
}

void unary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count) {
  if (op == MV_EXP || op == MV_LOG) return elementary_run(op, dtype, out, a, count);
  if (!is_floating(dtype)) return integer_unary_run(op, dtype, out, a, count);
  HWY_DYNAMIC_DISPATCH(unary_floats)(op, dtype, out, a, count);
}

void axpy_run(mv_dtype dtype, std::byte* y, const std::byte* alpha, const std::byte* x, size_t count) {
  if (!is_floating(dtype)) return integer_axpy_run(dtype, y, alpha, x, count);
  HWY_DYNAMIC_DISPATCH(axpy_floats)(dtype, y, alpha, x, count);
}

}  // namespace mv::tensor
#endif  // HWY_ONCE
