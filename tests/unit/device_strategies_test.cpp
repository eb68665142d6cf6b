// core/api/distlearn: strategies whose arrays are on devices compute there, with the bits of the host, or, for products of matrices, nearly these.
// The ranks are threads, and the plug-in is that of unit/device_test.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "api/distlearn/all_reduce_ea.hpp"
#include "api/distlearn/all_reduce_sgd.hpp"
#include "api/distlearn/async_ea.hpp"
#include "api/distlearn/compressor.hpp"
#include "api/distlearn/local_sgd.hpp"
#include "device/tensors.hpp"
#include "tensor/cast.hpp"
#include "thread_group.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "must.hpp"

namespace {

using namespace mv;
using distlearn::Arrays;

constexpr base::Nanos kPatience = std::chrono::seconds(60);
constexpr int kHost = -1;
/// The devices of a rank's arrays, in turn.
using Where = std::vector<int>;
/// For each rank.
using Layout = std::vector<Where>;

bool is_emulated = false;

/// Never closed, as in the library.
device::TensorDevices& devices() {
  static tensor::Heap* const kHeap = new tensor::Heap;
  static device::TensorDevices* const kDevices = new device::TensorDevices(*kHeap);
  return *kDevices;
}
api::Devices known_devices() {
  return {[](const void* memory) { return devices().find(memory); }, [] { return true; }};
}

struct Shape {
  mv_dtype dtype;
  size_t count;
};

/// A rank's arrays, each on the host or on a device.
class Memory {
 public:
  Memory(const std::vector<Shape>& shapes, const Where& where) {
    for (const auto& [dtype, count] : shapes) {
      static const int kDevices = must(device::TensorDevices::count());  // a machine may have one only
      const int number = where[arrays_.size() % where.size()], place = number == kHost ? kHost : number % kDevices;
      const size_t bytes = count * tensor::dtype_bytes(dtype);
      tensor::Allocator& allocator = place == kHost ? static_cast<tensor::Allocator&>(devices_heap()) : *must(devices().get(place));
      blocks_.push_back(must(allocator.allocate(std::max<size_t>(bytes, 1), tensor::Allocator::Content::kZeros)));
      arrays_.push_back({blocks_.back()->data(), count, dtype});
    }
  }
  const Arrays& arrays() const { return arrays_; }
  void set(size_t i, const std::function<double(size_t)>& value) {
    std::vector<std::byte> bytes(arrays_[i].bytes());
    const size_t size = tensor::dtype_bytes(arrays_[i].dtype);
    for (size_t k = 0; k < arrays_[i].count; ++k) tensor::store_element(arrays_[i].dtype, bytes.data() + k * size, value(k));
    if (tensor::Device* const device = blocks_[i]->device(); device != nullptr)
      must(device->from_host(arrays_[i].data, bytes.data(), bytes.size()));
    else
      std::copy(bytes.begin(), bytes.end(), arrays_[i].data);
  }
  std::vector<std::byte> get(size_t i) const {
    std::vector<std::byte> bytes(arrays_[i].bytes());
    if (tensor::Device* const device = blocks_[i]->device(); device != nullptr)
      must(device->to_host(bytes.data(), arrays_[i].data, bytes.size()));
    else
      std::copy_n(arrays_[i].data, bytes.size(), bytes.data());
    return bytes;
  }
  std::vector<std::byte> all() const {
    std::vector<std::byte> all;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const auto bytes = get(i);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  static tensor::Heap& devices_heap() {
    static tensor::Heap* const kHeap = new tensor::Heap;
    return *kHeap;
  }
  std::vector<std::shared_ptr<tensor::Block>> blocks_;
  Arrays arrays_;
};

/// cmocka's assertions work only in the main thread, so ranks count failures and the main thread checks them.
std::atomic<int> failures{0};
void expect_ok(const base::Status& status) {
  if (status.ok()) return;
  print_message("%s\n", status.text().c_str());
  ++failures;
}

/// What each rank has seen.
using Seen = std::vector<std::vector<std::byte>>;
/// Runs work(rank, its group, node, what it sees) with devices.
template <typename Work>
Seen run(size_t ranks, const Work& work) {
  ThreadGroups all(ranks);
  all.node->set_devices(known_devices());
  Seen seen(ranks);
  failures = 0;
  all.run([&](size_t rank) { work(rank, *all.node, all.groups[rank], seen[rank]); });
  assert_int_equal(failures, 0);
  return seen;
}
void note(std::vector<std::byte>& seen, const Memory& memory) {
  const auto bytes = memory.all();
  seen.insert(seen.end(), bytes.begin(), bytes.end());
}

const std::vector<Shape> kModel = {{MV_F32, 9001}, {MV_F16, 70}, {MV_F64, 513}, {MV_F32, 0}, {MV_BF16, 4097}};
double trained(size_t rank, size_t step, size_t k) { return std::sin(double(k) * 0.7 + double(step)) + double(rank) * 0.37; }
void train(Memory& memory, size_t rank, size_t step) {
  for (size_t i = 0; i < memory.arrays().size(); ++i) memory.set(i, [&](size_t k) { return trained(rank, step, k); });
}

const std::vector<Layout> kLayouts = {
    {{0}, {0}, {0}}, {{0}, {1}, {0}}, {{kHost, 0}, {1, kHost, 0}, {0}}, {{0, 1}, {kHost}, {kHost}},
};
const Layout kAllOnHost = {{kHost}, {kHost}, {kHost}};

Seen sum_gradients(const Layout& layout) {
  return run(3, [&](size_t rank, api::Node& node, const api::GroupRef& group, std::vector<std::byte>& seen) {
    distlearn::AllReduceSgd sgd(node, group);
    Memory gradients(kModel, layout[rank]);
    for (size_t step = 0; step < 2 + rank; ++step) {
      train(gradients, rank, step);
      expect_ok(sgd.sum(gradients.arrays(), distlearn::AllReduceSgd::Sum::kNormalized, nullptr, kPatience));
      note(seen, gradients);
    }
    expect_ok(sgd.synchronize(gradients.arrays(), kPatience));
    note(seen, gradients);
  });
}

Seen average_elastically(const Layout& layout) {
  return run(3, [&](size_t rank, api::Node& node, const api::GroupRef& group, std::vector<std::byte>& seen) {
    distlearn::AllReduceEa ea(node, group, 2, 0.3);
    Memory model(kModel, layout[rank]), center(kModel, layout[2 - rank]);
    for (size_t step = 0; step < 4 + 2 * rank; ++step) {  // ranks 0 and 1 drain
      if (step != 1) train(model, rank, step);
      expect_ok(ea.average(model.arrays(), kPatience));
      note(seen, model);
    }
    expect_ok(ea.read_center(center.arrays()));  // the centre follows to another place, and back
    note(seen, center);
    expect_ok(ea.synchronize_center(model.arrays(), kPatience));
    note(seen, model);
    expect_ok(ea.read_center(model.arrays()));
    note(seen, model);
    expect_ok(ea.synchronize_parameters(model.arrays(), kPatience));
    note(seen, model);
  });
}

Seen average_with_a_table(const Layout& layout) {
  return run(1, [&](size_t, api::Node& node, const api::GroupRef&, std::vector<std::byte>& seen) {
    api::TableSpec spec;
    spec.name = "centre";
    spec.rows = 9168;
    const std::vector<float> start(spec.rows, 0.25F);
    const auto table = must(node.create_table(spec, {start.data(), start.size(), MV_F32}));
    distlearn::AsyncEa ea(node, table, spec, 2, 0.3);
    for (const Where& where : layout) {
      Memory model({{MV_F32, 9001}, {MV_F16, 70}, {MV_F32, 0}, {MV_BF16, 97}}, where);
      for (size_t step = 0; step < 3; ++step) {
        train(model, 0, step);
        expect_ok(ea.average(model.arrays(), kPatience));
        note(seen, model);
      }
      expect_ok(ea.read(model.arrays(), kPatience));
      note(seen, model);
    }
  });
}

/// With `moves`, the parameters change their place in each step.
Seen train_locally(const distlearn::LocalSettings& settings, const Layout& layout, bool moves) {
  return run(3, [&](size_t rank, api::Node& node, const api::GroupRef& group, std::vector<std::byte>& seen) {
    distlearn::LocalSgd local(node, group, settings);
    std::vector<std::unique_ptr<Memory>> models;
    const size_t steps = 7 + 2 * rank;  // ranks 0 and 1 drain
    const auto change = [&](Memory& model, size_t step) {
      for (size_t i = 0; i < model.arrays().size(); ++i) {
        const mv_dtype dtype = model.arrays()[i].dtype;
        const auto before = models.empty() ? std::vector<std::byte>(model.get(i).size()) : models.back()->get(i);
        model.set(i, [&](size_t k) { return tensor::load_element(dtype, before.data() + k * tensor::dtype_bytes(dtype)) + trained(rank, step, k); });
      }
    };
    for (size_t step = 0; step < steps; ++step) {
      auto model = std::make_unique<Memory>(kModel, layout[(rank + (moves ? step : 0)) % layout.size()]);
      change(*model, step);
      models.push_back(std::move(model));
      expect_ok(local.step(models.back()->arrays(), kPatience));
      note(seen, *models.back());
    }
    expect_ok(local.synchronize(models.back()->arrays(), kPatience));
    note(seen, *models.back());
    expect_ok(local.synchronize(models.back()->arrays(), kPatience));  // no rank has made a step
    note(seen, *models.back());
  });
}

/// The first array is a matrix.
Seen compress(const std::string& how, const Layout& layout) {
  return run(3, [&](size_t rank, api::Node& node, const api::GroupRef& group, std::vector<std::byte>& seen) {
    const auto compressor = must(distlearn::Compressor::make(node, group, how));
    Memory memory({{MV_F32, 90 * 61}, {MV_F16, 70 * 30}, {MV_F64, 513}, {MV_F32, 0}, {MV_BF16, 4097}}, layout[rank]);
    const distlearn::Gradients gradients{memory.arrays(), {90, 70, 0, 0, 0}};
    for (size_t step = 0; step < 3 + (rank == 1 ? 1 : 0); ++step) {
      train(memory, rank, step);
      expect_ok(compressor->average(gradients, nullptr, kPatience));
      note(seen, memory);
    }
    expect_ok(compressor->finish(gradients, kPatience));
    const auto left = compressor->residual();
    const auto* const bytes = reinterpret_cast<const std::byte*>(left.data());
    seen.insert(seen.end(), bytes, bytes + left.size() * sizeof(float));
  });
}

void sums_of_gradients_have_the_bits_of_the_host(void**) {
  const Seen wanted = sum_gradients(kAllOnHost);
  for (const Layout& layout : kLayouts) assert_true(sum_gradients(layout) == wanted);
}

void elastic_averages_have_the_bits_of_the_host(void**) {
  const Seen wanted = average_elastically(kAllOnHost);
  for (const Layout& layout : kLayouts) assert_true(average_elastically(layout) == wanted);
}

void outer_steps_have_the_bits_of_the_host(void**) {
  distlearn::LocalSettings averaging, diloco, streaming;
  averaging.inner_steps = 2;
  diloco = {.inner_steps = 3, .outer_rate = 0.7, .outer_momentum = 0.9};
  streaming = {.inner_steps = 4, .outer_rate = 0.7, .outer_momentum = 0.9, .fragments = 2, .overlap = 1, .mixing = 0.25};
  for (const auto& settings : {averaging, diloco, streaming}) {
    const Seen wanted = train_locally(settings, kAllOnHost, false);
    for (const Layout& layout : kLayouts)
      for (const bool moves : {false, true}) assert_true(train_locally(settings, layout, moves) == wanted);
  }
}

void averages_with_a_table_have_the_bits_of_the_host(void**) {
  const Seen wanted = average_with_a_table(kAllOnHost);
  for (const Layout& layout : kLayouts) assert_true(average_with_a_table(layout) == wanted);
}

void encoded_averages_have_the_bits_of_the_host(void**) {
  for (const char* const how : {"int8", "2bit threshold=0.5", "1bit", "fp16", "topk ratio=0.05"}) {
    const Seen wanted = compress(how, kAllOnHost);
    for (const Layout& layout : kLayouts) assert_true(compress(how, layout) == wanted);
  }
}

void averages_of_low_rank_are_the_same_everywhere(void**) {
  const size_t averages = 3 * (90 * 61 * 4 + 70 * 30 * 2 + 513 * 8 + 4097 * 2);
  const Seen wanted = compress("powersgd rank=3", kAllOnHost);
  const auto as_floats = [](const std::vector<std::byte>& bytes) { return reinterpret_cast<const float*>(bytes.data()); };
  for (const Layout& layout : kLayouts) {
    const Seen got = compress("powersgd rank=3", layout);
    for (size_t rank = 0; rank < 3; ++rank) {
      assert_int_equal(got[rank].size(), wanted[rank].size());
      assert_memory_equal(got[rank].data(), got[0].data(), averages);  // on devices or not, with the same bits
      for (size_t k = 0; k < 90 * 61; ++k) assert_true(std::fabs(as_floats(got[rank])[k] - as_floats(wanted[rank])[k]) < 1e-4);
    }
  }
}

void a_device_that_can_not_multiply_leaves_it_to_the_host(void**) {
  if (!is_emulated) skip();
  const Seen wanted = compress("powersgd rank=3", kAllOnHost);
  setenv("POLYVERSO_EMULATION", "blas=0", 1);
  const Seen got = compress("powersgd rank=3", kLayouts[0]);
  unsetenv("POLYVERSO_EMULATION");
  assert_true(got == wanted);
}

}  // namespace

int main() {
  if (std::getenv(device::kPluginVariable) == nullptr) {
    setenv(device::kPluginVariable, EMULATION, 1);
    is_emulated = true;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(sums_of_gradients_have_the_bits_of_the_host),
      cmocka_unit_test(elastic_averages_have_the_bits_of_the_host),
      cmocka_unit_test(outer_steps_have_the_bits_of_the_host),
      cmocka_unit_test(averages_with_a_table_have_the_bits_of_the_host),
      cmocka_unit_test(encoded_averages_have_the_bits_of_the_host),
      cmocka_unit_test(averages_of_low_rank_are_the_same_everywhere),
      cmocka_unit_test(a_device_that_can_not_multiply_leaves_it_to_the_host),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
