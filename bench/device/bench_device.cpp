// Kernels of a device against the bandwidth of its own copies, measured in the same run:
//   bench_device [MIB]      arrays of so many MiB, 256 by default
//
// Every kernel here is bound by memory: it should take the time of a copy of the same bytes. A row tells what was measured, the share of the
// copy's bandwidth, and the goal; the exit status is 1 if a goal is missed.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/mix.hpp"
#include "codec/codec.hpp"
#include "device/keyed/index.hpp"
#include "device/operations.hpp"
#include "device/shard.hpp"

namespace {

using namespace mv;
using device::Memory;
using tensor::Tensor;

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
    row("interpolation", 3, 0.85, [&] { must(stream_.launch(MV_DEVICE_MIX, mv_device_mix{array(1), array(0), nullptr, nullptr, count_, 0.5, MV_F32})); });
    row("interpolation that measures", 3, 0.85,
        [&] { must(stream_.launch(MV_DEVICE_MIX, mv_device_mix{array(1), array(0), nullptr, arrays_[4].as<double>(), count_, 0.5, MV_F32})); });
    row("elastic averaging", 4, 0.85,
        [&] { must(stream_.launch(MV_DEVICE_ELASTIC, mv_device_elastic{array(1), array(0), array(2), count_, 0.5, MV_F32})); });
    row("outer step of DiLoCo", 7, 0.85, [&] {
      must(stream_.launch(MV_DEVICE_OUTER, mv_device_outer{array(0), array(1), array(2), array(3), count_, 0.7, 0.9, 0,
                                                           static_cast<int32_t>(math::Outer::kReplace), MV_F32}));
    });
    row("sum of 4 arrays", 5, 0.85, [&] {
      must(stream_.launch(MV_DEVICE_MERGE,
                          mv_device_merge{array(4), {array(0), array(1), array(2), array(3)}, count_, 4, 1, MV_DEVICE_MERGE_SUM, MV_F32}));
    });
    row("sum of all elements", 1, 0, [&] { must(device::reduce(stream_, MV_SUM, MV_F32, array(0), {1, count_, 1}, array(5))); });
    for (const char* const words : {"1bit", "2bit", "fp16", "bf16", "int8", "topk"}) {
      const auto codec = codec::make(must(codec::parse(words)));
      const double sent = static_cast<double>(codec->encoded_bytes(count_)) / static_cast<double>(bytes);
      for (const uint64_t tensors : {uint64_t{1}, uint64_t{1000}}) {
        const uint64_t each = tensors == 1 ? count_ : std::min<uint64_t>(64 << 10, count_ / tensors);
        const double share = static_cast<double>(each * tensors) / static_cast<double>(count_), goal = tensors == 1 ? 0.85 : 0.75;
        const size_t room = (device::encoding_room(*codec, each) + 15) / 16 * 16;
        const Memory encoded = must(Memory::make(stream_, tensors * room));
        std::vector<codec::Encoding> encodings;
        std::vector<codec::Decoding> decodings;
        for (uint64_t k = 0; k < tensors; ++k) {
          auto* const out = encoded.as<std::byte>() + k * room;
          encodings.push_back({reinterpret_cast<const std::byte*>(array(0) + k * each), MV_F32, array(1) + k * each, each, out});
          decodings.push_back({out, array(2) + k * each, each});
        }
        const std::string text = fmt::format("{}, {} {}", words, tensors, tensors == 1 ? "tensor" : "tensors");
        row("encode " + text, (3 + sent) * share, goal, [&] { must(device::encode(stream_, *codec, encodings)); });
        row("decode " + text, (1 + sent) * share, goal, [&] { must(device::decode(stream_, *codec, decodings, false)); });
      }
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

  /// What pushes and pulls of tensors on the device do with keys that are there, and a server with rows of its table. Rows come from the host and
  /// go there.
  void tables(device::TensorDevice& on) {
    const auto one = key(count_, "mx.sgd momentum=0.9");
    std::vector<Tensor> values;
    for (size_t i = 0; i < 4; ++i) values.push_back(lent(on, array(i), count_));
    const auto push = [&](std::span<const shard::OnDevice::Addition> additions) { must(additions.front().shard->add_together(0, additions, {})); };
    const shard::OnDevice::Addition first{one->on_device(), std::span(values).first(1)}, all{one->on_device(), values};
    row("push of one key, momentum", 5, 0.85, [&] { push({&first, 1}); });
    row("push of 4 arrays to it", 10, 0.85, [&] { push({&all, 1}); });
    row("pull of one key", 2, 0.85, [&] { must(one->on_device()->read_into(0, std::span(values).last(1))); });

    std::vector<std::shared_ptr<shard::Shard>> keys;
    std::vector<shard::OnDevice::Addition> additions;
    double elements = 0;
    for (const uint64_t size : resnet50()) {
      keys.push_back(key(size, "mx.sgd momentum=0.9"));
      values.push_back(lent(on, array(0), size));
      elements += static_cast<double>(size);
    }
    for (size_t i = 0; i < keys.size(); ++i) additions.push_back({keys[i]->on_device(), std::span(&values[4 + i], 1)});
    if (elements <= static_cast<double>(count_)) {
      row(fmt::format("push of {} keys of ResNet-50, momentum", keys.size()), 5 * elements / static_cast<double>(count_), 0, [&] { push(additions); });
      pulls(on, keys, elements);
    }

    constexpr uint64_t kColumns = 64, kRows = 100'000;
    // 1e8 rows for arrays of 256 MiB, if there is room for them and for the updater's state.
    const uint64_t unused = must(stream_.device().describe()).unused, fit = unused / 2 / (2 * kColumns * sizeof(float));
    const uint64_t rows = std::max<uint64_t>(std::min(count_ * 3 / 2, fit), 1);
    const auto table = must(shard::Shard::make({.name = "rows", .kind = MV_MATRIX, .rows = rows, .cols = kColumns, .updater = must(shard::parse_updater("adagrad")), .device = 0}, {}));
    std::vector<int64_t> ids(std::max<uint64_t>(std::min({rows, kRows, count_ / kColumns}), 1));
    const uint64_t apart = rows / ids.size();
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * apart + base::mix(i) % apart);
    std::vector<float> host(ids.size() * kColumns, 0.5F);
    auto* const bytes = reinterpret_cast<std::byte*>(host.data());
    const double moved = static_cast<double>(host.size()) / static_cast<double>(count_);
    const std::array lengths{static_cast<int64_t>(rows), static_cast<int64_t>(kColumns)};
    Tensor there = lent(on, array(0), host.size());
    there.shape = must(tensor::make_shape("bench", lengths.data(), 2));
    there.held = {tensor::Heap::lend(reinterpret_cast<std::byte*>(ids.data()), ids.size() * sizeof(int64_t)), ids.data(), ids.size()};
    const std::string some = fmt::format("{} of {} rows of 64", ids.size(), rows);
    row("gather " + some, 2 * moved, 0.6, [&] { must(table->on_device()->read_held(0, there)); });
    row("update " + some + ", adagrad", 5 * moved, 0.6, [&] { must(table->on_device()->add_held(0, there)); });
    row(fmt::format("get of {} rows of 64, to the host", ids.size()), moved, 0, [&] { table->read_rows(0, ids, bytes); });
    row(fmt::format("add of {} rows of 64 from the host, adagrad", ids.size()), moved, 0, [&] { table->change_rows(shard::Write::Add, 0, ids, bytes); });
  }

