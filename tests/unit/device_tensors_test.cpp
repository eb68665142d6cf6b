// core/device/tensors: every function of tensors gives on a device the result that it gives on the host, bit for bit. The plug-in is that of
// unit/device_test.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "device/tensors.hpp"
#include "tensor/cast.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/matmul.hpp"
#include "tensor/random.hpp"
#include "tensor/reduce.hpp"
#include "tensor/sparse.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "must.hpp"

namespace {

using namespace mv;
using namespace mv::tensor;
using base::Result;

constexpr mv_dtype kAll[] = {MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_F16, MV_BF16, MV_I8};

bool is_emulated() { return std::getenv(device::kPluginVariable) == nullptr; }

Heap& heap() {
  static Heap kHeap;
  return kHeap;
}
device::Plugin plugin() { return must(device::load_plugin(is_emulated() ? EMULATION : std::getenv(device::kPluginVariable))); }
/// Never closed: tensors may outlive the test.
device::TensorDevice& gpu(int32_t number = 0) {
  static device::TensorDevice* kOpen[2] = {};
  if (kOpen[number] == nullptr) kOpen[number] = must(device::TensorDevice::open(plugin(), number, heap())).release();
  return *kOpen[number];
}

Tensor make(mv_dtype dtype, std::vector<int64_t> shape) {
  return must(make_dense(heap(), dtype, must(make_shape("test", shape.data(), shape.size())), Heap::Content::kZeros));
}

/// Numbers of many magnitudes, with zeros of both signs, infinities and NaNs; integers of all sizes.
Tensor varied(mv_dtype dtype, std::vector<int64_t> shape, uint32_t seed) {
  std::mt19937 random(seed);
  const Tensor made = make(dtype, std::move(shape));
  for (size_t i = 0; i < made.stored(); ++i) {
    const auto wide = static_cast<double>(static_cast<int32_t>(random()));
    const int shift = static_cast<int>(random() % 31);
    const uint32_t kind = random() % 32;
    double value = std::ldexp(wide, is_floating(dtype) ? shift - 40 : -shift);
    if (kind < 2) value = kind == 0 ? 0.0 : -0.0;
    if (kind >= 2 && kind < 5 && is_floating(dtype)) value = kind == 2 ? HUGE_VAL : kind == 3 ? -HUGE_VAL : std::nan("");
    store_element(dtype, made.data + i * dtype_bytes(dtype), value);
  }
  return made;
}
Tensor small_integers(mv_dtype dtype, std::vector<int64_t> shape, uint32_t seed) {
  std::mt19937 random(seed);
  const Tensor made = make(dtype, std::move(shape));
  for (size_t i = 0; i < made.stored(); ++i) store_element(dtype, made.data + i * dtype_bytes(dtype), random() % 7);
  return made;
}

/// The same dtype, shape, rows and bits, except for the payloads of NaNs.
void assert_same(const Tensor& mine, const Tensor& theirs, const std::string& what) {
  if (device_of(mine) != &gpu()) fail_msg("%s: the result is on %s", what.c_str(), place_of(mine).c_str());
  if (mine.text() != theirs.text() || mine.held.count != theirs.held.count)
    fail_msg("%s: %s on the device, %s on the host", what.c_str(), mine.text().c_str(), theirs.text().c_str());
  for (size_t i = 0; i < mine.held.count; ++i) assert_int_equal(mine.held.ids[i], theirs.held.ids[i]);
  const Tensor here = must(on_host(mine));
  const size_t size = dtype_bytes(here.dtype);
  for (size_t i = 0; i < here.stored(); ++i) {
    const std::byte *a = here.data + i * size, *b = theirs.data + i * size;
    if (std::memcmp(a, b, size) == 0 || (std::isnan(load_element(here.dtype, a)) && std::isnan(load_element(here.dtype, b)))) continue;
    fail_msg("%s of %s: element %zu of %zu is %.17g on the device, %.17g on the host", what.c_str(), here.text().c_str(), i, here.stored(),
             load_element(here.dtype, a), load_element(here.dtype, b));
  }
}

mv_status code_of(const Result<Tensor>& result) { return result.ok() ? mv_status{MV_OK} : result.status().code(); }

using Operands = std::vector<Tensor>;
using Compute = std::function<Result<Tensor>(const Operands&)>;

Operands on_device(const Operands& operands) {
  Operands moved;
  for (const Tensor& one : operands) moved.push_back(must(move_to(gpu(), one)));
  return moved;
}
/// Computes on the host and on the device. An error must have the same code.
void compare(const std::string& what, const Operands& operands, const Compute& compute) {
  const auto theirs = compute(operands), mine = compute(on_device(operands));
  if (code_of(mine) == MV_ENOSYS && !is_emulated()) skip();  // without cuBLAS
  assert_int_equal(code_of(mine), code_of(theirs));
  if (theirs.ok()) assert_same(mine.value(), theirs.value(), what);
}
/// For computations into a tensor: the last operand.
void compare_into(const std::string& what, Operands operands, const Compute& compute) {
  const Operands moved = on_device(operands);
  operands.back() = must(clone(heap(), operands.back()));
  const auto theirs = compute(operands), mine = compute(moved);
  assert_int_equal(code_of(mine), code_of(theirs));
  assert_same(moved.back(), operands.back(), what);
}
std::string text(const char* what, int64_t number, mv_dtype a, mv_dtype b) {
  return std::string(what) + " " + std::to_string(number) + " of " + std::string(dtype_name(a)) + " and " + std::string(dtype_name(b));
}

void elements_of_all_dtypes_and_shapes(void**) {
  for (const mv_dtype first : kAll) {
    for (int op = MV_NEG; op <= MV_LOG; ++op) {
      const auto run = [op](const Operands& o) { return unary("test", heap(), op, o[0], o.size() > 1 ? &o[1] : nullptr); };
      compare(text("unary", op, first, first), {varied(first, {31, 17}, 1)}, run);
      for (const mv_dtype out : {MV_F32, MV_F16, MV_I32})
        compare_into(text("unary into", op, first, out), {varied(first, {31, 17}, 1), make(out, {31, 17})}, run);
    }
    for (const mv_dtype second : kAll) {
      for (int op = MV_ADD; op <= MV_GE; ++op) {
        const bool is_power = op == MV_POW;
        if (is_power && !is_emulated()) continue;  // CUDA's: unit/device_test
        const auto values = [&](mv_dtype dtype, std::vector<int64_t> shape, uint32_t seed) {
          return is_power ? small_integers(dtype, std::move(shape), seed) : varied(dtype, std::move(shape), seed);
        };
        const auto run = [op](const Operands& o) { return binary("test", heap(), op, o[0], o[1], o.size() > 2 ? &o[2] : nullptr); };
        const Tensor a = values(first, {5, 123}, 1), b = values(second, {5, 123}, 2), row = values(second, {123}, 3),
                     column = values(second, {5, 1}, 4), one = values(second, {}, 5);
        const std::string what = text("binary", op, first, second);
        compare(what, {a, b}, run);
        compare(what, {row, a}, run);
        compare(what, {a, column}, run);
        compare(what, {row, column}, run);
        compare(what, {a, one}, run);
        compare_into(what, {a, b, make(MV_BF16, {5, 123})}, run);
        compare_into(what, {row, one, make(second, {123})}, run);
      }
    }
  }
}

void numbers_as_operands_and_results_in_place(void**) {
  for (const mv_dtype dtype : kAll) {
    for (int op = MV_ADD; op <= MV_GE; ++op) {
      if (op == MV_POW && !is_emulated()) continue;
      for (const bool swapped : {false, true}) {
        for (const double value : {3.0, 0.37, -1.0})
          compare(text("scalar", op, dtype, dtype), {small_integers(dtype, {300}, 1)},
                  [=](const Operands& o) { return scalar("test", heap(), op, o[0], value, swapped, nullptr); });
        compare_into(text("scalar in place", op, dtype, dtype), {small_integers(dtype, {300}, 2)},
                     [=](const Operands& o) { return scalar("test", heap(), op, o[0], 2, swapped, &o[0]); });
      }
      compare_into(text("in place", op, dtype, dtype), {small_integers(dtype, {300}, 3), small_integers(dtype, {300}, 4)},
                   [=](const Operands& o) { return binary("test", heap(), op, o[1], o[0], &o[1]); });
      // Operands that are views of the result, which overlap it.
      compare_into(text("overlapping", op, dtype, dtype), {small_integers(dtype, {31, 10}, 5)}, [=](const Operands& o) {
        const Tensor upper = must(slice("test", o[0], 0, 30)), lower = must(slice("test", o[0], 1, 31));
        return binary("test", heap(), op, upper, lower, &lower);
      });
    }
  }
}

void copies_casts_and_arrangements(void**) {
  for (const mv_dtype dtype : kAll) {
    const Tensor a = varied(dtype, {40, 50}, 1);
    for (const mv_dtype to : kAll) {
      compare(text("cast", 0, dtype, to), {a}, [to](const Operands& o) { return cast("test", heap(), o[0], to); });
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{40, 50}, {50}, {40, 1}, {}})
        compare_into(text("copy", 0, dtype, to), {varied(dtype, shape, 2), make(to, {40, 50})},
                     [](const Operands& o) { return copy("test", heap(), o[0], &o[1]); });
    }
    compare("clone", {a}, [](const Operands& o) { return copy("test", heap(), o[0], nullptr); });
    compare("transpose", {a}, [](const Operands& o) { return transpose("test", heap(), o[0]); });
    compare("slice", {a}, [](const Operands& o) { return slice("test", o[0], 3, 17); });
    compare("row", {a}, [](const Operands& o) { return row("test", o[0], 7); });
    compare("reshape", {a}, [](const Operands& o) {
      const int64_t lengths[] = {-1, 8};
      return reshape("test", o[0], lengths, 2);
    });
    compare("take", {a}, [](const Operands& o) {
      const int64_t rows[] = {39, 0, 7, 7};
      return take("test", heap(), o[0], rows, 4);
    });
    compare_into("fill", {a}, [](const Operands& o) { return fill("test", o[0], 7).ok() ? o[0] : Tensor(); });
    compare_into("range", {a}, [](const Operands& o) { return range("test", o[0], -3.5, 0.25).ok() ? o[0] : Tensor(); });
    const Tensor empty = make(dtype, {0, 3});
    compare("empty", {empty}, [](const Operands& o) { return binary("test", heap(), MV_ADD, o[0], o[0], nullptr); });
    compare("empty copy", {empty}, [](const Operands& o) { return copy("test", heap(), o[0], nullptr); });
  }
}

