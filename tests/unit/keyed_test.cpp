// core/shard/keyed: sparse and key-value tables compared with an unordered_map: growing, erasing, scanned, full, saved while they change.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "math/convert.hpp"
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

Spec keyed(mv_dtype dtype, uint64_t cols, const char* updater = "") {
  return {.name = "k",
          .kind = MV_KEYVALUE,
          .dtype = dtype,
          .rows = 0,
          .cols = cols,
          .updater = parse_updater(updater).value()};
}

template <typename T>
std::vector<T> read(Shard& shard, const std::vector<int64_t>& ids, Worker worker = kNoWorker) {
  std::vector<T> values(ids.size() * shard.spec().cols);
  shard.read_rows(worker, ids, out(values));
  return values;
}

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

/// A random id: an extreme, a small one, or any.
int64_t some_id(std::mt19937_64& random, size_t distinct) {
  static const int64_t kSpecial[] = {0, -1, 1, kLeast, kMost, -2, UINT32_MAX, int64_t{1} << 32};
  const uint64_t pick = random() % distinct;
  return pick < std::size(kSpecial) ? kSpecial[pick] : static_cast<int64_t>(mv::base::mix(pick));
}

/// All rows that a table stores, by scans of `most` rows.
template <typename T>
std::map<int64_t, std::vector<T>> scanned(Shard& shard, size_t most) {
  std::map<int64_t, std::vector<T>> all;
  const size_t cols = shard.spec().cols;
  for (int64_t cursor = 0; cursor >= 0;) {
    const auto chunk = shard.scan(cursor, most, true);
    if (!chunk.ok()) fail_msg("%s", chunk.status().text().c_str());
    const Scanned& some = chunk.value();
    assert_true(some.rows.size() <= most);
    assert_int_equal(some.values.size(), some.rows.size() * cols * sizeof(T));
    for (size_t i = 0; i < some.rows.size(); ++i) {
      std::vector<T> row(cols);
      std::memcpy(row.data(), some.values.data() + i * cols * sizeof(T), cols * sizeof(T));
      assert_true(all.emplace(some.rows[i], row).second);
    }
    assert_true(some.next == -1 || (some.next > cursor && some.next < int64_t{1} << 40));
    cursor = some.next;
  }
  return all;
}

template <typename T>
void behaves_like_a_map(mv_dtype dtype, size_t cols, size_t distinct) {
  Spec spec = keyed(dtype, cols);
  spec.initial = 3;
  const auto shard = make(spec);
  std::unordered_map<int64_t, std::vector<T>> model;
  std::mt19937_64 random(distinct + cols);
  const auto value_of = [&](int64_t id) { return model.contains(id) ? model[id] : std::vector<T>(cols, T(3)); };
  for (size_t round = 0; round < mv::test::turns(300, 60); ++round) {
    std::vector<int64_t> ids(random() % 60 == 0 ? 3000 : random() % 40 + 1);
    for (int64_t& id : ids) id = some_id(random, distinct);
    std::vector<T> values(ids.size() * cols);
    for (T& value : values) value = static_cast<T>(random() % 100);
    const auto write = random() % 5 == 0 ? Write::Erase : static_cast<Write>(random() % 2);
    shard->change_rows(write, 0, ids, write == Write::Erase ? nullptr : in(values));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (write == Write::Erase) {
        model.erase(ids[i]);
        continue;
      }
      auto row = value_of(ids[i]);
      for (size_t c = 0; c < cols; ++c)
        row[c] = write == Write::Set ? values[i * cols + c] : static_cast<T>(row[c] + values[i * cols + c]);
      model[ids[i]] = row;
    }
    for (int64_t& id : ids) id = some_id(random, distinct);
    const auto got = read<T>(*shard, ids);
    for (size_t i = 0; i < ids.size(); ++i)
      assert_memory_equal(&got[i * cols], value_of(ids[i]).data(), cols * sizeof(T));
    assert_int_equal(shard->usage().stored, model.size());
  }
  const auto all = scanned<T>(*shard, distinct < 100 ? 7 : 500);
  assert_true((std::unordered_map<int64_t, std::vector<T>>(all.begin(), all.end())) == model);
}