  /// The index of a keyed table with as many keys as the arrays have elements: known keys, in random order.
  void keys(device::TensorDevice& on) {
    constexpr uint64_t kAtOnce = uint64_t{4} << 20;
    constexpr double kGoal = 500e6;
    const auto id = [](uint64_t i) { return static_cast<int64_t>(i * 0x9e3779b97f4a7c15); };
    device::DeviceIndex index(on, device::ChunkedRows::shift_for(sizeof(int64_t)));
    must(index.reserve(count_, count_));
    std::vector<int64_t> ids;
    std::vector<uint64_t> rows;
    for (uint64_t i = 0; i < count_; ++i) {
      ids.push_back(id(i));
      rows.push_back(i);
      if (ids.size() < kAtOnce && i + 1 < count_) continue;
      const Memory some = must(Memory::of(stream_, ids.data(), ids.size() * sizeof(int64_t))), slots = must(Memory::of(stream_, rows.data(), rows.size() * sizeof(uint64_t)));
      must(index.insert(some.as<int64_t>(), slots.as<uint64_t>(), ids.size()));
      ids.clear();
      rows.clear();
    }
    const uint64_t asked = std::min(count_, kAtOnce);
    for (uint64_t i = 0; i < asked; ++i) ids.push_back(id(base::mix(i) % count_));
    const Memory some = must(Memory::of(stream_, ids.data(), ids.size() * sizeof(int64_t))), slots = must(Memory::make(stream_, asked * sizeof(uint64_t)));
    const double time = millis([&] { must(index.find(some.as<int64_t>(), asked, slots.as<uint64_t>(), nullptr)); });
    const double speed = static_cast<double>(asked) / (time / 1e3);
    has_missed_ = has_missed_ || speed < kGoal;
    fmt::print("| look-ups among {} keys: {:.0f} M keys/s | {:.3f} | | | {:.0f} M keys/s{} |\n", count_, speed / 1e6, time, kGoal / 1e6, speed < kGoal ? " missed" : "");
  }