void sums_and_random_numbers(void**) {
  for (const mv_dtype dtype : kAll) {
    for (int op = MV_SUM; op <= MV_NORM; ++op) {
      for (int64_t axis = -1; axis < 3; ++axis)
        compare(text("reduce", op, dtype, dtype), {varied(dtype, {7, 600, 3}, 1)},
                [=](const Operands& o) { return reduce("test", heap(), op, o[0], axis); });
      compare(text("reduce nothing", op, dtype, dtype), {make(dtype, {0, 4})}, [=](const Operands& o) { return reduce("test", heap(), op, o[0], 0); });
    }
    compare_into("uniform", {make(dtype, {1001})},
                 [](const Operands& o) { return fill_uniform("test", o[0], 42, 3, 100).ok() ? o[0] : Tensor(); });
    if (is_floating(dtype))
      compare_into("normal", {make(dtype, {1001})}, [](const Operands& o) { return fill_normal("test", o[0], -1, 1, 3).ok() ? o[0] : Tensor(); });
    const Operands host = {small_integers(dtype, {3000}, 2), small_integers(MV_F32, {3000}, 3)}, moved = on_device(host);
    assert_true(must(dot("test", host[0], host[1])) == must(dot("test", moved[0], moved[1])));
    assert_true(must(tensor::close("test", moved[0], host[0], 0, 0)) && !must(tensor::close("test", moved[0], moved[1], 0, 0)));
    assert_true(must(whole_text(moved[0])).find("(3000,) on cuda:0\n") != std::string::npos);
  }
}

