// core/shard/updater: compares every updater with a plain loop of its formula, bit for bit, on every instruction set; specs as text, both
// ways.

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ios>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "shard/updater/apply.hpp"
#include "shard/updater/updater.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::shard;

template <typename Check>
void on_every_target(const Check& check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

/// One element and its states.
template <typename T>
struct Element {
  T w, g, s0, s1;
  const T* b;
};
template <typename T>
using Oracle = std::function<void(Element<T>&)>;

template <typename T>
T sign_of(T value) {
  return std::signbit(value) ? T(-1) : T(1);
}

/// The formulas of mv_table_set_updater(), written plainly.
template <typename T>
Oracle<T> oracle(const UpdaterSpec& spec) {
  std::vector<double> p = spec.parameters;
  if (spec.name == "add") return [](auto& e) { e.w += e.g; };
  if (spec.name == "assign") return [](auto& e) { e.w = e.g; };
  const T rate = T(p[0]);
  if (spec.name == "sgd") return [=, decay = T(p[1])](auto& e) { e.w -= rate * (e.g + decay * e.w); };
  if (spec.name == "momentum")
    return [=, keep = T(p[1]), take = T(1 - p[2]), decay = T(p[4])](auto& e) {
      const T g = e.g + decay * e.w;
      e.s0 = keep * e.s0 + take * g;
      e.w -= rate * (p[3] != 0 ? g + keep * e.s0 : e.s0);
    };
  if (spec.name == "adagrad")
    return [=, epsilon = T(p[1]), decay = T(p[2])](auto& e) {
      const T g = e.g + decay * e.w;
      e.s0 += g * g;
      e.w -= rate * g / (std::sqrt(e.s0) + epsilon);
    };
  if (spec.name == "ftrl")
    return [=, alpha = T(p[0]), beta = T(p[1]), l1 = T(p[2]), l2 = T(p[3])](auto& e) {
      T &z = e.s0, &n = e.s1;
      const T before = std::sqrt(n);
      n += e.g * e.g;
      z += e.g - (std::sqrt(n) - before) / alpha * e.w;
      e.w = std::abs(z) <= l1 ? T(0) : (sign_of(z) * l1 - z) / ((beta + std::sqrt(n)) / alpha + l2);
    };
  assert_string_equal(spec.name.c_str(), "dcasgd");
  return [=, lambda = T(p[1]), m = T(p[2]), rest = T(1 - p[2]), epsilon = T(p[3])](auto& e) {
    T weight = lambda;
    if (p[2] > 0) {
      e.s0 = m * e.s0 + rest * (e.g * e.g);
      weight = lambda / std::sqrt(e.s0 + epsilon);
    }
    e.w -= rate * (e.b != nullptr ? e.g + weight * (e.g * e.g) * (e.w - *e.b) : e.g);
  };
}

template <typename T>
std::vector<T> varied(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    value = std::ldexp(T(int32_t(random())), -int(random() % 40));
    if (random() % 8 == 0) value = random() % 2 == 0 ? T(0) : -T(0);
  }
  return values;
}

/// Copies that begin at an odd multiple of four bytes, as in a message.
class Unaligned {
 public:
  template <typename T>
  explicit Unaligned(const std::vector<T>& values) : memory_(values.size() * sizeof(T) + 68, std::byte{0x77}) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  std::byte* data() { return memory_.data() + 4; }

 private:
  std::vector<std::byte> memory_;
};

