// engine/cluster/succession: which server keeps copies of whose tables, and who serves them after losses.

#include <string>
#include <vector>

#include "engine/cluster/succession.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "base/log.hpp"

namespace {

using namespace mv;
using namespace mv::cluster;

constexpr base::Peer kPeers = 100;

/// A worker (rank 0), which is the master, and servers on these hosts: server i has rank i + 1.
View servers_on(const std::vector<std::string>& hosts) {
  View view;
  view.members.resize(hosts.size() + 1);
  for (uint32_t rank = 0; rank < view.members.size(); ++rank) {
    Member& member = view.members[rank];
    member.rank = rank;
    member.peer = kPeers + rank;
    member.role = rank == 0 ? MV_ROLE_WORKER : MV_ROLE_SERVER;
    member.host = rank == 0 ? "a" : hosts[rank - 1];
  }
  name_backups(view);
  return view;
}

Member& server(View& view, uint32_t number) { return view.members[number + 1]; }

/// "0:1 1:2>0 2:-": the server of each part, its back-up or "-", and its next back-up.
std::string places(View& view) {
  std::string text;
  for (const Member* part : view.servers()) {
    const auto name = [&](base::Peer peer) { return peer == base::kNobody ? std::string("-") : std::to_string(view.server_id(peer)); };
    if (!text.empty()) text += " ";
    text += name(view.serving(*part)) + ":" + name(view.backup_of(*part));
    if (part->next_backup != 0) text += ">" + name(view.next_backup_of(*part));
  }
  return text;
}

Succession lose(View& view, uint32_t number, uint32_t replicas = 1) {
  server(view, number).state = State::kLost;
  return succeed(view, server(view, number), replicas);
}

/// All transfers that are under way have arrived.
void copy_all(View& view) {
  for (Member& part : view.members)
    if (part.next_backup != 0) part.backup = std::exchange(part.next_backup, 0);
}

void assert_places(View& view, const char* expected) { assert_string_equal(places(view).c_str(), expected); }

void backups_form_a_ring(void**) {
  View two = servers_on({"a", "a"}), four = servers_on({"a", "a", "a", "a"});
  assert_places(two, "0:1 1:0");
  assert_places(four, "0:1 1:2 2:3 3:0");
}

void backups_are_on_other_hosts_and_spread_evenly(void**) {
  View view = servers_on({"a", "a", "b", "b"});
  assert_places(view, "0:2 1:3 2:0 3:1");
  View lone = servers_on({"a", "a", "a", "b"});
  assert_places(lone, "0:3 1:3 2:3 3:0");
}

void a_lost_servers_parts_get_new_copies(void**) {
  View view = servers_on({"a", "a", "a"});
  const Succession after = lose(view, 1);
  assert_places(view, "0:->2 2:->0 2:0");
  assert_int_equal(after.changed.size(), 2);
  assert_false(after.loses_values);
  copy_all(view);
  assert_false(lose(view, 2).loses_values);
  assert_places(view, "0:- 0:- 0:-");
  assert_true(lose(view, 0).loses_values);
  assert_places(view, "-:- -:- -:-");
}

void a_part_whose_only_server_dies_before_its_copy_is_there_is_lost(void**) {
  View view = servers_on({"a", "a", "a", "a"});
  lose(view, 1);
  assert_places(view, "0:->2 2:->3 2:3 3:0");
  const Succession after = lose(view, 2);
  assert_true(after.loses_values);
  assert_places(view, "0:->3 -:- 3:->0 3:0");
}

void a_next_backup_that_dies_is_replaced(void**) {
  View view = servers_on({"a", "a", "a", "a"});
  lose(view, 1);
  assert_false(lose(view, 3).loses_values);
  assert_places(view, "0:->2 2:->0 2:->0 0:->2");
}

void nobody_succeeds_when_the_workers_are_gone(void**) {
  View view = servers_on({"a", "a", "a"});
  view.members[0].state = State::kFinished;
  lose(view, 1);
  assert_places(view, "0:- -:- 2:0");
}

/// Four processes: rank 0 is the master and a worker, and there are no back-ups.
View servers_without_backups() {
  View view = servers_on({"a", "a", "a"});
  for (Member& member : view.members) member.backup = 0;
  return view;
}

void a_server_that_is_to_end_has_its_part_copied(void**) {
  View view = servers_without_backups();
  assert_int_equal(begin_drain(view, server(view, 1), 0).value().size(), 1);
  assert_places(view, "0:- 1:->2 2:-");
  const uint32_t part = server(view, 1).rank + 1;
  assert_false(can_hand_over(view, server(view, 1), {part}));
  copy_all(view);
  assert_false(can_hand_over(view, server(view, 1), {}));
  assert_false(can_hand_over(view, server(view, 1), {part + 1}));
  assert_true(can_hand_over(view, server(view, 1), {part}));
  const Succession after = succeed(view, server(view, 1), 0);
  assert_false(after.loses_values);
  assert_places(view, "0:- 2:- 2:-");
}

void a_copy_does_not_go_to_a_server_that_is_to_end_itself(void**) {
  View view = servers_without_backups();
  assert_true(begin_drain(view, server(view, 1), 0).ok());
  assert_places(view, "0:- 1:->2 2:-");
  assert_int_equal(begin_drain(view, server(view, 2), 0).value().size(), 2);
  assert_places(view, "0:- 1:->0 2:->0");
  copy_all(view);
  const auto last = begin_drain(view, server(view, 0), 0);
  assert_int_equal(last.status().code(), MV_EUNREACHABLE);
  assert_false(server(view, 0).draining);
  assert_places(view, "0:- 1:0 2:0");
}

void a_stand_in_that_is_to_end_passes_all_its_parts_on(void**) {
  View view = servers_without_backups();
  assert_true(begin_drain(view, server(view, 1), 0).ok());
  copy_all(view);
  succeed(view, server(view, 1), 0);
  assert_places(view, "0:- 2:- 2:-");
  assert_int_equal(begin_drain(view, server(view, 2), 0).value().size(), 2);
  assert_places(view, "0:- 2:->0 2:->0");
}

void a_copy_that_is_lost_before_the_end_is_made_again(void**) {
  View view = servers_without_backups();
  assert_true(begin_drain(view, server(view, 1), 0).ok());
  copy_all(view);
  const Succession after = lose(view, 2, 0);
  assert_true(after.loses_values);  // its own
  assert_places(view, "0:- 1:->0 -:-");
  assert_false(can_hand_over(view, server(view, 1), {server(view, 1).rank + 1}));
}

void with_replicas_the_backup_takes_over(void**) {
  View view = servers_on({"a", "a", "a"});
  assert_places(view, "0:1 1:2 2:0");
  assert_int_equal(begin_drain(view, server(view, 1), 1).value().size(), 0);
  assert_true(can_hand_over(view, server(view, 1), {server(view, 1).rank + 1}));
  succeed(view, server(view, 1), 1);
  assert_places(view, "0:->2 2:->0 2:0");
}

void partners_share_parts(void**) {
  View view = servers_on({"a", "a", "a", "a"});
  const auto ids = [&](uint32_t number) {
    std::string text;
    for (const Member* partner : partners(view, server(view, number))) text += std::to_string(view.server_id(partner->peer));
    return text;
  };
  assert_string_equal(ids(0).c_str(), "13");
  lose(view, 1);
  assert_string_equal(ids(0).c_str(), "23");
  assert_string_equal(ids(2).c_str(), "03");
}

}  // namespace

int main() {
  base::set_log_level(MV_LOG_OFF);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(backups_form_a_ring),
      cmocka_unit_test(backups_are_on_other_hosts_and_spread_evenly),
      cmocka_unit_test(a_lost_servers_parts_get_new_copies),
      cmocka_unit_test(a_part_whose_only_server_dies_before_its_copy_is_there_is_lost),
      cmocka_unit_test(a_next_backup_that_dies_is_replaced),
      cmocka_unit_test(nobody_succeeds_when_the_workers_are_gone),
      cmocka_unit_test(a_server_that_is_to_end_has_its_part_copied),
      cmocka_unit_test(a_copy_does_not_go_to_a_server_that_is_to_end_itself),
      cmocka_unit_test(a_stand_in_that_is_to_end_passes_all_its_parts_on),
      cmocka_unit_test(a_copy_that_is_lost_before_the_end_is_made_again),
      cmocka_unit_test(with_replicas_the_backup_takes_over),
      cmocka_unit_test(partners_share_parts),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