void axpy_of_all_dtypes(void**) {
  for (const mv_dtype x : kAll)
    for (const mv_dtype y : kAll)
      for (const double alpha : {3.0, 0.37})
        compare_into(text("axpy", 0, x, y), {varied(x, {50, 20}, 1), varied(y, {50, 20}, 2)}, [=](const Operands& o) -> Result<Tensor> {
          auto status = axpy("test", heap(), alpha, o[0], o[1]);
          return status.ok() ? Result<Tensor>(o[1]) : status;
        });
}

void matrices_of_whole_numbers(void**) {
  for (const mv_dtype dtype : {MV_F32, MV_F64, MV_F16, MV_BF16}) {
    for (const int flags : {0, +MV_TRANSPOSE_A, +MV_TRANSPOSE_B, MV_TRANSPOSE_A | MV_TRANSPOSE_B}) {
      const auto shape = [](bool turned, int64_t rows, int64_t cols) { return turned ? std::vector{cols, rows} : std::vector{rows, cols}; };
      for (const int64_t inner : {20, 0}) {
        const Tensor a = small_integers(dtype, shape((flags & MV_TRANSPOSE_A) != 0, 30, inner), 1),
                     b = small_integers(dtype, shape((flags & MV_TRANSPOSE_B) != 0, inner, 40), 2);
        compare(text("matmul", flags, dtype, dtype), {a, b}, [=](const Operands& o) { return matmul("test", heap(), o[0], o[1], flags, nullptr); });
        compare_into(text("matmul into", flags, dtype, dtype), {a, b, make(MV_F16, {30, 40})},
                     [=](const Operands& o) { return matmul("test", heap(), o[0], o[1], flags, &o[2]); });
      }
    }
  }
}

