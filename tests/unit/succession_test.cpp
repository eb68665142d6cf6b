// engine/cluster/succession: which server keeps copies of whose tables, and who serves them after losses.

#include <set>
#include <string>
#include <utility>
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
View servers_on(const std::vector<std::string>& hosts, uint32_t replicas = 1) {
  View view;
  view.members.resize(hosts.size() + 1);
  for (uint32_t rank = 0; rank < view.members.size(); ++rank) {
    Member& member = view.members[rank];
    member.rank = rank;
    member.peer = kPeers + rank;
    member.role = rank == 0 ? MV_ROLE_WORKER : MV_ROLE_SERVER;
    member.host = rank == 0 ? "a" : hosts[rank - 1];
  }
  name_backups(view, replicas);
  return view;
}

Member& server(View& view, uint32_t number) { return view.members[number + 1]; }

/// "0:1 1:2>0 2:-": the server of each part, its back-up or "-", and its next back-up.
std::string places(View& view) {
  std::string text;
  for (const Member* part : view.servers()) {
    const auto name = [&](base::Peer peer) { return peer == base::kNobody ? std::string("-") : std::to_string(view.server_id(peer)); };
    if (!text.empty()) text += " ";
    const auto chain = view.chain_of(*part);
    text += name(view.serving(*part)) + ":";
    if (chain.size() < 2) text += "-";
    for (size_t i = 1; i < chain.size(); ++i) text += (i > 1 ? "," : "") + name(chain[i]);
    if (part->next_backup != 0) text += ">" + name(view.next_backup_of(*part));
  }
  return text;
}

Succession lose(View& view, uint32_t number, uint32_t replicas = 1) {
  server(view, number).state = MemberState::kLost;
  return succeed(view, server(view, number), replicas);
}

