// Kernels of a device against the bandwidth of its own copies, measured in the same run:
//   bench_device [MIB]      arrays of so many MiB, 256 by default
//
// Every kernel here is bound by memory: it should take the time of a copy of the same bytes. A row tells what was measured, the share of the
// copy's bandwidth, and the goal; the exit status is 1 if a goal is missed.

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "device/operations.hpp"

namespace {

using namespace mv;
using device::Memory;

template <typename T>
T must(base::Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "bench_device: {}\n", result.status().text());
  std::exit(2);
}
void must(const base::Status& status) {
  if (!status.ok()) must(base::Result<int>(status));
}

class Bench {
 public:
  Bench(const device::Stream& stream, uint64_t count) : stream_(stream), count_(count) {
    const device::Device& on = stream.device();
    must(on.check(on.plugin().event_make(on.number(), &begin_), "event"));
    must(on.check(on.plugin().event_make(on.number(), &end_), "event"));
    for (size_t i = 0; i < kArrays; ++i) {
      arrays_.push_back(must(Memory::make(stream, count * sizeof(float))));
      must(stream.launch(MV_DEVICE_RANDOM, mv_device_random{array(i), count, static_cast<int64_t>(i), 0.5, 1.5, 0, 0, 0, MV_F32}));
    }
  }

  float* array(size_t i) const { return arrays_[i].as<float>(); }
  bool has_missed() const { return has_missed_; }

  /// The time of one call of `work`, in milliseconds: the best of five rounds of several calls.
  double millis(const std::function<void()>& work) const {
    constexpr int kRounds = 5, kCalls = 10;
    const device::Device& on = stream_.device();
    for (int i = 0; i < 3; ++i) work();
    double best = 1e30;
    for (int round = 0; round < kRounds; ++round) {
      must(on.check(on.plugin().event_record(on.number(), begin_, stream_.handle()), "event"));
      for (int i = 0; i < kCalls; ++i) work();
      must(on.check(on.plugin().event_record(on.number(), end_, stream_.handle()), "event"));
      double measured = 0;
      must(on.check(on.plugin().event_millis(begin_, end_, &measured), "event"));
      best = std::min(best, measured / kCalls);
    }
    return best;
  }

  /// A row: `arrays` is how many arrays the work reads and writes, counted in arrays of floats. goal 0: none.
  void row(const std::string& name, double arrays, double goal, const std::function<void()>& work) {
    const double gigabytes = arrays * static_cast<double>(count_ * sizeof(float)) / 1e9, time = millis(work), speed = gigabytes / (time / 1e3);
    if (copy_ == 0) copy_ = speed;
    const bool is_missed = goal > 0 && speed < goal * copy_;
    has_missed_ = has_missed_ || is_missed;
    fmt::print("| {} | {:.3f} | {:.0f} | {:.2f} | {} |\n", name, time, speed, speed / copy_,
               goal > 0 ? fmt::format("{:.2f}{}", goal, is_missed ? " missed" : "") : "");
  }

  void copies_of_the_host() {
    const device::Device& on = stream_.device();
    const size_t bytes = count_ * sizeof(float);
    void* pinned = nullptr;
    must(on.check(on.plugin().pin(bytes, &pinned), "pin"));
    row("copy from the host, pinned", 1, 0, [&] { must(stream_.copy(array(0), pinned, bytes)); });
    row("copy to the host, pinned", 1, 0, [&] { must(stream_.copy(pinned, array(0), bytes)); });
    must(stream_.wait());
    on.plugin().unpin(pinned);
  }

