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
  Three() {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ranks.emplace_back(rank, 3, [this, rank](uint32_t to, const Agreement::Word& word) { words[{rank, to}].push_back(word); });
    }
    for (Agreement& rank : ranks) rank.begin([](auto) {});
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
  for (const Agreement& rank : group.ranks) assert_true(rank.decided() == (Agreement::Ranks{0, 1, 2}));
}

void nonsense_of_a_peer_is_passed_over(void**) {
  Three group;
  group.ranks[0].heard(1, {false, false, {7, UINT32_MAX}, {}});
  group.ranks[0].gone(3);
  group.ranks[0].heard(2, {true, false, {}, {2, 9, 0, 2, 1}});
  assert_true(group.ranks[0].decided() == (Agreement::Ranks{0, 1, 2}));
  group.ranks[1].heard(2, {false, false, {0, 1, 2}, {}});
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
  for (const uint32_t rank : {1U, 2U}) assert_true(group.ranks[rank].decided() == (Agreement::Ranks{0, 1, 2}));
}

/// The reports come before rank 0 has the group, which drops them. It asks for them later.
void a_coordinator_that_asks_gets_a_report_again(void**) {
  Three group;
  group.words[{1, 0}].clear();
  group.words[{2, 0}].clear();
  for (const uint32_t rank : {1U, 2U}) group.deliver(0, rank);
  for (const uint32_t rank : {1U, 2U}) group.deliver(rank, 0);
  assert_true(group.ranks[0].decided() == (Agreement::Ranks{0, 1, 2}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_living_ranks_are_survivors),
      cmocka_unit_test(nonsense_of_a_peer_is_passed_over),
      cmocka_unit_test(a_lost_ranks_decision_does_not_overtake_a_report),
      cmocka_unit_test(a_decision_known_to_a_survivor_holds),
      cmocka_unit_test(a_coordinator_that_asks_gets_a_report_again),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
