#include "tensor/plain_runs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "math/elements.hpp"
#include "tensor/elementary.hpp"

namespace mv::tensor {

namespace {

/// out[i] = op(a[i], b[i])
template <typename T, typename Out, typename Op>
void each(std::byte* out_bytes, Operand a_operand, Operand b_operand, size_t count, Op op) {
  Out* out = reinterpret_cast<Out*>(out_bytes);
  const T* a = reinterpret_cast<const T*>(a_operand.data);
  const T* b = reinterpret_cast<const T*>(b_operand.data);
  // Read before any write: out may overlap it.
  const T single = a_operand.is_single ? *a : b_operand.is_single ? *b : T{};
  if (a_operand.is_single && b_operand.is_single) {
    std::fill_n(out, count, op(single, *b));
  } else if (a_operand.is_single) {
    for (size_t i = 0; i < count; ++i) out[i] = op(single, b[i]);
  } else if (b_operand.is_single) {
    for (size_t i = 0; i < count; ++i) out[i] = op(a[i], single);
  } else {
    for (size_t i = 0; i < count; ++i) out[i] = op(a[i], b[i]);
  }
}

/// The unsigned type for arithmetic: wide enough that no intermediate result overflows, so integers wrap around.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <typename T>
T multiply(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
}
template <typename T>
T add(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
}
template <typename T>
T subtract(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
}

/// Exponentiation by squaring.
template <typename T>
T integer_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) return 0;
  }
  T result = 1;
  for (auto left = static_cast<uint64_t>(exponent); left > 0; left >>= 1) {
    if ((left & 1) != 0) result = multiply(result, base);
    base = multiply(base, base);
  }
  return result;
}

template <typename T>
void integers(int op, std::byte* out, Operand a, Operand b, size_t count) {
  switch (op) {
    case MV_ADD:
      return each<T, T>(out, a, b, count, add<T>);
    case MV_SUB:
      return each<T, T>(out, a, b, count, subtract<T>);
    case MV_MUL:
      return each<T, T>(out, a, b, count, multiply<T>);
    case MV_POW:
      return each<T, T>(out, a, b, count, integer_power<T>);
    case MV_MIN:
      return each<T, T>(out, a, b, count, [](T x, T y) { return std::min(x, y); });
    default:
      return each<T, T>(out, a, b, count, [](T x, T y) { return std::max(x, y); });
  }
}

template <typename T>
void compare(int op, std::byte* out, Operand a, Operand b, size_t count) {
  switch (op) {
    case MV_EQ:
      return each<T, uint8_t>(out, a, b, count, [](T x, T y) -> uint8_t { return x == y; });
    case MV_NE:
      return each<T, uint8_t>(out, a, b, count, [](T x, T y) -> uint8_t { return x != y; });
    case MV_LT:
      return each<T, uint8_t>(out, a, b, count, [](T x, T y) -> uint8_t { return x < y; });
    case MV_LE:
      return each<T, uint8_t>(out, a, b, count, [](T x, T y) -> uint8_t { return x <= y; });
    case MV_GT:
      return each<T, uint8_t>(out, a, b, count, [](T x, T y) -> uint8_t { return x > y; });
    default:
      return each<T, uint8_t>(out, a, b, count, [](T x, T y) -> uint8_t { return x >= y; });
  }
}

template <typename T>
void integer_unary(int op, std::byte* out_bytes, const std::byte* a_bytes, size_t count) {
  T* out = reinterpret_cast<T*>(out_bytes);
  const T* a = reinterpret_cast<const T*>(a_bytes);
  for (size_t i = 0; i < count; ++i) out[i] = op == MV_NEG || a[i] < 0 ? subtract<T>(0, a[i]) : a[i];
}

template <typename T>
void integer_axpy(std::byte* y_bytes, const std::byte* alpha, const std::byte* x_bytes, size_t count) {
  T* y = reinterpret_cast<T*>(y_bytes);
  const T* x = reinterpret_cast<const T*>(x_bytes);
  const T factor = *reinterpret_cast<const T*>(alpha);
  for (size_t i = 0; i < count; ++i) y[i] = add(y[i], multiply(factor, x[i]));
}

/// f(x) for all elements. Floats are computed in double precision, so only their final rounding matters.
template <typename T, typename Function>
void apply(std::byte* out_bytes, const std::byte* a_bytes, size_t count, Function function) {
  T* out = reinterpret_cast<T*>(out_bytes);
  const T* a = reinterpret_cast<const T*>(a_bytes);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<T>(function(double{a[i]}));
}

}  // namespace

void integer_binary_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count) {
  math::with_integer(dtype, [&](auto type) { integers<decltype(type)>(op, out, a, b, count); });
}

void integer_unary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count) {
  math::with_integer(dtype, [&](auto type) { integer_unary<decltype(type)>(op, out, a, count); });
}

void integer_axpy_run(mv_dtype dtype, std::byte* y, const std::byte* alpha, const std::byte* x, size_t count) {
  math::with_integer(dtype, [&](auto type) { integer_axpy<decltype(type)>(y, alpha, x, count); });
}

void compare_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count) {
  math::with_number(dtype, [&](auto type) { compare<decltype(type)>(op, out, a, b, count); });
}

void power_run(mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count) {
  if (dtype == MV_F32) {
    return each<float, float>(out, a, b, count,
                              [](float x, float y) { return static_cast<float>(std::pow(double{x}, double{y})); });
  }
  if (dtype == MV_F64) return each<double, double>(out, a, b, count, [](double x, double y) { return std::pow(x, y); });
  integer_binary_run(MV_POW, dtype, out, a, b, count);
}

void elementary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count) {
  const auto function = op == MV_EXP ? exp : log;
  if (dtype == MV_F32) return apply<float>(out, a, count, function);
  apply<double>(out, a, count, function);
}

}  // namespace mv::tensor