void it_behaves_like_a_map(void**) {
  for (const size_t distinct : {6, 50, 2000, 1'000'000}) {
    for (const size_t cols : {1, 5}) {
      behaves_like_a_map<float>(MV_F32, cols, distinct);
      behaves_like_a_map<double>(MV_F64, cols, distinct);
      behaves_like_a_map<uint64_t>(MV_I64, cols, distinct);
      behaves_like_a_map<uint32_t>(MV_I32, cols, distinct);
      behaves_like_a_map<uint8_t>(MV_U8, cols, distinct);
      behaves_like_a_map<int8_t>(MV_I8, cols, distinct);
    }
  }
  behaves_like_a_map<float>(MV_F32, 5000, 50);
}

void growth_loses_nothing_and_keeps_entries_small(void**) {
  const auto shard = make(keyed(MV_F32, 1));
  const size_t count = 400'000;
  std::vector<int64_t> ids;
  const std::vector<float> ones(1000, 1);
  for (size_t begin = 0; begin < count; begin += ones.size()) {
    ids.clear();
    for (size_t i = 0; i < ones.size(); ++i) ids.push_back(static_cast<int64_t>((begin + i) * 1'000'003));
    shard->change_rows(Write::Add, 0, ids, in(ones));
  }
  const Usage usage = shard->usage();
  assert_int_equal(usage.stored, count);
  assert_int_equal(usage.state_bytes, 0);
  const double overhead = static_cast<double>(usage.memory_bytes) / static_cast<double>(count) - sizeof(float);
  if (overhead > 20) fail_msg("%.1f bytes an entry", overhead);
  for (size_t i = 0; i < count; i += 997)
    assert_true(read<float>(*shard, {static_cast<int64_t>(i * 1'000'003)})[0] == 1);
  // Erased slots are reused.
  for (size_t begin = 0; begin < count; begin += ones.size()) {
    ids.clear();
    for (size_t i = 0; i < ones.size(); ++i) ids.push_back(static_cast<int64_t>((begin + i) * 1'000'003));
    shard->change_rows(Write::Erase, 0, ids, nullptr);
    for (int64_t& id : ids) id = -id - 7;
    shard->change_rows(Write::Add, 0, ids, in(ones));
  }
  assert_int_equal(shard->usage().stored, count);
  assert_true(shard->usage().memory_bytes <= usage.memory_bytes * 5 / 4 + (1 << 20));
}

// ---- initial values

