// core/device/paths: sums of tensors of several devices, and copies to several devices, directly and by parts. The plug-in is that of unit/device_test, with four devices.
// With the argument "ordered" it is one around it, device/order.cpp, that checks the order of all work.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/broadcast.hpp"
#include "device/sum.hpp"
#include "math/reduction.hpp"
#include "tensor/cast.hpp"
#include "tensor/device.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "failing_allocation.hpp"
#include "must.hpp"
#include "sanitized.hpp"

namespace {

using namespace mv;
using device::Path;
using device::Paths;
using device::Sums;
using tensor::Tensor;

constexpr const char* kSettings = "POLYVERSO_EMULATION";
constexpr int32_t kHost = MV_HOST;

/// Decided once, before main() sets the variable.
bool is_emulated() {
  static const bool kIs = std::getenv(device::kPluginVariable) == nullptr;
  return kIs;
}
bool is_ordered = false;
template <typename Function>
Function* of_order(const char* name) {
  void* const order = dlopen(ORDER, RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(order);
  return reinterpret_cast<Function*>(dlsym(order, name));
}
int assert_ordered(void**) {
  if (is_ordered) assert_int_equal(of_order<int64_t()>("order_races")(), 0);
  return 0;
}
tensor::Heap& heap() {
  static tensor::Heap kHeap;
  return kHeap;
}
device::TensorDevices& devices() {
  static device::TensorDevices kDevices(heap());
  return kDevices;
}
device::TensorDevice& gpu(int32_t number) { return *must(devices().get(number)); }

tensor::Shape vector_of(size_t count) {
  const auto length = static_cast<int64_t>(count);
  return must(tensor::make_shape("test", &length, 1));
}
/// Values of a place, and a sum's order of them: other orders have other bits.
Tensor values_of(size_t place, mv_dtype dtype, size_t count) {
  std::vector<double> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<double>((i * 7919 + place * 104729) % 100003) / (place % 3 == 0 ? 17.0 : 4096.0) - 3;
  Tensor made = must(tensor::make_dense(heap(), dtype, vector_of(count), tensor::Heap::Content::kAnything));
  tensor::cast_elements(dtype, made.data, MV_F64, reinterpret_cast<const std::byte*>(numbers.data()), count);
  return made;
}
std::vector<std::byte> sum_of(const std::vector<Tensor>& values) {
  std::vector<std::byte> sum(values.front().stored_bytes());
  std::vector<const std::byte*> from;
  for (const Tensor& value : values) from.push_back(value.data);
  math::merge_bytes(math::Reduction::kSum, values.front().dtype, sum.data(), from, values.front().stored());
  return sum;
}

/// The values of several keys, here and in places.
struct Keys {
  std::vector<std::vector<Tensor>> here, there;

  void add(mv_dtype dtype, size_t count, const std::vector<int32_t>& places) {
    here.emplace_back();
    there.emplace_back();
    for (size_t i = 0; i < places.size(); ++i) {
      here.back().push_back(values_of(i + here.size(), dtype, count));
      there.back().push_back(places[i] == kHost ? here.back().back() : must(tensor::move_to(gpu(places[i]), here.back().back())));
    }
  }
  /// Sums all on a device, and compares the bits.
  void expect_sums(int32_t on) const {
    Sums sums(gpu(on), gpu(on).current());
    for (const auto& values : there) sums.add(values);
    must(sums.run());
    for (size_t key = 0; key < here.size(); ++key) {
      const auto expected = sum_of(here[key]);
      std::vector<std::byte> made(expected.size());
      must(gpu(on).to_host(made.data(), sums.at(key), made.size()));
      assert_memory_equal(made.data(), expected.data(), made.size());
      for (size_t i = 0; i < here[key].size(); ++i) {  // the values themselves stay
        std::vector<std::byte> value(expected.size());
        must(tensor::read_bytes(there[key][i], there[key][i].data, value.data(), value.size()));
        assert_memory_equal(value.data(), here[key][i].data, value.size());
      }
    }
  }
};

/// Makes all operations take one path as long as it lives.
class Taking {
 public:
  explicit Taking(Path path) { setenv("POLYVERSO_DEVICE_PATHS", path == Path::kDirect ? "direct" : "parts", 1); }
  ~Taking() { unsetenv("POLYVERSO_DEVICE_PATHS"); }
};

constexpr size_t kLarge = 70'003;

void sums_by_parts_have_the_bits_of_direct_ones(void**) {
  constexpr mv_dtype kDtypes[] = {MV_F32, MV_F16, MV_F64, MV_I32};
  for (const mv_dtype dtype : std::span(kDtypes).first(test::turns(4, 2))) {
    for (const Path path : {Path::kDirect, Path::kByParts}) {
      for (const auto& places : {std::vector<int32_t>{0, 1, 2, 3}, {3, 2, 1}, {1, 2, 3}, {0, 0, 1, 1, 2, 2, 3, 3}, {2, 0, 1}}) {
        const Taking taking(path);
        Keys keys;
        const size_t least = 270'000 / tensor::dtype_bytes(dtype);
        for (const size_t count : {least, least + 1, least + 1000}) keys.add(dtype, count, places);
        for (int turn = 0; turn < 3; ++turn) keys.expect_sums(0);  // a graph from the second turn on
      }
    }
  }
}

/// Small keys, keys of one place, values on the host, and keys with more values than a kernel takes.
void keys_that_can_not_be_split_join_the_others(void**) {
  Keys keys;
  keys.add(MV_F32, kLarge, {0, 1, 2, 3});
  keys.add(MV_F32, 100, {0, 1, 2, 3});
  keys.add(MV_F32, 0, {1, 2, 3});
  keys.add(MV_F32, kLarge, {2});
  keys.add(MV_F32, kLarge, {0});
  keys.add(MV_F32, kLarge, {1, kHost, 2, 3});
  keys.add(MV_F16, 2 * kLarge, std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});
  keys.add(MV_F32, kLarge, {3, 1, 2});
  const Taking taking(Path::kByParts);
  for (int turn = 0; turn < 3; ++turn) keys.expect_sums(0);
}

uint64_t unused_of(int32_t number) {
  uint64_t unused = 0, all = 0;
  must(gpu(number).device().check(must(device::the_plugin())->room(number, &unused, &all), "room"));
  return unused;
}
/// Leaves a device at most so many bytes, and not many fewer.
std::vector<Tensor> fill_device(int32_t number, size_t left) {
  std::vector<Tensor> filling;
  setenv(kSettings, "devices=4,memory=20000000", 1);
  while (unused_of(number) > left) filling.push_back(must(tensor::make_dense(gpu(number), MV_U8, vector_of(50'000), tensor::Heap::Content::kAnything)));
  return filling;
}
void without_memory_for_one_path_sums_take_the_other(void**) {
  if (!is_emulated()) skip();
  Keys keys;
  keys.add(MV_F32, kLarge, {0, 1, 2, 3});
  {
    const auto filling = fill_device(2, 100'000);  // as a part would take
    const Taking taking(Path::kByParts);
    keys.expect_sums(0);
  }
  {
    const auto filling = fill_device(0, 700'000);  // four arrays have 1.1 MB, and the sum with parts of three values 0.5 MB
    const Taking taking(Path::kDirect);
    keys.expect_sums(0);
  }
  {
    const auto filling = fill_device(0, 100'000);
    for (const Path path : {Path::kDirect, Path::kByParts}) {
      const Taking taking(path);
      Sums sums(gpu(0), gpu(0).current());
      sums.add(keys.there.front());
      must_fail(sums.run(), MV_ENOMEM, "");
    }
  }
  setenv(kSettings, "devices=4", 1);
}

/// Whatever fails on its way, nobody uses a value any more when its owner frees it.
void after_a_failed_copy_everything_is_in_order(void**) {
  if (!is_ordered) skip();
  int failures = 0;
  for (const Path path : {Path::kDirect, Path::kByParts}) {
    const Taking taking(path);
    for (int64_t copies = 0; copies < 16; ++copies) {
      for (const bool is_sum : {true, false}) {
        Keys keys;
        keys.add(MV_F32, kLarge, {1, 2, 3, 0});
        const Tensor from = must(tensor::move_to(gpu(0), keys.here.front().front()));
        of_order<void(int64_t)>("order_fail_copy")(copies);
        Sums sums(gpu(0), gpu(0).current());
        sums.add(keys.there.front());
        device::Broadcasts broadcasts(gpu(0), gpu(0).current());
        broadcasts.add(from.data, keys.there.front());
        failures += (is_sum ? sums.run() : broadcasts.run()).ok() ? 0 : 1;
        of_order<void(int64_t)>("order_fail_copy")(-1);
      }
    }
  }
  assert_true(failures > 20);
}

/// Each allocation of the host in turn. A call that throws may have begun nothing, or all; the next one has the bits.
void after_a_failed_allocation_of_the_host_everything_is_in_order(void**) {
  int failures = 0;
  for (const Path path : {Path::kDirect, Path::kByParts}) {
    const Taking taking(path);
    Keys keys;
    keys.add(MV_F32, kLarge, {1, 2, 3, 0});
    for (uint64_t number = 1, has_failed = 1; has_failed; ++number) {
      try {
        failing_allocation = number;
        Sums sums(gpu(0), gpu(0).current());
        sums.add(keys.there.front());
        const bool is_made = sums.run().ok();
        has_failed = failing_allocation == 0;
        failing_allocation = 0;
        assert_true(is_made || has_failed);
      } catch (const std::bad_alloc&) {
        ++failures;
      }
    }
    keys.expect_sums(0);
  }
  assert_true(failures > 10);
}

void copies_by_parts_have_the_bits_of_direct_ones(void**) {
  for (const Path path : {Path::kDirect, Path::kByParts}) {
    for (const auto& places : {std::vector<int32_t>{1, 2, 3}, {0, 3, 1, 3, 1, 1}, {2, 1}, {kHost, 2, 3, 0, 0}, {1}}) {
      const Taking taking(path);
      struct Key {
        Tensor here, there;
        std::vector<Tensor> outs;
      };
      std::vector<Key> keys;
      for (const size_t count : {kLarge, kLarge + 1, kLarge + 777, size_t{100}, size_t{0}}) {
        Key& key = keys.emplace_back(Key{values_of(keys.size(), MV_F32, count), {}, {}});
        key.there = must(tensor::move_to(gpu(0), key.here));
        for (const int32_t place : places)
          key.outs.push_back(must(tensor::make_dense(place == kHost ? static_cast<tensor::Allocator&>(heap()) : gpu(place), MV_F32, key.here.shape,
                                                     tensor::Heap::Content::kZeros)));
      }
      for (int turn = 0; turn < 3; ++turn) {
        for (const Key& key : keys)
          for (const Tensor& out : key.outs)
            if (tensor::device_of(out) != nullptr && out.stored() > 0) must(tensor::device_of(out)->fill(out, reinterpret_cast<const std::byte*>("abcd")));
        device::Broadcasts copies(gpu(0), gpu(0).current());
        for (const Key& key : keys) copies.add(key.there.data, key.outs);
        must(copies.run());
        for (const Key& key : keys) {
          for (size_t i = 0; i < places.size(); ++i) {
            if (places[i] <= 0) continue;  // not its business
            std::vector<std::byte> made(key.here.stored_bytes());
            must(tensor::read_bytes(key.outs[i], key.outs[i].data, made.data(), made.size()));
            assert_memory_equal(made.data(), key.here.data, made.size());
          }
        }
      }
    }
  }
}

/// The emulation counts the time of copies and launches.
void the_faster_path_is_found_by_trying(void**) {
  if (!is_emulated()) skip();
  struct Case {
    const char* settings;
    std::vector<int32_t> places;
    size_t count;
    Path expected;
  };
  const size_t huge = test::turns(4 << 20, 1 << 20);
  for (const Case& some : {Case{"devices=4", {1, 2, 3, 0}, huge, Path::kByParts}, Case{"devices=4,hub=1", {1, 2, 3}, huge / 2, Path::kDirect},
                           Case{"devices=4", {1, 2}, huge, Path::kByParts}}) {
    setenv(kSettings, some.settings, 1);
    Keys keys;
    keys.add(MV_F32, some.count, some.places);
    uint64_t numbers = 1;
    for (const int32_t place : some.places) numbers |= uint64_t{1} << place;
    const Tensor from = must(tensor::move_to(gpu(0), keys.here.front().front()));
    for (int turn = 0; turn < 4; ++turn) {
      keys.expect_sums(0);
      device::Broadcasts copies(gpu(0), gpu(0).current());
      copies.add(from.data, keys.there.front());
      must(copies.run());
      keys.there.front() = {};
      for (const int32_t place : some.places) keys.there.front().push_back(must(tensor::move_to(gpu(place), keys.here.front()[keys.there.front().size()])));
    }
    for (Paths* const paths : {&gpu(0).sum_paths(), &gpu(0).broadcast_paths()}) {
      const std::optional<Path> path = paths->found(numbers, some.count * sizeof(float));
      assert_true(path.has_value());
      // On one connection both ways of a broadcast take the same time.
      assert_true(*path == some.expected || (paths == &gpu(0).broadcast_paths() && some.expected == Path::kDirect));
    }
    setenv(kSettings, "devices=4", 1);
  }
}

}  // namespace

int main(int count_of_words, char** words) {
  is_ordered = is_emulated() && count_of_words == 2 && std::string_view(words[1]) == "ordered";
  if (is_emulated()) setenv(device::kPluginVariable, is_ordered ? ORDER : EMULATION, 1);
  if (is_ordered) setenv("ORDERED_PLUGIN", EMULATION, 1);
  if (is_emulated()) setenv(kSettings, "devices=4", 1);
  const auto count = device::TensorDevices::count();
  if (!count.ok() || count.value() < 4) {
    std::puts("skipped: four devices are needed");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(sums_by_parts_have_the_bits_of_direct_ones, assert_ordered),
      cmocka_unit_test_teardown(keys_that_can_not_be_split_join_the_others, assert_ordered),
      cmocka_unit_test_teardown(without_memory_for_one_path_sums_take_the_other, assert_ordered),
      cmocka_unit_test_teardown(after_a_failed_copy_everything_is_in_order, assert_ordered),
      cmocka_unit_test_teardown(after_a_failed_allocation_of_the_host_everything_is_in_order, assert_ordered),
      cmocka_unit_test_teardown(copies_by_parts_have_the_bits_of_direct_ones, assert_ordered),
      cmocka_unit_test_teardown(the_faster_path_is_found_by_trying, assert_ordered),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
