// kvstore/layout: the placement of keys.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "api/kvstore/placement.hpp"
#include "api/kvstore/type.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;

shard::Spec spec_of(const std::string& name, std::vector<int64_t> lengths) {
  tensor::Tensor value;
  value.shape = tensor::make_shape("test", lengths.data(), lengths.size()).value();
  return kvstore::spec_of(name, value, 0);
}

/// 1,000 keys, as numbers and with names as in networks: no server has more than 1.5 times or less than half of its share.
void small_keys_are_spread_over_the_servers(void**) {
  for (const char* pattern : {"kv-0/{}", "kv-0/layer{}_weight", "kv-12/stage_{}/conv/bn_gamma"})
    for (const uint64_t servers : {2, 3, 4, 8}) {
      std::vector<uint64_t> keys(servers);
      for (int i = 0; i < 1000; ++i) {
        const shard::Spec spec = spec_of(fmt::format(fmt::runtime(pattern), i), {10, 4});
        assert_int_not_equal(spec.home, 0);
        ++keys[shard::home_of(spec, servers)];
      }
      for (const uint64_t count : keys) assert_in_range(count, 1000 / servers / 2, 1500 / servers);
    }
}

/// Checkpoints and processes of other builds depend on it.
void the_server_of_a_name_never_changes(void**) { assert_true(spec_of("kv-0/w", {1}).home == UINT32_C(2292192875)); }

void large_keys_are_cut_by_rows_where_that_is_even(void**) {
  const shard::Spec tall = spec_of("a", {100000, 64}), wide = spec_of("a", {20, 100000});
  assert_true(tall.kind == MV_MATRIX && tall.rows == 100000 && tall.cols == 64 && tall.home == 0);
  const shard::Spec odd = spec_of("a", {100000, 63});  // codec words would not end at its stripes' ends
  assert_true(odd.kind == MV_ARRAY && odd.home == 0);
  assert_true(wide.kind == MV_ARRAY && wide.rows == 2000000 && wide.cols == 1 && wide.home == 0);
  const shard::Spec small = spec_of("a", {20, 3, 5}), one = spec_of("a", {});
  assert_true(small.kind == MV_MATRIX && small.rows == 20 && small.cols == 15 && small.home != 0);
  assert_true(one.rows == 1 && one.cols == 1 && one.home != 0);
  const shard::Spec long_rows = spec_of("a", {2, 400000});  // longer than one message
  assert_true(long_rows.kind == MV_ARRAY && long_rows.home != 0);

  tensor::Tensor value;  // another bound
  const int64_t lengths[] = {2000000};
  value.shape = tensor::make_shape("test", lengths, 1).value();
  assert_true(kvstore::spec_of("a", value, 0).home == 0 && kvstore::spec_of("a", value, 0, 2000001).home != 0);
  assert_true(kvstore::spec_of("a", value, 0, 2000000).home == 0);
  assert_true(kvstore::parse_spread_from("").value() == 0 && kvstore::parse_spread_from("1000").value() == 1000);
  for (const char* wrong : {"0", "-1", "1e6", "x", "10 "}) assert_false(kvstore::parse_spread_from(wrong).ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(small_keys_are_spread_over_the_servers),
      cmocka_unit_test(the_server_of_a_name_never_changes),
      cmocka_unit_test(large_keys_are_cut_by_rows_where_that_is_even),
  };
  return cmocka_run_group_tests_name("kvstore/layout", tests, nullptr, nullptr);
}