void row_sparse_tensors(void**) {
  const int64_t ids[] = {5, 1, 9, 5, 5, 0}, wanted[] = {9, 2, 5};
  for (const mv_dtype dtype : kAll) {
    const Tensor values = varied(dtype, {6, 3, 2}, 1), plain = varied(dtype, {10, 3, 2}, 2);
    const auto sparse = [&](const Operands& o) { return make_sparse("test", heap(), ids, 6, o[0], 10); };
    compare("sparse", {values}, sparse);
    const Tensor rows = must(sparse({values})), others = must(make_sparse("test", heap(), ids + 1, 3, varied(dtype, {3, 3, 2}, 3), 10));
    compare("sparse without repeats", {others}, [](const Operands& o) { return clone(heap(), o[0]); });
    compare("to dense", {rows}, [](const Operands& o) { return to_dense("test", heap(), o[0]); });
    compare("retain", {rows}, [&](const Operands& o) { return take("test", heap(), o[0], wanted, 3); });
    compare("sum", {rows, others}, [](const Operands& o) { return binary("test", heap(), MV_ADD, o[0], o[1], nullptr); });
    compare("difference", {rows, others}, [](const Operands& o) { return binary("test", heap(), MV_SUB, o[0], o[1], nullptr); });
    compare("product", {rows}, [](const Operands& o) { return scalar("test", heap(), MV_MUL, o[0], 3, false, nullptr); });
    compare("cast", {rows}, [](const Operands& o) { return cast("test", heap(), o[0], MV_F64); });
    compare("parts", {rows}, [](const Operands& o) { return Result<Tensor>(must(parts("test", o[0])).values); });
    compare_into("axpy", {rows, plain}, [](const Operands& o) -> Result<Tensor> {
      auto status = axpy("test", heap(), 3, o[0], o[1]);
      return status.ok() ? Result<Tensor>(o[1]) : status;
    });
    const Tensor holes = must(to_dense("test", heap(), must(cast("test", heap(), rows, dtype))));
    if (is_floating(dtype)) store_element(dtype, holes.data + 2 * 6 * dtype_bytes(dtype), -0.0);  // is zero
    compare("to sparse", {holes}, [](const Operands& o) { return to_sparse("test", heap(), o[0]); });
  }
}

