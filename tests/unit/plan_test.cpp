// engine/table/client/plan and table/spec: how a call is split among servers.

#include <cstdint>
#include <numeric>
#include <vector>

#include "codec/codec.hpp"
#include "engine/table/client/plan.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;

shard::Spec matrix(uint64_t rows, uint64_t cols) {
  shard::Spec spec;
  spec.kind = MV_MATRIX;
  spec.dtype = MV_F64;
  spec.rows = rows;
  spec.cols = cols;
  return spec;
}

void parts_follow_each_other_and_own_each_row_once(void**) {
  for (uint64_t rows = 0; rows <= 40; ++rows)
    for (uint64_t servers = 1; servers <= 9; ++servers) {
      uint64_t next = 0;
      for (uint64_t server = 0; server < servers; ++server) {
        const shard::Range part = shard::part_of(rows, servers, server);
        assert_int_equal(part.first, next);
        assert_in_range(part.count, rows / servers, rows / servers + 1);
        for (uint64_t row = part.first; row < part.end(); ++row)
          assert_int_equal(shard::owner_of(rows, servers, row), server);
        next = part.end();
      }
      assert_int_equal(next, rows);
    }
}

void a_table_with_a_home_lies_there_alone(void**) {
  for (const uint32_t home : {1U, 2U, 7U, UINT32_MAX})
    for (size_t servers = 1; servers <= 5; ++servers) {
      shard::Spec spec = matrix(6, 2);
      spec.home = home;
      const size_t expected = (home - 1) % servers;
      uint64_t next = 0;
      for (size_t server = 0; server < servers; ++server) {
        const shard::Range part = shard::part_of(spec, servers, server);
        assert_int_equal(part.first, next);  // parts are contiguous nevertheless
        assert_int_equal(part.count, server == expected ? 6 : 0);
        assert_int_equal(shard::has_part(spec, servers, server), server == expected);
        next = part.end();
      }
      assert_int_equal(next, 6);
      for (int64_t row = 0; row < 6; ++row) assert_int_equal(shard::server_of(spec, servers, row), expected);
      const std::vector<int64_t> rows = {5, 0};
      for (const auto& pieces : {table::plan_all(spec, servers), table::plan_rows(spec, servers, rows)}) {
        assert_int_equal(pieces.size(), 1);
        assert_int_equal(pieces[0].server, expected);
      }
      assert_true(table::plan_rows(spec, servers, rows)[0].ids == rows);
    }
}

