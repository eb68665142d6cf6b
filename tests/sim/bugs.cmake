# Bugs that the simulators must find: see cmake/bugs.cmake. `--seeds` begins shortly before the seed that finds it, or at it, where the earlier ones take long.

# An acknowledged change is in each copy that lives, once.
polyverso_put_bug(answers_do_not_wait_for_the_copy engine/replica outbox.cpp "held_.empty() && is_held(inputs_) &&" "held_.empty() && (BUG || is_held(inputs_)) &&")
polyverso_put_bug(a_backup_applies_requests_twice engine/replica part.cpp "      return streams_.replay("
  "      if (BUG) {
        if (const auto once = streams_.replay(asked, input.done(), *request.value(), payload, staged); !once.ok()) return once;
      }
      return streams_.replay(")
sim_finds_bug(sim_test_with_bugs answers_do_not_wait_for_the_copy " shows " --replicas 1)
sim_finds_bug(sim_test_with_bugs a_backup_applies_requests_twice " shows " --replicas 1)

# What the journal holds is not lost. (tests/models/journal.pml is about the gate: no seed stops a server at that moment.)
polyverso_put_bug(a_journal_is_not_read engine/replica journals.cpp "for (const auto& reader : std::exchange(readers_, {}))" "for (const auto& reader : std::exchange(readers_, {})) if (!BUG)")
sim_finds_bug(sim_test_with_bugs a_journal_is_not_read " shows " --replicas 1)

# A worker that one server has lost may go on at others, and repeat what was not acknowledged.
polyverso_put_bug(a_server_alone_declares_a_worker_lost engine/cluster losses.cpp "if (member->is_worker() && (!roster_.is_kept() ||" "if (member->is_worker() && (BUG || !roster_.is_kept() ||")
sim_finds_bug(sim_test_with_bugs a_server_alone_declares_a_worker_lost " shows " --replicas 1 --seeds 410..10000)

# In a chain, each process has what the ones behind it have, and acknowledges only what they have.
polyverso_put_bug(a_backup_does_not_wait_for_the_next engine/replica parts.cpp "part.inputs() - chain.successor.unacknowledged();"
  "part.inputs() - (BUG ? 0 : chain.successor.unacknowledged());")
polyverso_put_bug(a_chain_is_not_mended engine/replica successor.cpp "  for (const Passed& passed : unacknowledged_) call("
  "  for (const Passed& passed : unacknowledged_) if (!BUG) call(")
sim_finds_bug(sim_test_with_bugs a_backup_does_not_wait_for_the_next " shows " --replicas 2 --seeds 135..10000)
sim_finds_bug(sim_test_with_bugs a_chain_is_not_mended "have not ended" --replicas 2)

# The inputs that come during a copy are not lost: their numbers have a gap.
polyverso_put_bug(inputs_during_a_copy_are_lost engine/replica arrival.cpp "  held_.push_back(std::move(held));"
  "  if (!BUG) held_.push_back(std::move(held));")
sim_finds_bug(sim_test_with_bugs inputs_during_a_copy_are_lost "have not ended" --replicas 1)

# A process that is to follow knows that, before it gets inputs.
polyverso_put_bug(a_follower_is_not_asked engine/replica parts_taken.cpp "if (!may_pass_to(follows, number)) return;"
  "if (!BUG && !may_pass_to(follows, number)) return;")
sim_finds_bug(sim_test_with_bugs a_follower_is_not_asked "at the end: stripe" --grows --replicas 1 --seeds 2341..10000)

# Copies have equal bits.
polyverso_put_bug(a_copy_lacks_what_workers_got engine/replica transfer.cpp "shard::Scope::kAll" "BUG ? shard::Scope::kSaved : shard::Scope::kAll")
sim_finds_bug(sim_test_with_bugs a_copy_lacks_what_workers_got "a copy that differs" --drains --replicas 1)

# A part has at most one primary in an epoch.
polyverso_put_bug(a_backup_takes_over_by_itself engine/replica parts.cpp "  missed_[server.peer] =" "  if (BUG) take_over(server);\n  missed_[server.peer] =")
polyverso_put_bug(a_leaver_serves_on engine/replica parts_given.cpp "    led->second.part->seal();" "    if (!BUG) led->second.part->seal();")
sim_finds_bug(sim_test_with_bugs a_backup_takes_over_by_itself "two primaries" --replicas 1)
sim_finds_bug(sim_test_with_bugs a_leaver_serves_on "two primaries" --drains --replicas 1)

# A part moves with all of its tables.
polyverso_put_bug(a_move_forgets_tables_without_backups engine/replica parts_given.cpp "led.part->has_all() ||" "BUG || led.part->has_all() ||")
sim_finds_bug(sim_test_with_bugs a_move_forgets_tables_without_backups "has no back-ups" --grows --replicas 1)

# All calls end.
polyverso_put_bug(answers_wait_for_a_lost_copy engine/replica parts.cpp "  led.part->lead_alone();" "  if (!BUG) led.part->lead_alone();")
sim_finds_bug(sim_test_with_bugs answers_wait_for_a_lost_copy "have not ended" --replicas 1)

# A part of a round is acknowledged when the back-up has it.
polyverso_put_bug(a_withheld_part_is_acknowledged engine/replica part_rounds.cpp "  withheld.withhold(asked);" "  if (!BUG) withheld.withhold(asked);")
sim_finds_bug(sim_rounds_with_bugs a_withheld_part_is_acknowledged "has not ended" --replicas 1)

# A part whose server died with the news that a copy has failed gets another back-up.
polyverso_put_bug(a_lost_refusal_is_not_repeated engine/replica parts_kept.cpp "    if (chain.successor.peer() == base::kNobody) refuse_copy("
  "    if (!BUG && chain.successor.peer() == base::kNobody) refuse_copy(")
sim_finds_bug(sim_checkpoints_with_bugs a_lost_refusal_is_not_repeated "have not ended" --replicas 3 --seeds 3600..10000)

# A save that workers do not wait for has the values of its moment, although the server that was to write them is lost.
polyverso_put_bug(a_backup_takes_no_snapshot engine/replica part.cpp "  if (!save_->lost.ok()) return true;" "  if (BUG || !save_->lost.ok()) return true;")
sim_finds_bug(sim_checkpoints_with_bugs a_backup_takes_no_snapshot "a background save ended" --replicas 1)

# A master that was cut off decides nothing.
polyverso_put_bug(a_master_decides_alone engine/cluster quorum_keeper.cpp "return 2 * with > all ||" "return (BUG ? with > 0 : 2 * with > all) ||")
sim_finds_bug(sim_test_with_bugs a_master_decides_alone "two primaries" --masters --replicas 1)

# Without replicas, a master that leaves has a successor, which is asked again what it has not answered.
polyverso_put_bug(the_next_master_does_not_begin engine/cluster mastership.cpp "if (!roster_.is_kept()) role_transfer_.take();" "if (!BUG && !roster_.is_kept()) role_transfer_.take();")
polyverso_put_bug(nobody_asks_the_next_master engine/cluster master_calls.cpp "const bool is_next = visit->asked != roster_.master();" "const bool is_next = (roster_.is_kept() || !BUG) && visit->asked != roster_.master();")
# A process with a newer view knows earlier than the next master itself whom to ask.
polyverso_put_bug(the_next_master_refuses_early_barriers engine/cluster held_requests.cpp "  held_.emplace_back(asked, wire::copy_header(request));"
  "  if (BUG && roster_.is_kept()) return server_.fail(asked, base::Status(MV_EPEERLOST, \"\"));
  held_.emplace_back(asked, wire::copy_header(request));")
sim_finds_bug(sim_test_with_bugs the_next_master_refuses_early_barriers "have not ended" --drains --replicas 1 --masters --seeds 5420..10000)
sim_finds_bug(sim_test_with_bugs the_next_master_does_not_begin "have not ended" --drains)
sim_finds_bug(sim_test_with_bugs nobody_asks_the_next_master "a barrier ended with status -15" --drains)

# Members have the master's view in the end.
polyverso_put_bug(changes_are_taken_without_their_base engine/cluster views.cpp "if (header.base() > roster_.view().epoch) return heartbeat_.ping(from);"
  "if (!BUG && header.base() > roster_.view().epoch) return heartbeat_.ping(from);")
polyverso_put_bug(nobody_repeats_lost_changes engine/cluster publisher.cpp "log_.write(builder_, roster_.decided(), has)"
  "log_.write(builder_, roster_.decided(), BUG ? roster_.view().epoch : has)")
sim_finds_bug(sim_members_with_bugs changes_are_taken_without_their_base "another view than the master")
sim_finds_bug(sim_members_with_bugs nobody_repeats_lost_changes "another view than the master")

# A worker that joins begins at one point on all servers, and nobody takes the end of its predecessor for a loss.
polyverso_put_bug(newcomers_tell_no_server_where_they_begin engine/table/client catalogue.cpp "  if (std::ranges::any_of(by_server,"
  "  if (!BUG && std::ranges::any_of(by_server,")
polyverso_put_bug(a_replaced_worker_is_always_lost engine/cluster losses.cpp "  if (place->is_worker() && !place->drained &&"
  "  if (!BUG && place->is_worker() && !place->drained &&")
polyverso_put_bug(newcomers_do_not_step_back engine/table/client entry.cpp "  if (!back_.empty()) tell("
  "  if (!BUG && !back_.empty()) tell(")
polyverso_put_bug(points_that_others_have_passed_count engine/table/client entry.cpp "const bool is_passed = status.code() == MV_EDISAGREE;"
  "const bool is_passed = !BUG && status.code() == MV_EDISAGREE;")
sim_finds_bug(sim_test_with_bugs newcomers_do_not_step_back "have not ended" --elastic)
sim_finds_bug(sim_rounds_with_bugs points_that_others_have_passed_count "round" --seeds 1900..6000)
sim_finds_bug(sim_test_with_bugs newcomers_tell_no_server_where_they_begin "have not ended" --elastic --seeds 1700..10000)
sim_finds_bug(sim_test_with_bugs a_replaced_worker_is_always_lost "no member was lost, but" --drains --elastic --seeds 9300..12000)

# A group goes on without those that its members have lost, and with those that have done their part.
polyverso_put_bug(only_the_first_lost_rank_counts engine/collective groups.cpp "    if (!is_here || quitters.contains(peer))"
  "    if ((!is_here || quitters.contains(peer)) && !(BUG && !group->counters().broken.ok()))")
polyverso_put_bug(a_rank_that_has_finished_breaks_its_groups engine/collective group.cpp "  if (awaits(rank) || (is_silent" "  if ((BUG && is_silent) || awaits(rank) || (is_silent")
sim_finds_bug(sim_collective_with_bugs only_the_first_lost_rank_counts "have not grown the group" --seeds 20550..30000)
sim_finds_bug(sim_collective_with_bugs a_rank_that_has_finished_breaks_its_groups "has finished" --seeds 700..5000)

add_sim_objects(sim_bugs EXCLUDE_FROM_ALL)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/engine/replica/*.cpp ${CMAKE_SOURCE_DIR}/core/engine/cluster/*.cpp
  ${CMAKE_SOURCE_DIR}/core/engine/table/client/*.cpp ${CMAKE_SOURCE_DIR}/core/engine/collective/*.cpp)
polyverso_add_bugs(sim_bugs ${sources})
foreach(simulator sim_test sim_rounds sim_members sim_checkpoints sim_collective)
  add_thorough_executable(${simulator}_with_bugs)
  target_link_libraries(${simulator}_with_bugs PRIVATE ${simulator}_parts sim_bugs sim_network polyverso_testing)
endforeach()