template <typename T>
void follows_its_formula(const std::string& text, size_t count) {
  const UpdaterSpec spec = parse_updater(text).value();
  const mv_dtype storage = sizeof(T) == 4 ? MV_F32 : MV_F64;
  const auto updater = make_updater(spec, storage);
  const Oracle<T> step = oracle<T>(spec);
  const size_t states = updater->states();
  auto w = varied<T>(count, 1), b = varied<T>(count, 2);
  std::vector<T> s0(count), s1(count), inverted(count);
  for (size_t i = 0; i < count; ++i) {
    if (i % 5 == 3) continue;  // zeros: never got
    uint64_t bits = 0;
    std::memcpy(&bits, &b[i], sizeof(T));
    bits = ~bits;
    std::memcpy(&inverted[i], &bits, sizeof(T));
  }
  Unaligned values(w), state0(s0), state1(s1), backup(inverted);
  std::byte* const arrays[] = {state0.data(), state1.data()};
  for (uint32_t round = 0; round < 3; ++round) {
    const auto g = varied<T>(count, 10 + round);
    Unaligned added(g);
    const bool has_backup = updater->keeps_backups() && round > 0;
    updater->apply({.count = count,
                    .values = values.data(),
                    .added = added.data(),
                    .states = arrays,
                    .backup = has_backup ? backup.data() : nullptr});
    for (size_t i = 0; i < count; ++i) {
      Element<T> element{w[i], g[i], s0[i], s1[i], has_backup && i % 5 != 3 ? &b[i] : nullptr};
      step(element);
      w[i] = element.w, s0[i] = element.s0, s1[i] = element.s1;
    }
    if (count == 0) continue;
    assert_memory_equal(values.data(), w.data(), count * sizeof(T));
    if (states > 0) assert_memory_equal(state0.data(), s0.data(), count * sizeof(T));
    if (states > 1) assert_memory_equal(state1.data(), s1.data(), count * sizeof(T));
  }
  assert_true(values.data()[count * sizeof(T)] == std::byte{0x77});
}

void every_updater_follows_its_formula_bit_for_bit(void**) {
  on_every_target([] {
    for (const char* text :
         {"add", "assign", "sgd", "sgd rate=0.5 decay=0.125", "momentum",
          "momentum rate=0.3 nesterov=1 decay=0.01 dampening=0.25", "adagrad",
          "adagrad rate=0.7 epsilon=0.001 decay=0.1", "ftrl", "ftrl alpha=0.3 beta=0.5 l1=0.75 l2=0.25", "dcasgd",
          "dcasgd rate=0.2 lambda=0.5 mean_square=0.95 epsilon=0.001"}) {
      for (const size_t count : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 50, 64, 100, 257}) {
        follows_its_formula<float>(text, count);
        follows_its_formula<double>(text, count);
      }
    }
  });
}

void halves_are_widened_first(void**) {
  const size_t count = 2500;  // several pieces
  const auto updater = make_updater(parse_updater("momentum rate=1 momentum=0.5").value(), MV_F32);
  std::vector<uint16_t> halves(count);
  std::vector<float> w(count), v(count);
  for (size_t i = 0; i < count; ++i) halves[i] = static_cast<uint16_t>(0x3f80 + i % 64);  // bf16: 1 and more
  std::byte* const states[] = {reinterpret_cast<std::byte*>(v.data())};
  const Block block{.count = count, .values = reinterpret_cast<std::byte*>(w.data()), .states = states};
  for (int round = 0; round < 2; ++round)
    apply_added(*updater, MV_BF16, block, 1, reinterpret_cast<const std::byte*>(halves.data()));
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = uint32_t{halves[i]} << 16;
    float g;
    std::memcpy(&g, &bits, sizeof(g));
    assert_true(w[i] == -g - 1.5f * g);
  }
}

// ---- specs