/// The address space of this process, in bytes.
rlim_t address_space() {
  unsigned long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(std::fscanf(file, "%lu", &pages), 1);
  std::fclose(file);
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

/// Rows that exist and new ones, with memory for more and more of the new ones, until it is enough.
void without_memory_nothing_changes(Write write, const char* updater, uint64_t capacity) {
  constexpr size_t kCols = 16, kRows = 6000;
  constexpr rlim_t kStep = 48 << 10;
  std::vector<int64_t> ids(kRows);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 1'000'003);
  std::vector<float> values(kRows * kCols);
  std::iota(values.begin(), values.end(), 1.0f);
  size_t failures = 0;
  for (rlim_t more = 0;; more += kStep) {
    Spec spec = keyed(MV_F32, kCols, updater);
    spec.capacity = capacity;
    const auto shard = make(spec);
    shard->change_rows(Write::Add, 0, std::span(ids).first(kRows / 3), in(values));
    const auto before = scanned<float>(*shard, 500);
    rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    const rlimit little = {address_space() + more, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    enum { kDone, kNoMemory, kHalfway } how = kDone;
    try {
      shard->change_rows(write, 0, ids, in(values));
    } catch (const Halfway&) {
      how = kHalfway;
    } catch (const std::bad_alloc&) {
      how = kNoMemory;
    }
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_int_not_equal(how, kHalfway);
    if (how == kDone) break;
    ++failures;
    assert_true(scanned<float>(*shard, 500) == before);
    shard->change_rows(write, 0, ids, in(values));
    assert_int_equal(shard->usage().stored, capacity > 0 ? capacity : kRows);
  }
  assert_true(failures > 1);
}

void without_memory_for_all_of_its_rows_a_change_changes_nothing(void**) {
  if (mv::test::turns(1, 0) == 0) skip();  // sanitizers need more address space
  without_memory_nothing_changes(Write::Add, "", 0);
  without_memory_nothing_changes(Write::Set, "", 0);
  without_memory_nothing_changes(Write::Add, "momentum rate=0.1 momentum=0.9", 0);
  without_memory_nothing_changes(Write::Add, "", 5000);
}

void rows_not_stored_are_random_within_their_range(void**) {
  Spec spec = keyed(MV_F32, 4);
  spec.kind = MV_SPARSE, spec.rows = 1000;
  spec.initial = 0.5, spec.initial_range = 0.25, spec.seed = 77;
  const auto shard = make(spec), again = make(spec, {.servers = 3, .index = 1});
  const std::vector<int64_t> ids = {0, 999, 5, 0};
  const auto values = read<float>(*shard, ids);
  assert_true(values == read<float>(*again, ids));
  for (size_t i = 0; i < ids.size(); ++i)
    for (uint64_t c = 0; c < 4; ++c) {
      const uint64_t random = mv::base::mix(mv::base::mix(mv::base::mix(77) + static_cast<uint64_t>(ids[i])) + c);
      const double u = std::ldexp(static_cast<double>(random >> 11), -52) - 1;
      assert_true(values[i * 4 + c] == static_cast<float>(0.5 + 0.25 * u));
      assert_true(values[i * 4 + c] >= 0.25f && values[i * 4 + c] <= 0.75f);
    }
  assert_int_equal(shard->usage().stored, 0);
  shard->change_rows(Write::Add, 0, std::vector<int64_t>{5}, in(std::vector<float>{1, 1, 1, 1}));
  const auto row = read<float>(*shard, {5});
  for (size_t c = 0; c < 4; ++c) assert_true(row[c] == values[2 * 4 + c] + 1);
  shard->change_rows(Write::Erase, 0, std::vector<int64_t>{5}, nullptr);
  assert_true(read<float>(*shard, ids) == values);
}

void initial_values_fit_their_dtype(void**) {
  Spec spec = keyed(MV_U8, 2);
  spec.initial = 300;
  assert_true(read<uint8_t>(*make(spec), {1}) == (std::vector<uint8_t>{255, 255}));
  spec.initial = 100, spec.initial_range = 20;
  for (const uint8_t value : read<uint8_t>(*make(spec), {1, 2, 3, 4, 5, 6})) assert_true(value >= 80 && value <= 120);
  spec.dtype = MV_I64, spec.initial = -2.5, spec.initial_range = 0;
  assert_true(read<int64_t>(*make(spec), {1})[0] == -2);
  spec.dtype = MV_F16, spec.initial = 0.1;
  float value;
  mv::math::widen_bytes(MV_F16, reinterpret_cast<std::byte*>(&value), in(read<uint16_t>(*make(spec), {9})), 1);
  assert_true(std::abs(value - 0.1f) < 1e-4f);
}

// ---- updaters

void each_row_has_its_states(void**) {
  const auto shard = make(keyed(MV_F32, 3, "momentum rate=1 momentum=0.5"));
  const std::vector<float> g = {1, 2, 3}, zeros(3);
  const std::vector<int64_t> id = {kLeast};
  shard->change_rows(Write::Add, 0, id, in(g));
  shard->change_rows(Write::Add, 0, id, in(zeros));
  assert_true(read<float>(*shard, id) == (std::vector<float>{-1.5, -3, -4.5}));
  assert_int_equal(shard->usage().state_bytes, 12);
  assert_true(shard->set_updater(parse_updater("momentum rate=1 momentum=1").value()).ok());
  shard->change_rows(Write::Add, 0, id, in(zeros));
  assert_true(read<float>(*shard, id) == (std::vector<float>{-2, -4, -6}));
  assert_true(shard->set_updater(parse_updater("ftrl").value()).ok());  // two states now, both zero
  assert_true(read<float>(*shard, id) == (std::vector<float>{-2, -4, -6}));
  assert_int_equal(shard->usage().state_bytes, 24);
  assert_true(shard->set_updater(parse_updater("momentum rate=1 momentum=1").value()).ok());
  shard->change_rows(Write::Add, 0, id, in(zeros));
  assert_true(read<float>(*shard, id) == (std::vector<float>{-2, -4, -6}));
  shard->change_rows(Write::Add, 0, id, in(g));
  shard->change_rows(Write::Erase, 0, id, nullptr);  // together with its states
  shard->change_rows(Write::Add, 0, id, in(zeros));
  assert_true(read<float>(*shard, id) == (std::vector<float>{0, 0, 0}));
}

void dcasgd_knows_what_each_worker_last_got(void**) {
  const auto shard = make(keyed(MV_F64, 2, "dcasgd rate=1 lambda=0.5"));
  const std::vector<double> g = {2, 2};
  const std::vector<int64_t> row = {44};
  std::vector<double> got(2);
  shard->change_rows(Write::Set, 0, row, in(std::vector<double>{10, 10}));
  shard->read_rows(0, row, out(got));
  shard->change_rows(Write::Add, 1, row, in(g));
  assert_true(read<double>(*shard, row)[0] == 8);
  shard->change_rows(Write::Add, 0, row, in(g));
  assert_true(read<double>(*shard, row)[0] == 10);
  shard->change_rows(Write::Erase, 0, row, nullptr);  // the record is erased with the row
  shard->change_rows(Write::Set, 0, row, in(std::vector<double>{3, 3}));
  shard->change_rows(Write::Add, 0, row, in(g));
  assert_true(read<double>(*shard, row)[0] == 1);
}

/// A row that is not stored yet reads as its initial value, which is then the reader's last get.
void dcasgd_remembers_gets_of_rows_not_stored_yet(void**) {
  Spec spec = keyed(MV_F64, 2, "dcasgd rate=1 lambda=0.5");
  spec.initial = 10;
  const auto shard = make(spec);
  const std::vector<double> g = {2, 2};
  const std::vector<int64_t> row = {44}, other = {45};
  assert_true(read<double>(*shard, row, 0)[0] == 10);
  assert_int_equal(shard->usage().stored, 0);
  assert_true(shard->usage().state_bytes > 0 && shard->usage().state_bytes == shard->usage().memory_bytes);
  shard->change_rows(Write::Add, 1, row, in(g));  // this worker has not got it: plain
  assert_true(read<double>(*shard, row)[0] == 8);
  shard->change_rows(Write::Add, 0, row, in(g));  // 8 - (2 + 0.5 * 4 * (8 - 10))
  assert_true(read<double>(*shard, row)[0] == 10);
  shard->change_rows(Write::Add, 0, other, in(g));  // this worker never got it
  shard->change_rows(Write::Add, 0, other, in(g));
  assert_true(read<double>(*shard, other)[0] == 6);
  assert_true(shard->set_updater(parse_updater("add").value()).ok());  // drops these records
  assert_int_equal(shard->usage().state_bytes, 0);
}

void dcasgd_remembers_no_more_unstored_rows_than_the_limit(void**) {
  Spec spec = keyed(MV_F64, 1, "dcasgd");
  spec.capacity = 100;
  const auto shard = make(spec);
  uint64_t most = 0;
  for (int64_t id = 0; id < 10'000; ++id) {
    read<double>(*shard, std::vector<int64_t>{id}, 0);
    most = std::max(most, shard->usage().state_bytes);
  }
  assert_in_range(most, 1, 100 * 64);
}

// ---- limits

void a_full_table_evicts_the_least_recently_used_row(void**) {
  Spec spec = keyed(MV_F32, 2);
  spec.capacity = 100;
  const auto shard = make(spec, {.servers = 3, .index = 0});  // its share is 34
  std::list<int64_t> order;                                   // the newest first
  std::map<int64_t, float> model;
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64_t> ids(random() % 5 + 1);
    for (int64_t& id : ids) id = some_id(random, 60);
    const bool gets = random() % 2 == 0, erases = random() % 20 == 0;
    if (erases) shard->change_rows(Write::Erase, 0, ids, nullptr);
    const auto got = gets ? read<float>(*shard, ids) : std::vector<float>();
    if (!gets && !erases) shard->change_rows(Write::Add, 0, ids, in(std::vector<float>(ids.size() * 2, 1)));
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool is_known = model.contains(ids[i]);
      if (erases) {
        model.erase(ids[i]);
        order.remove(ids[i]);
        continue;
      }
      if (gets) assert_true(got[i * 2] == (is_known ? model[ids[i]] : 0));
      if (gets && !is_known) continue;
      order.remove(ids[i]);
      if (!is_known && model.size() == 34) {
        model.erase(order.back());
        order.pop_back();
      }
      order.push_front(ids[i]);
      if (!gets) model[ids[i]] += 1;
    }
    assert_int_equal(shard->usage().stored, model.size());
    assert_true(model.size() <= 34);
  }
}

