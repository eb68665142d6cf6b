// engine/replica: a server's part and its copy are compared piece by piece, and a difference is noticed.

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "engine/replica/part.hpp"
#include "engine/table/spec_wire.hpp"
#include "two_workers.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using unit::message_of;
using unit::payload_of;

constexpr base::Peer kPrimary = unit::kServer, kBackup = 2, kWorker = 7;

/// One process's copy of the primary's part.
struct Copy {
  explicit Copy(const cluster::View& view) { part.start(view, *view.find(kPrimary), tables); }
  shard::Shard& shard(uint32_t number) { return *tables.shard(number); }

  unit::StillClock time;
  unit::KeepingLink link;
  base::Pool pool{4096, 1};
  replica::Part part{link, pool};
  table::Server tables{time, part.streams(), pool, false};
};

/// A worker's requests go to the primary, whose inputs go to the back-up as messages.
struct Pair {
  Pair() {
    primary.part.lead([this](const replica::Part::Input& input) {
      const auto frame = builder.finish(wire::Body::Replicate, replica::write_input(builder.fbb(), 1, input));
      const base::Status replayed = backup.part.replay(*message_of(frame).body_as_Replicate(), payload_of(frame), nullptr);
      assert_true(replayed.ok());
      ++inputs;
    });
  }
  static cluster::View make_view() {
    cluster::View view;
    unit::join(view, kPrimary, MV_ROLE_SERVER);
    unit::join(view, kBackup, MV_ROLE_SERVER);
    unit::join(view, kWorker, MV_ROLE_WORKER);
    return view;
  }
  /// A table of int64 of this kind; `rows` of two elements on both servers, so half of them here.
  void create(int32_t kind, uint64_t rows) {
    shard::Spec spec;
    spec.name = "table " + std::to_string(tables);
    spec.kind = kind;
    spec.rows = rows;
    spec.cols = 2;
    spec.dtype = MV_I64;
    std::vector<flatbuffers::Offset<wire::TableSpec>> specs{table::write_spec(builder.fbb(), spec)};
    ask(wire::Body::Create, wire::CreateCreate(builder.fbb(), builder.fbb().CreateVector(specs)));
    assert_int_equal(primary.tables.numbers(), ++tables);
    assert_int_equal(backup.tables.numbers(), tables);
  }
  template <typename Body>
  void ask(wire::Body kind, flatbuffers::Offset<Body> body) {
    auto frame = builder.finish(kind, body);
    wire::stamp(frame, ++seq, 0);
    primary.part.on_message(kWorker, message_of(frame), {}, nullptr);
  }
  /// Compares all pieces at least once, and returns the number of tables that differ.
  size_t compared() {
    for (int i = 0; i < 40; ++i) primary.part.compare();
    return backup.part.differing();
  }

  const cluster::View view = make_view();
  wire::FrameBuilder builder;
  Copy primary{view}, backup{view};
  uint32_t tables = 0;
  uint64_t seq = 0;
  size_t inputs = 0;
};

std::vector<int64_t> numbers(size_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

const std::byte* bytes_of(const std::vector<int64_t>& values) { return reinterpret_cast<const std::byte*>(values.data()); }

void nothing_is_compared_without_tables(void**) {
  Pair pair;
  assert_int_equal(pair.compared(), 0);
  assert_int_equal(pair.inputs, 0);
}

/// A large one of several pieces, an empty one, and one of rows by key.
struct Tables : Pair {
  Tables() {
    create(MV_MATRIX, 600'000);
    create(MV_KEYVALUE, 0);
    create(MV_KEYVALUE, 0);
    const auto values = numbers(600'000);
    const std::vector<int64_t> keys = numbers(50'000), of_keys = numbers(100'000);
    for (Copy* copy : {&primary, &backup}) {
      copy->shard(0).change(shard::Write::Set, shard::kNoWorker, 0, copy->shard(0).elements(), bytes_of(values));
      copy->shard(2).change_rows(shard::Write::Set, shard::kNoWorker, keys, bytes_of(of_keys));
    }
  }
};

void equal_copies_are_equal(void**) {
  Tables pair;
  const size_t before = pair.inputs;
  assert_int_equal(pair.compared(), 0);
  assert_true(pair.inputs > before + 20);
}

void one_element_of_a_large_table_is_found(void**) {
  for (const uint64_t place : {uint64_t{0}, uint64_t{131'071}, uint64_t{131'072}, uint64_t{599'999}}) {
    Tables pair;
    const int64_t wrong = -1;
    pair.backup.shard(0).change(shard::Write::Set, shard::kNoWorker, place, 1, reinterpret_cast<const std::byte*>(&wrong));
    assert_int_equal(pair.compared(), 1);
    const std::string said = base::log_tail().lines.back();
    for (const char* part : {"server 0 (", "server 1 (", "\"table 0\"", "131072 elements"})
      if (place < 524'288) assert_non_null(strstr(said.c_str(), part));
  }
}

void one_row_of_many_is_found(void**) {
  const std::vector<int64_t> wrong{1, -1}, key{31'234}, strange{70'000};
  Tables changed;
  changed.primary.shard(2).change_rows(shard::Write::Set, shard::kNoWorker, key, bytes_of(wrong));
  assert_int_equal(changed.compared(), 1);
  Tables erased;
  erased.backup.shard(2).change_rows(shard::Write::Erase, shard::kNoWorker, key, nullptr);
  assert_int_equal(erased.compared(), 1);
  Tables added;
  added.backup.shard(2).change_rows(shard::Write::Set, shard::kNoWorker, strange, bytes_of(wrong));
  assert_int_equal(added.compared(), 1);
}

void a_table_that_is_destroyed_meanwhile_is_skipped(void**) {
  Tables pair;
  pair.primary.part.compare();
  pair.ask(wire::Body::Destroy, wire::CreateDestroy(pair.builder.fbb(), uint32_t{0}));
  assert_null(pair.primary.tables.shard(0).get());
  assert_int_equal(pair.compared(), 0);
}

}  // namespace

int main() {
  base::set_log_level(MV_LOG_OFF);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_compared_without_tables),
      cmocka_unit_test(equal_copies_are_equal),
      cmocka_unit_test(one_element_of_a_large_table_is_found),
      cmocka_unit_test(one_row_of_many_is_found),
      cmocka_unit_test(a_table_that_is_destroyed_meanwhile_is_skipped),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