void text_is_read_and_written_with_all_parameters(void**) {
  assert_string_equal(to_text(parse_updater("").value()).c_str(), "add");
  assert_string_equal(to_text(parse_updater("  adagrad   epsilon=1e-10,rate=0.1 ").value()).c_str(),
                      "adagrad rate=0.1 epsilon=1e-10 decay=0");
  assert_string_equal(to_text(parse_updater("momentum").value()).c_str(),
                      "momentum rate=0.01 momentum=0.9 dampening=0 nesterov=0 decay=0");
  assert_string_equal(to_text(parse_updater("ftrl").value()).c_str(), "ftrl alpha=0.1 beta=1 l1=0 l2=0");
  assert_string_equal(to_text(parse_updater("dcasgd").value()).c_str(),
                      "dcasgd rate=0.01 lambda=0.04 mean_square=0 epsilon=1e-07");
  for (const char* text :
       {"add", "assign", "sgd rate=0.3", "momentum", "adagrad rate=1e-7", "ftrl l1=3", "dcasgd mean_square=0.5"}) {
    const UpdaterSpec spec = parse_updater(text).value();
    assert_true(parse_updater(to_text(spec)).value() == spec);
    assert_true(check_updater(spec, MV_F64).ok());
  }
}

void refuses(const char* text, std::initializer_list<const char*> words) {
  const auto parsed = parse_updater(text);
  assert_false(parsed.ok());
  assert_int_equal(parsed.status().code(), MV_EINVAL);
  for (const char* word : words) {
    if (parsed.status().text().find(word) == std::string::npos)
      fail_msg("\"%s\" lacks \"%s\"", parsed.status().text().c_str(), word);
  }
}

void errors_name_the_wrong_parameter_and_the_known_ones(void**) {
  refuses("adam", {"adam", "adagrad", "dcasgd", "momentum"});
  refuses("sgd=3", {"sgd", "known"});
  refuses("adagrad speed=1", {"speed", "rate=0.01", "epsilon=", "decay=0"});
  refuses("add rate=1", {"add", "rate", "none"});
  refuses("sgd rate=fast", {"rate=fast"});
  refuses("sgd rate", {"rate="});
  refuses("sgd rate=nan", {"rate", "finite"});
  refuses("sgd rate=inf", {"rate", "finite"});
  refuses("sgd rate=-1", {"rate=-1", "at least 0"});
  refuses("sgd rate=1 rate=2", {"rate", "twice"});
  refuses("momentum momentum=1.5", {"momentum=1.5", "between 0 and 1"});
  refuses("adagrad epsilon=0", {"epsilon=0", "above 0"});
}

// ---- optimizers

void optimizers_show_parameters_that_differ_from_the_default(void**) {
  const auto shown = [](const char* text) { return to_text(parse_updater(text).value()); };
  assert_string_equal(shown("mx.adagrad").c_str(), "mx.adagrad learning_rate=0.01 eps=1e-07");
  assert_string_equal(shown("mx.adagrad float_stable_eps=1 wd=0.5 lr_mult=2").c_str(),
                      "mx.adagrad learning_rate=0.01 eps=1 wd=0.5 lr_mult=2");
  assert_string_equal(
      shown("mx.nag learning_rate=0.5 lr_scheduler=multifactor step=3:5 factor=0.1").c_str(),
      "mx.nag learning_rate=0.5 momentum=0 multi_precision=0 lr_scheduler=multifactor factor=0.1 step=3:5");
  // Either rate defaults to the other; if they differ, both are shown.
  assert_string_equal(shown("mx.test base_lr=0.5").c_str(), "mx.test learning_rate=0.5");
  assert_string_equal(shown("mx.test base_lr=0.5 learning_rate=0.25").c_str(),
                      "mx.test learning_rate=0.25 base_lr=0.5");
  assert_non_null(std::strstr(shown("mx.lbsgd warmup_startegy=power2").c_str(), "warmup_strategy=power2"));
  for (const char* text :
       {"mx.sgd", "mx.signum wd=1", "mx.ftml", "mx.lbsgd warmup_strategy=lars", "mx.dcasgd lambda=3", "mx.nag",
        "mx.sgld seed=9", "mx.adam lr_scheduler=factor step=3", "mx.adagrad", "mx.rmsprop centered=1", "mx.adadelta",
        "mx.test rescale_grad=-0.1", "mx.ftrl", "mx.adamax", "mx.nadam",
        "mx.adamw lr_scheduler=cosine max_update=100 warmup_steps=10", "mx.lamb", "mx.lion clip_gradient=1e-7"}) {
    const UpdaterSpec spec = parse_updater(text).value();
    assert_true(parse_updater(to_text(spec)).value() == spec);
    assert_true(check_updater(spec, MV_BF16).ok());
    assert_true(make_updater(spec, MV_F32)->counts());
  }
}

