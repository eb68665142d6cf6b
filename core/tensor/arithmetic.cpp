// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/arithmetic.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "math/lanes-inl.hpp"
#include "tensor/arithmetic.hpp"
#include "tensor/plain_runs.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::tensor {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::over_lanes;

struct Add {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Sub {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Sub(a, b);
  }
};
struct Mul {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};
struct Div {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Div(a, b);
  }
};
// Highway's own Min and Max treat NaN differently on different instruction sets.
struct Min {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct Max {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
};

template <typename T, typename Op>
HWY_INLINE void binary(std::byte* out_bytes, Operand a_operand, Operand b_operand, size_t count) {
  T* out = reinterpret_cast<T*>(out_bytes);
  const T* a = reinterpret_cast<const T*>(a_operand.data);
  const T* b = reinterpret_cast<const T*>(b_operand.data);
  const Op op;
  // Read before any write: out may overlap it.
  const T single = a_operand.is_single ? *a : b_operand.is_single ? *b : T{};
  if (a_operand.is_single) {
    over_lanes<T>(count, [&](auto tag, size_t i) HWY_ATTR {
      hn::StoreU(op(tag, hn::Set(tag, single), hn::LoadU(tag, b + i)), tag, out + i);
    });
  } else if (b_operand.is_single) {
    over_lanes<T>(count, [&](auto tag, size_t i) HWY_ATTR {
      hn::StoreU(op(tag, hn::LoadU(tag, a + i), hn::Set(tag, single)), tag, out + i);
    });
  } else {
    over_lanes<T>(count, [&](auto tag, size_t i) HWY_ATTR {
      hn::StoreU(op(tag, hn::LoadU(tag, a + i), hn::LoadU(tag, b + i)), tag, out + i);
    });
  }
}

template <typename T>
HWY_INLINE void binary_of(int op, std::byte* out, Operand a, Operand b, size_t count) {
  switch (op) {
    case MV_ADD:
      return binary<T, Add>(out, a, b, count);
    case MV_SUB:
      return binary<T, Sub>(out, a, b, count);
    case MV_MUL:
      return binary<T, Mul>(out, a, b, count);
    case MV_DIV:
      return binary<T, Div>(out, a, b, count);
    case MV_MIN:
      return binary<T, Min>(out, a, b, count);
    default:
      return binary<T, Max>(out, a, b, count);
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

void binary_f32(int op, std::byte* out, Operand a, Operand b, size_t n) { binary_of<float>(op, out, a, b, n); }
void binary_f64(int op, std::byte* out, Operand a, Operand b, size_t n) { binary_of<double>(op, out, a, b, n); }
void unary_f32(int op, std::byte* out, const std::byte* a, size_t n) { unary_of<float>(op, out, a, n); }
void unary_f64(int op, std::byte* out, const std::byte* a, size_t n) { unary_of<double>(op, out, a, n); }
void axpy_f32(std::byte* y, const std::byte* alpha, const std::byte* x, size_t n) { axpy_of<float>(y, alpha, x, n); }
void axpy_f64(std::byte* y, const std::byte* alpha, const std::byte* x, size_t n) { axpy_of<double>(y, alpha, x, n); }

}  // namespace HWY_NAMESPACE
}  // namespace mv::tensor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::tensor {
namespace {

HWY_EXPORT(binary_f32);
HWY_EXPORT(binary_f64);
HWY_EXPORT(unary_f32);
HWY_EXPORT(unary_f64);
HWY_EXPORT(axpy_f32);
HWY_EXPORT(axpy_f64);

}  // namespace

void binary_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count) {
  if (a.is_single && b.is_single) count = count > 0 ? 1 : 0;
  if (op == MV_POW) return power_run(dtype, out, a, b, count);
  if (dtype == MV_F32) {
    HWY_DYNAMIC_DISPATCH(binary_f32)(op, out, a, b, count);
  } else if (dtype == MV_F64) {
    HWY_DYNAMIC_DISPATCH(binary_f64)(op, out, a, b, count);
  } else {
    integer_binary_run(op, dtype, out, a, b, count);
  }
}

void unary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count) {
  if (op == MV_EXP || op == MV_LOG) return elementary_run(op, dtype, out, a, count);
  if (dtype == MV_F32) {
    HWY_DYNAMIC_DISPATCH(unary_f32)(op, out, a, count);
  } else if (dtype == MV_F64) {
    HWY_DYNAMIC_DISPATCH(unary_f64)(op, out, a, count);
  } else {
    integer_unary_run(op, dtype, out, a, count);
  }
}

void axpy_run(mv_dtype dtype, std::byte* y, const std::byte* alpha, const std::byte* x, size_t count) {
  if (dtype == MV_F32) {
    HWY_DYNAMIC_DISPATCH(axpy_f32)(y, alpha, x, count);
  } else if (dtype == MV_F64) {
    HWY_DYNAMIC_DISPATCH(axpy_f64)(y, alpha, x, count);
  } else {
    integer_axpy_run(dtype, y, alpha, x, count);
  }
}

}  // namespace mv::tensor
#endif  // HWY_ONCE
