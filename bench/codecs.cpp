// Gradient compression, core/codec. Speed counts payload: the bytes of the values, once.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "codec/codec.hpp"

namespace {

constexpr int64_t kBytes = 64 << 20;

/// A gradient in which some values reach the threshold of 2bit and some don't, and its encoded form.
struct Gradient {
  explicit Gradient(const char* text)
      : codec(mv::codec::make(mv::codec::parse(text).value())),
        values(kBytes / sizeof(float)),
        residual(values.size()),
        encoded(codec->encoded_bytes(values.size())) {
    std::minstd_rand random(1);
    for (float& value : values) value = static_cast<float>(random() % 1024) / 512 - 1;
    codec->encode(values.data(), residual.data(), values.size(), encoded.data());
  }
  const mv::codec::CodecRef codec;
  std::vector<float> values, residual;
  std::vector<std::byte> encoded;
};

void encode(benchmark::State& state, const char* text) {
  Gradient gradient(text);
  for (auto _ : state) {
    gradient.codec->encode(gradient.values.data(), gradient.residual.data(), gradient.values.size(),
                           gradient.encoded.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void decode(benchmark::State& state, const char* text, bool adds) {
  Gradient gradient(text);
  for (auto _ : state) {
    if (adds)
      gradient.codec->decode_add(gradient.encoded.data(), gradient.values.data(), gradient.values.size());
    else
      gradient.codec->decode(gradient.encoded.data(), gradient.values.data(), gradient.values.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void add_benchmarks() {
  for (const char* const text : {"2bit", "1bit", "fp16", "int8", "topk"}) {
    const auto named = [&](const char* what, auto work) {
      benchmark::RegisterBenchmark((std::string(text) + what).c_str(), work)->Arg(kBytes);
    };
    named(" encode", [text](benchmark::State& state) { encode(state, text); });
    named(" decode", [text](benchmark::State& state) { decode(state, text, false); });
    named(" decode and add", [text](benchmark::State& state) { decode(state, text, true); });
  }
}

const bool kAdded = (add_benchmarks(), true);

}  // namespace