void tensors_in_different_places_are_refused(void**) {
  const Tensor here = make(MV_F32, {4, 4}), there = must(move_to(gpu(), here));
  const char* const kBoth = "f32 (4, 4) is on the host, f32 (4, 4) on cuda:0: copy one of them";
  must_fail(binary("test", heap(), MV_ADD, here, there, nullptr).status(), MV_EINVAL, kBoth);
  must_fail(binary("test", heap(), MV_ADD, here, here, &there).status(), MV_EINVAL, kBoth);
  must_fail(unary("test", heap(), MV_NEG, here, &there).status(), MV_EINVAL, kBoth);
  must_fail(scalar("test", heap(), MV_MUL, here, 2, false, &there).status(), MV_EINVAL, kBoth);
  must_fail(axpy("test", heap(), 1, here, there), MV_EINVAL, kBoth);
  must_fail(dot("test", here, there).status(), MV_EINVAL, kBoth);
  must_fail(matmul("test", heap(), here, there, 0, nullptr).status(), MV_EINVAL, kBoth);
  must_fail(matmul("test", heap(), here, here, 0, &there).status(), MV_EINVAL, kBoth);
  const int64_t ids[] = {0, 1, 2, 3};
  const Tensor rows = must(make_sparse("test", heap(), ids, 4, here, 9)), far_rows = must(move_to(gpu(), rows));
  must_fail(binary("test", heap(), MV_ADD, rows, far_rows, nullptr).status(), MV_EINVAL, "copy one of them");
  must_fail(need_host("test", there), MV_EINVAL, "cuda:0");
}

void copies_between_places(void**) {
  int32_t devices = 0;
  assert_int_equal(plugin()->count(&devices), MV_OK);
  auto& last = gpu(devices > 1 ? 1 : 0);
  const Tensor a = varied(MV_F32, {30}, 1), there = must(move_to(gpu(), a)), back = make(MV_F32, {30}), other = must(move_to(last, there));
  assert_true(device_of(other) == &last);
  must(copy("test", heap(), other, &back));
  assert_memory_equal(back.data, a.data, a.stored_bytes());
  const Tensor wide = must(move_to(gpu(), make(MV_F64, {2, 30})));
  must(copy("test", heap(), other, &wide));  // converted and repeated on the way from one device to the other
  const Tensor wanted = make(MV_F64, {2, 30});
  must(copy("test", heap(), a, &wanted));
  assert_same(wide, wanted, "copy to another device");
}

void streams_of_the_caller(void**) {
  const mv_device_stream own = gpu().stream();
  const auto theirs = must(device::Stream::make(gpu().device()));
  must(gpu().use_stream(theirs.handle()));
  assert_true(gpu().stream() == theirs.handle());
  compare("on another stream", {varied(MV_F32, {100}, 1)}, [](const Operands& o) { return unary("test", heap(), MV_NEG, o[0], nullptr); });
  must(gpu().order(own));
  must(gpu().use_stream(nullptr));
  assert_true(gpu().stream() == own);
  must(gpu().wait());
}

void memory_is_lent_and_runs_out(void**) {
  const Tensor a = must(move_to(gpu(), varied(MV_F32, {64}, 1)));
  Tensor view = must(make_lent("test", a.data, 64, MV_F32, a.shape));
  view.block = gpu().lend(a.data, a.stored_bytes());
  must(fill("test", view, 5));
  const Tensor fives = make(MV_F32, {64});
  must(fill("test", fives, 5));
  assert_same(a, fives, "a view");
  const int64_t lengths[] = {int64_t{1} << 50};
  must_fail(make_dense(gpu(), MV_F32, must(make_shape("test", lengths, 1)), Heap::Content::kZeros).status(), MV_ENOMEM, "free tensors");
  must(fill("test", view, 6));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(elements_of_all_dtypes_and_shapes),
      cmocka_unit_test(numbers_as_operands_and_results_in_place),
      cmocka_unit_test(copies_casts_and_arrangements),
      cmocka_unit_test(sums_and_random_numbers),
      cmocka_unit_test(axpy_of_all_dtypes),
      cmocka_unit_test(matrices_of_whole_numbers),
      cmocka_unit_test(row_sparse_tensors),
      cmocka_unit_test(tensors_in_different_places_are_refused),
      cmocka_unit_test(copies_between_places),
      cmocka_unit_test(streams_of_the_caller),
      cmocka_unit_test(memory_is_lent_and_runs_out),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
