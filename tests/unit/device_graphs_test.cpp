// core/device/graphs: work that is repeated has the same results by a graph as item by item. The plug-in is that of unit/device_test.

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/graphs.hpp"
#include "device/shard.hpp"
#include "math/reduction.hpp"
#include "tensor/cast.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "failing_allocation.hpp"
#include "must.hpp"
#include "shards.hpp"

namespace {

using namespace mv;
using device::Graphs;
using device::Memory;
using device::WorkList;
using shard::OnDevice;
using shard::Shard;
using tensor::Tensor;

constexpr shard::Worker kWorker = 0;
constexpr size_t kMany = 160;
constexpr const char* kSettings = "POLYVERSO_EMULATION";

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
const device::Stream& stream() { return gpu().current(); }

int64_t counter(const char* name) {
  void* const emulation = dlopen(EMULATION, RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(emulation);
  const auto count = reinterpret_cast<int64_t (*)()>(dlsym(emulation, name));
  assert_non_null(count);
  return count();
}
/// What `work` adds to counters of the emulation.
struct Costs {
  int64_t submitted, launched;
};
template <typename Work>
Costs costs_of(const Work& work) {
  if (!is_emulated()) {
    work();
    return {};
  }
  const Costs before{counter("emulation_submitted"), counter("emulation_graph_launches")};
  work();
  return {counter("emulation_submitted") - before.submitted, counter("emulation_graph_launches") - before.launched};
}
void assert_costs(const Costs& costs, int64_t submitted, int64_t launched) {
  if (!is_emulated()) return;
  assert_int_equal(costs.submitted, submitted);
  assert_int_equal(costs.launched, launched);
}
void assert_graphs(int64_t count) {
  if (is_emulated()) assert_int_equal(counter("emulation_graphs"), count);
}

/// Two arrays of a device, of which the second becomes the first one's copy or twice the first one.
class Arrays {
 public:
  static constexpr size_t kCount = 1000;
  explicit Arrays(const device::Stream& on = stream()) : on_(on), from_(must(Memory::make(on, kBytes))), to_(must(Memory::make(on, kBytes))) {}

  void fill(float first) {
    std::vector<float> values(kCount);
    std::iota(values.begin(), values.end(), first);
    must(on_.copy_staged(from_.as(), values.data(), kBytes));
    std::ranges::fill(values, -1.0F);
    must(on_.copy_staged(to_.as(), values.data(), kBytes));
  }
  void list_copy(WorkList& work, size_t pieces = kMany) const {
    for (size_t i = 0; i < pieces; ++i) {
      const size_t begin = kCount * i / pieces, end = kCount * (i + 1) / pieces;
      work.copy(to_.as<float>() + begin, from_.as<float>() + begin, (end - begin) * sizeof(float), 0);
    }
  }
  /// to[i] is from[i] or -1 before.
  void list_axpy(WorkList& work) const { work.launch(MV_DEVICE_AXPY, mv_device_axpy{to_.as(), from_.as(), kCount, 1, MV_F32, MV_F32}); }
  std::vector<float> read() const {
    std::vector<float> values(kCount);
    must(on_.copy(values.data(), to_.as(), kBytes));
    must(on_.wait());
    return values;
  }
  void expect(float first, float step = 1) const {
    const auto values = read();
    for (size_t i = 0; i < kCount; ++i) assert_float_equal(values[i], first + step * static_cast<float>(i), 0);
  }

 private:
  static constexpr size_t kBytes = kCount * sizeof(float);
  const device::Stream& on_;
  Memory from_, to_;
};

// ------------------------------------------------------------ lists

void equal_lists_are_launched_at_once(void**) {
  Graphs graphs(gpu().device());
  Arrays arrays;
  WorkList same[2];
  for (WorkList& work : same) {
    arrays.list_copy(work);
    arrays.list_axpy(work);
  }
  assert_int_equal(same[0].size(), kMany + 1);
  for (int round = 0; round < 5; ++round) {
    arrays.fill(static_cast<float>(round));
    const Costs costs = costs_of([&] { must(graphs.run(stream(), same[round % 2])); });
    assert_costs(costs, round == 0 ? kMany + 1 : 1, round == 0 ? 0 : 1);
    arrays.expect(2 * static_cast<float>(round), 2);
  }
  assert_graphs(1);
  WorkList none;
  assert_costs(costs_of([&] { must(graphs.run(stream(), none)); }), 0, 0);
}

void short_lists_have_no_graphs(void**) {
  Graphs graphs(gpu().device());
  Arrays arrays;
  WorkList work;
  arrays.list_copy(work, Graphs::kShortest - 1);
  for (int round = 0; round < 4; ++round) {
    arrays.fill(static_cast<float>(round));
    assert_costs(costs_of([&] { must(graphs.run(stream(), work)); }), Graphs::kShortest - 1, 0);
    arrays.expect(static_cast<float>(round));
  }
  assert_graphs(0);
}

void whatever_differs_makes_another_list(void**) {
  Graphs graphs(gpu().device());
  std::array<float, 64> values{};
  const Memory from = must(Memory::of(stream(), values.data(), sizeof values)), to = must(Memory::make(stream(), sizeof values));
  const auto list = [&](size_t last_to, size_t last_bytes, double alpha, mv_dtype dtype, int32_t source) {
    WorkList work;
    for (size_t i = 0; i < 8; ++i) work.copy(to.as<float>() + i, from.as<float>() + i, sizeof(float), 0);
    work.copy(to.as<float>() + last_to, from.as<float>() + 8, last_bytes, source);
    work.launch(MV_DEVICE_AXPY, mv_device_axpy{to.as(), from.as(), 16, alpha, MV_F32, dtype});
    return work;
  };
  const WorkList first = list(8, 4, 1, MV_F32, 0);
  const WorkList lists[] = {list(9, 4, 1, MV_F32, 0), list(8, 8, 1, MV_F32, 0), list(8, 4, 2, MV_F32, 0), list(8, 4, 1, MV_F16, 0), list(8, 4, 1, MV_F32, 1)};
  must(graphs.run(stream(), first));
  for (const WorkList& other : lists) assert_costs(costs_of([&] { must(graphs.run(stream(), other)); }), 10, 0);
  assert_costs(costs_of([&] { must(graphs.run(stream(), first)); }), 1, 1);
  for (const WorkList& other : lists) assert_costs(costs_of([&] { must(graphs.run(stream(), other)); }), 1, 1);
}

/// Graphs of arrays that were freed are kept for a while, and never launched.
void graphs_of_freed_memory_are_dropped_in_time(void**) {
  {
    Graphs graphs(gpu().device());
    for (size_t i = 0; i < 3 * Graphs::kKept; ++i) {
      Arrays arrays;
      WorkList work;
      arrays.list_copy(work, 8 + i);  // of another length, if the memory is that of the last turn
      for (int round = 0; round < 3; ++round) {
        arrays.fill(static_cast<float>(i));
        must(graphs.run(stream(), work));
        arrays.expect(static_cast<float>(i));
      }
      assert_graphs(static_cast<int64_t>(std::min(i + 1, Graphs::kKept)));
    }
    // The one that was used last stays.
    Arrays arrays;
    WorkList kept;
    arrays.list_copy(kept);
    must(graphs.run(stream(), kept));
    for (size_t i = 0; i < 2 * Graphs::kKept; ++i) {
      WorkList other;
      arrays.list_copy(other, 8 + i);
      must(graphs.run(stream(), other));
      assert_costs(costs_of([&] { must(graphs.run(stream(), kept)); }), 1, 1);
    }
  }
  assert_graphs(0);
}

void a_graph_is_launched_on_any_stream(void**) {
  Graphs graphs(gpu().device());
  const device::Stream other = must(device::Stream::make(gpu().device()));
  Arrays arrays;
  WorkList work;
  arrays.list_copy(work);
  for (int round = 0; round < 4; ++round) {
    arrays.fill(static_cast<float>(round));
    const device::Stream& on = round % 2 == 0 ? stream() : other;
    must(stream().order(on));
    assert_costs(costs_of([&] { must(graphs.run(on, work)); }), round == 0 ? kMany : 1, round == 0 ? 0 : 1);
    must(on.order(stream()));
    arrays.expect(static_cast<float>(round));
  }
}

// ------------------------------------------------------------ failures

void without_graphs_work_is_carried_out_item_by_item(void**) {
  if (!is_emulated()) skip();
  for (const char* const setting : {"graphs=0", "graphs=1", "graphs=2", "recorded=5"}) {
    Graphs graphs(gpu().device());
    Arrays arrays;
    WorkList work, other;
    arrays.list_copy(work);
    arrays.list_copy(other, kMany / 2);
    setenv(kSettings, setting, 1);
    for (int round = 0; round < 4; ++round) {
      arrays.fill(static_cast<float>(round));
      assert_costs(costs_of([&] { must(graphs.run(stream(), work)); }), kMany, 0);
      arrays.expect(static_cast<float>(round));
      assert_graphs(0);
    }
    unsetenv(kSettings);
    // That list is not tried again. Another one is, unless there are no graphs at all.
    const bool has_graphs = std::strcmp(setting, "graphs=0") != 0;
    assert_costs(costs_of([&] { must(graphs.run(stream(), work)); }), kMany, 0);
    for (int round = 0; round < 3; ++round) {
      arrays.fill(static_cast<float>(round));
      const Costs costs = costs_of([&] { must(graphs.run(stream(), other)); });
      assert_costs(costs, round > 0 && has_graphs ? 1 : kMany / 2, round > 0 && has_graphs ? 1 : 0);
      arrays.expect(static_cast<float>(round));
    }
  }
  assert_graphs(0);
}

void an_error_of_the_work_is_told(void**) {
  if (!is_emulated()) skip();
  Graphs graphs(gpu().device());
  Arrays arrays;
  float host[2] = {};
  WorkList work;
  arrays.list_copy(work);
  work.copy(&host[0], &host[1], sizeof(float), 0);
  for (int round = 0; round < 4; ++round) {
    arrays.fill(static_cast<float>(round));
    must_fail(graphs.run(stream(), work), MV_EINVAL, "cuda:0: copy: neither side of the copy is memory of the device");
    arrays.expect(static_cast<float>(round));  // what comes before it is carried out, as without graphs
    assert_graphs(0);
  }
}

/// Each allocation of the host fails once. The work needs none.
void what_the_host_lacks_only_costs_a_graph(void**) {
  if (!is_emulated()) skip();
  Arrays arrays;
  WorkList work;
  arrays.list_copy(work);
  uint64_t number = 0;
  for (bool has_failed = true; has_failed;) {
    Graphs graphs(gpu().device());
    uint64_t left = ++number;  // allocations of run() until one fails
    for (int round = 0; round < 3; ++round) {
      arrays.fill(static_cast<float>(round));
      failing_allocation = left;
      must(graphs.run(stream(), work));
      left = std::exchange(failing_allocation, 0);
      arrays.expect(static_cast<float>(round));
    }
    has_failed = left == 0;
  }
  assert_true(number > 3);
  assert_graphs(0);
}

void threads_share_graphs(void**) {
  constexpr int kThreads = 4, kRounds = 200;
  Graphs graphs(gpu().device());
  std::vector<Arrays> arrays(kThreads);
  std::vector<WorkList> lists(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t i = 0; i < kThreads; ++i) arrays[i].list_copy(lists[i], 20 + i);
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      // Other work on the same stream must not become a part of the graph.
      const Memory counted = must(Memory::make(stream(), sizeof(float)));
      const float zero = 0;
      float count = 0;
      must(stream().copy_staged(counted.as(), &zero, sizeof zero));
      for (int round = 0; round < kRounds; ++round) {
        arrays[i].fill(static_cast<float>(round));
        if (!graphs.run(stream(), lists[i]).ok()) ++wrong;
        const float one = 1;
        const Memory added = must(Memory::of(stream(), &one, sizeof one));
        must(stream().launch(MV_DEVICE_AXPY, mv_device_axpy{counted.as(), added.as(), 1, 1, MV_F32, MV_F32}));
        const auto values = arrays[i].read();
        if (values.front() != static_cast<float>(round) || values.back() != static_cast<float>(round) + Arrays::kCount - 1) ++wrong;
      }
      must(stream().copy(&count, counted.as(), sizeof count));
      must(stream().wait());
      if (count != kRounds) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(wrong, 0);
}

// ------------------------------------------------------------ pulls and pushes of many keys

std::vector<std::byte> numbers(mv_dtype dtype, size_t count, double first) {
  std::vector<std::byte> made(count * tensor::dtype_bytes(dtype));
  for (size_t i = 0; i < count; ++i) tensor::store_element(dtype, &made[i * tensor::dtype_bytes(dtype)], first + 0.37 * static_cast<double>(i % 50));
  return made;
}
Tensor tensor_of(mv_dtype dtype, const std::vector<std::byte>& values, int32_t device) {
  const auto length = static_cast<int64_t>(values.size() / tensor::dtype_bytes(dtype));
  const Tensor made = must(tensor::make_dense(heap(), dtype, must(tensor::make_shape("test", &length, 1)), tensor::Heap::Content::kAnything));
  std::ranges::copy(values, made.data);
  return device < 0 ? made : must(tensor::move_to(gpu(device), made));
}
bool has_two() { return must(device::TensorDevices::count()) > 1; }

/// Keys on a device, and the same ones in the host's memory.
struct Keys {
  std::vector<std::shared_ptr<Shard>> there, host;
  explicit Keys(mv_dtype dtype, const char* updater, size_t count = kMany) {
    for (size_t i = 0; i < count; ++i) {
      shard::Spec spec{.name = "kv-0/w", .kind = MV_MATRIX, .dtype = dtype, .rows = 1 + i, .cols = 3, .flags = shard::kStoreKey};
      spec.updater = std::strcmp(updater, "replace") == 0 ? shard::UpdaterSpec{shard::kReplacing, {}} : must(shard::parse_updater(updater));
      host.push_back(shard::make(spec));
      spec.device = 0;
      there.push_back(shard::make(spec));
      const auto first = numbers(dtype, 3 * (1 + i), static_cast<double>(i));
      for (const auto& one : {host.back(), there.back()}) one->change(shard::Write::Set, kWorker, 0, one->elements(), first.data());
    }
  }
  void assert_same() const {
    for (size_t i = 0; i < host.size(); ++i) {
      std::vector<std::byte> theirs(host[i]->elements() * host[i]->spec().element_bytes()), mine(theirs.size());
      host[i]->read(kWorker, 0, host[i]->elements(), theirs.data());
      there[i]->read(kWorker, 0, host[i]->elements(), mine.data());
      assert_memory_equal(mine.data(), theirs.data(), mine.size());
    }
  }
};

/// Into a tensor on each device and one on the host, of each key.
void pulls_of_many_keys_are_launched_at_once(void**) {
  for (const mv_dtype dtype : {MV_F32, MV_BF16}) {
    const Keys keys(dtype, "add");
    const bool is_rounded = dtype == MV_BF16, two = has_two();
    std::vector<std::vector<Tensor>> outs(kMany);
    std::vector<OnDevice::Reading> readings;
    if (is_emulated()) setenv(kSettings, "pool=1", 1);  // equal calls then have memory at equal addresses
    for (size_t i = 0; i < kMany; ++i) {
      const auto zeros = numbers(dtype, keys.host[i]->elements(), 0);
      outs[i].push_back(tensor_of(dtype, zeros, 0));
      if (two) outs[i].push_back(tensor_of(dtype, zeros, 1));
      readings.push_back({keys.there[i]->on_device(), outs[i]});
    }
    for (int round = 0; round < 4; ++round) {
      for (const auto& shards : {keys.host, keys.there})
        for (const auto& one : shards) one->change(shard::Write::Add, kWorker, 0, one->elements(), numbers(dtype, one->elements(), round).data());
      const Costs costs = costs_of([&] { must(readings.front().shard->read_together(kWorker, readings)); });
      if (two) assert_costs(costs, round == 0 ? (is_rounded ? 3 : 2) * static_cast<int64_t>(kMany) : 2, round == 0 ? 0 : 2);
      for (size_t i = 0; i < kMany; ++i) {
        std::vector<std::byte> expected(outs[i].front().stored_bytes());
        keys.host[i]->read(kWorker, 0, keys.host[i]->elements(), expected.data());
        for (const Tensor& out : outs[i]) assert_memory_equal(must(tensor::on_host(out)).data, expected.data(), expected.size());
      }
    }
    // Other tensors than before, and one of the host: their values are read, too.
    outs[7].front() = tensor_of(dtype, numbers(dtype, keys.host[7]->elements(), 9), 0);
    outs[9].front() = tensor_of(dtype, numbers(dtype, keys.host[9]->elements(), 9), -1);
    must(readings.front().shard->read_together(kWorker, readings));
    for (const size_t i : {7, 9}) {
      std::vector<std::byte> expected(outs[i].front().stored_bytes());
      keys.host[i]->read(kWorker, 0, keys.host[i]->elements(), expected.data());
      assert_memory_equal(must(tensor::on_host(outs[i].front())).data, expected.data(), expected.size());
    }
    unsetenv(kSettings);
  }
}

void sums_of_many_keys_are_launched_at_once(void**) {
  for (const char* const updater : {"mx.sgd momentum=0.9", "add", "replace"}) {
    for (const mv_dtype dtype : {MV_F32, MV_F16}) {
      const Keys keys(dtype, updater);
      const size_t senders = dtype == MV_F16 ? 20 : 3;  // more than a kernel takes, or fewer
      std::vector<std::vector<Tensor>> values(kMany);
      std::vector<OnDevice::Addition> additions;
      for (size_t i = 0; i < kMany; ++i) {
        for (size_t k = 0; k < senders; ++k)
          values[i].push_back(tensor_of(dtype, numbers(dtype, keys.host[i]->elements(), static_cast<double>(i + k)), has_two() ? static_cast<int32_t>(k % 2) : 0));
        additions.push_back({keys.there[i]->on_device(), values[i]});
      }
      if (is_emulated()) setenv(kSettings, "pool=1", 1);
      for (int round = 0; round < 4; ++round) {
        const Costs costs = costs_of([&] { must(additions.front().shard->add_together(kWorker, additions, {})); });
        // The sums are one graph, and adds without a formula another one. Those with one have their parameters copied, and one launch.
        if (is_emulated() && round > 0) assert_int_equal(costs.launched, std::strncmp(updater, "mx", 2) == 0 ? 1 : 2);
        if (is_emulated() && round > 0) assert_int_equal(costs.submitted, std::strncmp(updater, "mx", 2) == 0 ? 3 : 2);
        for (size_t i = 0; i < kMany; ++i) {
          std::vector<Tensor> here;
          std::vector<const std::byte*> from;
          for (const Tensor& value : values[i]) from.push_back(here.emplace_back(must(tensor::on_host(value))).data);
          std::vector<std::byte> sum(values[i].front().stored_bytes());
          math::merge_bytes(math::Reduction::kSum, dtype, sum.data(), from, keys.host[i]->elements());
          keys.host[i]->change(shard::Write::Add, kWorker, 0, keys.host[i]->elements(), sum.data());
        }
        keys.assert_same();
      }
      unsetenv(kSettings);
    }
  }
}

/// Each allocation of the host fails once in a push of many keys, which is then repeated: it counts once.
void a_failed_push_of_many_keys_changes_nothing(void**) {
  if (!is_emulated()) skip();
  for (const char* const updater : {"mx.adam", "add"}) {
    const Keys keys(MV_F32, updater, 10);
    std::vector<std::vector<Tensor>> values(10);
    std::vector<OnDevice::Addition> additions;
    for (size_t i = 0; i < values.size(); ++i) {
      for (const int32_t device : {0, 1}) values[i].push_back(tensor_of(MV_F32, numbers(MV_F32, keys.host[i]->elements(), 1), device));
      additions.push_back({keys.there[i]->on_device(), values[i]});
    }
    uint64_t number = 0, failures = 0;
    for (bool has_failed = true; has_failed;) {
      const auto add = [&] { must(additions.front().shard->add_together(kWorker, additions, [] { return base::Status(); })); };
      failing_allocation = ++number;
      try {
        add();
        has_failed = failing_allocation == 0;  // of a graph
        failing_allocation = 0;
      } catch (const std::bad_alloc&) {
        ++failures;
        add();
      }
      for (const auto& one : keys.host) {
        auto sum = numbers(MV_F32, one->elements(), 1);
        auto* const elements = reinterpret_cast<float*>(sum.data());
        for (size_t i = 0; i < one->elements(); ++i) elements[i] += elements[i];
        one->change(shard::Write::Add, kWorker, 0, one->elements(), sum.data());
      }
      keys.assert_same();
    }
    assert_true(failures > 10);
  }
}

}  // namespace

int main() {
  if (is_emulated()) setenv(device::kPluginVariable, EMULATION, 1);
  static device::TableDevices tables(devices());
  shard::DeviceShards::use(tables);
  const CMUnitTest tests[] = {
      cmocka_unit_test(equal_lists_are_launched_at_once),
      cmocka_unit_test(short_lists_have_no_graphs),
      cmocka_unit_test(whatever_differs_makes_another_list),
      cmocka_unit_test(graphs_of_freed_memory_are_dropped_in_time),
      cmocka_unit_test(a_graph_is_launched_on_any_stream),
      cmocka_unit_test(without_graphs_work_is_carried_out_item_by_item),
      cmocka_unit_test(an_error_of_the_work_is_told),
      cmocka_unit_test(what_the_host_lacks_only_costs_a_graph),
      cmocka_unit_test(threads_share_graphs),
      // These leave the devices' own graphs behind.
      cmocka_unit_test(pulls_of_many_keys_are_launched_at_once),
      cmocka_unit_test(sums_of_many_keys_are_launched_at_once),
      cmocka_unit_test(a_failed_push_of_many_keys_changes_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
