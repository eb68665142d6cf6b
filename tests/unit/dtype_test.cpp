// core/tensor: sizes and names of element types.

#include <cstdint>
#include <string_view>

#include "tensor/dtype.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::tensor;

void every_dtype_knows_its_size(void**) {
  assert_int_equal(dtype_bytes(MV_RAW), 1);
  assert_int_equal(dtype_bytes(MV_F32), sizeof(float));
  assert_int_equal(dtype_bytes(MV_F64), sizeof(double));
  assert_int_equal(dtype_bytes(MV_I64), sizeof(int64_t));
  assert_int_equal(dtype_bytes(MV_I32), sizeof(int32_t));
  assert_int_equal(dtype_bytes(MV_U8), sizeof(uint8_t));
  assert_int_equal(dtype_bytes(MV_I8), sizeof(int8_t));
  assert_int_equal(dtype_bytes(MV_F16), sizeof(uint16_t));
  assert_int_equal(dtype_bytes(MV_BF16), sizeof(uint16_t));
  assert_int_equal(dtype_bytes(99), 0);
  assert_int_equal(dtype_bytes(-1), 0);
}

constexpr mv_dtype kNumbers[] = {MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_I8, MV_F16, MV_BF16};

void tables_hold_numbers_only(void**) {
  for (const mv_dtype dtype : kNumbers) assert_true(is_table_dtype(dtype));
  assert_false(is_table_dtype(MV_RAW) || is_table_dtype(99) || is_table_dtype(-1));
}

void names_are_read_back(void**) {
  for (const mv_dtype dtype : {MV_RAW, MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_I8, MV_F16, MV_BF16}) {
    const auto parsed = parse_dtype(dtype_name(dtype));
    assert_true(parsed.has_value());
    assert_int_equal(*parsed, dtype);
  }
  assert_int_equal(parse_dtype("float32").value(), MV_F32);
  assert_int_equal(parse_dtype("float64").value(), MV_F64);
  assert_int_equal(parse_dtype("double").value(), MV_F64);
  assert_true(dtype_name(99) == "unknown");
}

void a_name_must_match_as_a_whole(void**) {
  for (const std::string_view text : {"", "f", "f3", "f322", "F32", " f32", "float1", "float160", "unknown"}) {
    assert_false(parse_dtype(text).has_value());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_dtype_knows_its_size),
      cmocka_unit_test(tables_hold_numbers_only),
      cmocka_unit_test(names_are_read_back),
      cmocka_unit_test(a_name_must_match_as_a_whole),
  };
  return cmocka_run_group_tests_name("tensor/dtype", tests, nullptr, nullptr);
}
