// core/shard/dense: arrays and matrices of all dtypes, with updaters, in private and in shared memory, saved while they change.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "math/convert.hpp"
#include "shard/segment.hpp"
#include "shard/updater/updater.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "sanitized.hpp"
#include "shards.hpp"
#include "threaded.hpp"

namespace {

using namespace mv::shard;
using mv::tensor::dtype_bytes;

Spec matrix(mv_dtype dtype, uint64_t rows, uint64_t cols, const char* updater = "") {
  return {.name = "w",
          .kind = cols == 1 ? MV_ARRAY : MV_MATRIX,
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .updater = parse_updater(updater).value()};
}

template <typename T>
std::vector<T> read(Shard& shard, uint64_t first, uint64_t count) {
  std::vector<T> values(count);
  shard.read(kNoWorker, first, count, out(values));
  return values;
}

template <typename T>
void adds_sets_and_reads(mv_dtype dtype, bool shared) {
  for (const uint64_t cols : {1, 3, 64, 5000}) {
    const uint64_t rows = 900'000 / cols / sizeof(T) + 3;  // a stripe and part of the next one, for some
    const auto shard = make(matrix(dtype, 3 * rows, cols), {.servers = 3, .index = 1, .shared = shared});
    assert_int_equal(shard->rows().count, rows);
    assert_true((shard->shared() != nullptr) == shared);
    std::vector<T> model(rows * cols);
    std::mt19937 random(uint32_t{9} + uint32_t(cols));
    for (size_t round = 0; round < mv::test::turns(40, 8); ++round) {
      const auto write = static_cast<Write>(random() % 2);
      const auto worker = static_cast<Worker>(random() % 3);
      if (round % 2 == 0) {
        const uint64_t first = random() % model.size(), count = random() % (model.size() - first) + 1;
        std::vector<T> values(count);
        for (T& value : values) value = static_cast<T>(random() % 1000);
        shard->change(write, worker, first, count, in(values));
        for (uint64_t i = 0; i < count; ++i)
          model[first + i] = write == Write::Set ? values[i] : static_cast<T>(model[first + i] + values[i]);
        continue;
      }
      std::vector<int64_t> ids(random() % 50 + 1);
      for (int64_t& id : ids) id = static_cast<int64_t>(random() % rows);
      std::vector<T> values(ids.size() * cols), got(values.size());
      for (T& value : values) value = static_cast<T>(random() % 1000);
      shard->change_rows(write, worker, ids, in(values));
      for (size_t i = 0; i < ids.size(); ++i)
        for (uint64_t c = 0; c < cols; ++c) {
          T& w = model[static_cast<uint64_t>(ids[i]) * cols + c];
          w = write == Write::Set ? values[i * cols + c] : static_cast<T>(w + values[i * cols + c]);
        }
      shard->read_rows(worker, ids, out(got));
      for (size_t i = 0; i < ids.size(); ++i)
        assert_memory_equal(&got[i * cols], &model[static_cast<uint64_t>(ids[i]) * cols], cols * sizeof(T));
    }
    assert_true(read<T>(*shard, 0, model.size()) == model);
  }
}

void all_dtypes_add_set_and_read(void**) {
  for (const bool shared : {false, true}) {
    adds_sets_and_reads<float>(MV_F32, shared);
    adds_sets_and_reads<double>(MV_F64, shared);
    adds_sets_and_reads<uint32_t>(MV_I32, shared);
    adds_sets_and_reads<uint64_t>(MV_I64, shared);
    adds_sets_and_reads<uint8_t>(MV_U8, shared);
    adds_sets_and_reads<int8_t>(MV_I8, shared);
  }
}

void halves_accumulate_as_floats(void**) {
  for (const mv_dtype dtype : {MV_F16, MV_BF16}) {
    const auto shard = make(matrix(dtype, 100, 40));
    std::vector<float> ones(100 * 40, 1), big(100 * 40, 4096), back(100 * 40);
    std::vector<uint16_t> halves(ones.size()), got(ones.size());
    const auto add = [&](const std::vector<float>& floats) {
      mv::math::narrow_bytes(dtype, out(halves), in(floats), floats.size());
      shard->change(Write::Add, 0, 0, halves.size(), in(halves));
    };
    add(big);
    for (int i = 0; i < 64; ++i) add(ones);  // in half precision, each of them would be lost
    std::vector<int64_t> ids = {99, 0, 50};
    shard->read_rows(0, ids, out(got));
    shard->read(0, 0, got.size(), out(got));
    mv::math::widen_bytes(dtype, out(back), in(got), back.size());
    for (const float value : back) assert_true(value == 4160);
    shard->change_rows(Write::Add, 0, ids, in(halves));
    shard->change_rows(Write::Set, 0, std::vector<int64_t>{0}, in(halves));
    shard->read_rows(0, ids, out(got));
    mv::math::widen_bytes(dtype, out(back), in(got), 3 * 40);
    assert_true(back[40] == 1 && back[0] != 1 && back[80] != 1);
  }
}

/// For updaters that copy, add, count, draw numbers by position, or need norms of the whole: the same bits as one add of the same values.
void an_add_in_pieces_equals_one_add(void**) {
  struct {
    mv_dtype dtype;
    const char* updater;
    uint64_t cols;
  } const cases[] = {{MV_F32, "replace", 37},  {MV_F64, "", 37},           {MV_F32, "momentum rate=0.5", 37},
                     {MV_F32, "mx.adam", 37},  {MV_F32, "mx.sgld", 37},    {MV_F32, "mx.lamb", 5},
                     {MV_F16, "replace", 37}, {MV_BF16, "mx.adam", 37}};
  for (const auto& [dtype, updater, cols] : cases) {
    const auto made = make(matrix(dtype, 9000, cols, updater)), whole = make(matrix(dtype, 9000, cols, updater));
    const uint64_t count = made->elements(), each = dtype_bytes(dtype);
    std::vector<std::byte> values(count * each), a(values.size()), b(values.size());
    std::mt19937 random(5);
    for (int round = 0; round < 3; ++round) {
      for (uint64_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(random() % 1000) - 500;
        if (dtype == MV_F32) std::memcpy(&values[i * each], &value, each);
        if (dtype == MV_F64) std::memcpy(&values[i * each], std::vector<double>{value}.data(), each);
        if (each == 2) mv::math::narrow_bytes(dtype, &values[i * each], reinterpret_cast<const std::byte*>(&value), 1);
      }
      const auto copy = [&](uint64_t first, uint64_t some, std::byte* to) { std::memcpy(to, &values[first * each], some * each); };
      // A round of two pieces, split as a server may receive it, and rounds of one piece.
      const uint64_t half = round == 0 && std::string_view(updater) != "mx.lamb" ? count / 3 : 0;
      if (half > 0) made->add_made(kNoWorker, 0, half, copy);
      made->add_made(kNoWorker, half, count - half, copy, half > 0 ? ChangePart::kFurther : ChangePart::kFirst);
      if (half > 0) whole->change(Write::Add, kNoWorker, 0, half, values.data());
      whole->change(Write::Add, kNoWorker, half, count - half, &values[half * each], half > 0 ? ChangePart::kFurther : ChangePart::kFirst);
      made->read(kNoWorker, 0, count, a.data());
      whole->read(kNoWorker, 0, count, b.data());
      assert_true(a == b);
    }
    assert_int_equal(made->usage().updates, whole->usage().updates);
  }
}

/// Independent of the number of stripes and of the form of the add: at once, in pieces of a stripe, interleaved with the next add's pieces,
/// or by rows.
void norms_are_of_the_whole_tensor(void**) {
  for (const char* updater : {"mx.lamb learning_rate=0.5 wd=0.01", "mx.lbsgd warmup_strategy=lars momentum=0.5"}) {
    Spec spec = matrix(MV_F32, 9000, 100, updater);  // 4 stripes
    spec.flags = kStoreKey;
    const auto whole = make(spec), pieces = make(spec), made = make(spec), by_rows = make(spec);
    const uint64_t count = whole->elements(), each = stripe_elements(spec);
    std::vector<float> start(count), first(count), second(count);
    for (uint64_t i = 0; i < count; ++i) {
      start[i] = static_cast<float>(1 + i % 7 + 3 * (i / each));  // the stripes' own norms differ
      first[i] = static_cast<float>(i % 11) - 4;
      second[i] = static_cast<float>(i % 5) * 0.25F;
    }
    for (const auto& shard : {whole, pieces, made, by_rows}) shard->change(Write::Set, 0, 0, count, in(start));
    const auto snapshot = pieces->snapshot();
    assert_true(snapshot.ok());
    const auto add_piece = [&](uint64_t stripe, const std::vector<float>& gradient) {
      const uint64_t from = stripe * each, some = std::min(each, count - from);
      const auto* const source = reinterpret_cast<const std::byte*>(&gradient[from]);
      const auto copy = [&](uint64_t at, uint64_t values, std::byte* to) { std::memcpy(to, &gradient[at], values * sizeof(float)); };
      pieces->change(Write::Add, 3, from, some, source, stripe == 0 ? ChangePart::kFirst : ChangePart::kFurther);
      made->add_made(kNoWorker, from, some, copy, stripe == 0 ? ChangePart::kFirst : ChangePart::kFurther);
    };
    for (const uint64_t stripe : {0, 1, 2}) add_piece(stripe, first);
    add_piece(0, second);
    assert_memory_equal(read<float>(*pieces, 0, count).data(), start.data(), count * sizeof(float));  // a piece is missing
    add_piece(3, first);
    for (const uint64_t stripe : {1, 2, 3}) add_piece(stripe, second);
    std::vector<int64_t> rows(9000);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    for (const auto& gradient : {first, second}) {
      whole->change(Write::Add, 0, 0, count, in(gradient));
      by_rows->change_rows(Write::Add, 0, rows, in(gradient));
    }
    const auto expected = read<float>(*whole, 0, count);
    // The worker that replaces a lost one does not add to the lost one's remains.
    pieces->change(Write::Add, 3, 0, each, in(first), ChangePart::kFirst);
    pieces->forget_pieces(3);
    for (const uint64_t stripe : {1, 2, 3})
      pieces->change(Write::Add, 3, stripe * each, std::min(each, count - stripe * each), in(first), ChangePart::kFurther);
    for (const auto& shard : {pieces, made, by_rows}) {
      assert_memory_equal(read<float>(*shard, 0, count).data(), expected.data(), count * sizeof(float));
      assert_int_equal(shard->usage().updates, 2);
    }
    for (uint64_t row = 0; row < 9000;) {  // the snapshot does not contain it
      const auto saved = snapshot.value()->next();
      assert_memory_equal(saved.values.data(), &start[row * 100], saved.count * 100 * sizeof(float));
      row += saved.count;
    }
  }
}

void one_read_fills_several_places(void**) {
  for (const mv_dtype dtype : {MV_F32, MV_F16, MV_U8}) {
    const auto shard = make(matrix(dtype, 30'001, 37));
    std::vector<std::byte> values(shard->elements() * dtype_bytes(dtype));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i % 119);  // avoids NaN in f16
    shard->change(Write::Set, kNoWorker, 0, shard->elements(), values.data());
    std::vector<std::byte> outs[3];
    std::vector<std::byte*> places;
    for (auto& out : outs) {
      out.resize(values.size());
      places.push_back(out.data());
      shard->read_each(kNoWorker, places);
      for (const std::byte* const place : places) assert_memory_equal(place, values.data(), values.size());
      for (size_t i = 0; i < places.size(); ++i) std::memset(places[i], 0x55, values.size());
    }
  }
}

void updaters_keep_states_for_each_element(void**) {
  const uint64_t rows = 7000, cols = 60;  // several stripes
  const auto shard = make(matrix(MV_F32, rows, cols, "momentum rate=1 momentum=0.5"));
  std::vector<float> g(rows * cols);
  for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(i % 97);
  shard->change(Write::Add, 0, 0, g.size(), in(g));
  std::vector<int64_t> ids = {6999, 3, 4000};
  const std::vector<float> zeros(3 * cols);
  shard->change_rows(Write::Add, 0, ids, in(zeros));
  assert_true(read<float>(*shard, 5 * cols, 1)[0] == -g[5 * cols]);
  for (const int64_t id : ids) {
    const auto row = read<float>(*shard, static_cast<uint64_t>(id) * cols, cols);
    for (uint64_t c = 0; c < cols; ++c) assert_true(row[c] == -1.5f * g[static_cast<uint64_t>(id) * cols + c]);
  }
  const Usage usage = shard->usage();
  assert_int_equal(usage.stored, rows);
  assert_int_equal(usage.state_bytes, rows * cols * 4);
  assert_int_equal(usage.memory_bytes, 2 * rows * cols * 4);
  // Other parameters keep the states, another updater does not; a set bypasses the updater.
  assert_true(shard->set_updater(parse_updater("momentum rate=2 momentum=1").value()).ok());
  assert_string_equal(to_text(shard->updater()).c_str(), "momentum rate=2 momentum=1 dampening=0 nesterov=0 decay=0");
  shard->change_rows(Write::Set, 0, ids, in(zeros));
  shard->change_rows(Write::Add, 0, ids, in(zeros));
  assert_true(read<float>(*shard, 3 * cols + 1, 1)[0] == -2 * 0.5f * g[3 * cols + 1]);
  assert_true(shard->set_updater(parse_updater("ftrl").value()).ok());
  assert_true(shard->set_updater(parse_updater("momentum rate=1 momentum=1").value()).ok());
  shard->change_rows(Write::Set, 0, ids, in(zeros));
  shard->change_rows(Write::Add, 0, ids, in(zeros));
  assert_true(read<float>(*shard, 3 * cols + 1, 1)[0] == 0);
  assert_int_equal(shard->set_updater({"sgd", {1}}).code(), MV_EINVAL);
}

void dcasgd_knows_what_each_worker_last_got(void**) {
  const auto shard = make(matrix(MV_F64, 10, 2, "dcasgd rate=1 lambda=0.5"));
  const std::vector<double> g = {2, 2};
  const std::vector<int64_t> row = {4};
  std::vector<double> got(2);
  shard->change_rows(Write::Set, 0, row, in(std::vector<double>{10, 10}));
  shard->read_rows(0, row, out(got));
  shard->change_rows(Write::Add, 1, row, in(g));  // worker 1 has not got anything yet: plain
  assert_true(read<double>(*shard, 8, 1)[0] == 8);
  shard->change_rows(Write::Add, 0, row, in(g));  // 8 - (2 + 0.5 * 4 * (8 - 10))
  assert_true(read<double>(*shard, 8, 1)[0] == 10);
  shard->read(1, 0, 20, out(got = std::vector<double>(20)));
  shard->change_rows(Write::Add, 1, row, in(g));
  assert_true(read<double>(*shard, 8, 1)[0] == 8);
  assert_int_equal(shard->usage().state_bytes, 2 * 20 * 8);
}

void scanning_is_for_keyed_tables(void**) {
  assert_int_equal(make(matrix(MV_F32, 10, 2))->scan(0, 10, true).status().code(), MV_EINVAL);
}

void more_elements_than_31_bits_count(void**) {
  const uint64_t count = (uint64_t{1} << 31) + 10;
  const auto shard = make(matrix(MV_U8, count, 1));
  const std::vector<uint8_t> some = {1, 2, 3, 250, 9, 9, 9, 9, 9, 9, 9, 9};
  shard->change(Write::Add, 0, count - some.size(), some.size(), in(some));
  shard->change(Write::Add, 0, count - some.size(), some.size(), in(some));
  const std::vector<int64_t> ids = {static_cast<int64_t>(count) - 1, (int64_t{1} << 31) - 1, 5};
  shard->change_rows(Write::Add, 0, ids, in(some));
  assert_true(read<uint8_t>(*shard, count - some.size(), 5) == (std::vector<uint8_t>{2, 6, 6, 244, 18}));
  std::vector<uint8_t> got(3);
  shard->read_rows(0, ids, out(got));
  assert_true(got == (std::vector<uint8_t>{19, 6, 3}));
}

void other_processes_see_a_shared_shard(void**) {
  const Spec spec = matrix(MV_F32, 9000, 50);
  const auto shard = make(spec, {.servers = 1, .index = 0, .shared = true});
  const auto reader = SegmentReader::open(shard->shared(), spec, shard->elements()).value();
  std::vector<float> values(9000 * 50), seen(values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  shard->change(Write::Add, 0, 0, values.size(), in(values));
  shard->change_rows(Write::Set, 0, std::vector<int64_t>{3, 8999}, in(values));
  assert_true(reader->read(0, seen.size(), out(seen)));
  assert_true(seen == read<float>(*shard, 0, values.size()));
  shard->publish_clock(17);
  assert_int_equal(reader->clock(), 17);
  assert_false(reader->is_closed());
  shard->destroy();
  assert_true(reader->is_closed() && shard->destroyed);
}

// ---- snapshots

/// All of a snapshot in one piece: values, then each state.
std::vector<std::vector<std::byte>> drained(Snapshot& snapshot, uint64_t first_row) {
  std::vector<std::vector<std::byte>> arrays(1 + snapshot.states());
  uint64_t next = first_row, rows = 0;
  for (;;) {
    const Rows some = snapshot.next();
    if (some.count == 0) break;
    assert_int_equal(some.first, next);
    assert_int_equal(some.states.size(), snapshot.states());
    next += some.count;
    rows += some.count;
    arrays[0].insert(arrays[0].end(), some.values.begin(), some.values.end());
    for (size_t i = 0; i < some.states.size(); ++i)
      arrays[1 + i].insert(arrays[1 + i].end(), some.states[i].begin(), some.states[i].end());
  }
  assert_int_equal(rows, snapshot.rows());
  return arrays;
}

void a_snapshot_holds_what_was_there_when_it_was_taken(void**) {
  for (const uint64_t cols : {1, 50, 700'000}) {  // the last shape: a row in several stripes
    const uint64_t rows = 2'000'000 / cols + 1;
    const auto shard = make(matrix(MV_F32, 2 * rows, cols, "momentum rate=1"), {.servers = 2, .index = 1});
    std::vector<float> g(rows * cols, 2);
    shard->change(Write::Add, 0, 0, g.size(), in(g));
    auto snapshot = std::move(shard->snapshot()).value();
    assert_int_equal(shard->snapshot().status().code(), MV_ESTATE);
    std::atomic<bool> stop = false;
    std::jthread changer([&] {
      std::mt19937 random(1);
      while (!stop) {
        const uint64_t first = random() % g.size(), count = std::min<uint64_t>(random() % 300'000, g.size() - first);
        shard->change(Write::Add, 0, first, count, in(g));
        const std::vector<int64_t> ids = {static_cast<int64_t>(random() % rows)};
        shard->change_rows(Write::Set, 0, ids, in(g));
      }
    });
    const auto arrays = drained(*snapshot, rows);
    stop = true;
    changer.join();
    const std::vector<float> values(g.size(), -2), speeds(g.size(), 2);
    assert_int_equal(arrays.size(), 2);
    assert_int_equal(arrays[0].size(), values.size() * 4);
    assert_memory_equal(arrays[0].data(), values.data(), arrays[0].size());
    assert_memory_equal(arrays[1].data(), speeds.data(), arrays[1].size());
    snapshot.reset();
    assert_true(shard->snapshot().ok());
  }
}

/// All arrays, by number.
std::map<uint64_t, std::vector<std::byte>> stored(Shard& shard) {
  std::map<uint64_t, std::vector<std::byte>> arrays;
  uint64_t array = 0;
  do {
    arrays[array].resize(shard.elements() * 4);
    shard.read_stored(array, 0, shard.elements(), arrays[array].data());
    array = shard.next_stored(array);
  } while (array != 0);
  return arrays;
}

void a_copy_has_what_each_worker_last_got(void**) {
  for (const uint64_t cols : {1, 50, 700'000}) {
    const uint64_t rows = 1'500'000 / cols + 1;
    const Spec spec = matrix(MV_F32, 2 * rows, cols, "dcasgd rate=1 lambda=0.5 mean_square=0.5");
    const Position place{.servers = 2, .index = 1};
    const auto shard = make(spec, place), copy = make(spec, place);
    std::vector<float> g(rows * cols, 2), got(rows * cols);
    shard->change(Write::Add, 0, 0, g.size(), in(g));
    shard->read(3, 0, g.size(), out(got));
    shard->change(Write::Add, 0, 0, g.size(), in(g));
    shard->read(0, g.size() / 2, g.size() / 4, out(got));
    const auto before = stored(*shard);
    assert_int_equal(before.size(), 4);  // values, means, and of workers 0 and 3
    auto snapshot = std::move(shard->snapshot(Scope::kAll)).value();
    std::atomic<bool> stop = false;
    std::jthread changer([&] {
      std::mt19937 random(1);
      std::vector<float> read(g.size());
      while (!stop) {
        const uint64_t first = random() % g.size(), count = std::min<uint64_t>(random() % 300'000, g.size() - first);
        shard->change(Write::Add, random() % 6, first, count, in(g));
        shard->read(random() % 6, first, count, out(read));
        const std::vector<int64_t> ids = {static_cast<int64_t>(random() % rows)};
        shard->read_rows(random() % 6, ids, out(read));
      }
    });
    for (Rows some = snapshot->next(); some.count > 0; some = snapshot->next()) {
      assert_true(copy->restore(some).ok());
      if (some.content != Content::kGot) continue;
      some.worker = kNoWorker;
      assert_int_equal(copy->restore(some).code(), MV_EINVAL);
    }
    stop = true;
    changer.join();
    assert_true(stored(*copy) == before);
  }
  // Checkpoints do not have it.
  const auto shard = make(matrix(MV_F32, 10, 1, "dcasgd")), other = make(matrix(MV_F32, 10, 1, "sgd"));
  std::vector<float> got(10, 1);
  shard->change(Write::Set, 0, 0, 10, in(got));
  shard->read(0, 0, 10, out(got));
  for (const Scope scope : {Scope::kSaved, Scope::kAll}) {
    const auto snapshot = std::move(shard->snapshot(scope)).value();
    assert_true(snapshot->next().content == Content::kValues);
    const Rows rows = snapshot->next();
    assert_int_equal(rows.count, scope == Scope::kAll ? 10 : 0);
    if (rows.count > 0) assert_int_equal(other->restore(rows).code(), MV_EINVAL);
  }
}

void another_updater_does_not_disturb_a_snapshot(void**) {
  const auto shard = make(matrix(MV_F32, 400'000, 1, "momentum rate=1"));
  const std::vector<float> g(400'000, 3);
  shard->change(Write::Add, 0, 0, g.size(), in(g));
  auto snapshot = std::move(shard->snapshot()).value();
  assert_true(shard->set_updater(parse_updater("ftrl").value()).ok());
  shard->change(Write::Add, 0, 0, g.size(), in(g));
  const auto arrays = drained(*snapshot, 0);
  float first, state;
  std::memcpy(&first, arrays[0].data(), 4);
  std::memcpy(&state, arrays[1].data() + 399'999 * 4, 4);
  assert_true(first == -3 && state == 3);
}

void rows_are_restored_from_another_number_of_servers(void**) {
  const uint64_t rows = 1001, cols = 7;
  const auto old = make(matrix(MV_F64, rows, cols, "adagrad"), {.servers = 1, .index = 0});
  std::vector<double> g(rows * cols);
  for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<double>(i) - 3000;
  old->change(Write::Add, 0, 0, g.size(), in(g));
  auto snapshot = std::move(old->snapshot()).value();
  std::vector<std::shared_ptr<Shard>> shards;
  for (size_t i = 0; i < 3; ++i)
    shards.push_back(make(matrix(MV_F64, rows, cols, "adagrad"), {.servers = 3, .index = i}));
  const auto stateless = make(matrix(MV_F64, rows, cols, "sgd"));
  for (Rows some = snapshot->next(); some.count > 0; some = snapshot->next()) {
    for (const auto& shard : shards) assert_true(shard->restore(some).ok());
    assert_true(stateless->restore(some).ok());
    some.values = some.values.first(8);
    assert_int_equal(shards[0]->restore(some).code(), MV_EINVAL);
  }
  old->change(Write::Add, 0, 0, g.size(), in(g));
  for (const auto& shard : shards) {  // values and states are equal: another step gives the same values
    const uint64_t first = shard->rows().first * cols;
    shard->change(Write::Add, 0, 0, shard->elements(), in(g) + first * 8);
    assert_true(read<double>(*shard, 0, shard->elements()) == read<double>(*old, first, shard->elements()));
  }
}

void threads_add_at_once(void**) {
  const auto shard = make(matrix(MV_I64, 3000, 100), {.servers = 1, .index = 0, .shared = true});
  const std::vector<int64_t> ones(3000 * 100, 1);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<uint32_t>(t));
        for (int i = 0; i < 20; ++i) {
          shard->change(Write::Add, t, 0, ones.size(), in(ones));
          std::vector<int64_t> ids(3000);
          for (size_t row = 0; row < ids.size(); ++row) ids[row] = static_cast<int64_t>((row * 7 + random()) % 3000);
          std::vector<int64_t> got(3000 * 100);
          shard->read_rows(t, ids, out(got));
          if (i == 10) assert_true(shard->set_updater(parse_updater("add").value()).ok());
        }
      });
  }
  for (const int64_t value : read<int64_t>(*shard, 0, ones.size())) assert_int_equal(value, 60);
}

/// Rows that replace all others, in pieces, and interleaved with changes of other kinds.
void replacing_rows_leaves_zeros(void**) {
  constexpr uint64_t kRows = 1000, kCols = 700;  // three stripes
  for (const bool shared : {false, true}) {
    const auto shard = make(matrix(MV_F32, kRows, kCols, "replace"), {.shared = shared});
    std::vector<float> model(kRows * kCols);
    std::mt19937 random(5);
    for (int round = 0; round < 30; ++round) {
      if (round % 7 == 6) {  // the shard no longer knows which rows are zero
        for (float& value : model) value = static_cast<float>(random() % 100);
        shard->change(Write::Add, kNoWorker, 0, model.size(), in(model));
        continue;
      }
      std::ranges::fill(model, 0.0F);
      for (const ChangePart piece : {ChangePart::kFirst, ChangePart::kFurther}) {
        std::vector<int64_t> ids;
        for (uint64_t i = 0, count = random() % 20; i < count; ++i) ids.push_back(static_cast<int64_t>(random() % kRows));
        std::ranges::sort(ids);
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        std::vector<float> values(ids.size() * kCols);
        for (float& value : values) value = static_cast<float>(random() % 100);
        shard->change_rows(Write::Add, kNoWorker, ids, in(values), piece);
        for (size_t i = 0; i < ids.size(); ++i)
          std::copy_n(&values[i * kCols], kCols, &model[static_cast<uint64_t>(ids[i]) * kCols]);
      }
      assert_true(read<float>(*shard, 0, model.size()) == model);
    }
  }
}

/// Rows set during a replacement of the table, or written by another updater, are gone after the next replacement.
void a_replacement_clears_all_other_rows(void**) {
  constexpr uint64_t kRows = 64, kCols = 3;
  const auto shard = make(matrix(MV_F32, kRows, kCols, "replace"));
  const std::vector<float> ones(kCols, 1);
  const std::vector<int64_t> replaced{1}, set{5}, last{2};
  for (int round = 0; round < 3000; ++round) {
    std::atomic<int> ready{0};
    const auto together = [&] {
      for (++ready; ready < 2;) {}
    };
    std::thread other([&] {
      together();
      shard->change_rows(Write::Set, kNoWorker, set, in(ones));
    });
    together();
    shard->change_rows(Write::Add, kNoWorker, replaced, in(ones));
    other.join();
    shard->change_rows(Write::Add, kNoWorker, last, in(ones));
    const std::vector<float> now = read<float>(*shard, 0, kRows * kCols);
    for (uint64_t i = 0; i < now.size(); ++i) assert_true(now[i] == (i / kCols == 2 ? 1 : 0));
  }
  assert_true(shard->set_updater(parse_updater("mx.lamb").value()).ok());
  shard->change(Write::Add, kNoWorker, 0, kRows * kCols, in(std::vector<float>(kRows * kCols, 1)));
  assert_true(shard->set_updater(parse_updater("replace").value()).ok());
  shard->change_rows(Write::Add, kNoWorker, last, in(ones));
  const std::vector<float> now = read<float>(*shard, 0, kRows * kCols);
  for (uint64_t i = 0; i < now.size(); ++i) assert_true(now[i] == (i / kCols == 2 ? 1 : 0));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_dtypes_add_set_and_read),
      cmocka_unit_test(halves_accumulate_as_floats),
      cmocka_unit_test(an_add_in_pieces_equals_one_add),
      cmocka_unit_test(norms_are_of_the_whole_tensor),
      cmocka_unit_test(one_read_fills_several_places),
      cmocka_unit_test(updaters_keep_states_for_each_element),
      cmocka_unit_test(dcasgd_knows_what_each_worker_last_got),
      cmocka_unit_test(scanning_is_for_keyed_tables),
      cmocka_unit_test(more_elements_than_31_bits_count),
      cmocka_unit_test(other_processes_see_a_shared_shard),
      cmocka_unit_test(a_snapshot_holds_what_was_there_when_it_was_taken),
      cmocka_unit_test(a_copy_has_what_each_worker_last_got),
      cmocka_unit_test(another_updater_does_not_disturb_a_snapshot),
      cmocka_unit_test(rows_are_restored_from_another_number_of_servers),
      cmocka_unit_test(replacing_rows_leaves_zeros),
      cmocka_unit_test(a_replacement_clears_all_other_rows),
      cmocka_unit_test(threads_add_at_once),
  };
  return mv::test::run_those_with_threads("shard/dense", tests,
                                           {"a_snapshot_holds_what_was_there_when_it_was_taken", "a_copy_has_what_each_worker_last_got",
                                            "a_replacement_clears_all_other_rows", "threads_add_at_once"});
}
