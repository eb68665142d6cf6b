// engine/collective/agreement: the survivors of a group reach the same decision, in whatever order they receive events.
// tests/models/agreement.pml tries all orders.

#include <map>
#include <utility>
#include <vector>

#include "engine/collective/agreement.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::collective::Agreement;

/// Three ranks, whose messages wait in queues until the test delivers them.
struct Three {
  explicit Three(bool grows = false) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ranks.emplace_back(rank, 3, [this, rank](uint32_t to, const Agreement::Word& word) { words[{rank, to}].push_back(word); });
    }
    for (Agreement& rank : ranks) rank.begin({grows, 0, {}}, [](auto) {});
  }
  /// Ranks 1 and 2 report to rank 0, which answers.
  void meet() {
    for (const uint32_t rank : {1U, 2U}) deliver(rank, 0);
    for (const uint32_t rank : {1U, 2U}) deliver(0, rank);
  }
  /// Delivers all messages in the queue.
  void deliver(uint32_t from, uint32_t to) {
    for (const Agreement::Word& word : std::exchange(words[{from, to}], {})) ranks[to].heard(from, word);
  }
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Agreement::Word>> words;
  std::vector<Agreement> ranks;
};

void all_living_ranks_are_survivors(void**) {
  Three group;
  for (const uint32_t rank : {1U, 2U}) group.deliver(rank, 0);
  for (const uint32_t rank : {1U, 2U}) group.deliver(0, rank);
  for (const Agreement& rank : group.ranks) assert_true(rank.decided()->ranks == (Agreement::Ranks{0, 1, 2}));
}

void nonsense_of_a_peer_is_passed_over(void**) {
  Three group;
  group.ranks[0].heard(1, {false, false, {7, UINT32_MAX}, {}, {}});
  group.ranks[0].gone(3);
  group.ranks[0].heard(2, {true, false, {}, {}, {{2, 9, 0, 2, 1}, {}}});
  assert_true(group.ranks[0].decided()->ranks == (Agreement::Ranks{0, 1, 2}));
  group.ranks[1].heard(2, {false, false, {0, 1, 2}, {}, {}});
  assert_true(group.ranks[1].awaited().empty());
}

/// Rank 0 decides and is killed. Rank 1 detects that before it reads the decision, and becomes the coordinator. Rank 2 reports to it, and
/// only then reads rank 0's decision.
void a_lost_ranks_decision_does_not_overtake_a_report(void**) {
  Three group;
  for (const uint32_t rank : {1U, 2U}) group.deliver(rank, 0);
  group.ranks[1].gone(0);
  group.deliver(1, 2);
  group.deliver(0, 2);
  group.ranks[2].gone(0);
  group.deliver(2, 1);
  group.deliver(1, 2);
  assert_true(group.ranks[1].decided().has_value());
  assert_true(group.ranks[1].decided() == group.ranks[2].decided());
}

/// The same, but rank 2 reads the decision first. The decision then holds.
void a_decision_known_to_a_survivor_holds(void**) {
  Three group;
  for (const uint32_t rank : {1U, 2U}) group.deliver(rank, 0);
  group.ranks[1].gone(0);
  group.deliver(0, 2);
  group.deliver(1, 2);
  group.deliver(2, 1);
  for (const uint32_t rank : {1U, 2U}) assert_true(group.ranks[rank].decided()->ranks == (Agreement::Ranks{0, 1, 2}));
}

/// The reports come before rank 0 has the group, which drops them. It asks for them later.
void a_coordinator_that_asks_gets_a_report_again(void**) {
  Three group;
  group.words[{1, 0}].clear();
  group.words[{2, 0}].clear();
  for (const uint32_t rank : {1U, 2U}) group.deliver(0, rank);
  for (const uint32_t rank : {1U, 2U}) group.deliver(rank, 0);
  assert_true(group.ranks[0].decided()->ranks == (Agreement::Ranks{0, 1, 2}));
}

constexpr Agreement::Newcomer kOne{100, 5}, kOther{90, 6};

/// The newcomer has reached two of the ranks when they decide: it has to wait for the next time.
void a_newcomer_that_one_rank_does_not_know_is_not_taken(void**) {
  Three group(true);
  for (const uint32_t rank : {0U, 1U}) group.ranks[rank].change({true, 0, {kOne}});
  group.meet();
  for (const Agreement& rank : group.ranks) assert_true(rank.decided() == (Agreement::Decision{{0, 1, 2}, {}}));
}

void newcomers_that_all_ranks_know_are_taken(void**) {
  Three group(true);
  for (Agreement& rank : group.ranks) rank.change({true, 5, {kOther, kOne}});
  group.meet();
  for (const Agreement& rank : group.ranks) assert_true(rank.decided() == (Agreement::Decision{{0, 1, 2}, {kOther, kOne}}));
}

/// Rank 1 wants four ranks. The newcomer asks the ranks one after another.
void the_decision_waits_for_the_wanted_size(void**) {
  Three group(true);
  group.ranks[1].change({true, 4, {}});
  for (uint32_t rank : {2U, 0U, 1U}) {
    group.meet();
    assert_false(group.ranks[0].decided().has_value());
    group.ranks[rank].change({true, rank == 1 ? 4U : 0U, {kOne}});
  }
  group.meet();
  for (const Agreement& rank : group.ranks) assert_true(rank.decided() == (Agreement::Decision{{0, 1, 2}, {kOne}}));
}

/// Rank 2 goes on with the survivors only: then so do the others, also if they want more ranks.
void one_rank_that_shrinks_is_enough(void**) {
  Three group(true);
  for (const uint32_t rank : {0U, 1U}) group.ranks[rank].change({true, 5, {kOne}});
  group.ranks[2].change({false, 0, {}});
  group.meet();
  for (const Agreement& rank : group.ranks) assert_true(rank.decided() == (Agreement::Decision{{0, 1, 2}, {}}));
}

/// Rank 0 decides and is killed; rank 1 has its decision. The newcomers belong to it.
void a_decision_keeps_its_newcomers(void**) {
  Three group(true);
  for (Agreement& rank : group.ranks) rank.change({true, 4, {kOne}});
  for (const uint32_t rank : {1U, 2U}) group.deliver(rank, 0);
  group.deliver(0, 1);
  for (const uint32_t rank : {1U, 2U}) group.ranks[rank].gone(0);
  group.ranks[2].change({true, 0, {}});
  group.deliver(2, 1);
  group.deliver(1, 2);
  for (const uint32_t rank : {1U, 2U}) assert_true(group.ranks[rank].decided() == (Agreement::Decision{{0, 1, 2}, {kOne}}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_living_ranks_are_survivors),
      cmocka_unit_test(nonsense_of_a_peer_is_passed_over),
      cmocka_unit_test(a_lost_ranks_decision_does_not_overtake_a_report),
      cmocka_unit_test(a_decision_known_to_a_survivor_holds),
      cmocka_unit_test(a_coordinator_that_asks_gets_a_report_again),
      cmocka_unit_test(a_newcomer_that_one_rank_does_not_know_is_not_taken),
      cmocka_unit_test(newcomers_that_all_ranks_know_are_taken),
      cmocka_unit_test(the_decision_waits_for_the_wanted_size),
      cmocka_unit_test(one_rank_that_shrinks_is_enough),
      cmocka_unit_test(a_decision_keeps_its_newcomers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