void all_elements_are_sent_once_cut_at_stripes(void**) {
  shard::Spec sliced = matrix(1000, 400);
  sliced.flags = shard::kSliced;
  assert_true(shard::stripe_elements(sliced) * sizeof(double) <= shard::kSliceBytes);
  for (const auto& spec : {matrix(1, 1), matrix(7, 3), matrix(1000, 400), matrix(3, 300'000), sliced})
    for (size_t servers = 1; servers <= 4; ++servers) {
      uint64_t next = 0;
      for (const table::ChunkRange& piece : table::plan_all(spec, servers)) {
        const shard::Range part = shard::part_of(spec.rows, servers, piece.server);
        assert_int_equal(piece.offset, next);
        assert_int_equal(piece.first + part.first * spec.cols, next);
        assert_in_range(piece.count, 1, shard::stripe_elements(spec));
        assert_int_equal(piece.first / shard::stripe_elements(spec),
                         (piece.first + piece.count - 1) / shard::stripe_elements(spec));
        next += piece.count;
      }
      assert_int_equal(next, spec.elements());
    }
}

void pieces_know_how_many_their_server_gets(void**) {
  const auto pieces = table::plan_all(matrix(1000, 400), 2);
  std::vector<uint32_t> count(2);
  for (const table::ChunkRange& piece : pieces) ++count[piece.server];
  assert_true(count[0] > 1);
  for (const table::ChunkRange& piece : pieces) assert_int_equal(piece.of, count[piece.server]);
}

void rows_go_to_their_owners_in_the_order_of_the_call(void**) {
  const std::vector<int64_t> rows{9, 0, 9, 4, 5, 1};
  const auto pieces = table::plan_rows(matrix(10, 2), 2, rows);
  assert_int_equal(pieces.size(), 2);
  assert_true((pieces[0].ids == std::vector<int64_t>{0, 4, 1}) && (pieces[0].from == std::vector<uint64_t>{1, 3, 5}));
  assert_true((pieces[1].ids == std::vector<int64_t>{4, 4, 0}) && (pieces[1].from == std::vector<uint64_t>{0, 2, 4}));
}

void servers_without_a_row_of_the_call_get_a_message(void**) {
  const std::vector<int64_t> rows{0};
  const auto pieces = table::plan_rows(matrix(2, 5), 3, rows);  // server 2 owns nothing
  assert_int_equal(pieces.size(), 2);
  assert_int_equal(pieces[0].ids.size(), 1);
  assert_true(pieces[1].ids.empty() && pieces[1].count == 0 && pieces[1].of == 1);
}

void rows_longer_than_a_stripe_travel_as_elements(void**) {
  const auto spec = matrix(2, 300'000);
  const std::vector<int64_t> rows{1};
  uint64_t sent = 0;
  for (const table::ChunkRange& piece : table::plan_rows(spec, 1, rows)) {
    assert_true(piece.ids.empty());
    assert_int_equal(piece.first, spec.cols + sent);
    assert_int_equal(piece.offset, sent);
    sent += piece.count;
  }
  assert_int_equal(sent, spec.cols);
}

void long_rows_that_replace_all_others_are_announced_first(void**) {
  const std::vector<int64_t> rows{1};
  const auto pieces = table::plan_rows(matrix(2, 300'000), 1, rows, table::kNoServer, true);
  assert_true(pieces.size() > 2);
  for (const table::ChunkRange& piece : pieces) {
    assert_int_equal(piece.of, pieces.size());
    assert_int_equal(piece.count == 0, piece.number == 0);
  }
  assert_int_equal(table::plan_rows(matrix(2, 3), 1, rows, table::kNoServer, true).size(), 1);  // the ids give it
}

void encoded_pieces_lie_one_behind_the_other(void**) {
  const auto codec = codec::make(codec::parse("2bit").value());
  auto pieces = table::plan_all(matrix(3, 300'001), 2);
  const uint64_t bytes = table::place_encoded(pieces, *codec);
  uint64_t next = 0;
  for (const table::ChunkRange& piece : pieces) {
    assert_int_equal(piece.encoded_at, next);
    next += codec->encoded_bytes(piece.count);
  }
  assert_int_equal(bytes, next);
  assert_true(pieces.size() > 4 && bytes > 3 * 300'001 / 4);  // some parts end within a word
}

void a_server_that_is_served_otherwise_gets_nothing(void**) {
  for (const table::ChunkRange& piece : table::plan_all(matrix(9, 2), 3, 1)) assert_int_not_equal(piece.server, 1);
  const std::vector<int64_t> rows{0, 4, 8};
  for (const table::ChunkRange& piece : table::plan_rows(matrix(9, 2), 3, rows, 1)) assert_int_not_equal(piece.server, 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(parts_follow_each_other_and_own_each_row_once),
      cmocka_unit_test(a_table_with_a_home_lies_there_alone),
      cmocka_unit_test(all_elements_are_sent_once_cut_at_stripes),
      cmocka_unit_test(pieces_know_how_many_their_server_gets),
      cmocka_unit_test(rows_go_to_their_owners_in_the_order_of_the_call),
      cmocka_unit_test(servers_without_a_row_of_the_call_get_a_message),
      cmocka_unit_test(rows_longer_than_a_stripe_travel_as_elements),
      cmocka_unit_test(long_rows_that_replace_all_others_are_announced_first),
      cmocka_unit_test(encoded_pieces_lie_one_behind_the_other),
      cmocka_unit_test(a_server_that_is_served_otherwise_gets_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
