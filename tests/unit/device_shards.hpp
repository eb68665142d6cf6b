#pragma once
// For tests that compare shards in the memory of a device with those on the host. Included after cmocka. The plug-in is that of
// unit/device_test.

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "device/shard.hpp"
#include "must.hpp"
#include "shards.hpp"
#include "tensor/cast.hpp"

namespace {

using namespace mv;
using shard::ChangePart;
using shard::Shard;
using shard::Spec;
using shard::Worker;
using shard::Write;

constexpr Worker kWorker = 0;

/// Decided once, before main() sets the variable.
bool is_emulated() {
  static const bool kIs = std::getenv(device::kPluginVariable) == nullptr;
  return kIs;
}

tensor::Heap& heap() {
  static tensor::Heap kHeap;
  return kHeap;
}
device::TensorDevices& devices() {
  static device::TensorDevices kDevices(heap());
  return kDevices;
}
device::TensorDevice& gpu(int32_t number = 0) { return *must(devices().get(number)); }

[[maybe_unused]] void use_table_devices() {
  if (is_emulated()) setenv(device::kPluginVariable, EMULATION, 1);
  static device::TableDevices tables(devices());
  shard::DeviceShards::use(tables);
}

/// A shard in the host's memory and one on a device, of one table.
struct Pair {
  std::shared_ptr<Shard> host, there;
  explicit Pair(Spec spec, const shard::Position& place = {}) : host(shard::make(spec, place)) {
    spec.device = 0;
    there = shard::make(spec, place);
    assert_non_null(there->on_device());
    assert_null(host->on_device());
  }
  /// Calls change(shard) for both.
  template <typename Change>
  void both(const Change& change) const {
    change(*host);
    change(*there);
  }
};

std::mt19937& dice() {
  static std::mt19937 kDice(7);
  return kDice;
}

/// Numbers of many magnitudes, without NaN and infinity.
std::vector<std::byte> varied(mv_dtype dtype, size_t count) {
  std::vector<std::byte> made(count * tensor::dtype_bytes(dtype));
  for (size_t i = 0; i < count; ++i) {
    const double wide = std::ldexp(static_cast<int32_t>(dice()()), -static_cast<int>(dice()() % 16) - 24);
    tensor::store_element(dtype, &made[i * tensor::dtype_bytes(dtype)], tensor::is_floating(dtype) ? wide : std::trunc(wide));
  }
  return made;
}

}  // namespace
