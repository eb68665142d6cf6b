// engine/collective/trial and intranode/choices: ranks that try several algorithms of the same operation, and agree on the best.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "engine/collective/trial.hpp"
#include "intranode/choices.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::collective::Trial;
using mv::intranode::Algorithm;
using mv::intranode::Candidates;
using mv::intranode::Choices;
using mv::intranode::Decision;
using mv::intranode::SizeClass;
using mv::intranode::Tuning;

constexpr int kPatience = 200;  ///< operations within which a trial has to end

/// Runs a trial to its end. Returns the chosen alternative, and counts the operations.
template <typename Time>
size_t run(Trial& trial, Time time, int* operations = nullptr) {
  int count = 0;
  for (; !trial.chosen() && count < kPatience; ++count) {
    const size_t alternative = trial.next();
    trial.begin(alternative);
    trial.took(alternative, time(alternative, count));
  }
  assert_true(trial.chosen().has_value());
  if (operations != nullptr) *operations = count;
  return *trial.chosen();
}

void the_fastest_alternative_is_chosen(void**) {
  const uint32_t times[] = {140, 180, 100, 150};
  Trial trial(4);
  int operations = 0;
  assert_int_equal(run(trial, [&](size_t alternative, int) { return times[alternative]; }, &operations), 2);
  assert_int_equal(operations, 4 * (1 + Trial::kTimes));
  for (size_t alternative = 0; alternative < 4; ++alternative) assert_int_equal(trial.score(alternative), times[alternative]);
  trial.took(0, 1);  // too late
  assert_int_equal(trial.next(), 2);
}

void one_alternative_needs_no_trial(void**) {
  const Trial trial(1);
  assert_true(trial.chosen() == 0 && trial.next() == 0);
}

/// Two of five times of each alternative are of a paused rank, and the first one is of fresh memory.
void disturbances_change_nothing(void**) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 dice(seed);
    std::map<size_t, std::set<int>> disturbed;
    for (size_t alternative = 0; alternative < 3; ++alternative) {
      disturbed[alternative].insert(0);
      while (disturbed[alternative].size() < 3) disturbed[alternative].insert(1 + static_cast<int>(dice() % Trial::kTimes));
    }
    std::map<size_t, int> turns;
    Trial trial(3);
    const auto time = [&](size_t i, int) { return disturbed[i].contains(turns[i]++) ? 4'000'000U : static_cast<uint32_t>(100 - 20 * i); };
    const size_t chosen = run(trial, time);
    assert_int_equal(chosen, 2);
  }
}

void the_default_stays_if_it_is_about_as_good(void**) {
  Trial same(2), better(2);
  assert_int_equal(run(same, [](size_t alternative, int) { return alternative == 0 ? 1020U : 1000U; }), 0);
  assert_int_equal(run(better, [](size_t alternative, int) { return alternative == 0 ? 1050U : 1000U; }), 1);
}

void an_alternative_that_is_far_slower_is_dropped_early(void**) {
  std::map<size_t, int> turns;
  Trial trial(3);
  assert_int_equal(run(trial, [&](size_t alternative, int) { return ++turns[alternative], alternative == 1 ? 5000U : 1000U; }), 0);
  assert_true(turns[1] < turns[0] && turns[1] >= 3);
}

void the_default_can_be_dropped_and_times_can_be_unknown(void**) {
  Trial slow(2), unknown(3);
  assert_int_equal(run(slow, [](size_t alternative, int) { return alternative == 0 ? 9000U : 1000U; }), 1);
  assert_int_equal(run(unknown, [](size_t, int) { return Trial::kLongest; }), 0);
}

/// The time of an operation is known with the next one only.
void late_times_do_not_disturb(void**) {
  Trial trial(3);
  size_t before = trial.next();
  trial.begin(before);
  int operations = 0;
  for (; !trial.chosen() && operations < kPatience; ++operations) {
    const size_t now = trial.next();
    trial.begin(now);
    trial.took(before, static_cast<uint32_t>(300 - 50 * before));
    before = now;
  }
  assert_true(trial.chosen() == 2 && operations <= 3 * (2 + static_cast<int>(Trial::kTimes)));
}

// ------------------------------------------------------------ classes, and the choices of a group

void classes_have_names_of_their_own(void**) {
  std::set<std::string> names;
  for (size_t index = 0; index < SizeClass::kCount; ++index) {
    const SizeClass of = SizeClass::at(index);
    if (SizeClass::is_small(of.most()) && index % 4 != 0) continue;  // there is none
    assert_int_equal(SizeClass(of.most(), of.tensors(), of.in_place()).index(), index);
    if (index >= 4) assert_int_equal(SizeClass(of.most() / 2 + 1, of.tensors(), of.in_place()).index(), index);
    assert_true(names.insert(of.name()).second);
    for (const size_t ranks : {1, 2, 3, 64}) {
      const Candidates candidates(of, ranks);
      assert_true(candidates.size() >= 1);
      for (const Algorithm algorithm : candidates.all()) assert_true(mv::intranode::fits(algorithm, of, ranks));
    }
  }
  assert_int_equal(SizeClass(size_t{1} << 40, false, false).index(), SizeClass(size_t{1} << 29, false, false).index());
  assert_string_equal(SizeClass(1'000'000, true, true).name().c_str(), "1M tensors in-place");
  assert_string_equal(SizeClass(5000, true, true).name().c_str(), "8K");
}