void wrong_schedules_are_refused(void**) {
  refuses("mx.sgd lr_scheduler=cosinus", {"lr_scheduler=cosinus", "none, factor, multifactor, poly, cosine"});
  refuses("mx.sgd lr_scheduler=factor", {"step="});
  refuses("mx.sgd lr_scheduler=factor step=3:4", {"step="});
  refuses("mx.sgd lr_scheduler=multifactor step=4:3", {"3 comes after 4"});
  refuses("mx.sgd lr_scheduler=multifactor step=4:", {"step=4:"});
  refuses("mx.sgd lr_scheduler=multifactor step=1.5", {"step=1.5", "whole number"});
  refuses("mx.sgd step=3", {"step=", "lr_scheduler"});
  refuses("mx.sgd step=3 step=4", {"step", "twice"});
  refuses("mx.sgd lr_scheduler=poly max_update=5 warmup_steps=5", {"max_update=5", "warmup_steps=5"});
  refuses("mx.sgd lr_scheduler=factor step=1 factor=1.5", {"factor=1.5"});
  refuses("mx.sgd lr_scheduler=factor step=1 learning_rate=0.1 warmup_begin_lr=0.2",
          {"warmup_begin_lr=0.2", "base_lr=0.1"});
  refuses("mx.lbsgd batch_scale=1.5", {"batch_scale=1.5", "whole number"});
  refuses("mx.adam beta2=1", {"beta2=1", "below 1"});
  refuses("mx.sgd lambda=1", {"lambda", "momentum=0", "clip_gradient=0", "step"});
  refuses("adam", {"did you mean \"mx.adam\"?"});
  refuses("rmsprp", {"did you mean \"mx.rmsprop\"?"});
  refuses("sdg", {"did you mean \"sgd\"?"});
  refuses("sgd learning_rate=0.1", {"it has rate=0.01", "; mx.sgd has it"});
  refuses("sgd rte=0.1", {"did you mean \"rate\"?"});

  UpdaterSpec spec = parse_updater("mx.sgd lr_scheduler=multifactor step=3:5").value();
  spec.parameters.back() = 2;
  assert_false(check_updater(spec, MV_F32).ok());
  spec.parameters.resize(3);
  assert_false(check_updater(spec, MV_F32).ok());
}

void specs_from_elsewhere_are_checked(void**) {
  assert_false(check_updater({"adam", {}}, MV_F32).ok());
  assert_false(check_updater({"sgd", {0.1}}, MV_F32).ok());
  assert_false(check_updater({"sgd", {0.1, std::numeric_limits<double>::quiet_NaN()}}, MV_F32).ok());
  assert_false(check_updater({"sgd", {0.1, 0}}, MV_I32).ok());
  assert_true(check_updater({"sgd", {0.1, 0}}, MV_F16).ok());
  assert_true(check_updater({"add", {}}, MV_U8).ok());
  assert_true(check_updater({"add", {}}, MV_I8).ok());
  assert_true(check_updater({"assign", {}}, MV_I64).ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_updater_follows_its_formula_bit_for_bit),
      cmocka_unit_test(halves_are_widened_first),
      cmocka_unit_test(text_is_read_and_written_with_all_parameters),
      cmocka_unit_test(errors_name_the_wrong_parameter_and_the_known_ones),
      cmocka_unit_test(optimizers_show_parameters_that_differ_from_the_default),
      cmocka_unit_test(wrong_schedules_are_refused),
      cmocka_unit_test(specs_from_elsewhere_are_checked),
  };
  return cmocka_run_group_tests_name("shard/updaters", tests, nullptr, nullptr);
}