  void kernels() {
    const size_t bytes = count_ * sizeof(float);
    row("copy", 2, 0, [&] { must(stream_.copy(array(1), array(0), bytes)); });
    row("fill", 1, 0, [&] { must(stream_.launch(MV_DEVICE_FILL, mv_device_fill{array(1), count_, {0, 0, 128, 63}, MV_F32})); });
    row("axpy", 3, 0.85, [&] { must(stream_.launch(MV_DEVICE_AXPY, mv_device_axpy{array(1), array(0), count_, 0.5, MV_F32, MV_F32})); });
    row("interpolation", 3, 0.85, [&] { must(stream_.launch(MV_DEVICE_MIX, mv_device_mix{array(1), array(0), count_, 0.5, MV_F32})); });
    row("sum of 4 arrays", 5, 0.85, [&] {
      must(stream_.launch(MV_DEVICE_MERGE,
                          mv_device_merge{array(4), {array(0), array(1), array(2), array(3)}, count_, 4, 1, MV_DEVICE_MERGE_SUM, MV_F32}));
    });
    row("sum of all elements", 1, 0, [&] { must(device::reduce(stream_, MV_SUM, MV_F32, array(0), {1, count_, 1}, array(5))); });
    for (const char* const words : {"1bit", "2bit", "fp16", "bf16", "int8"}) {
      const auto codec = codec::make(must(codec::parse(words)));
      const double sent = static_cast<double>(codec->encoded_bytes(count_)) / static_cast<double>(bytes);
      row(fmt::format("encode {}", words), 3 + sent, 0.85, [&] { must(device::encode(stream_, *codec, array(0), array(1), count_, array(2))); });
      row(fmt::format("decode {}", words), 1 + sent, 0.85, [&] { must(device::decode(stream_, *codec, array(2), array(3), count_, false)); });
    }
  }

  /// Each optimizer on one large tensor, and on 1,000 of 256 KiB.
  void optimizers() {
    for (const char* const words : {"sgd",
                                    "momentum",
                                    "adagrad",
                                    "ftrl",
                                    "mx.sgd",
                                    "mx.sgd momentum=0.9",
                                    "mx.signum momentum=0.9",
                                    "mx.ftml",
                                    "mx.lbsgd momentum=0.9",
                                    "mx.dcasgd momentum=0.9",
                                    "mx.nag momentum=0.9",
                                    "mx.sgld",
                                    "mx.adam",
                                    "mx.adagrad",
                                    "mx.rmsprop",
                                    "mx.adadelta",
                                    "mx.ftrl",
                                    "mx.adamax",
                                    "mx.nadam",
                                    "mx.adamw",
                                    "mx.lamb",
                                    "mx.lion"}) {
      const auto spec = must(shard::parse_updater(words));
      const auto updater = shard::make_updater(spec, MV_F32);
      if (updater->states() + 2 > kArrays) continue;
      for (const uint64_t tensors : {uint64_t{1}, uint64_t{1000}}) {
        std::vector<std::vector<void*>> states(tensors);
        std::vector<device::Target> targets(tensors);
        const uint64_t each = tensors == 1 ? count_ : std::min<uint64_t>(64 << 10, count_ / tensors);
        for (uint64_t k = 0; k < tensors; ++k) {
          for (size_t s = 0; s < updater->states(); ++s) states[k].push_back(array(2 + s) + k * each);
          targets[k] = {array(0) + k * each,
                        array(1) + k * each,
                        nullptr,
                        states[k],
                        each,
                        0,
                        updater->counts() ? updater->step({}, updater->shared()) : shard::Step()};
        }
        // A formula with sums reads everything twice.
        const double arrays =
            (3 + 2 * static_cast<double>(updater->states()) + (updater->sums() > 0 ? 2 + 2 * static_cast<double>(updater->states()) : 0)) *
            static_cast<double>(each * tensors) / static_cast<double>(count_);
        row(fmt::format("{}, {} {}", words, tensors, tensors == 1 ? "tensor" : "tensors"), arrays, tensors == 1 ? 0.85 : 0.75,
            [&] { must(device::update(stream_, spec, MV_F32, MV_F32, targets)); });
      }
    }
  }

 private:
  static constexpr size_t kArrays = 6;
  const device::Stream& stream_;
  const uint64_t count_;
  std::vector<Memory> arrays_;
  mv_device_event begin_ = nullptr, end_ = nullptr;
  double copy_ = 0;
  bool has_missed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const uint64_t mebibytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256;
  if (mebibytes == 0) {
    fmt::print(stderr, "usage: bench_device [MIB]\n");
    return 2;
  }
  const device::Device on = must(device::Device::open(must(device::the_plugin()), 0));
  const mv_device_about about = must(on.describe());
  fmt::print("{}: {}, {}, driver {}; arrays of {} MiB of f32\n\n", on.name(), about.name, about.runtime, about.driver, mebibytes);
  fmt::print("| kernel | ms | GB/s | of the copy | goal |\n|---|---|---|---|---|\n");
  const device::Stream stream = must(device::Stream::make(on));
  Bench bench(stream, (mebibytes << 20) / sizeof(float));
  bench.kernels();
  bench.optimizers();
  bench.copies_of_the_host();
  return bench.has_missed() ? 1 : 0;
}
