// core/device/keyed: a sparse or key-value table in a device's memory does what one in the host's memory does, bit for bit.

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/keyed/keyed.hpp"
#include "shard/updater/updater.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "device_shards.hpp"
#include "failing_allocation.hpp"
#include "sanitized.hpp"

namespace {

Spec keyed(mv_dtype dtype, uint64_t cols, const std::string& updater, int32_t kind = MV_KEYVALUE) {
  return {.name = "k", .kind = kind, .dtype = dtype, .rows = kind == MV_SPARSE ? 100'000u : 0u, .cols = cols, .updater = must(shard::parse_updater(updater))};
}

/// Up to `most` ids of few, so that many come again; each once if they are unique.
std::vector<int64_t> some_ids(size_t most, bool are_unique, int64_t range = 3000) {
  std::vector<int64_t> ids;
  for (size_t i = dice()() % (most + 1); i > 0; --i) {
    const auto number = static_cast<int64_t>(dice()() % static_cast<uint64_t>(range));
    ids.push_back(number % 7 == 0 ? -number * 0x123456789ab : number);
  }
  if (!are_unique) return ids;
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  std::ranges::shuffle(ids, dice());
  return ids;
}

/// All rows with everything that is stored of them, in the order of scans, `most` at a time.
std::vector<shard::Scanned> stored(Shard& one, size_t most) {
  std::vector<shard::Scanned> all;
  for (int64_t cursor = 0; cursor >= 0; cursor = all.back().next) all.push_back(must(one.scan_stored(cursor, most)));
  return all;
}

void assert_same(const Pair& pair, const std::string& what, size_t most = 100) {
  const auto mine = stored(*pair.there, most), theirs = stored(*pair.host, most);
  if (mine.size() != theirs.size()) fail_msg("%s: %zu pieces on the device, %zu on the host", what.c_str(), mine.size(), theirs.size());
  for (size_t i = 0; i < mine.size(); ++i)
    if (mine[i].rows != theirs[i].rows || mine[i].values != theirs[i].values || mine[i].beside != theirs[i].beside || mine[i].next != theirs[i].next)
      fail_msg("%s: piece %zu differs", what.c_str(), i);
  assert_true(pair.host->mark() == pair.there->mark());
  assert_int_equal(pair.host->usage().stored, pair.there->usage().stored);
  assert_int_equal(pair.host->usage().updates, pair.there->usage().updates);
  assert_int_equal(pair.host->usage().state_bytes, pair.there->usage().state_bytes);
  assert_int_equal(pair.host->stored_row_bytes(), pair.there->stored_row_bytes());
}

void change_some(const Pair& pair) {
  const Spec& spec = pair.host->spec();
  const uint32_t kind = dice()() % 8;
  const auto ids = some_ids(60, kind > 2);
  const auto values = varied(spec.dtype, ids.size() * spec.cols);
  if (kind == 0) return pair.both([&](Shard& one) { one.change_rows(Write::Erase, kWorker, ids, nullptr); });
  if (kind <= 2) return pair.both([&](Shard& one) { one.change_rows(Write::Set, kWorker, ids, values.data()); });
  const ChangePart piece = kind == 3 ? ChangePart::kFurther : ChangePart::kFirst;
  pair.both([&](Shard& one) { one.change_rows(Write::Add, kWorker, ids, values.data(), piece); });
}

void read_some(const Pair& pair, const std::string& what) {
  const auto ids = some_ids(60, false);
  std::vector<std::byte> theirs(ids.size() * pair.host->spec().row_bytes()), mine(theirs.size());
  pair.host->read_rows(kWorker, ids, theirs.data());
  pair.there->read_rows(kWorker, ids, mine.data());
  if (mine != theirs) fail_msg("%s: reads differ", what.c_str());
}

const char* const kUpdaters[] = {"add", "assign", "sgd rate=0.1 decay=0.01", "momentum rate=0.1 momentum=0.9", "adagrad rate=0.1", "ftrl", "mx.sgd momentum=0.9 wd=0.1",
                                 "mx.ftml", "mx.sgld seed=3", "mx.adam wd=0.01", "mx.rmsprop centered=1", "mx.nadam", "mx.lion wd=0.1"};

void changes_and_reads_of_all_dtypes_and_updaters(void**) {
  for (const std::string words : kUpdaters) {
    for (const mv_dtype dtype : {MV_F32, MV_F64, MV_F16, MV_BF16, MV_I64, MV_I32, MV_U8, MV_I8}) {
      for (const uint64_t cols : {uint64_t{1}, uint64_t{24}}) {
        Spec spec = keyed(dtype, cols, words);
        if (!shard::check_updater(spec.updater, dtype).ok()) continue;
        if (cols == 24) spec.initial = 3;
        if (cols == 24 && tensor::is_floating(dtype)) spec.initial_range = 0.75, spec.seed = 11;
        const Pair pair(spec);
        const std::string what = words + " of " + spec.describe();
        for (size_t i = 0; i < test::turns(60, 15); ++i) {
          change_some(pair);
          read_some(pair, what);
        }
        assert_same(pair, what);
      }
    }
  }
}

/// Enough rows for several chunks and several sizes of the index; most of them are erased, and others take their slots.
void grows_and_shrinks(void**) {
  Spec spec = keyed(MV_F32, 32, "adagrad rate=0.1");
  const Pair pair(spec);
  std::vector<int64_t> ids(40'000);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 977 + static_cast<size_t>(round) * 13);
    const auto values = varied(MV_F32, ids.size() * 32);
    for (size_t first = 0; first < ids.size(); first += 4096) {
      const auto some = std::span(ids).subspan(first, std::min<size_t>(4096, ids.size() - first));
      pair.both([&](Shard& one) { one.change_rows(Write::Add, kWorker, some, values.data() + first * spec.row_bytes()); });
    }
    const std::span erased = std::span(ids).subspan(100, 35'000);
    pair.both([&](Shard& one) { one.change_rows(Write::Erase, kWorker, erased, nullptr); });
    assert_same(pair, "round " + std::to_string(round), 1000);
  }
  const auto usage = pair.there->usage();
  assert_true(usage.memory_bytes < 2 * 50'000 * (2 * 32 * 4 + 19));  // the slots of erased rows were used again
  assert_int_equal(usage.host_bytes, 0);
  must_fail(pair.there->scan(0, 0, true).status(), MV_EINVAL, "not a cursor");
  must_fail(pair.there->scan(int64_t{1} << 40, 5, true).status(), MV_EINVAL, "not a cursor");
  const auto with = must(pair.there->scan(0, 50, true)), theirs = must(pair.host->scan(0, 50, true));
  assert_true(with.rows == theirs.rows && with.values == theirs.values && with.next == theirs.next);
}

void updaters_are_replaced(void**) {
  const Pair pair(keyed(MV_F32, 5, "mx.adam"));
  const auto set = [&](const char* words) { pair.both([&](Shard& one) { must(one.set_updater(must(shard::parse_updater(words)))); }); };
  const auto change = [&] { for (int i = 0; i < 10; ++i) change_some(pair); };
  for (const char* const words : {"mx.adam learning_rate=0.5", "adagrad rate=0.1", "add", "momentum", "ftrl"}) {
    change();
    set(words);
    change();
    assert_same(pair, words);
  }
  for (const auto& [words, code, text] : {std::tuple("dcasgd", MV_ENOSYS, "keep the table on the host"), {"mx.lamb", MV_EINVAL, "has only rows"}})
    must_fail(pair.there->set_updater(must(shard::parse_updater(words))), code, text);
  change();
  assert_same(pair, "after refused updaters");
}

void snapshots_are_restored(void**) {
  const Spec spec = keyed(MV_F16, 24, "mx.adam wd=0.1");
  const Pair pair(spec);
  for (int i = 0; i < 100; ++i) change_some(pair);
  for (Shard* const from : {pair.host.get(), pair.there.get()}) {
    const auto snapshot = must(from->snapshot(shard::Scope::kAll));
    assert_int_equal(snapshot->rows(), pair.host->usage().stored);
    assert_int_equal(snapshot->states(), 2);
    const auto ids = some_ids(50, true);
    const auto values = varied(MV_F16, ids.size() * 24);
    from->change_rows(Write::Set, kWorker, ids, values.data());  // does not show in the snapshot
    const Pair again(spec), part(spec, {.servers = 3, .index = 1});
    uint64_t rows = 0;
    for (auto some = snapshot->next(); some.count > 0; some = snapshot->next()) {
      rows += some.count;
      again.both([&](Shard& one) { must(one.restore(some)); });
      part.both([&](Shard& one) { must(one.restore(some)); });
    }
    assert_int_equal(rows, snapshot->rows());
    assert_same(part, "a part");
    assert_true(part.there->usage().stored < rows);
    again.both([&](Shard& one) { one.set_mark(from->mark()); });
    assert_same(again, "restored");
    from->change_rows(Write::Erase, kWorker, ids, nullptr);
    pair.both([&](Shard& one) { one.change_rows(Write::Erase, kWorker, ids, nullptr); });
  }
  assert_same(pair, "at the end");
  shard::Restored wrong;
  wrong.ids = {1, 2};
  must_fail(pair.there->restore(wrong), MV_EINVAL, "0 bytes of values for 2 rows");
  must_fail(pair.there->restore_states(wrong), MV_ENOSYS, "restored with its rows");
}

/// A row-sparse tensor on the device itself.
void tensors_are_added(void**) {
  const Pair pair(keyed(MV_F32, 3, "adagrad rate=0.1"));
  for (int i = 0; i < 10; ++i) {
    const auto ids = some_ids(40, true);
    if (ids.empty()) continue;
    const auto values = varied(MV_F32, ids.size() * 3);
    const int64_t lengths[] = {4000, 3};
    auto block = must(gpu().allocate(values.size(), tensor::Allocator::Content::kAnything));
    must(gpu().from_host(block->data(), values.data(), values.size()));
    tensor::Tensor rows;
    rows.shape = must(tensor::make_shape("test", lengths, 2));
    rows.block = rows.held.block = block;  // the ids are lent
    rows.data = block->data();
    rows.held.ids = const_cast<int64_t*>(ids.data());
    rows.held.count = ids.size();
    must(pair.there->on_device()->add_held(kWorker, rows));
    pair.host->change_rows(Write::Add, kWorker, ids, values.data());
    must(pair.there->on_device()->read_held(kWorker, rows));
    std::vector<std::byte> mine(values.size()), theirs(values.size());
    must(gpu().to_host(mine.data(), block->data(), mine.size()));
    pair.host->read_rows(kWorker, ids, theirs.data());
    assert_true(mine == theirs);
  }
  assert_same(pair, "tensors");
  must_fail(pair.there->on_device()->read_into(kWorker, {}), MV_EINVAL, "no elements but its rows");
}

template <typename Work>
mv_status code_of(const Work& work) {
  try {
    work();
  } catch (const shard::DeviceFailure& failure) {
    return failure.status().code();
  } catch (const std::bad_alloc&) {
    return MV_ENOMEM;
  }
  return MV_OK;
}

/// Each allocation of a call fails once, on the device and on the host: nothing has changed then, and the call can be repeated.
void what_lacks_memory_changes_nothing(void**) {
  if (!is_emulated()) skip();
  using Counter = int64_t (*)();
  const auto allocations = reinterpret_cast<Counter>(dlsym(dlopen(EMULATION, RTLD_NOW | RTLD_NOLOAD), "emulation_allocations"));
  assert_non_null(allocations);
  for (const bool on_host : {false, true}) {
    const Pair pair(keyed(MV_F16, 24, "mx.adam wd=0.1"));
    for (int i = 0; i < 10; ++i) change_some(pair);
    for (const Write write : {Write::Add, Write::Set, Write::Erase}) {
      std::vector<int64_t> ids = some_ids(3000, true, 30'000);
      const auto values = varied(MV_F16, ids.size() * 24);
      const auto change = [&](Shard& one) { one.change_rows(write, kWorker, ids, write == Write::Erase ? nullptr : values.data()); };
      int failures = 0;
      for (mv_status code = MV_ENOMEM; code != MV_OK; failures += code != MV_OK) {
        if (!on_host) setenv("POLYVERSO_EMULATION", ("spill=0,allocations=" + std::to_string(allocations() + failures)).c_str(), 1);
        if (on_host) failing_allocation = static_cast<uint64_t>(failures) + 1;
        code = code_of([&] { change(*pair.there); });
        unsetenv("POLYVERSO_EMULATION");
        failing_allocation = 0;
        if (code == MV_OK) break;
        assert_int_equal(code, MV_ENOMEM);
        if (static_cast<size_t>(failures) % test::turns(1, 10) == 0) assert_same(pair, "a failed change", 500);
      }
      change(*pair.host);
      assert_same(pair, "a repeated change", 500);
      assert_true(failures > 3);
    }
  }
}

/// What the device has no memory for is in the host's.
void rows_spill(void**) {
  if (!is_emulated()) skip();
  const Pair pair(keyed(MV_F32, 64, "momentum rate=0.1 momentum=0.9"));
  const auto about = must(gpu().device().describe());
  constexpr uint64_t kRoom = uint64_t{8} << 20, kRemains = uint64_t{256} << 20;
  setenv("POLYVERSO_EMULATION", ("memory=" + std::to_string(about.memory - about.unused + kRoom + kRemains)).c_str(), 1);
  std::vector<int64_t> ids(500);
  for (int64_t first = 0; first < 40'000; first += 500) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = (first + static_cast<int64_t>(i)) * 31;
    const auto values = varied(MV_F32, ids.size() * 64);
    pair.both([&](Shard& one) { one.change_rows(Write::Add, kWorker, ids, values.data()); });
    read_some(pair, "spilled");
    if (pair.there->usage().host_bytes > (uint64_t{8} << 20)) break;
  }
  const auto usage = pair.there->usage();
  const auto now = must(gpu().device().describe());
  assert_true(now.unused >= kRemains - (uint64_t{4} << 20));  // computations still have memory
  unsetenv("POLYVERSO_EMULATION");
  assert_true(usage.host_bytes > (uint64_t{8} << 20) && usage.host_bytes < usage.memory_bytes);
  assert_same(pair, "spilled", 5000);
}

/// Two ids whose hashes have the same cursor come in the order of their hashes, whatever their slots are.
void ids_of_one_cursor_have_an_order(void**) {
  std::unordered_map<int64_t, int64_t> known;
  std::vector<std::pair<int64_t, int64_t>> alike;
  for (int64_t id = 0; alike.size() < 3 && id < 20'000'000; ++id)
    if (const auto [same, is_new] = known.emplace(shard::cursor_at(base::mix(static_cast<uint64_t>(id))), id); !is_new) alike.emplace_back(same->second, id);
  assert_int_equal(alike.size(), 3);
  const Pair pair(keyed(MV_F32, 1, ""));
  const float one = 1;
  const auto set = [&](int64_t id) { pair.both([&](Shard& each) { each.change_rows(Write::Set, kWorker, {&id, 1}, reinterpret_cast<const std::byte*>(&one)); }); };
  const auto erase = [&](int64_t id) { pair.both([&](Shard& each) { each.change_rows(Write::Erase, kWorker, {&id, 1}, nullptr); }); };
  for (const auto& [a, b] : alike) {
    set(1000);
    set(2000);
    erase(2000);
    erase(1000);
    set(a);
    set(b);
    assert_same(pair, "alike", 10);
  }
}

/// Rows that are used come to the device, and the others go to the host.
void used_rows_are_on_the_device(void**) {
  if (!is_emulated()) skip();
  const Spec spec = keyed(MV_F32, 64, "add");
  device::Slots slots(gpu(), spec);
  must(slots.set_states(1));
  const auto about = must(gpu().device().describe());
  constexpr uint64_t kRoom = uint64_t{8} << 20, kRemains = uint64_t{256} << 20;
  setenv("POLYVERSO_EMULATION", ("memory=" + std::to_string(about.memory - about.unused + kRoom + kRemains)).c_str(), 1);
  const device::Stream& stream = gpu().current();
  const auto value = [](int64_t id) { return static_cast<float>(id) + 0.5F; };
  const auto add = [&](int64_t first, int64_t count) {
    device::Scratch scratch(stream);
    std::vector<int64_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), first);
    std::vector<float> values;
    for (const int64_t id : ids) values.insert(values.end(), 64, value(id));
    device::ReachedRows rows(slots, stream, scratch, ids, device::ReachedRows::Fill::kAnything);
    const void* const there = must(scratch.of(std::span<const float>(values)));
    rows.packed().put(slots.values().rows(), there);
    rows.packed().put(slots.states()[0].rows(), there);
    rows.keep();
  };
  constexpr int64_t kRows = 40'000, kHot = 500;
  for (int64_t first = 0; first < kRows; first += 1000) add(first, 1000);
  unsetenv("POLYVERSO_EMULATION");
  const uint64_t rows = slots.size();
  assert_true(slots.host_bytes() > 0);
  // Where the rows from `first` on are; their values are checked.
  const auto on_host = [&](int64_t first) {
    device::Scratch scratch(stream);
    std::vector<int64_t> ids(kHot);
    std::iota(ids.begin(), ids.end(), first);
    uint64_t* const there = slots.find(scratch, must(scratch.of(std::span<const int64_t>(ids))), kHot, nullptr);
    std::vector<uint64_t> places(kHot);
    must(gpu().to_host(places.data(), there, kHot * sizeof(uint64_t)));
    const device::PackedRows packed{stream, scratch, spec, kHot, there};
    size_t host = 0;
    for (const device::ChunkedRows* const array : {&slots.values(), &slots.states()[0]}) {
      std::vector<float> values(kHot * 64);
      must(gpu().to_host(values.data(), packed.take(array->rows()), values.size() * sizeof(float)));
      for (size_t i = 0; i < values.size(); ++i) assert_true(values[i] == value(ids[i / 64]));
    }
    for (const uint64_t place : places) host += slots.values().is_on_host(place);
    return host;
  };
  assert_int_equal(on_host(kRows - kHot), kHot);
  for (int i = 0; i < 100; ++i) on_host(kRows - kHot);
  assert_int_equal(on_host(kRows - kHot), 0);
  for (int64_t first = 0; first < kRows; first += kHot) on_host(first);  // every row is still what it was
  assert_int_equal(slots.size(), rows);
}

}  // namespace

int main() {
  use_table_devices();
  const CMUnitTest tests[] = {
      cmocka_unit_test(changes_and_reads_of_all_dtypes_and_updaters),
      cmocka_unit_test(grows_and_shrinks),
      cmocka_unit_test(updaters_are_replaced),
      cmocka_unit_test(snapshots_are_restored),
      cmocka_unit_test(tensors_are_added),
      cmocka_unit_test(what_lacks_memory_changes_nothing),
      cmocka_unit_test(rows_spill),
      cmocka_unit_test(ids_of_one_cursor_have_an_order),
      cmocka_unit_test(used_rows_are_on_the_device),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