/// A table into which a snapshot was put evicts the same rows as the one of which it was taken, also if that one was used while it was read.
void a_snapshot_keeps_the_order_of_use(void**) {
  Spec spec = keyed(MV_F32, 1);
  spec.capacity = 5000;
  const auto shard = make(spec), copy = make(spec), same = make(spec);
  std::mt19937_64 random(5);
  std::vector<int64_t> all(20'000);
  std::iota(all.begin(), all.end(), 0);
  const auto use = [&](std::initializer_list<std::shared_ptr<Shard>> shards, int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      std::vector<int64_t> ids(50);
      for (int64_t& id : ids) id = static_cast<int64_t>(random() % all.size());
      const bool gets = random() % 2 == 0;
      for (const auto& used : shards)
        gets ? void(read<float>(*used, ids)) : used->change_rows(Write::Add, 0, ids, in(std::vector<float>(ids.size(), 1)));
    }
  };
  use({shard, same}, 1000);
  const auto snapshot = shard->snapshot().value();
  for (int piece = 0;; ++piece) {
    const Rows rows = snapshot->next();
    if (rows.count == 0) break;
    assert_true(copy->restore(rows).ok());
    use({shard}, 3);
  }
  use({copy, same}, 1000);
  assert_true(read<float>(*copy, all) == read<float>(*same, all));
}