  /// Into an array for each key. Only lists of several keys have graphs.
  void pulls(device::TensorDevice& on, std::span<const std::shared_ptr<shard::Shard>> keys, double elements) {
    std::vector<Tensor> outs;
    for (uint64_t at = 0; const auto& one : keys) {
      outs.push_back(lent(on, array(1) + at, one->elements()));
      at += one->elements();
    }
    std::vector<shard::OnDevice::Reading> readings;
    for (size_t i = 0; i < keys.size(); ++i) readings.push_back({keys[i]->on_device(), std::span(&outs[i], 1)});
    const double arrays = 2 * elements / static_cast<double>(count_);
    row(fmt::format("pull of {} keys of ResNet-50, one by one", keys.size()), arrays, 0, [&] {
      for (const auto& [key, own] : readings) must(key->read_into(0, own));
    });
    row(fmt::format("pull of {} keys of ResNet-50, by a graph", keys.size()), arrays, 0, [&] { must(readings.front().shard->read_together(0, readings)); });
  }

 private:
  static std::shared_ptr<shard::Shard> key(uint64_t elements, const char* updater) {
    return must(shard::Shard::make({.name = "kv-0/key", .rows = elements, .flags = shard::kStoreKey, .updater = must(shard::parse_updater(updater)), .device = 0}, {}));
  }
  static Tensor lent(device::TensorDevice& on, float* data, uint64_t count) {
    const auto length = static_cast<int64_t>(count);
    Tensor tensor;
    tensor.shape = must(tensor::make_shape("bench", &length, 1));
    tensor.data = reinterpret_cast<std::byte*>(data);
    tensor.block = on.lend(tensor.data, count * sizeof(float));
    return tensor;
  }
  /// The sizes of its 161 parameters.
  static std::vector<uint64_t> resnet50() {
    std::vector<uint64_t> sizes{64 * 3 * 7 * 7, 64, 64};
    uint64_t in = 64;
    const auto convolution = [&](uint64_t from, uint64_t to, uint64_t area) { sizes.insert(sizes.end(), {from * to * area, to, to}); };
    for (const auto& [width, blocks] : {std::pair(64, 3), std::pair(128, 4), std::pair(256, 6), std::pair(512, 3)}) {
      const auto w = static_cast<uint64_t>(width);
      for (int block = 0; block < blocks; ++block, in = 4 * w) {
        if (block == 0) convolution(in, 4 * w, 1);
        convolution(in, w, 1);
        convolution(w, w, 9);
        convolution(w, 4 * w, 1);
      }
    }
    sizes.insert(sizes.end(), {2048 * 1000, 1000});
    return sizes;
  }

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
  static tensor::Heap heap;  // tensors may outlive everything else
  static device::TensorDevices devices(heap);
  static device::TableDevices tables(devices);
  shard::DeviceShards::use(tables);
  device::TensorDevice& tensors = *must(devices.get(0));
  Bench bench(tensors.current(), (mebibytes << 20) / sizeof(float));
  bench.kernels();
  bench.optimizers();
  bench.tables(tensors);
  bench.keys(tensors);
  bench.copies_of_the_host();
  return bench.has_missed() ? 1 : 0;
}
