// core/tensor: every instruction set of this machine gives the same bits; broadcasting iterates shapes as defined.

#include <hwy/highway.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tensor/cast.hpp"
#include "tensor/elementary.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/matmul.hpp"
#include "tensor/random.hpp"
#include "tensor/reduce.hpp"
#include "tensor/sparse.hpp"
#include "tensor/walk.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::tensor;

constexpr mv_dtype kDtypes[] = {MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_I8, MV_F16, MV_BF16};

Tensor random_tensor(Heap& heap, mv_dtype dtype, const std::vector<int64_t>& lengths, int64_t seed) {
  auto shape = make_shape("test", lengths.data(), lengths.size());
  assert_true(shape.ok());
  auto made = make_dense(heap, dtype, shape.value(), Heap::Content::kZeros);
  assert_true(made.ok());
  const bool filled = is_floating(dtype) ? fill_normal("test", made.value(), seed, 0, 10).ok()
                                         : fill_uniform("test", made.value(), seed, 0, 100).ok();
  assert_true(filled);
  return made.value();
}

std::string bytes_of(const mv::base::Result<Tensor>& result) {
  assert_true(result.ok());
  return {reinterpret_cast<const char*>(result.value().data), result.value().stored_bytes()};
}

/// The results of all kernels, as one string of bytes.
std::string compute_everything() {
  Heap heap;
  std::string all;
  for (const mv_dtype dtype : kDtypes) {
    const Tensor a = random_tensor(heap, dtype, {7, 123}, 1), b = random_tensor(heap, dtype, {7, 123}, 2);
    const Tensor row = random_tensor(heap, dtype, {123}, 3), column = random_tensor(heap, dtype, {7, 1}, 4);
    for (int op = MV_ADD; op <= MV_GE; ++op) {
      if (op == MV_POW) continue;
      all += bytes_of(binary("test", heap, op, a, b, nullptr)) + bytes_of(binary("test", heap, op, row, a, nullptr));
      all += bytes_of(binary("test", heap, op, a, column, nullptr)) +
             bytes_of(scalar("test", heap, op, a, 3, true, nullptr));
    }
    for (int op = MV_NEG; op <= MV_LOG; ++op) all += bytes_of(unary("test", heap, op, a, nullptr));
    for (int op = MV_SUM; op <= MV_NORM; ++op)
      for (int64_t axis = -1; axis < 2; ++axis) all += bytes_of(reduce("test", heap, op, a, axis));
    for (const mv_dtype to : kDtypes) all += bytes_of(cast("test", heap, a, to));
    assert_true(axpy("test", heap, 3, a, b).ok());
    all += bytes_of(b);
    if (dtype == MV_F32 || dtype == MV_F64) all += bytes_of(matmul("test", heap, a, b, MV_TRANSPOSE_B, nullptr));
    if (dtype == MV_F32 || dtype == MV_F64) all += bytes_of(matmul("test", heap, a, b, MV_TRANSPOSE_A, nullptr));
  }
  return all;
}

void all_instruction_sets_agree(void**) {
  std::string expected;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    const std::string got = compute_everything();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    if (expected.empty()) expected = got;
    print_message("    %s\n", hwy::TargetName(target));
    assert_int_equal(got.size(), expected.size());
    assert_true(got == expected);
  }
}

/// The operand's element for position `at` of the whole, from the definition of broadcasting.
size_t element_of(const Shape& operand, const Shape& whole, size_t at) {
  size_t element = 0, step = 1;
  for (uint32_t i = 1; i <= whole.dims; ++i) {
    const auto length = static_cast<size_t>(whole.lengths[whole.dims - i]);
    const size_t position = at % length;
    at /= length;
    if (i > operand.dims) continue;
    const auto own = static_cast<size_t>(operand.lengths[operand.dims - i]);
    element += (own == 1 ? 0 : position) * step;
    step *= own;
  }
  return element;
}

