// core/device: communicators between devices. The plug-in is the emulation in device/emulation.cpp, or the one that POLYVERSO_DEVICE_PLUGIN names,
// such as CUDA's with NCCL: `make test-cuda`, with as many ranks as there are devices.

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "device/tensors.hpp"
#include "tensor/cast.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "must.hpp"

namespace {

using namespace mv;
using tensor::Communicator;
using tensor::Tensor;

constexpr int32_t kMostRanks = 2;
constexpr size_t kCount = 100'000;

bool is_emulated() { return std::getenv(device::kPluginVariable) == nullptr; }
device::Plugin plugin() {
  static const device::Plugin kPlugin = must(device::load_plugin(is_emulated() ? EMULATION : std::getenv(device::kPluginVariable)));
  return kPlugin;
}
tensor::Heap& heap() {
  static tensor::Heap kHeap;
  return kHeap;
}
device::TensorDevice& on(int32_t number) {
  static std::vector<std::unique_ptr<device::TensorDevice>> devices(kMostRanks);
  auto& known = devices[static_cast<size_t>(number)];
  if (known == nullptr) known = must(device::TensorDevice::open(plugin(), number, heap()));
  return *known;
}
/// Without the library for it, a device's test is skipped.
#define NEED_LIBRARY() \
  if (!is_emulated() && on(0).communicates_by().status().code() == MV_ENOSYS) skip()
/// One for each device, at most two.
int32_t ranks() {
  int32_t devices = 0;
  if (plugin()->count(&devices) != MV_OK) fail_msg("%s", plugin()->error());
  return std::min(devices, kMostRanks);
}

/// Polls all ends until they are idle. One thread drives all of them, as nothing waits.
void finish(const std::vector<std::unique_ptr<Communicator>>& ends) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (const auto& end : ends)
    while (!must(end->is_idle())) {
      if (std::chrono::steady_clock::now() > until) fail_msg("%s", "a communicator is not idle after 60 s");
      std::this_thread::yield();
    }
}
std::vector<std::unique_ptr<Communicator>> make() {
  const Communicator::Id id = must(on(0).make_communicator_id());
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int32_t rank = 0; rank < ranks(); ++rank) ends.push_back(must(on(rank).communicate(id, ranks(), rank)));
  finish(ends);
  return ends;
}

Tensor filled(int32_t device, mv_dtype dtype, double value, size_t count = kCount) {
  const int64_t length = static_cast<int64_t>(count);
  const Tensor made = must(tensor::make_dense(on(device), dtype, must(tensor::make_shape("test", &length, 1)), tensor::Heap::Content::kAnything));
  std::byte element[8];
  tensor::store_element(dtype, element, value);
  must(on(device).fill(made, element));
  return made;
}
void assert_values(const Tensor& there, double value, const std::string& what) {
  const Tensor here = must(tensor::on_host(there));
  for (size_t i = 0; i < here.stored(); ++i) {
    const double found = tensor::load_element(here.dtype, here.data + i * tensor::dtype_bytes(here.dtype));
    if (found != value) fail_msg("%s: element %zu is %g, not %g", what.c_str(), i, found, value);
  }
}
Communicator::Buffers part(const Tensor& in, const Tensor& out) { return {in.data, out.data, in.stored(), in.dtype}; }

