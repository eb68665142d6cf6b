// A step of each optimizer of core/shard/updater/optimizer, compared with additions that read and write the same arrays: memory bandwidth
// bounds both. Speed counts payload: the bytes of the gradient, once.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.hpp"
#include "math/kernels.hpp"
#include "shard/updater/updater.hpp"

namespace {

constexpr int64_t kBytes = 64 << 20;
constexpr size_t kCount = kBytes / sizeof(float);

/// kCount numbers in the same kind of memory as a shard's.
class Array {
 public:
  explicit Array(float value) : memory_(std::move(mv::base::Memory::make(kBytes).value())) {
    std::ranges::fill(std::span(data(), kCount), value);
  }
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  /// A slice; the slices of all arrays together fit into the first-level cache.
  std::span<float> piece(size_t begin) const { return {data() + begin, kPiece}; }
  static constexpr size_t kPiece = 1024;

 private:
  mv::base::Memory memory_;
};

/// The arrays for a tensor of 64 MiB: gradient, values, states.
struct Tensor {
  explicit Tensor(size_t count) {
    for (size_t i = 0; i < count; ++i) pointers.push_back(reinterpret_cast<std::byte*>(states.emplace_back(0.25f).data()));
  }
  Array gradient{0.5f}, values{1.0f};
  std::vector<Array> states;
  std::vector<std::byte*> pointers;
};

void step(benchmark::State& state, const char* text) {
  using namespace mv::shard;
  const auto updater = make_updater(parse_updater(text).value(), MV_F32);
  Tensor tensor(updater->states());
  std::vector<double> shared(updater->shared().begin(), updater->shared().end());
  uint64_t count = 0;
  for (auto _ : state) {
    ++count;
    const Turn turn{.count = count, .latest = count, .before = count - 1};
    updater->advance(turn, shared);
    Step step = updater->step(turn, shared);
    const Block block{.count = kCount,
                      .values = reinterpret_cast<std::byte*>(tensor.values.data()),
                      .added = reinterpret_cast<const std::byte*>(tensor.gradient.data()),
                      .states = tensor.pointers.data(),
                      .step = &step};
    if (updater->sums() > 0) {
      auto sums = step.sums;
      updater->measure(block, sums.data());
      step.sums = sums;
    }
    updater->apply(block);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void add(std::span<float> dst, std::span<const float> src) {
  mv::math::add_bytes(MV_F32, std::as_writable_bytes(dst).data(), std::as_bytes(src).data(), src.size());
}

/// Adds the gradient to the values and to each state: reads one array, reads and writes 1 + states.
void bound(benchmark::State& state, size_t states) {
  Tensor tensor(states);
  for (auto _ : state) {
    for (size_t i = 0; i < kCount; i += Array::kPiece) {
      add(tensor.values.piece(i), tensor.gradient.piece(i));
      for (const Array& one : tensor.states) add(one.piece(i), tensor.gradient.piece(i));
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

/// LAMB's bound: first it writes both states and reads gradient and values; then it writes the values and reads the states.
void bound_twice(benchmark::State& state) {
  Tensor tensor(2);
  for (auto _ : state) {
    for (size_t i = 0; i < kCount; i += Array::kPiece) {
      add(tensor.states[0].piece(i), tensor.gradient.piece(i));
      add(tensor.states[1].piece(i), tensor.values.piece(i));
    }
    for (size_t i = 0; i < kCount; i += Array::kPiece)
      for (const Array& one : tensor.states) add(tensor.values.piece(i), one.piece(i));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void named(const std::string& name, const auto& work) {
  benchmark::RegisterBenchmark((name + "/" + std::to_string(kBytes)).c_str(), work);
}

/// bench/rows/kernels.py expects these names: <what>|<its bound>/<bytes>, and the bounds.
const bool kRegistered = [] {
  constexpr struct {
    const char* name;
    const char* text;
    const char* bound;
  } kSteps[] = {
      {"sgd", "mx.sgd wd=0.01", "bound1"},
      {"sgd, momentum", "mx.sgd momentum=0.9 wd=0.01", "bound2"},
      {"signum", "mx.signum wd=0.01", "bound2"},
      {"ftml", "mx.ftml wd=0.01", "bound4"},
      {"lbsgd", "mx.lbsgd wd=0.01 momentum=0.9", "bound2"},
      {"dcasgd", "mx.dcasgd wd=0.01", "bound2"},
      {"nag", "mx.nag momentum=0.9 wd=0.01", "bound2"},
      {"sgld", "mx.sgld wd=0.01", "bound1"},
      {"adam", "mx.adam wd=0.01 clip_gradient=1", "bound3"},
      {"adagrad", "mx.adagrad wd=0.01", "bound2"},
      {"rmsprop", "mx.rmsprop wd=0.01", "bound2"},
      {"rmsprop, centered", "mx.rmsprop centered=1 wd=0.01", "bound4"},
      {"adadelta", "mx.adadelta wd=0.01", "bound3"},
      {"test", "mx.test", "bound2"},
      {"ftrl", "mx.ftrl wd=0.01", "bound3"},
      {"adamax", "mx.adamax wd=0.01", "bound3"},
      {"nadam", "mx.nadam wd=0.01", "bound3"},
      {"adamw", "mx.adamw wd=0.01", "bound3"},
      {"lamb", "mx.lamb wd=0.01", "bound-twice"},
      {"lion", "mx.lion wd=0.01", "bound2"},
  };
  for (const auto& one : kSteps)
    named(std::string("optimizer ") + one.name + "|" + one.bound,
          [text = one.text](benchmark::State& state) { step(state, text); });
  for (size_t arrays = 1; arrays <= 4; ++arrays)
    named("bound" + std::to_string(arrays), [=](benchmark::State& state) { bound(state, arrays - 1); });
  named("bound-twice", bound_twice);
  return true;
}();

}  // namespace