void a_large_limit_holds_too(void**) {
  Spec spec = keyed(MV_F32, 1);
  spec.capacity = 300'000;
  const auto shard = make(spec);
  std::vector<int64_t> ids(10'000);
  const std::vector<float> ones(ids.size(), 1);
  for (int64_t i = 0; i < 100; ++i) {
    for (size_t j = 0; j < ids.size(); ++j) ids[j] = i * 10'000 + static_cast<int64_t>(j);
    shard->change_rows(Write::Add, 0, ids, in(ones));
    assert_true(shard->usage().stored <= 300'000);
  }
  assert_true(shard->usage().stored >= 290'000);
  for (const float value : read<float>(*shard, ids)) assert_true(value == 1);  // the last ones are stored
}

// ---- scans

void a_scan_of_a_growing_table_gives_each_lasting_row_once(void**) {
  const auto shard = make(keyed(MV_I64, 1));
  std::mt19937_64 random(8);
  std::set<int64_t> staying;
  while (staying.size() < 5000) staying.insert(static_cast<int64_t>(random()));
  const std::vector<int64_t> old(staying.begin(), staying.end());
  shard->change_rows(Write::Set, 0, old, in(old));
  std::map<int64_t, int> times;
  int64_t cursor = 0;
  std::vector<int64_t> passing;
  do {
    auto chunk = shard->scan(cursor, 97, false);
    assert_true(chunk.ok() && chunk.value().values.empty());
    for (const int64_t id : chunk.value().rows) ++times[id];
    cursor = chunk.value().next;
    if (!passing.empty() && random() % 2 == 0) shard->change_rows(Write::Erase, 0, passing, nullptr);
    passing.resize(1000);
    for (int64_t& id : passing) id = static_cast<int64_t>(random());
    shard->change_rows(Write::Set, 0, passing, in(passing));
  } while (cursor >= 0);
  for (const int64_t id : old) assert_int_equal(times[id], 1);
  for (const auto& [id, count] : times) assert_int_equal(count, 1);
}

void invalid_cursors_are_refused(void**) {
  const auto shard = make(keyed(MV_F32, 1));
  for (const int64_t cursor : {int64_t{-1}, int64_t{1} << 40, kMost, kLeast})
    assert_int_equal(shard->scan(cursor, 10, true).status().code(), MV_EINVAL);
  assert_int_equal(shard->scan(0, 0, true).status().code(), MV_EINVAL);
  const auto nothing = shard->scan(0, 10, true);
  assert_true(nothing.ok() && nothing.value().rows.empty() && nothing.value().next == -1);
}

/// The inverse of mv::base::mix().
int64_t unmixed(uint64_t hash) {
  hash = hash ^ (hash >> 31) ^ (hash >> 62);
  hash *= 0x319642b2d24d8ec3;
  hash = hash ^ (hash >> 27) ^ (hash >> 54);
  hash *= 0x96de1b173f119089;
  hash = hash ^ (hash >> 30) ^ (hash >> 60);
  return static_cast<int64_t>(hash - 0x9e3779b97f4a7c15);
}

void ids_whose_hashes_agree_are_found_and_given_together(void**) {
  const auto shard = make(keyed(MV_I64, 1));
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < 40; ++i)
    ids.push_back(unmixed(0xfffffffffe000000 + i));  // the same home slot, at the end of the last part
  assert_int_equal(mv::base::mix(static_cast<uint64_t>(ids[7])), 0xfffffffffe000007);
  for (uint64_t i = 0; i < 20; ++i) ids.push_back(unmixed(0xfc00000000000000 + (i << 50)));  // where the overflow lands
  for (const int64_t id : ids)
    shard->change_rows(Write::Add, 0, std::vector<int64_t>{id}, in(std::vector<int64_t>{id}));
  assert_true(read<int64_t>(*shard, ids) == ids);
  const auto all = scanned<int64_t>(*shard, 40);
  assert_int_equal(all.size(), ids.size());
  for (const int64_t id : ids) assert_int_equal(all.at(id)[0], id);
  mv_status status = MV_OK;  // too little room for rows that belong together
  for (int64_t cursor = 0; cursor >= 0 && status == MV_OK;) {
    const auto chunk = shard->scan(cursor, 39, false);
    status = chunk.ok() ? MV_OK : chunk.status().code();
    cursor = chunk.ok() ? chunk.value().next : -1;
  }
  assert_int_equal(status, MV_EINVAL);
  for (const int64_t id : ids) {
    shard->change_rows(Write::Erase, 0, std::vector<int64_t>{id}, nullptr);
    assert_int_equal(read<int64_t>(*shard, {id})[0], 0);
  }
  assert_int_equal(shard->usage().stored, 0);
}

// ---- snapshots

struct Saved {
  std::vector<int64_t> ids;
  std::vector<std::byte> values, state;
};

Saved drained(Snapshot& snapshot) {
  Saved saved;
  for (Rows some = snapshot.next(); some.count > 0; some = snapshot.next()) {
    assert_int_equal(some.count, some.ids.size());
    saved.ids.insert(saved.ids.end(), some.ids.begin(), some.ids.end());
    saved.values.insert(saved.values.end(), some.values.begin(), some.values.end());
    if (snapshot.states() > 0) saved.state.insert(saved.state.end(), some.states[0].begin(), some.states[0].end());
  }
  assert_int_equal(saved.ids.size(), snapshot.rows());
  return saved;
}

void a_snapshot_holds_what_was_there_when_it_was_taken(void**) {
  const auto shard = make(keyed(MV_F32, 2, "momentum rate=1"));
  const size_t count = 150'000;
  std::vector<int64_t> ids(count);
  std::vector<float> g(count * 2);
  for (size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<int64_t>(i * i);
    g[2 * i] = g[2 * i + 1] = static_cast<float>(i);
  }
  shard->change_rows(Write::Add, 0, ids, in(g));
  auto snapshot = std::move(shard->snapshot()).value();
  assert_int_equal(shard->snapshot().status().code(), MV_ESTATE);
  std::atomic<bool> stop = false;
  std::jthread changer([&] {
    std::mt19937_64 random(1);
    while (!stop) {
      std::vector<int64_t> some(100);
      for (int64_t& id : some) id = random() % 2 == 0 ? static_cast<int64_t>(random()) : ids[random() % count];
      shard->change_rows(random() % 4 == 0 ? Write::Erase : Write::Add, 0, some, in(g));
      std::vector<float> got(200);
      shard->read_rows(0, some, out(got));
      if (random() % 50 == 0)
        assert_true(shard->set_updater(parse_updater(random() % 2 == 0 ? "ftrl" : "momentum").value()).ok());
    }
  });
  const Saved saved = drained(*snapshot);
  stop = true;
  changer.join();
  assert_int_equal(saved.ids.size(), count);
  for (size_t i = 0; i < count; ++i) {
    const auto root = static_cast<float>(std::llround(std::sqrt(static_cast<double>(saved.ids[i]))));
    float row[2], speed[2];
    std::memcpy(row, saved.values.data() + i * 8, 8);
    std::memcpy(speed, saved.state.data() + i * 8, 8);
    assert_true(row[0] == -root && row[1] == -root && speed[0] == root && speed[1] == root);
  }
  auto sorted = saved.ids;
  std::ranges::sort(sorted);
  assert_true(sorted == ids);
  snapshot.reset();
  assert_true(shard->snapshot().ok());
}

/// Ids, values, states, and what workers got.
std::tuple<std::vector<int64_t>, std::vector<std::byte>, std::vector<std::byte>> stored(Shard& shard) {
  auto all = std::move(shard.scan_stored(0, 1'000'000)).value();
  assert_int_equal(all.next, -1);
  return {all.rows, all.values, all.beside};
}

void copy_all(Snapshot& snapshot, Shard& copy) {
  for (Rows some = snapshot.next(); some.count > 0; some = snapshot.next()) assert_true(copy.restore(some).ok());
}

void a_copy_has_what_each_worker_last_got(void**) {
  const Spec spec = keyed(MV_F32, 2, "dcasgd rate=1 lambda=0.5 mean_square=0.5");
  const auto shard = make(spec), copy = make(spec);
  const size_t count = 100'000;
  std::vector<int64_t> ids(count), absent(1000);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int64_t>(i * i);
  for (size_t i = 0; i < absent.size(); ++i) absent[i] = -static_cast<int64_t>(i) - 1;
  const std::vector<float> g(count * 2, 2);
  shard->change_rows(Write::Add, 0, ids, in(g));
  read<float>(*shard, ids, 3);
  shard->change_rows(Write::Add, 0, ids, in(g));
  read<float>(*shard, std::vector(ids.begin(), ids.begin() + count / 2), 0);
  read<float>(*shard, absent, 4);
  const auto before = stored(*shard);
  auto snapshot = std::move(shard->snapshot(Scope::kAll)).value();
  std::atomic<bool> stop = false;
  std::jthread changer([&] {
    std::mt19937_64 random(1);
    while (!stop) {
      std::vector<int64_t> some(100);
      for (int64_t& id : some) id = random() % 2 == 0 ? static_cast<int64_t>(random()) : ids[random() % count];
      if (random() % 2 == 0) read<float>(*shard, some, random() % 6);
      if (random() % 2 == 0) read<float>(*shard, absent, random() % 6);
      if (random() % 2 == 0) shard->change_rows(random() % 4 == 0 ? Write::Erase : Write::Add, 0, some, in(g));
    }
  });
  copy_all(*snapshot, *copy);
  stop = true;
  changer.join();
  assert_true(stored(*copy) == before);
  copy->change_rows(Write::Set, 4, absent, in(g));
  copy->change_rows(Write::Add, 4, absent, in(g));  // 2 - (2 + weight * 4 * (2 - 0)): worker 4 got zeros
  assert_true(read<float>(*copy, absent)[0] < -0.1f);
  copy->change_rows(Write::Add, 5, absent, in(g));
  const auto plain = make(keyed(MV_F32, 2, "sgd"));
  const auto again = std::move(copy->snapshot(Scope::kAll)).value();
  for (Rows some = again->next(); some.count > 0; some = again->next())
    assert_int_equal(plain->restore(some).code(), some.content == Content::kValues ? MV_OK : MV_EINVAL);
}

/// The rows that a worker got before they were stored are dropped in the same order, too.
void a_copy_with_a_limit_goes_on_like_the_original(void**) {
  Spec spec = keyed(MV_F64, 1, "dcasgd rate=1 lambda=0.5");
  spec.capacity = 50;
  const auto shard = make(spec), copy = make(spec);
  std::mt19937_64 random(2);
  const auto work = [&](Shard* other) {
    for (int round = 0; round < 3000; ++round) {
      const std::vector<int64_t> ids{static_cast<int64_t>(random() % 200)};
      const Worker worker = random() % 3;
      const size_t kind = random() % 10;
      const std::vector<double> g{static_cast<double>(random() % 5)};
      for (Shard* const each : {shard.get(), other}) {
        if (each == nullptr) continue;
        if (kind < 6) read<double>(*each, ids, worker);
        if (kind >= 6 && kind < 9) each->change_rows(Write::Add, worker, ids, in(g));
        if (kind == 9) each->change_rows(Write::Erase, worker, ids, nullptr);
      }
    }
  };
  work(nullptr);
  copy_all(*std::move(shard->snapshot(Scope::kAll)).value(), *copy);
  assert_true(stored(*copy) == stored(*shard));
  work(copy.get());
  assert_true(stored(*copy) == stored(*shard));
}

void rows_are_restored_from_another_number_of_servers(void**) {
  for (const int32_t kind : {MV_KEYVALUE, MV_SPARSE}) {
    Spec spec = keyed(MV_F64, 3, "adagrad");
    spec.kind = kind, spec.rows = kind == MV_SPARSE ? 5000 : 0;
    const auto old = make(spec);
    std::vector<int64_t> ids(2000);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(2 * i);
    std::vector<double> g(ids.size() * 3);
    for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<double>(i) + 1;
    old->change_rows(Write::Add, 0, ids, in(g));
    auto snapshot = std::move(old->snapshot()).value();
    std::vector<std::shared_ptr<Shard>> shards;
    for (size_t i = 0; i < 3; ++i) shards.push_back(make(spec, {.servers = 3, .index = i}));
    for (Rows some = snapshot->next(); some.count > 0; some = snapshot->next()) {
      for (const auto& shard : shards) assert_true(shard->restore(some).ok());
      some.values = some.values.first(8);
      assert_int_equal(shards[0]->restore(some).code(), MV_EINVAL);
    }
    uint64_t stored = 0;
    for (const auto& shard : shards) stored += shard->usage().stored;
    assert_int_equal(stored, ids.size());
    old->change_rows(Write::Add, 0, ids, in(g));
    for (size_t i = 0; i < ids.size(); ++i) {
      Shard& shard = *shards[server_of(spec, 3, ids[i])];
      shard.change_rows(Write::Add, 0, std::span(ids).subspan(i, 1), in(g) + i * 24);
      assert_true(read<double>(shard, {ids[i]}) == read<double>(*old, {ids[i]}));
    }
  }
}

void threads_add_at_once(void**) {
  const auto shard = make(keyed(MV_I64, 2));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        const std::vector<int64_t> ones(2000, 1);
        std::vector<int64_t> ids(1000), got(2000);
        for (int64_t round = 0; round < 60; ++round) {
          for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i) + round % 20 * 1000;
          shard->change_rows(Write::Add, t, ids, in(ones));
          shard->read_rows(t, ids, out(got));
          if (t == 0) assert_true(shard->scan(0, 100, true).ok());
        }
      });
  }
  std::vector<int64_t> all(20'000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  for (const int64_t value : read<int64_t>(*shard, all)) assert_int_equal(value, 9);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(it_behaves_like_a_map),
      cmocka_unit_test(growth_loses_nothing_and_keeps_entries_small),
      cmocka_unit_test(without_memory_for_all_of_its_rows_a_change_changes_nothing),
      cmocka_unit_test(rows_not_stored_are_random_within_their_range),
      cmocka_unit_test(initial_values_fit_their_dtype),
      cmocka_unit_test(each_row_has_its_states),
      cmocka_unit_test(dcasgd_knows_what_each_worker_last_got),
      cmocka_unit_test(dcasgd_remembers_gets_of_rows_not_stored_yet),
      cmocka_unit_test(dcasgd_remembers_no_more_unstored_rows_than_the_limit),
      cmocka_unit_test(a_full_table_evicts_the_least_recently_used_row),
      cmocka_unit_test(a_snapshot_keeps_the_order_of_use),
      cmocka_unit_test(a_large_limit_holds_too),
      cmocka_unit_test(a_scan_of_a_growing_table_gives_each_lasting_row_once),
      cmocka_unit_test(invalid_cursors_are_refused),
      cmocka_unit_test(ids_whose_hashes_agree_are_found_and_given_together),
      cmocka_unit_test(a_snapshot_holds_what_was_there_when_it_was_taken),
      cmocka_unit_test(a_copy_has_what_each_worker_last_got),
      cmocka_unit_test(a_copy_with_a_limit_goes_on_like_the_original),
      cmocka_unit_test(rows_are_restored_from_another_number_of_servers),
      cmocka_unit_test(threads_add_at_once),
  };
  return mv::test::run_those_with_threads("shard/keyed", tests,
                                           {"a_snapshot_holds_what_was_there_when_it_was_taken", "a_copy_has_what_each_worker_last_got",
                                            "threads_add_at_once"});
}
