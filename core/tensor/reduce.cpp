#include "tensor/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tensor/cast.hpp"
#include "tensor/device.hpp"
#include "tensor/sums.hpp"

namespace mv::tensor {

namespace {

Split split_at(const Shape& shape, int64_t axis) {
  if (axis == MV_ALL_AXES) return {1, shape.count(), 1};
  Split split{1, static_cast<size_t>(shape.lengths[static_cast<size_t>(axis)]), 1};
  for (uint32_t d = 0; d < shape.dims; ++d) {
    if (d < axis) split.outer *= static_cast<size_t>(shape.lengths[d]);
    if (d > axis) split.inner *= static_cast<size_t>(shape.lengths[d]);
  }
  return split;
}

/// Elements first .. first + count - 1, at most a chunk, as T.
template <typename T>
constexpr mv_dtype kDtypeOf = std::is_same_v<T, float>     ? MV_F32
                              : std::is_same_v<T, double>  ? MV_F64
                              : std::is_same_v<T, int64_t> ? MV_I64
                              : std::is_same_v<T, int32_t> ? MV_I32
                              : std::is_same_v<T, int8_t>  ? MV_I8
                                                           : MV_U8;
template <typename T>
const T* fetch(const Tensor& tensor, size_t first, size_t count, Chunk* chunk) {
  const std::byte* at = tensor.data + first * dtype_bytes(tensor.dtype);
  if (tensor.dtype == kDtypeOf<T>) return reinterpret_cast<const T*>(at);
  cast_elements(kDtypeOf<T>, chunk->bytes, tensor.dtype, at, count);
  return reinterpret_cast<const T*>(chunk->bytes);
}

/// Calls visit(first, count) for each chunk of `count` elements from `first` on.
template <typename Visit>
void by_chunks(size_t first, size_t count, Visit visit) {
  for (size_t done = 0; done < count; done += kChunk) visit(first + done, std::min(kChunk, count - done));
}

void store(const Tensor& result, size_t at, double value) {
  store_element(result.dtype, result.data + at * dtype_bytes(result.dtype), value);
}

/// The sum of contiguous elements, or of their squares. T is float for f32, and double for all other dtypes.
template <typename T>
double sum_run(const Tensor& tensor, size_t first, size_t count, bool of_squares) {
  PairwiseSum sum;
  Chunk chunk;
  by_chunks(first, count, [&](size_t at, size_t n) {
    const T* values = fetch<T>(tensor, at, n, &chunk);
    sum.add(of_squares ? sum_of_chunk(n, [=](size_t i) { return double{values[i]} * double{values[i]}; })
                       : sum_of_chunk(n, [=](size_t i) { return double{values[i]}; }));
  });
  return sum.total();
}

/// The result of a reduction from its sum.
double finish_sum(int op, double sum, size_t terms) {
  if (op == MV_NORM) return std::sqrt(sum);
  return op == MV_MEAN ? sum / static_cast<double>(terms) : sum;
}

void sum_along_rows(int op, const Tensor& tensor, const Split& split, const Tensor& result) {
  const auto run = storage_dtype(tensor.dtype) == MV_F32 ? sum_run<float> : sum_run<double>;
  for (size_t o = 0; o < split.outer; ++o) {
    const double sum = run(tensor, o * split.along, split.along, op == MV_NORM);
    store(result, o, finish_sum(op, sum, split.along));
  }
}

void sum_columns(int op, const Tensor& tensor, const Split& split, const Tensor& result) {
  Chunk chunk;
  double squares[kChunk];
  for (size_t o = 0; o < split.outer; ++o) {
    by_chunks(0, split.inner, [&](size_t column, size_t n) {
      ColumnSums<kChunk> sums(n);
      for (size_t j = 0; j < split.along; ++j) {
        const double* values = fetch<double>(tensor, (o * split.along + j) * split.inner + column, n, &chunk);
        if (op == MV_NORM) {
          for (size_t i = 0; i < n; ++i) squares[i] = values[i] * values[i];
          values = squares;
        }
        if (tensor.dtype == MV_F64) {
          sums.add_exactly(values);
        } else {
          sums.add(values);
        }
      }
      for (size_t i = 0; i < n; ++i)
        store(result, o * split.inner + column + i, finish_sum(op, sums.total(i), split.along));
    });
  }
}

/// Sums of integers are integers, which wrap around.
void sum_integers(const Tensor& tensor, const Split& split, const Tensor& result) {
  Chunk chunk;
  auto* sums = reinterpret_cast<int64_t*>(result.data);
  std::fill_n(sums, split.outer * split.inner, 0);
  const auto add = [](int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  };
  for (size_t o = 0; o < split.outer; ++o) {
    if (split.inner == 1) {
      by_chunks(o * split.along, split.along, [&](size_t at, size_t n) {
        const int64_t* values = fetch<int64_t>(tensor, at, n, &chunk);
        for (size_t i = 0; i < n; ++i) sums[o] = add(sums[o], values[i]);
      });
      continue;
    }
    for (size_t j = 0; j < split.along; ++j) {
      by_chunks(0, split.inner, [&](size_t column, size_t n) {
        const int64_t* values = fetch<int64_t>(tensor, (o * split.along + j) * split.inner + column, n, &chunk);
        int64_t* to = sums + o * split.inner + column;
        for (size_t i = 0; i < n; ++i) to[i] = add(to[i], values[i]);
      });
    }
  }
}

/// The least or greatest element so far, and its position. The first NaN wins.
template <typename T>
struct Extreme {
  T value{};
  int64_t position = -1;
  void offer(T candidate, size_t at, bool is_greatest) {
    const bool is_nan = candidate != candidate, was_nan = value != value;
    const bool is_better = is_greatest ? candidate > value : candidate < value;
    if (position >= 0 && !(is_better || (is_nan && !was_nan))) return;
    value = candidate;
    position = static_cast<int64_t>(at);
  }
};

template <typename T>
void store_extreme(int op, const Tensor& result, size_t at, const Extreme<T>& extreme) {
  std::byte* const to = result.data + at * dtype_bytes(result.dtype);
  if (op == MV_ARGMIN || op == MV_ARGMAX) {
    *reinterpret_cast<int64_t*>(to) = extreme.position;
  } else {
    cast_elements(result.dtype, to, kDtypeOf<T>, reinterpret_cast<const std::byte*>(&extreme.value), 1);
  }
}

template <typename T>
void find_extremes(int op, const Tensor& tensor, const Split& split, const Tensor& result) {
  const bool is_greatest = op == MV_GREATEST || op == MV_ARGMAX;
  Chunk chunk;
  Extreme<T> extremes[kChunk];
  for (size_t o = 0; o < split.outer; ++o) {
    if (split.inner == 1) {
      Extreme<T> extreme;
      by_chunks(0, split.along, [&](size_t at, size_t n) {
        const T* values = fetch<T>(tensor, o * split.along + at, n, &chunk);
        for (size_t i = 0; i < n; ++i) extreme.offer(values[i], at + i, is_greatest);
      });
      store_extreme(op, result, o, extreme);
      continue;
    }
    by_chunks(0, split.inner, [&](size_t column, size_t n) {
      std::fill_n(extremes, n, Extreme<T>{});
      for (size_t j = 0; j < split.along; ++j) {
        const T* values = fetch<T>(tensor, (o * split.along + j) * split.inner + column, n, &chunk);
        for (size_t i = 0; i < n; ++i) extremes[i].offer(values[i], j, is_greatest);
      }
      for (size_t i = 0; i < n; ++i) store_extreme(op, result, o * split.inner + column + i, extremes[i]);
    });
  }
}

mv_dtype result_dtype(int op, mv_dtype dtype) {
  if (op == MV_LEAST || op == MV_GREATEST) return dtype;
  if (op == MV_ARGMIN || op == MV_ARGMAX) return MV_I64;
  if (is_floating(dtype)) return storage_dtype(dtype);
  return op == MV_SUM ? MV_I64 : MV_F64;
}

void run_extremes(int op, const Tensor& tensor, const Split& split, const Tensor& result) {
  math::with_number(storage_dtype(tensor.dtype), [&](auto type) { find_extremes<decltype(type)>(op, tensor, split, result); });
}

bool all_close(const Tensor& a, const Tensor& b, double relative, double absolute) {
  Chunk of_a, of_b;
  bool close = true;
  const bool exact = relative == 0 && absolute == 0 && !is_floating(a.dtype) && !is_floating(b.dtype);
  by_chunks(0, a.stored(), [&](size_t at, size_t n) {
    if (!close) return;
    if (exact) {  // a double may not distinguish two of them
      const int64_t *x = fetch<int64_t>(a, at, n, &of_a), *y = fetch<int64_t>(b, at, n, &of_b);
      close = std::equal(x, x + n, y);
      return;
    }
    const double *x = fetch<double>(a, at, n, &of_a), *y = fetch<double>(b, at, n, &of_b);
    for (size_t i = 0; i < n; ++i) {
      const bool near =
          std::isfinite(x[i]) && std::isfinite(y[i]) && std::fabs(x[i] - y[i]) <= absolute + relative * std::fabs(y[i]);
      close = close && (near || x[i] == y[i]);
    }
  });
  return close;
}

}  // namespace

base::Result<Tensor> reduce(const char* function, Heap& heap, int op, const Tensor& tensor, int64_t axis) {
  if (op < MV_SUM || op > MV_NORM) return base::error(MV_EINVAL, "{}: {} is not an mv_tensor_reduce_op", function, op);
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  if (axis != MV_ALL_AXES && (axis < 0 || axis >= tensor.shape.dims))
    return base::error(MV_EINVAL, "{}: {} has no dimension {}", function, tensor.text(), axis);
  const Split split = split_at(tensor.shape, axis);
  const Shape shape = axis == MV_ALL_AXES ? Shape{} : tensor.shape.without(static_cast<uint32_t>(axis));
  const bool is_extreme = op >= MV_LEAST && op <= MV_ARGMAX;
  if (is_extreme && split.along == 0 && shape.count() > 0)
    return base::error(MV_EINVAL, "{}: no least or greatest element along an empty dimension of {}", function,
                       tensor.text());
  auto result = make_dense(home_of(tensor, heap), result_dtype(op, tensor.dtype), shape, Heap::Content::kAnything);
  if (!result.ok()) return result;
  if (Device* const device = device_of(tensor); device != nullptr) {
    auto status = device->reduce(op, tensor, split, result.value());
    return status.ok() ? result : base::Result<Tensor>(status);
  }
  if (is_extreme) {
    run_extremes(op, tensor, split, result.value());
  } else if (result.value().dtype == MV_I64) {
    sum_integers(tensor, split, result.value());
  } else if (split.inner == 1) {
    sum_along_rows(op, tensor, split, result.value());
  } else {
    sum_columns(op, tensor, split, result.value());
  }
  return result;
}

base::Result<double> dot(const char* function, const Tensor& a, const Tensor& b) {
  if (auto status = need_dense(function, a); !status.ok()) return status;
  if (auto status = need_dense(function, b); !status.ok()) return status;
  if (a.shape != b.shape) return base::error(MV_ESHAPE, "{}: {} and {} differ in shape", function, a.text(), b.text());
  if (auto status = same_place(function, a, b); !status.ok()) return status;
  if (device_of(a) != nullptr) return device_of(a)->dot(a, b);
  PairwiseSum sum;
  Chunk of_a, of_b;
  by_chunks(0, a.stored(), [&](size_t at, size_t n) {
    const double *x = fetch<double>(a, at, n, &of_a), *y = fetch<double>(b, at, n, &of_b);
    sum.add(sum_of_chunk(n, [=](size_t i) { return x[i] * y[i]; }));
  });
  return sum.total();
}

base::Result<bool> close(const char* function, const Tensor& a, const Tensor& b, double relative, double absolute) {
  if (auto status = need_dense(function, a); !status.ok()) return status;
  if (auto status = need_dense(function, b); !status.ok()) return status;
  if (!(relative >= 0) || !(absolute >= 0))
    return base::error(MV_EINVAL, "{}: the tolerances are {} and {}, but must be at least 0", function, relative,
                       absolute);
  if (a.shape != b.shape) return false;
  // Tensors of devices are compared on the host.
  const auto first = on_host(a), second = on_host(b);
  if (!first.ok()) return first.status();
  if (!second.ok()) return second.status();
  return all_close(first.value(), second.value(), relative, absolute);
}

}  // namespace mv::tensor