/// Ranks whose own times differ, as they really do, choose alike after each operation.
void ranks_with_different_times_choose_alike(void**) {
  constexpr size_t kRanks = 2;
  std::vector<std::unique_ptr<Choices>> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<Choices>(kRanks, Tuning()));
  std::mt19937 dice(1);
  const SizeClass classes[] = {SizeClass(3000, false, false), SizeClass(100'000, true, false), SizeClass(1 << 20, false, true)};
  for (int operation = 0; operation < 400; ++operation) {
    const SizeClass& of = classes[dice() % 3];
    uint32_t longest = 0;
    bool expected = false;
    for (const auto& rank : ranks) {
      longest = std::max(longest, rank->to_tell());
      expected = rank->expects_times();
    }
    const Choices::Pick first = ranks[0]->pick(of);  // before the times of the last operation are known, as in a real one
    for (const auto& rank : ranks) {
      const Choices::Pick pick = rank->pick(of);
      assert_true(pick.algorithm == first.algorithm && pick.timed == first.timed);
      if (expected) rank->heard(longest);
    }
    if (dice() % 8 == 0) continue;  // the ranks do not agree on this operation, so it does not take place
    const Choices::Pick late = dice() % 2 == 0 ? ranks[0]->pick(of) : first;
    for (const auto& rank : ranks) {
      const bool is_tried = !rank->decisions().empty() && rank->changed() == 3;
      if (is_tried) assert_false(rank->pick(of).timed);  // it does not begin again
      if (!late.timed || !rank->begin(of, late.algorithm)) continue;
      const int slow = late.algorithm == Algorithm::kShares ? 10 : 20;
      rank->end(mv::base::Nanos(slow * 1000 + static_cast<int>(dice() % 1000)));
    }
  }
  for (const auto& rank : ranks) {
    assert_int_equal(rank->changed(), 3);
    assert_int_equal(rank->decisions().size(), 3);
    for (const Decision& decision : rank->decisions()) {
      assert_true(decision.algorithm == Algorithm::kShares && decision.why == Decision::Why::kTried);
      assert_true(decision.scores.front().first == Algorithm::kShares && decision.scores.size() > 1);
    }
  }
  const std::string text = describe(ranks[0]->decisions());
  assert_non_null(std::strstr(text.c_str(), "4K: shares (tried: 10."));
}

void what_is_kept_named_or_fixed_needs_no_trial(void**) {
  const SizeClass small(5000, false, false), large(1 << 20, false, false);
  Tuning kept;
  kept.kept[large.index()] = static_cast<uint8_t>(Algorithm::kShares16K);
  kept.kept[small.index()] = 77;  // no algorithm
  Choices by_kept(2, kept);
  assert_true(by_kept.pick(large).algorithm == Algorithm::kShares16K && !by_kept.pick(large).timed && by_kept.pick(small).timed);
  kept.kept[large.index()] = static_cast<uint8_t>(Algorithm::kInline);  // of another size
  assert_true(Choices(2, kept).pick(large).timed);
  kept.kept[large.index()] = static_cast<uint8_t>(Algorithm::kWholeStaged);  // of two ranks
  assert_true(Choices(3, kept).pick(large).timed);

  Tuning named;
  named.named = static_cast<uint8_t>(Algorithm::kWholeStaged256K);
  Choices by_name(2, named);
  assert_true(by_name.pick(large).algorithm == Algorithm::kWholeStaged256K && by_name.pick(small).algorithm == Algorithm::kWholeStaged256K);
  Choices of_three(3, named);  // where it does not fit, the default
  assert_true(of_three.pick(large).algorithm == Algorithm::kShares && !of_three.pick(large).timed);

  Tuning fixed;
  fixed.mode = Tuning::kFixed;
  Choices by_default(2, fixed);
  assert_true(by_default.pick(large).algorithm == Algorithm::kWholeStaged && by_default.pick(small).algorithm == Algorithm::kInline);
  assert_false(by_default.pick(large).timed || by_default.pick(small).timed);
  assert_string_equal(describe(by_default.decisions()).c_str(), "8K: inline (fixed), 1M private: whole-staged (fixed)");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_fastest_alternative_is_chosen),
      cmocka_unit_test(one_alternative_needs_no_trial),
      cmocka_unit_test(disturbances_change_nothing),
      cmocka_unit_test(the_default_stays_if_it_is_about_as_good),
      cmocka_unit_test(an_alternative_that_is_far_slower_is_dropped_early),
      cmocka_unit_test(the_default_can_be_dropped_and_times_can_be_unknown),
      cmocka_unit_test(late_times_do_not_disturb),
      cmocka_unit_test(classes_have_names_of_their_own),
      cmocka_unit_test(ranks_with_different_times_choose_alike),
      cmocka_unit_test(what_is_kept_named_or_fixed_needs_no_trial),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
