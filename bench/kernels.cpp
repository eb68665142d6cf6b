// The kernels of core/math beside glibc's memcpy. Speed is payload: the bytes of the source, counted once, for all of them.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "math/kernels.hpp"

namespace {

constexpr int64_t kSmallest = 4 << 10, kLargest = 64 << 20, kStep = 16;

template <typename T>
std::vector<T> ones(int64_t bytes) {
  return std::vector<T>(static_cast<size_t>(bytes) / sizeof(T), T{1});
}

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
  const auto from = ones<T>(state.range(0));
  auto to = ones<T>(state.range(0));
  for (auto _ : state) {
    mv::math::add(std::span<T>(to), std::span<const T>(from));
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

template <typename T>
void all_finite(benchmark::State& state) {
  const auto values = ones<T>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(mv::math::all_finite(std::span<const T>(values)));
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
    mv::math::add_rows(MV_F32, rows.table_bytes(), Rows::kCols, rows.ids.data(), rows.ids.size(), rows.value_bytes());
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

void gather_rows(benchmark::State& state) {
  Rows rows(state.range(0));
  for (auto _ : state) {
    mv::math::gather_rows(MV_F32, rows.table_bytes(), Rows::kCols, rows.ids.data(), rows.ids.size(), rows.value_bytes());
    benchmark::ClobberMemory();
  }
  count_payload(state);
}

void sizes(benchmark::internal::Benchmark* benchmark) { benchmark->RangeMultiplier(kStep)->Range(kSmallest, kLargest); }

}  // namespace

// Named as bench/rows/kernels.py expects them: <kernel>/<bytes>.
BENCHMARK(copy)->Name("memcpy")->Apply(sizes);
BENCHMARK(add<float>)->Name("add_f32")->Apply(sizes);
BENCHMARK(add<double>)->Name("add_f64")->Apply(sizes);
BENCHMARK(all_finite<float>)->Name("all_finite_f32")->Apply(sizes);
BENCHMARK(all_finite<double>)->Name("all_finite_f64")->Apply(sizes);
BENCHMARK(add_rows)->Name("add_rows_f32")->Apply(sizes);
BENCHMARK(gather_rows)->Name("gather_rows_f32")->Apply(sizes);

BENCHMARK_MAIN();