/// All transfers that are under way have arrived.
void copy_all(View& view) {
  for (Member& part : view.members)
    if (part.next_backup != 0) part.backups.push_back(std::exchange(part.next_backup, 0));
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

void chains_have_several_backups(void**) {
  View view = servers_on({"a", "a", "a", "a"}, 2);
  assert_places(view, "0:1,2 1:3,0 2:3,0 3:1,2");
  View hosts = servers_on({"a", "b", "a", "b", "c"}, 2);
  for (const Member* part : hosts.servers()) {
    std::set<std::string> on;
    for (const base::Peer peer : hosts.chain_of(*part)) on.insert(hosts.find(peer)->host);
    assert_int_equal(on.size(), 3);
  }
  View few = servers_on({"a", "a"}, 2);
  assert_places(few, "0:1 1:0");
}

void a_chain_goes_on_without_its_first_or_a_middle_process(void**) {
  View view = servers_on({"a", "a", "a", "a", "a"}, 3);
  assert_places(view, "0:1,2,3 1:4,0,2 2:3,4,0 3:1,4,0 4:1,2,3");
  const auto chains = [&] {  // without the next back-ups
    View now = view;
    for (Member& part : now.members) part.next_backup = 0;
    return places(now);
  };
  assert_false(lose(view, 1, 3).loses_values);
  assert_string_equal(chains().c_str(), "0:2,3 4:0,2 2:3,4,0 3:4,0 4:2,3");
  for (const Member* part : view.servers()) assert_true(part->backups.size() == 3 || part->next_backup != 0);
  // The last process in some chains dies while it gives the next back-up its copy: another one begins again.
  assert_false(lose(view, 3, 3).loses_values);
  assert_string_equal(chains().c_str(), "0:2 4:0,2 2:4,0 4:0 4:2");
  copy_all(view);
  for (const Member* part : view.servers()) assert_int_equal(view.chain_of(*part).size(), 3);
  assert_false(lose(view, 4, 3).loses_values);
  assert_false(lose(view, 0, 3).loses_values);
  assert_places(view, "2:- 2:- 2:- 2:- 2:-");
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
  view.members[0].state = MemberState::kFinished;
  lose(view, 1);
  assert_places(view, "0:- -:- 2:0");
}

/// Four processes: rank 0 is the master and a worker, and there are no back-ups.
View servers_without_backups() {
  View view = servers_on({"a", "a", "a"});
  for (Member& member : view.members) member.backups.clear();
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

/// Servers 0 and 1, and vacant places of servers up to `most`, whose parts the two serve by turns.
View servers_with_room(size_t most) {
  View view = servers_on({"a", "a"});
  view.master = view.members[0].peer;
  for (Member& member : view.members) member.backups.clear();
  for (uint32_t number = 2; number < most; ++number) {
    Member place;
    place.rank = number + 1;
    place.peer = kPeers + place.rank;
    place.role = MV_ROLE_SERVER;
    place.state = MemberState::kLost;
    place.is_out = place.drained = true;
    place.stand_in = number % 2 + 2;
    view.members.push_back(place);
  }
  return view;
}

void join(View& view, uint32_t number, uint32_t replicas = 0, const char* host = "a") {
  Member& place = server(view, number);
  place.pid = 1;
  place.host = host;
  place.state = MemberState::kHere;
  place.is_out = place.drained = false;
  (void)name_next_backups(view, replicas);
}

/// All copies arrive and all moves end, one after the other, and those that follow from them. Returns the number of moves.
size_t move_all(View& view, uint32_t replicas = 0) {
  size_t moves = 0;
  for (bool any = true; any;) {
    any = false;
    for (Member& part : view.members) {
      if (part.next_backup == 0 && destination(view, part, replicas) == nullptr) continue;
      if (part.next_backup != 0) take_copy(view, part, replicas);
      if (destination(view, part, replicas) != nullptr) {
        move(view, part, replicas);
        (void)name_next_backups(view, replicas);
        ++moves;
      }
      any = true;
      break;
    }
  }
  return moves;
}

void new_servers_get_parts_with_the_fewest_moves(void**) {
  View view = servers_with_room(8);
  assert_places(view, "0:- 1:- 0:- 1:- 0:- 1:- 0:- 1:-");
  assert_int_equal(name_next_backups(view, 0).size(), 0);
  join(view, 2);
  assert_int_equal(move_all(view), 2);
  assert_places(view, "0:- 1:- 2:- 1:- 0:- 1:- 0:- 2:-");
  join(view, 3);
  assert_int_equal(move_all(view), 2);
  assert_places(view, "0:- 1:- 2:- 3:- 0:- 1:- 3:- 2:-");
  for (uint32_t number = 4; number < 8; ++number) {
    join(view, number);
    move_all(view);
  }
  assert_places(view, "0:- 1:- 2:- 3:- 4:- 5:- 6:- 7:-");
}

void a_server_gives_one_part_at_a_time(void**) {
  View view = servers_with_room(8);
  join(view, 2);
  size_t moving = 0;
  for (const Member* part : view.servers()) moving += part->next_backup != 0 && view.serving(*part) == kPeers + 1 ? 1 : 0;
  assert_int_equal(moving, 1);
}

void a_move_to_a_server_that_is_to_end_is_given_up(void**) {
  View view = servers_with_room(4);
  join(view, 2);
  assert_places(view, "0:- 1:- 0:->2 1:-");
  copy_all(view);
  assert_true(begin_drain(view, server(view, 2), 0).ok());
  assert_places(view, "0:- 1:- 0:- 1:-");
  assert_null(destination(view, server(view, 2), 0));
}

void the_parts_of_servers_that_end_are_spread_over_the_others(void**) {
  View view = servers_with_room(6);
  for (uint32_t number = 2; number < 6; ++number) {
    join(view, number);
    move_all(view);
  }
  assert_int_equal(begin_resize(view, 2, 0).value().size(), 4);
  assert_places(view, "0:- 1:- 2:->0 3:->1 4:->1 5:->0");
  assert_int_equal(view.wanted_servers, 2);
  assert_int_equal(view.staying_servers().size(), 2);
}

void a_size_that_can_not_be_is_refused_and_changes_nothing(void**) {
  View view = servers_with_room(4);
  assert_int_equal(begin_resize(view, 5, 0).status().code(), MV_EINVAL);
  assert_int_equal(begin_resize(view, 0, 0).status().code(), MV_EINVAL);
  assert_int_equal(begin_resize(view, 1, 1).status().code(), MV_EINVAL);
  server(view, 1).role = MV_ROLE_ALL;  // a worker stays
  view.master = server(view, 0).peer;
  assert_int_equal(begin_resize(view, 1, 0).status().code(), MV_EINVAL);
  assert_int_equal(view.wanted_servers, 0);
  assert_int_equal(view.staying_servers().size(), 2);
  assert_true(begin_resize(view, 4, 0).ok());  // others start them
  assert_int_equal(view.wanted_servers, 4);
}

void with_replicas_a_part_moves_to_the_new_server_and_keeps_a_backup(void**) {
  View view = servers_with_room(4);
  name_backups(view, 1);
  assert_places(view, "0:1 1:0 0:1 1:0");
  join(view, 2, 1);
  assert_places(view, "0:1 1:0 0:1>2 1:0");
  Member& part = server(view, 2);
  assert_null(destination(view, part, 1));  // it has no copy yet
  take_copy(view, part, 1);
  assert_places(view, "0:1 1:0 0:1,2 1:0");
  assert_ptr_equal(destination(view, part, 1), &part);
  move(view, part, 1);
  assert_places(view, "0:1 1:0 2:1 1:0");
  assert_int_equal(name_next_backups(view, 1).size(), 0);
  join(view, 3, 1);
  assert_int_equal(move_all(view, 1), 1);
  assert_places(view, "0:1 1:0 2:1 3:0");
}

/// Server 1 has as few parts as servers 2 and 3, and copies of all those of server 0.
void with_replicas_a_part_moves_past_a_server_that_has_its_copy(void**) {
  View view = servers_with_room(10);
  for (uint32_t number = 2; number < 4; ++number) join(view, number, 1);
  for (Member& part : view.members) part.next_backup = 0;
  const std::vector<std::pair<uint32_t, uint32_t>> chains{{0, 1}, {1, 0}, {2, 0}, {3, 1}, {0, 1}, {1, 0}, {0, 1}, {2, 0}, {0, 1}, {3, 1}};
  for (uint32_t number = 0; number < chains.size(); ++number) {
    Member& part = server(view, number);
    part.stand_in = chains[number].first == number ? 0 : server(view, chains[number].first).rank + 1;
    part.backups = {server(view, chains[number].second).rank + 1};
  }
  assert_places(view, "0:1 1:0 2:0 3:1 0:1 1:0 0:1 2:0 0:1 3:1");
  assert_int_equal(name_next_backups(view, 1).size(), 1);
  assert_int_equal(move_all(view, 1), 1);
  assert_places(view, "0:1 1:0 2:0 3:1 0:1 1:0 0:1 2:0 2:1 3:1");
}

void with_more_replicas_the_order_of_the_other_backups_stays(void**) {
  View view = servers_on({"a", "a", "a", "a"}, 2);
  lose(view, 3, 2);
  copy_all(view);
  assert_places(view, "0:1,2 1:0,2 2:0,1 1:2,0");
  join(view, 3, 2);
  assert_int_equal(move_all(view, 2), 1);
  assert_places(view, "0:1,2 1:0,2 2:0,1 3:2,0");
}

void a_part_without_all_its_copies_gets_these_first(void**) {
  View view = servers_on({"a", "a"});
  lose(view, 1);
  assert_places(view, "0:- 0:-");
  join(view, 1, 1);
  assert_places(view, "0:->1 0:->1");
  take_copy(view, server(view, 0), 1);
  take_copy(view, server(view, 1), 1);
  assert_places(view, "0:1 0:1");  // two servers: there is none that could keep a third copy while the part moves
  View three = servers_on({"a", "a", "a"});
  lose(three, 1);
  join(three, 1, 1);
  assert_places(three, "0:->2 2:->0 2:0");
  assert_int_equal(move_all(three, 1), 1);
  assert_places(three, "0:2 1:0 2:0");
}

void a_move_that_loses_a_backup_is_none_any_more(void**) {
  View view = servers_with_room(3);
  name_backups(view, 1);
  join(view, 2, 1);
  take_copy(view, server(view, 2), 1);
  assert_places(view, "0:1 1:0 0:1,2");
  lose(view, 1);
  assert_places(view, "0:->2 0:->2 0:2");
  assert_null(destination(view, server(view, 2), 1));
}

void parts_stay_if_their_copies_would_be_on_fewer_hosts(void**) {
  View view = servers_on({"a", "b", "b"});
  lose(view, 2);
  copy_all(view);
  assert_places(view, "0:1 1:0 0:1");
  View elsewhere = view;
  join(view, 2, 1, "b");
  assert_places(view, "0:1 1:0 0:1");
  join(elsewhere, 2, 1, "c");
  assert_places(elsewhere, "0:1 1:0 0:1>2");
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
      cmocka_unit_test(chains_have_several_backups),
      cmocka_unit_test(a_chain_goes_on_without_its_first_or_a_middle_process),
      cmocka_unit_test(a_lost_servers_parts_get_new_copies),
      cmocka_unit_test(a_part_whose_only_server_dies_before_its_copy_is_there_is_lost),
      cmocka_unit_test(a_next_backup_that_dies_is_replaced),
      cmocka_unit_test(nobody_succeeds_when_the_workers_are_gone),
      cmocka_unit_test(a_server_that_is_to_end_has_its_part_copied),
      cmocka_unit_test(a_copy_does_not_go_to_a_server_that_is_to_end_itself),
      cmocka_unit_test(a_stand_in_that_is_to_end_passes_all_its_parts_on),
      cmocka_unit_test(a_copy_that_is_lost_before_the_end_is_made_again),
      cmocka_unit_test(with_replicas_the_backup_takes_over),
      cmocka_unit_test(new_servers_get_parts_with_the_fewest_moves),
      cmocka_unit_test(a_server_gives_one_part_at_a_time),
      cmocka_unit_test(a_move_to_a_server_that_is_to_end_is_given_up),
      cmocka_unit_test(the_parts_of_servers_that_end_are_spread_over_the_others),
      cmocka_unit_test(a_size_that_can_not_be_is_refused_and_changes_nothing),
      cmocka_unit_test(with_replicas_a_part_moves_to_the_new_server_and_keeps_a_backup),
      cmocka_unit_test(with_replicas_a_part_moves_past_a_server_that_has_its_copy),
      cmocka_unit_test(with_more_replicas_the_order_of_the_other_backups_stays),
      cmocka_unit_test(a_part_without_all_its_copies_gets_these_first),
      cmocka_unit_test(a_move_that_loses_a_backup_is_none_any_more),
      cmocka_unit_test(parts_stay_if_their_copies_would_be_on_fewer_hosts),
      cmocka_unit_test(partners_share_parts),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
