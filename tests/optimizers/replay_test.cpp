// core/shard/updater/optimizer: 50 random updates of every optimizer, recorded from MXNet 1.9.1, PyTorch or the paper's formula
// (record.py), replayed tensor by tensor as in a key-value store, and through tables.

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "math/convert.hpp"
#include "shard/shard.hpp"
#include "shard/updater/apply.hpp"
#include "tensor/dtype.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::shard;
using Json = nlohmann::json;

/// record.py describes how a case draws its numbers.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed << 32) {}
  std::vector<double> tensor(size_t count) {
    std::vector<double> numbers(count);
    for (double& number : numbers)
      number = static_cast<double>(static_cast<int64_t>(mv::base::mix(seed_ + next_++) >> 40) - (1 << 23)) / (1 << 22);
    return numbers;
  }
  std::vector<int64_t> rows(uint64_t update, int64_t count) const {
    const uint64_t bits = mv::base::mix(seed_ + (uint64_t{1} << 31) + update) >> 40;
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < count; ++row)
      if ((bits >> row & 1) != 0) rows.push_back(row);
    return rows;
  }

 private:
  const uint64_t seed_;
  uint64_t next_ = 0;
};

struct Case {
  Json json;
  size_t rows, cols;
  uint64_t updates;
  std::string text() const { return json.at("updater"); }
  size_t keys() const { return json.at("keys"); }
  bool by_rows() const { return json.at("rows"); }
  uint64_t seed() const { return json.at("seed"); }
  uint64_t first_zeros() const { return json.value("first_zeros", uint64_t{0}); }
  size_t elements() const { return rows * cols; }
  mv_dtype dtype() const { return *mv::tensor::parse_dtype(json.at("dtype").get<std::string>()); }
  mv_dtype storage() const { return mv::tensor::storage_dtype(dtype()); }
};

std::vector<Case> read_cases(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const Json json = Json::parse(stream);
  std::vector<Case> cases;
  for (const Json& one : json.at("cases")) cases.push_back({one, json.at("rows"), json.at("cols"), json.at("updates")});
  return cases;
}

/// Numbers in the case's dtype, as in a message.
std::vector<std::byte> as_bytes(mv_dtype dtype, const std::vector<double>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * mv::tensor::dtype_bytes(dtype));
  if (dtype == MV_F64) {
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
  }
  const std::vector<float> floats(numbers.begin(), numbers.end());
  if (dtype == MV_F32)
    std::memcpy(bytes.data(), floats.data(), bytes.size());
  else
    mv::math::narrow_bytes(dtype, bytes.data(), reinterpret_cast<const std::byte*>(floats.data()), floats.size());
  return bytes;
}

/// Numbers in the case's dtype, as in a table.
std::vector<std::byte> as_stored(mv_dtype dtype, const std::vector<double>& numbers) {
  const auto travelling = as_bytes(dtype, numbers);
  if (mv::tensor::storage_dtype(dtype) == dtype) return travelling;
  std::vector<std::byte> bytes(numbers.size() * sizeof(float));
  mv::math::widen_bytes(dtype, bytes.data(), travelling.data(), numbers.size());
  return bytes;
}

double at(mv_dtype storage, const std::vector<std::byte>& bytes, size_t i) {
  float narrow;
  double wide;
  if (storage == MV_F64) {
    std::memcpy(&wide, &bytes[i * sizeof(wide)], sizeof(wide));
    return wide;
  }
  std::memcpy(&narrow, &bytes[i * sizeof(narrow)], sizeof(narrow));
  return narrow;
}

/// The recorded numbers' inaccuracy: MXNet rounds to f32 in its own order, and halves were rounded once more.
double tolerance(mv_dtype dtype) { return dtype == MV_F64 ? 1e-11 : dtype == MV_F32 ? 2e-5 : 1.5 / 1024; }