void every_broadcast_is_walked_as_defined(void**) {
  std::mt19937 random(5);
  size_t visited = 0;
  for (int round = 0; round < 20000; ++round) {
    Shape whole, a, b;
    whole.dims = random() % (MV_MAX_DIMS + 1);
    for (uint32_t d = 0; d < whole.dims; ++d) whole.lengths[d] = random() % 20 == 0 ? 0 : 1 + random() % 4;
    const auto thin = [&](Shape* shape) {
      shape->dims = random() % (whole.dims + 1);
      for (uint32_t i = 1; i <= shape->dims; ++i)
        shape->lengths[shape->dims - i] = random() % 2 == 0 ? 1 : whole.lengths[whole.dims - i];
    };
    thin(&a);
    thin(&b);
    const Walk<2> walk(whole, {&a, &b});
    size_t next = 0;
    walk.each([&](size_t first, const std::array<size_t, 2>& offsets) {
      assert_int_equal(first, next);
      for (size_t i = 0; i < walk.run(); ++i) {
        assert_int_equal(offsets[0] + (walk.is_single(0) ? 0 : i), element_of(a, whole, first + i));
        assert_int_equal(offsets[1] + (walk.is_single(1) ? 0 : i), element_of(b, whole, first + i));
      }
      next += walk.run();
    });
    assert_int_equal(next, whole.count());
    visited += next;
  }
  assert_true(visited > 100000);
}

void shapes_beyond_memory_are_refused(void**) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100000; ++round) {
    std::array<int64_t, 10> lengths;
    for (auto& length : lengths) {
      const auto word = random();
      length = static_cast<int64_t>(word >> (word % 64));
      if (random() % 50 == 0) length = -length;
      if (random() % 20 == 0) length = 0;
    }
    const uint64_t dims = random() % 11;
    const auto shape = make_shape("test", lengths.data(), dims);
    double product = 1;
    bool negative = dims > MV_MAX_DIMS, empty = false;
    for (uint64_t d = 0; d < dims && d < lengths.size(); ++d) {
      negative = negative || lengths[d] < 0;
      empty = empty || lengths[d] == 0;
      product *= std::max(1.0, static_cast<double>(lengths[d]));
    }
    if (negative || product > 0x1p60 * 1.01) assert_false(shape.ok());
    if (!negative && product < 0x1p60 * 0.99) assert_true(shape.ok());
    if (shape.ok() && !empty) assert_true(static_cast<double>(shape.value().count()) <= 0x1p60);
  }
}

void philox_gives_its_authors_numbers(void**) {
  // From Random123's kat_vectors.
  const std::array<uint32_t, 4> of_zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const std::array<uint32_t, 4> of_ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  const std::array<uint32_t, 4> of_pi = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  assert_true(philox({0, 0, 0, 0}, {0, 0}) == of_zeros);
  assert_true(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == of_ones);
  assert_true(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) == of_pi);
}

void exp_and_log_stay_within_one_place(void**) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200000; ++i) {
    const double x = std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -63) * (i % 2 == 0 ? 700 : 2);
    const double e = mv::tensor::exp(x), l = mv::tensor::log(std::fabs(x));
    assert_true(std::fabs(static_cast<double>(std::exp(static_cast<long double>(x)) - e)) <=
                std::nextafter(e, HUGE_VAL) - e);
    assert_true(std::fabs(static_cast<double>(std::log(std::fabs(static_cast<long double>(x))) - l)) <=
                std::nextafter(std::fabs(l), HUGE_VAL) - std::fabs(l));
  }
  assert_true(mv::tensor::exp(-745) > 0 && mv::tensor::exp(-746) == 0 && std::isinf(mv::tensor::exp(710)));
}

void ids_that_were_written_over_do_no_harm(void**) {
  Heap heap;
  const int64_t rows[2] = {1, 3};
  const Tensor values = random_tensor(heap, MV_F32, {2, 4}, 1), dense = random_tensor(heap, MV_F32, {5, 4}, 2);
  auto sparse = make_sparse("test", heap, rows, 2, values, 5);
  assert_true(sparse.ok());
  const_cast<int64_t*>(sparse.value().held.ids)[1] = 1000000000;
  assert_int_equal(axpy("test", heap, 1, sparse.value(), dense).code(), MV_ERANGE);
  assert_int_equal(to_dense("test", heap, sparse.value()).status().code(), MV_ERANGE);
  const_cast<int64_t*>(sparse.value().held.ids)[1] = -1;
  assert_int_equal(axpy("test", heap, 1, sparse.value(), dense).code(), MV_ERANGE);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_instruction_sets_agree),        cmocka_unit_test(every_broadcast_is_walked_as_defined),
      cmocka_unit_test(shapes_beyond_memory_are_refused),  cmocka_unit_test(philox_gives_its_authors_numbers),
      cmocka_unit_test(exp_and_log_stay_within_one_place), cmocka_unit_test(ids_that_were_written_over_do_no_harm),
  };
  return cmocka_run_group_tests_name("tensor", tests, nullptr, nullptr);
}
