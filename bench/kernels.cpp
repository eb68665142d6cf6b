// The kernels of core/math, and the operations of core/table built on them, compared with glibc's memcpy. Speed counts payload: the bytes
// of the source, once, for all of them.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "math/average.hpp"
#include "math/kernels.hpp"
#include "shard/combine.hpp"
#include "shard/updater/updater.hpp"
#include "tensor/dtype.hpp"

namespace {

constexpr int64_t kSmallest = 4 << 10, kLargest = 64 << 20, kStep = 16;

template <typename T>
std::vector<T> ones(int64_t bytes) {
  return std::vector<T>(static_cast<size_t>(bytes) / sizeof(T), T{1});
}

template <typename T>
constexpr mv_dtype kDtype = std::is_same_v<T, float> ? MV_F32 : MV_F64;

template <typename T>
std::byte* bytes(std::vector<T>& values) { return reinterpret_cast<std::byte*>(values.data()); }

void count_payload(benchmark::State& state) { state.SetBytesProcessed(state.iterations() * state.range(0)); }

void copy(benchmark::State& state) {
  const auto from = ones<float>(state.range(0));
  auto to = ones<float>(state.range(0));
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), static_cast<size_t>(state.range(0)));
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

template <typename T>
void add(benchmark::State& state) {
  auto from = ones<T>(state.range(0)), to = from;
  for (auto _ : state) {
    mv::math::add_bytes(kDtype<T>, bytes(to), bytes(from), to.size());
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

template <typename T>
void all_finite(benchmark::State& state) {
  auto values = ones<T>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(mv::math::all_finite_bytes(kDtype<T>, bytes(values), values.size()));
  count_payload(state);
}

/// Gossip's mean of two models. It reads and writes as many arrays as add(), which is therefore its memory bound.
void average(benchmark::State& state, mv_dtype dtype) {
  const std::vector<std::byte> from(static_cast<size_t>(state.range(0)));
  std::vector<std::byte> to(from.size());
  for (auto _ : state)
    benchmark::DoNotOptimize(
        mv::math::average_bytes(dtype, to.data(), from.data(), to.size() / mv::tensor::dtype_bytes(dtype), 0.5));
  count_payload(state);
}

/// Adds values of any dtype to their stored form; the payload is the values.
void add_dtype(benchmark::State& state, mv_dtype dtype) {
  const std::vector<std::byte> from(static_cast<size_t>(state.range(0)));
  const size_t count = from.size() / mv::tensor::dtype_bytes(dtype);
  std::vector<std::byte> to(count * mv::tensor::dtype_bytes(mv::tensor::storage_dtype(dtype)));
  for (auto _ : state) {
    mv::math::add_bytes(dtype, to.data(), from.data(), count);
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

/// One step of an updater; the payload is the gradient. It also reads and writes values and states, so memory bandwidth bounds it.
void step(benchmark::State& state, const char* updater) {
  const auto made = mv::shard::make_updater(mv::shard::parse_updater(updater).value(), MV_F32);
  const auto gradient = ones<float>(state.range(0));
  auto values = gradient;
  std::vector<std::vector<float>> states(made->states(), std::vector<float>(gradient.size()));
  std::vector<std::byte*> arrays;
  for (auto& array : states) arrays.push_back(reinterpret_cast<std::byte*>(array.data()));
  for (auto _ : state) {
    made->apply({.count = gradient.size(),
                 .values = reinterpret_cast<std::byte*>(values.data()),
                 .added = reinterpret_cast<const std::byte*>(gradient.data()),
                 .states = arrays.data()});
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

/// Rows of 64 floats, every other one of the table, in a scattered order.
struct Rows {
  static constexpr size_t kCols = 64, kRowBytes = kCols * sizeof(float);
  explicit Rows(int64_t bytes)
      : ids(static_cast<size_t>(bytes) / kRowBytes), table(ones<float>(2 * bytes)), values(ones<float>(bytes)) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(2 * (i * 7919 % ids.size()));
  }
  std::byte* table_bytes() { return reinterpret_cast<std::byte*>(table.data()); }
  std::byte* value_bytes() { return reinterpret_cast<std::byte*>(values.data()); }

  std::vector<int64_t> ids;
  std::vector<float> table, values;
};

void add_rows(benchmark::State& state) {
  Rows rows(state.range(0));
  for (auto _ : state) {
    mv::math::add_rows(MV_F32, rows.table_bytes(), Rows::kCols, {rows.ids.data(), rows.ids.size()}, rows.value_bytes());
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

void gather_rows(benchmark::State& state) {
  Rows rows(state.range(0));
  for (auto _ : state) {
    mv::math::gather_rows(MV_F32, rows.table_bytes(), Rows::kCols, {rows.ids.data(), rows.ids.size()},
                          rows.value_bytes());
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

/// The reference for gather_rows(): a plain loop.
void gather_loop(benchmark::State& state) {
  Rows rows(state.range(0));
  for (auto _ : state) {
    for (size_t i = 0; i < rows.ids.size(); ++i) {
      const float* from = &rows.table[static_cast<size_t>(rows.ids[i]) * Rows::kCols];
      std::copy_n(from, Rows::kCols, &rows.values[i * Rows::kCols]);
    }
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

/// The check for repeated rows, and the summation if every second row is a repeat.
void combine(benchmark::State& state, bool repeats) {
  Rows rows(state.range(0));
  if (repeats)
    for (int64_t& id : rows.ids) id /= 4;  // all of them are even
  const mv::shard::Spec spec{
      .name = "bench", .kind = MV_SPARSE, .dtype = MV_F32, .rows = uint64_t{1} << 40, .cols = Rows::kCols};
  mv::shard::Combined out;
  for (auto _ : state) benchmark::DoNotOptimize(mv::shard::combine(spec, rows.ids, rows.value_bytes(), &out));
  count_payload(state);
}

void sizes(benchmark::internal::Benchmark* benchmark) { benchmark->RangeMultiplier(kStep)->Range(kSmallest, kLargest); }

}  // namespace

// bench/rows/kernels.py expects these names: <kernel>/<bytes>.
BENCHMARK(copy)->Name("memcpy")->Apply(sizes);
BENCHMARK(add<float>)->Name("add_f32")->Apply(sizes);
BENCHMARK(add<double>)->Name("add_f64")->Apply(sizes);
BENCHMARK(all_finite<float>)->Name("all_finite_f32")->Apply(sizes);
BENCHMARK(all_finite<double>)->Name("all_finite_f64")->Apply(sizes);
BENCHMARK(add_rows)->Name("add_rows_f32")->Apply(sizes);
BENCHMARK(gather_rows)->Name("gather_rows_f32")->Apply(sizes);
BENCHMARK(gather_loop)->Name("gather_loop_f32")->Apply(sizes);
BENCHMARK_CAPTURE(add_dtype, i64, MV_I64)->Name("add_i64")->Apply(sizes);
BENCHMARK_CAPTURE(add_dtype, u8, MV_U8)->Name("add_u8")->Apply(sizes);
BENCHMARK_CAPTURE(add_dtype, f16, MV_F16)->Name("add_f16")->Apply(sizes);
BENCHMARK_CAPTURE(add_dtype, bf16, MV_BF16)->Name("add_bf16")->Apply(sizes);
BENCHMARK_CAPTURE(average, f32, MV_F32)->Name("average_f32")->Apply(sizes);
BENCHMARK_CAPTURE(average, f64, MV_F64)->Name("average_f64")->Apply(sizes);
BENCHMARK_CAPTURE(step, sgd, "sgd")->Name("sgd_f32")->Apply(sizes);
BENCHMARK_CAPTURE(step, momentum, "momentum")->Name("momentum_f32")->Apply(sizes);
BENCHMARK_CAPTURE(step, adagrad, "adagrad")->Name("adagrad_f32")->Apply(sizes);
BENCHMARK_CAPTURE(step, ftrl, "ftrl l1=0.5")->Name("ftrl_f32")->Apply(sizes);
BENCHMARK_CAPTURE(combine, distinct, false)->Name("combine_distinct_f32")->Apply(sizes);
BENCHMARK_CAPTURE(combine, repeats, true)->Name("combine_repeats_f32")->Apply(sizes);

BENCHMARK_MAIN();
