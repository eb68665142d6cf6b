// core/device/shard: a table in a device's memory does what one in the host's memory does, bit for bit. The plug-in is that of unit/device_test.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/shard.hpp"
#include "math/reduction.hpp"
#include "shard/updater/updater.hpp"
#include "tensor/cast.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "device_shards.hpp"
#include "failing_allocation.hpp"
#include "must.hpp"
#include "sanitized.hpp"

namespace {

using tensor::Tensor;

Spec matrix(mv_dtype dtype, uint64_t rows, uint64_t cols, const std::string& updater, bool is_key = false) {
  Spec spec{.name = is_key ? "kv-0/w" : "w", .kind = MV_MATRIX, .dtype = dtype, .rows = rows, .cols = cols, .updater = must(shard::parse_updater(updater))};
  if (is_key) spec.flags = shard::kStoreKey;
  return spec;
}

void assert_near(mv_dtype dtype, const std::vector<std::byte>& mine, const std::vector<std::byte>& theirs, double tolerance, const std::string& what) {
  const size_t size = tensor::dtype_bytes(dtype);
  for (size_t i = 0; i < theirs.size(); i += size) {
    if (std::memcmp(&mine[i], &theirs[i], size) == 0) continue;
    const double a = tensor::load_element(dtype, &mine[i]), b = tensor::load_element(dtype, &theirs[i]);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (std::fabs(a - b) > tolerance * std::max(1.0, std::fabs(b))) fail_msg("%s: element %zu is %.17g on the device, %.17g on the host", what.c_str(), i / size, a, b);
  }
}

/// All that is stored, and the progress.
void assert_same(const Pair& pair, const std::string& what) {
  const mv_dtype stored = tensor::storage_dtype(pair.host->spec().dtype);
  const double tolerance = shard::make_updater(pair.host->updater(), stored)->sums() > 0 ? 1e-5 : 0;
  uint64_t array = 0;
  do {
    std::vector<std::byte> theirs(pair.host->elements() * tensor::dtype_bytes(stored)), mine(theirs.size());
    pair.host->read_stored(array, 0, pair.host->elements(), theirs.data());
    pair.there->read_stored(array, 0, pair.host->elements(), mine.data());
    assert_near(stored, mine, theirs, tolerance, what + ", array " + std::to_string(array));
    const uint64_t next = pair.host->next_stored(array);
    assert_int_equal(pair.there->next_stored(array), next);
    array = next;
  } while (array != 0);
  assert_true(pair.host->mark() == pair.there->mark());
  assert_int_equal(pair.host->within_add().pieces, pair.there->within_add().pieces);
  assert_true(pair.host->within_add().shared == pair.there->within_add().shared);
  assert_int_equal(pair.host->usage().updates, pair.there->usage().updates);
  assert_int_equal(pair.host->usage().memory_bytes, pair.there->usage().memory_bytes);
}

std::vector<int64_t> some_rows(uint64_t rows, bool are_unique) {
  std::vector<int64_t> some;
  if (are_unique) {
    some.resize(rows);
    std::iota(some.begin(), some.end(), int64_t{0});
    std::ranges::shuffle(some, dice());
    some.resize(1 + dice()() % std::min<uint64_t>(rows, 50));
  } else {
    for (size_t i = dice()() % 30; i > 0; --i) some.push_back(static_cast<int64_t>(dice()() % rows));
  }
  return some;
}

/// An add of all elements, whole or in stripes, as messages have it.
void add_all(const Pair& pair, bool in_stripes) {
  const Spec& spec = pair.host->spec();
  const uint64_t count = pair.host->elements(), each = in_stripes ? shard::stripe_elements(spec) : count;
  const auto values = varied(spec.dtype, count);
  for (uint64_t from = 0; from < count; from += each) {
    const ChangePart piece = from == 0 ? ChangePart::kFirst : ChangePart::kFurther;
    pair.both([&](Shard& one) { one.change(Write::Add, kWorker, from, std::min(each, count - from), &values[from * spec.element_bytes()], piece); });
  }
}

void change_some(const Pair& pair) {
  const Spec& spec = pair.host->spec();
  const uint64_t rows = pair.host->rows().count;
  const uint32_t kind = dice()() % 6;
  if (kind == 0) {
    const uint64_t first = dice()() % pair.host->elements(), count = 1 + dice()() % (pair.host->elements() - first);
    const auto values = varied(spec.dtype, count);
    return pair.both([&](Shard& one) { one.change(Write::Set, kWorker, first, count, values.data()); });
  }
  if (kind == 1 || kind == 2) return add_all(pair, kind == 2 && shard::make_updater(pair.host->updater(), MV_F32)->sums() == 0);
  if (kind == 3) return pair.both([](Shard& one) { one.change_rows(Write::Add, kWorker, {}, nullptr); });
  const bool sets = kind == 4;
  for (const ChangePart piece : {ChangePart::kFirst, ChangePart::kFurther}) {
    const auto ids = some_rows(rows, !sets);
    const auto values = varied(spec.dtype, ids.size() * spec.cols);
    pair.both([&](Shard& one) { one.change_rows(sets ? Write::Set : Write::Add, kWorker, ids, values.data(), piece); });
  }
}

void read_some(const Pair& pair, const std::string& what) {
  const Spec& spec = pair.host->spec();
  const double tolerance = shard::make_updater(pair.host->updater(), tensor::storage_dtype(spec.dtype))->sums() > 0 ? 1e-2 : 0;
  const uint64_t first = dice()() % pair.host->elements(), count = 1 + dice()() % (pair.host->elements() - first);
  std::vector<std::byte> theirs(count * spec.element_bytes()), mine(theirs.size());
  pair.host->read(kWorker, first, count, theirs.data());
  pair.there->read(kWorker, first, count, mine.data());
  assert_near(spec.dtype, mine, theirs, tolerance, what + ", read");
  const auto ids = some_rows(pair.host->rows().count, false);
  theirs.resize(ids.size() * spec.row_bytes());
  mine.resize(theirs.size());
  pair.host->read_rows(kWorker, ids, theirs.data());
  pair.there->read_rows(kWorker, ids, mine.data());
  assert_near(spec.dtype, mine, theirs, tolerance, what + ", rows");
}

const char* const kUpdaters[] = {"add", "assign", "sgd rate=0.1 decay=0.01", "momentum rate=0.1 momentum=0.9", "adagrad rate=0.1", "ftrl",
                                 "mx.sgd momentum=0.9 wd=0.1", "mx.ftml", "mx.nag momentum=0.9", "mx.sgld seed=3", "mx.adam wd=0.01", "mx.rmsprop centered=1",
                                 "mx.adadelta", "mx.nadam", "mx.lamb", "mx.lion wd=0.1", "replace", "dcasgd rate=0.1 lambda=0.5",
                                 "dcasgd mean_square=0.9"};

void changes_and_reads_of_all_dtypes_and_updaters(void**) {
  for (const std::string words : kUpdaters) {
    for (const mv_dtype dtype : {MV_F32, MV_F64, MV_F16, MV_BF16, MV_I64, MV_I32, MV_U8, MV_I8}) {
      for (const uint64_t cols : {uint64_t{1}, uint64_t{24}}) {
        const bool replaces = words == "replace";
        Spec spec = matrix(dtype, 3000 / cols, cols, replaces ? "add" : words, words == "mx.lamb" || replaces);
        if (replaces) spec.updater = {shard::kReplacing, {}};
        if (!shard::check_updater(spec.updater, dtype).ok()) continue;
        const bool is_whole = words == "mx.lamb";  // norms of a tensor that is spread are refused
        const Pair pair(spec, {.servers = is_whole ? 1u : 3u, .index = is_whole ? 0u : 1u});
        const std::string what = words + " of " + spec.describe();
        for (int i = 0; i < 25; ++i) {
          change_some(pair);
          read_some(pair, what);
        }
        assert_same(pair, what);
      }
    }
  }
}

void updaters_are_replaced(void**) {
  const Pair pair(matrix(MV_F32, 100, 7, "mx.adam"));
  const auto set = [&](const char* words) { pair.both([&](Shard& one) { must(one.set_updater(must(shard::parse_updater(words)))); }); };
  add_all(pair, false);
  set("mx.adam learning_rate=0.5");  // keeps its states and its count
  add_all(pair, false);
  assert_same(pair, "adam");
  set("adagrad rate=0.1");  // begins with zeros
  add_all(pair, false);
  assert_same(pair, "adagrad");
  set("dcasgd rate=0.1");
  for (const Worker worker : {7, 3})
    pair.both([&](Shard& one) {
      std::vector<std::byte> out(70 * sizeof(float));
      one.read(worker, 7, 70, out.data());
    });
  add_all(pair, false);
  assert_same(pair, "dcasgd");
  set("dcasgd rate=0.2");  // keeps what workers got
  add_all(pair, false);
  assert_same(pair, "dcasgd with another rate");
  set("adagrad rate=0.1");
  assert_same(pair, "without backups");
  pair.both([](Shard& one) { one.set_mark({.updates = 9, .shared = {}}); });
  assert_same(pair, "with a mark");
}

void snapshots_are_restored(void**) {
  const Pair pair(matrix(MV_F16, 40'000, 24, "mx.adam wd=0.1"), {.servers = 2, .index = 1});
  for (int i = 0; i < 3; ++i) add_all(pair, false);
  auto snapshot = must(pair.there->snapshot(shard::Scope::kSaved));
  auto theirs = must(pair.host->snapshot(shard::Scope::kSaved));
  assert_int_equal(snapshot->rows(), theirs->rows());
  assert_int_equal(snapshot->states(), theirs->states());
  const auto mark = pair.there->mark();
  add_all(pair, false);  // does not show in the snapshots
  // Each is restored into the other's kind, on one server, which has all rows.
  const Pair all(matrix(MV_F16, 40'000, 24, "mx.adam wd=0.1")), same(matrix(MV_F16, 40'000, 24, "mx.adam wd=0.1"));
  for (auto rows = snapshot->next(); rows.count > 0; rows = snapshot->next()) all.both([&](Shard& one) { must(one.restore(rows)); });
  for (auto rows = theirs->next(); rows.count > 0; rows = theirs->next()) {
    must(all.there->restore_states(rows));
    same.both([&](Shard& one) { must(one.restore(rows)); });
  }
  all.both([&](Shard& one) { one.set_mark(mark); });
  assert_same(all, "restored");
  std::vector<std::byte> a(all.there->elements() * 2), b(a.size());
  all.there->read(kWorker, 0, all.there->elements(), a.data());
  same.there->read(kWorker, 0, all.there->elements(), b.data());
  assert_true(a == b);
  shard::Restored wrong;
  wrong.count = 2;
  must_fail(all.there->restore(wrong), MV_EINVAL, "0 bytes of values for 2 rows");
  must_fail(all.there->restore_states(wrong), MV_EDISAGREE, "has 2 states, not 0");
  must_fail(all.there->scan(0, 10, true).status(), MV_EINVAL, "it stores all rows");
}

/// What workers last got goes to copies of a table, and not into checkpoints.
void copies_have_what_workers_last_got(void**) {
  for (const mv_dtype dtype : {MV_F32, MV_F16, MV_F64}) {
    const Spec spec = matrix(dtype, 30'000, 24, "dcasgd mean_square=0.9");
    const Pair pair(spec), copy(spec), saved(spec);
    for (const Worker worker : {4, 1}) {
      const auto ids = some_rows(30'000, false);
      std::vector<std::byte> out(ids.size() * pair.host->spec().row_bytes());
      pair.both([&](Shard& one) { one.read_rows(worker, ids, out.data()); });
      add_all(pair, false);
    }
    for (const auto& [to, scope] : {std::pair(&copy, shard::Scope::kAll), std::pair(&saved, shard::Scope::kSaved)}) {
      auto mine = must(pair.there->snapshot(scope)), theirs = must(pair.host->snapshot(scope));
      assert_int_equal(mine->states(), theirs->states());
      for (auto rows = mine->next(); rows.count > 0; rows = mine->next()) must(to->host->restore(rows));
      for (auto rows = theirs->next(); rows.count > 0; rows = theirs->next()) must(to->there->restore(rows));
    }
    pair.both([&](Shard& one) {
      auto snapshot = must(one.snapshot(shard::Scope::kAll));
      uint64_t got = 0;
      for (auto rows = snapshot->next(); rows.count > 0; rows = snapshot->next()) got += rows.content == shard::Content::kGot ? 1 : 0;
      assert_true(got > 0);
    });
    assert_same(copy, "copy");
    assert_same(saved, "saved");
    assert_int_equal(saved.there->next_stored(1), 0);
  }
  const Pair none(matrix(MV_F32, 10, 1, "sgd"));
  std::vector<std::byte> values(10 * sizeof(float));
  const shard::Restored got{.first = 0, .count = 10, .ids = {}, .values = values, .states = {}, .content = shard::Content::kGot, .worker = 1};
  none.both([&](Shard& one) { must_fail(one.restore(got), MV_EINVAL, "does not keep what workers got"); });
}

/// @param device  -1: the host; on a machine that has one device, all others are that one
Tensor tensor_of(mv_dtype dtype, size_t count, const std::vector<std::byte>& values, int32_t device) {
  const auto length = static_cast<int64_t>(count);
  const auto shape = must(tensor::make_shape("test", &length, 1));
  const Tensor made = must(tensor::make_dense(heap(), dtype, shape, tensor::Heap::Content::kAnything));
  std::ranges::copy(values, made.data);
  return device < 0 ? made : must(tensor::move_to(gpu(device % must(device::TensorDevices::count())), made));
}

/// Many tensors of several devices, for many keys of all updaters at once, beside the sums that the host makes.
void tensors_are_added_together(void**) {
  const size_t kValues[] = {1, 2, 5, 20};
  for (const mv_dtype dtype : {MV_F32, MV_F16, MV_F64, MV_I32}) {
    std::vector<Pair> keys;
    for (const std::string words : kUpdaters) {
      Spec spec = matrix(dtype, 100, 3, words == "replace" ? "add" : words, true);
      if (words == "replace") spec.updater = {shard::kReplacing, {}};
      if (shard::check_updater(spec.updater, dtype).ok())
        for (int i = 0; i < 3; ++i) keys.emplace_back(spec);
    }
    for (const size_t some : kValues) {
      std::vector<std::vector<Tensor>> values(keys.size());
      std::vector<shard::OnDevice::Addition> additions;
      for (size_t k = 0; k < keys.size(); ++k) {
        std::vector<std::vector<std::byte>> host;
        for (size_t i = 0; i < some; ++i) {
          host.push_back(varied(dtype, 300));
          values[k].push_back(tensor_of(dtype, 300, host.back(), static_cast<int32_t>((i + k) % 3) - 1));
        }
        additions.push_back({keys[k].there->on_device(), values[k]});
        std::vector<const std::byte*> from;
        for (const auto& one : host) from.push_back(one.data());
        std::vector<std::byte> sum(host.front().size());
        math::merge_bytes(math::Reduction::kSum, dtype, sum.data(), from, 300);
        keys[k].host->change(Write::Add, kWorker, 0, 300, sum.data());
      }
      must(additions.front().shard->add_together(kWorker, additions, {}));
    }
    for (const Pair& key : keys) {
      assert_same(key, key.host->spec().describe());
      std::vector<std::byte> zeros(300 * tensor::dtype_bytes(dtype)), expected(zeros.size());
      const Tensor outs[] = {tensor_of(dtype, 300, zeros, 0), tensor_of(dtype, 300, zeros, 1), tensor_of(dtype, 300, zeros, -1)};
      must(key.there->on_device()->read_into(kWorker, outs));
      key.there->read(kWorker, 0, 300, expected.data());
      for (const Tensor& out : outs) {
        const Tensor here = must(tensor::on_host(out));
        assert_memory_equal(here.data, expected.data(), expected.size());
      }
    }
  }
}

/// The emulation counts launches.
double launches() {
  const auto plugin = must(device::the_plugin());
  mv_device_event zero = nullptr, now = nullptr;
  double count = 0;
  assert_int_equal(plugin->event_make(0, &zero), MV_OK);
  assert_int_equal(plugin->event_make(0, &now), MV_OK);
  assert_int_equal(plugin->event_record(0, now, nullptr), MV_OK);
  assert_int_equal(plugin->event_millis(zero, now, &count), MV_OK);
  plugin->event_free(0, zero);
  plugin->event_free(0, now);
  return count;
}

void many_keys_take_few_launches(void**) {
  if (!is_emulated()) skip();
  for (const auto& [words, most] : {std::pair("mx.sgd momentum=0.9", 1), std::pair("mx.adam", 1), std::pair("mx.lamb", 3)}) {
    std::vector<std::shared_ptr<Shard>> keys;
    std::vector<Tensor> values;
    std::vector<shard::OnDevice::Addition> additions;
    for (uint64_t i = 0; i < 160; ++i) {
      Spec spec = matrix(MV_F32, 1 + 7 * i, 3, words, true);
      spec.device = 0;
      if (i % 2 == 0) must(shard::set_parameter(spec.updater, "wd_mult", 0));  // as for biases
      keys.push_back(shard::make(spec));
      const size_t count = keys.back()->elements();
      values.push_back(tensor_of(MV_F32, count, varied(MV_F32, count), 0));
    }
    for (size_t i = 0; i < keys.size(); ++i) additions.push_back({keys[i]->on_device(), std::span(&values[i], 1)});
    const double before = launches();
    must(additions.front().shard->add_together(kWorker, additions, {}));
    assert_int_equal(static_cast<int>(launches() - before), most);
  }
}

/// A table for which the device has no memory is in the host's, as far as it must be.
void what_does_not_fit_spills(void**) {
  if (!is_emulated()) skip();
  constexpr uint64_t kRows = test::turns(1'200'000, 120'000), kCols = 64, kBytes = kRows * kCols * sizeof(float), kRoom = uint64_t{16} << 20;
  const auto about = must(gpu().device().describe());
  const uint64_t used = about.memory - about.unused, remains = uint64_t{256} << 20;
  setenv("POLYVERSO_EMULATION", ("memory=" + std::to_string(used + remains + kRoom)).c_str(), 1);
  // The device has room for the gradients of some rows beside what a table may take.
  const Pair pair(matrix(MV_F32, kRows, kCols, "momentum rate=0.1 momentum=0.9"));
  const auto usage = pair.there->usage();
  assert_int_equal(usage.memory_bytes, 2 * kBytes);
  assert_true(usage.host_bytes >= 2 * kBytes - kRoom && usage.host_bytes < usage.memory_bytes);
  for (int i = 0; i < 10; ++i) {
    const auto ids = some_rows(100'000, true);
    const auto values = varied(MV_F32, ids.size() * kCols);
    pair.both([&](Shard& one) { one.change_rows(Write::Add, kWorker, ids, values.data()); });
  }
  add_all(pair, false);  // without a sanitizer, more than the device has left
  unsetenv("POLYVERSO_EMULATION");
  assert_same(pair, "spilled");
}

void what_fails_is_told(void**) {
  Spec spec = matrix(MV_F32, 10, 10, "");
  spec.device = 40;
  must_fail(Shard::make(spec, {}).status(), MV_ENOTFOUND, "table \"w\"");
  if (!is_emulated()) return;
  spec.device = 0;
  const auto table = shard::make(spec);
  const auto values = varied(MV_F32, 100);
  table->change(Write::Set, kWorker, 0, 100, values.data());
  const auto about = must(gpu().device().describe());
  // 8 bytes are left, and the host's memory can't be used instead.
  setenv("POLYVERSO_EMULATION", ("spill=0,memory=" + std::to_string(about.memory - about.unused + 8)).c_str(), 1);
  const auto throws = [](auto work, mv_status code) {
    try {
      work();
    } catch (const shard::DeviceFailure& failure) {
      return failure.status().code() == code;
    }
    return false;
  };
  must_fail(Shard::make(spec, {}).status(), MV_ENOMEM, "table \"w\"");
  must_fail(table->set_updater(must(shard::parse_updater("adagrad"))), MV_ENOMEM, "updater adagrad");
  assert_true(throws([&] { table->change(Write::Add, kWorker, 0, 100, values.data()); }, MV_ENOMEM));
  const int64_t row = 3;
  assert_true(throws([&] { table->change_rows(Write::Add, kWorker, {&row, 1}, values.data()); }, MV_ENOMEM));
  auto snapshot = must(table->snapshot());  // in the host's memory
  const auto rows = snapshot->next();
  assert_int_equal(rows.count, 10);
  assert_memory_equal(rows.values.data(), values.data(), values.size());
  unsetenv("POLYVERSO_EMULATION");
  std::vector<std::byte> now(values.size());
  table->read(kWorker, 0, 100, now.data());
  assert_true(now == values);  // nothing has changed
  // What fails does not count.
  for (const char* const words : {"mx.adam", "mx.nadam"}) {
    Pair pair(matrix(MV_F32, 10, 10, words, true));
    add_all(pair, false);
    const auto used = must(gpu().device().describe());
    setenv("POLYVERSO_EMULATION", ("spill=0,memory=" + std::to_string(used.memory - used.unused + 8)).c_str(), 1);
    assert_true(throws([&] { pair.there->change(Write::Add, kWorker, 0, 100, values.data()); }, MV_ENOMEM));
    assert_true(throws([&] { pair.there->change_rows(Write::Add, kWorker, {&row, 1}, values.data()); }, MV_ENOMEM));
    const Tensor lent = tensor_of(MV_F32, 100, values, -1);
    const shard::OnDevice::Addition addition{pair.there->on_device(), {&lent, 1}};
    must_fail(pair.there->on_device()->add_together(kWorker, {&addition, 1}, {}), MV_ENOMEM, "");
    unsetenv("POLYVERSO_EMULATION");
    add_all(pair, false);
    assert_same(pair, words);
  }
}

/// Each allocation of an add to several keys fails once; the add is then repeated.
void what_the_host_lacks_does_not_count(void**) {
  if (!is_emulated()) skip();  // a driver allocates, too
  std::vector<Pair> keys;
  for (const char* const words : {"mx.adam", "mx.nadam", "mx.sgd momentum=0.9", "mx.lamb", "add"}) keys.emplace_back(matrix(MV_F16, 20, 3, words, true));
  uint64_t failures = 0;
  for (bool fails = true; fails;) {
    std::vector<std::array<Tensor, 2>> values;
    std::vector<shard::OnDevice::Addition> additions;
    values.reserve(keys.size());
    for (const Pair& key : keys) {
      const std::vector<std::byte> some[] = {varied(MV_F16, 60), varied(MV_F16, 60)};
      values.push_back({tensor_of(MV_F16, 60, some[0], 0), tensor_of(MV_F16, 60, some[1], -1)});
      additions.push_back({key.there->on_device(), values.back()});
      std::vector<std::byte> sum(some[0].size());
      math::merge_bytes(math::Reduction::kSum, MV_F16, sum.data(), std::vector{some[0].data(), some[1].data()}, 60);
      key.host->change(Write::Add, kWorker, 0, 60, sum.data());
    }
    const auto add = [&] { return additions.front().shard->add_together(kWorker, additions, [] { return base::Status(); }); };
    failing_allocation = failures + 1;
    try {
      must(add());
      fails = failing_allocation == 0;
      failing_allocation = 0;
    } catch (const std::bad_alloc&) {
      ++failures;
      must(add());
    }
    for (const Pair& key : keys) assert_same(key, key.host->spec().describe());
  }
  assert_true(failures > 10);
}

}  // namespace

int main() {
  use_table_devices();
  const CMUnitTest tests[] = {
      cmocka_unit_test(changes_and_reads_of_all_dtypes_and_updaters),
      cmocka_unit_test(updaters_are_replaced),
      cmocka_unit_test(snapshots_are_restored),
      cmocka_unit_test(copies_have_what_workers_last_got),
      cmocka_unit_test(tensors_are_added_together),
      cmocka_unit_test(many_keys_take_few_launches),
      cmocka_unit_test(what_does_not_fit_spills),
      cmocka_unit_test(what_fails_is_told),
      cmocka_unit_test(what_the_host_lacks_does_not_count),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