void all_dtypes_are_reduced_in_all_ways(void**) {
  NEED_LIBRARY();
  assert_true(!must(on(0).communicates_by()).empty());
  const auto ends = make();
  const int n = ranks();
  for (const mv_dtype dtype : {MV_F32, MV_F64, MV_F16, MV_BF16, MV_I32, MV_I64, MV_U8, MV_I8}) {
    for (int reduction = MV_REDUCE_SUM; reduction <= MV_REDUCE_AVG; ++reduction) {
      if (reduction == MV_REDUCE_AVG && !tensor::is_floating(dtype)) continue;
      std::vector<Tensor> in, out;
      for (int rank = 0; rank < n; ++rank) {
        in.push_back(filled(rank, dtype, 3 + 2 * rank));
        out.push_back(filled(rank, dtype, 0));
        const Communicator::Buffers parts[] = {part(in.back(), out.back())};
        must(ends[static_cast<size_t>(rank)]->allreduce(parts, reduction));
      }
      finish(ends);
      const double second = n == 2 ? 5 : 3;
      const double wanted[] = {0, n == 2 ? 8.0 : 3, n == 2 ? 15.0 : 3, 3, second, (3 + second) / 2};
      for (const Tensor& each : out) assert_values(each, wanted[reduction], "reduction " + std::to_string(reduction) + " of " + std::string(tensor::dtype_name(dtype)));
      for (int rank = 0; rank < n; ++rank) assert_values(in[static_cast<size_t>(rank)], 3 + 2 * rank, "an input");
    }
  }
  for (const auto& end : ends) end->close();
}

void several_arrays_are_reduced_together_and_in_place(void**) {
  NEED_LIBRARY();
  const auto ends = make();
  const int n = ranks();
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<Tensor> arrays;
    for (int rank = 0; rank < n; ++rank) {
      arrays.push_back(filled(rank, MV_F32, rank + 1));
      arrays.push_back(filled(rank, MV_I64, 10 * (rank + 1), 7));
      const Communicator::Buffers parts[] = {part(arrays[arrays.size() - 2], arrays[arrays.size() - 2]), part(arrays.back(), arrays.back())};
      must(ends[static_cast<size_t>(rank)]->allreduce(parts, MV_REDUCE_SUM));
    }
    finish(ends);
    for (size_t i = 0; i < arrays.size(); ++i) assert_values(arrays[i], (i % 2 == 0 ? 1 : 10) * (n == 2 ? 3 : 1), "a sum in place");
  }
  for (const auto& end : ends) end->close();
}

void an_all_reduce_that_a_rank_does_not_join_is_aborted(void**) {
  NEED_LIBRARY();
  if (ranks() < 2) skip();
  for (int turn = 0; turn < 2; ++turn) {
    auto ends = make();
    const Tensor mine = filled(0, MV_F32, 1);
    const Communicator::Buffers parts[] = {part(mine, mine)};
    must(ends[0]->allreduce(parts, MV_REDUCE_SUM));
    for (int i = 0; i < 100; ++i) assert_false(must(ends[0]->is_idle()));
    ends.clear();
    must(on(0).wait());  // the stream goes on
  }
  const auto again = make();
  for (const auto& end : again) end->close();
}

/// The other rank never comes.
void a_communicator_in_the_making_is_aborted(void**) {
  NEED_LIBRARY();
  if (ranks() < 2) skip();
  auto alone = must(on(0).communicate(must(on(0).make_communicator_id()), 2, 0));
  for (int i = 0; i < 100; ++i) assert_false(must(alone->is_idle()));
  alone.reset();
}

void a_library_that_is_missing_is_told(void**) {
  if (!is_emulated()) skip();
  setenv("POLYVERSO_EMULATION", "comm=0", 1);
  must_fail(on(0).communicates_by().status(), MV_ENOSYS, "cuda:0: all-reduces between devices: the library for communicators is missing: install it");
  must_fail(on(0).make_communicator_id().status(), MV_ENOSYS, "is missing");
  must_fail(on(0).communicate({}, 2, 0).status(), MV_ENOSYS, "is missing");
  unsetenv("POLYVERSO_EMULATION");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_dtypes_are_reduced_in_all_ways),
      cmocka_unit_test(several_arrays_are_reduced_together_and_in_place),
      cmocka_unit_test(an_all_reduce_that_a_rank_does_not_join_is_aborted),
      cmocka_unit_test(a_communicator_in_the_making_is_aborted),
      cmocka_unit_test(a_library_that_is_missing_is_told),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