void expect_recorded(const Case& one, uint64_t update, size_t key, const std::vector<std::byte>& values) {
  const Json& after = one.json.at("after");
  const auto kept = after.find(std::to_string(update));
  if (kept == after.end()) return;
  for (size_t i = 0; i < one.elements(); ++i) {
    const double told = kept->at(key).at(i), own = at(one.storage(), values, i);
    if (std::abs(own - told) <= tolerance(one.dtype()) * (1 + std::abs(told))) continue;
    fail_msg("%s, %s, seed %llu: after %llu updates element %zu of key %zu is %.9g, recorded %.9g", one.text().c_str(),
             one.by_rows() ? "by rows" : "whole", static_cast<unsigned long long>(one.seed()),
             static_cast<unsigned long long>(update), i, key, own, told);
  }
}

// ------------------------------------------------------------ tensor by tensor

struct Key {
  std::vector<std::byte> values;
  std::vector<std::vector<std::byte>> states;
  uint64_t count = 0;
};

/// Applies an Updater like a key-value store.
class Store {
 public:
  explicit Store(const Case& one)
      : case_(one), updater_(make_updater(parse_updater(one.text()).value(), one.storage())), keys_(one.keys()) {
    shared_.assign(updater_->shared().begin(), updater_->shared().end());
  }

  void set(size_t key, const std::vector<double>& numbers) {
    keys_[key].values = as_stored(case_.dtype(), numbers);
    keys_[key].states.assign(updater_->states(), std::vector<std::byte>(keys_[key].values.size()));
  }

  void update(size_t key, const std::vector<std::byte>& gradient, const std::vector<int64_t>* rows) {
    Turn turn{.count = ++keys_[key].count, .before = latest_};
    turn.latest = latest_ = std::max(latest_, turn.count);
    turn.rate_factor = key == 0 ? 1 : 0.5;
    turn.decay_factor = key == 0 ? 1 : 3;
    updater_->advance(turn, shared_);
    const Step step = updater_->step(turn, shared_);
    if (rows == nullptr) return apply(key, step, 0, case_.elements(), gradient.data());
    const size_t row_bytes = case_.cols * mv::tensor::dtype_bytes(case_.dtype());
    for (const int64_t row : *rows) {
      const auto index = static_cast<size_t>(row);
      apply(key, step, index * case_.cols, case_.cols, gradient.data() + index * row_bytes);
    }
  }

  const std::vector<std::byte>& values(size_t key) const { return keys_[key].values; }

 private:
  void apply(size_t key, const Step& step, size_t first, size_t count, const std::byte* gradient) {
    const size_t offset = first * mv::tensor::dtype_bytes(case_.storage());
    std::vector<std::byte*> states;
    for (auto& state : keys_[key].states) states.push_back(state.data() + offset);
    const Block block{.count = count,
                      .values = keys_[key].values.data() + offset,
                      .states = states.data(),
                      .step = &step,
                      .first = first};
    apply_added(*updater_, case_.dtype(), block, states.size(), gradient);
  }

  const Case& case_;
  const std::unique_ptr<Updater> updater_;
  std::vector<Key> keys_;
  std::vector<double> shared_;
  uint64_t latest_ = 0;
};

// ------------------------------------------------------------ through a table

/// The same through a shard, which keeps states and count itself.
class Table {
 public:
  Table(const Case& one, int32_t kind, size_t key, const std::shared_ptr<Families>& families) : case_(one) {
    Spec spec{.name = "store/" + std::to_string(key),
              .kind = kind,
              .dtype = one.dtype(),
              .rows = one.rows,
              .cols = one.cols,
              .flags = one.keys() > 1 ? kStoreKey : 0,
              .updater = parse_updater(one.text()).value()};
    if (key > 0) {
      assert_true(set_parameter(spec.updater, "lr_mult", 0.5).ok());
      assert_true(set_parameter(spec.updater, "wd_mult", 3).ok());
    }
    shard_ = Shard::make(spec, {.families = families}).value();
    for (int64_t row = 0; row < static_cast<int64_t>(one.rows); ++row) all_.push_back(row);
  }
  void set(const std::vector<double>& numbers) {
    shard_->change_rows(Write::Set, 0, all_, as_bytes(case_.dtype(), numbers).data());
  }
  void update(const std::vector<std::byte>& gradient, const std::vector<int64_t>& rows) {
    const size_t row_bytes = case_.cols * mv::tensor::dtype_bytes(case_.dtype());
    std::vector<std::byte> some;
    for (const int64_t row : rows)
      some.insert(some.end(), &gradient[static_cast<size_t>(row) * row_bytes],
                  &gradient[static_cast<size_t>(row) * row_bytes] + row_bytes);
    shard_->change_rows(Write::Add, 0, rows, some.data());
  }
  std::vector<std::byte> values() {
    std::vector<std::byte> bytes(case_.elements() * mv::tensor::dtype_bytes(case_.dtype()));
    shard_->read_rows(0, all_, bytes.data());
    return bytes;
  }
  const std::vector<int64_t>& all() const { return all_; }
  uint64_t updates() const { return shard_->usage().updates; }

 private:
  const Case& case_;
  std::shared_ptr<Shard> shard_;
  std::vector<int64_t> all_;
};

/// The tables that can represent a case.
std::vector<int32_t> kinds_for(const Case& one) {
  if (one.keys() > 1) return {MV_MATRIX};  // each row is a key of a store
  if (make_updater(parse_updater(one.text()).value(), one.storage())->sums() > 0) return {MV_MATRIX};
  return {MV_MATRIX, MV_SPARSE, MV_KEYVALUE};
}

void replay(const Case& one) {
  Draws draws(one.seed());
  Store store(one);
  const auto families = std::make_shared<Families>();
  std::vector<std::vector<std::unique_ptr<Table>>> tables(one.keys());
  for (size_t key = 0; key < one.keys(); ++key) {
    for (const int32_t kind : kinds_for(one)) tables[key].push_back(std::make_unique<Table>(one, kind, key, families));
    const auto start = draws.tensor(one.elements());
    store.set(key, start);
    for (const auto& table : tables[key]) table->set(start);
  }
  for (uint64_t update = 1; update <= one.updates; ++update) {
    const auto rows = draws.rows(update, static_cast<int64_t>(one.rows));
    for (size_t key = 0; key < one.keys(); ++key) {
      auto numbers = draws.tensor(one.elements());
      if (update <= one.first_zeros()) std::ranges::fill(numbers, 0);
      const auto gradient = as_bytes(one.dtype(), numbers);
      store.update(key, gradient, one.by_rows() ? &rows : nullptr);
      for (const auto& table : tables[key]) table->update(gradient, one.by_rows() ? rows : table->all());
      expect_recorded(one, update, key, store.values(key));
    }
  }
  for (size_t key = 0; key < one.keys(); ++key)
    for (const auto& table : tables[key]) {
      if (one.storage() == one.dtype()) assert_true(table->values() == store.values(key));
      assert_int_equal(table->updates(), one.updates);
    }
}

/// Runs the check with the widest and the narrowest vectors of this machine.
template <typename Check>
void on_both_ends(const Check& check) {
  const auto targets = hwy::SupportedAndGeneratedTargets();
  for (const int64_t target : {targets.front(), targets.back()}) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

void every_optimizer_goes_as_recorded(void**) {
  std::set<std::string> seen;
  for (const auto& file : std::filesystem::directory_iterator(RECORDED)) {
    for (const Case& one : read_cases(file.path())) {
      on_both_ends([&] { replay(one); });
      seen.insert(one.text().substr(0, one.text().find(' ')));
    }
  }
  assert_int_equal(seen.size(), 17);  // all but SGLD, which is random
}

void the_narrowest_vectors_give_the_same_bits(void**) {
  for (const auto& file : std::filesystem::directory_iterator(RECORDED)) {
    for (const Case& one : read_cases(file.path())) {
      std::vector<std::vector<std::byte>> ends;
      on_both_ends([&] {
        Draws draws(one.seed());
        Store store(one);
        for (size_t key = 0; key < one.keys(); ++key) store.set(key, draws.tensor(one.elements()));
        for (int update = 0; update < 5; ++update)
          store.update(0, as_bytes(one.dtype(), draws.tensor(one.elements())), nullptr);
        ends.push_back(store.values(0));
      });
      if (ends[0] != ends[1]) fail_msg("%s differs between instruction sets", one.text().c_str());
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_optimizer_goes_as_recorded),
      cmocka_unit_test(the_narrowest_vectors_give_the_same_bits),
  };
  return cmocka_run_group_tests_name("optimizers/replay", tests, nullptr, nullptr);
}
