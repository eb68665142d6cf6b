// engine/status: the reports of members, on the wire and merged.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}
#undef fail  // this macro clashes with a function of the core

#include "engine/status/overview.hpp"

namespace {

using namespace mv;
using namespace std::chrono_literals;
using cluster::WaitKind;

/// Encodes and decodes the report, as if sent over a transport.
status::Report sent(const status::Report& report) {
  wire::FrameBuilder builder;
  const auto written = status::write_report(builder.fbb(), 7, report);
  const base::Frame frame = builder.finish(wire::Body::Report, written);
  const auto prefix = wire::read_prefix(frame.head);
  assert_true(prefix.ok());
  const auto message =
      wire::read_header(std::span(frame.head).subspan(wire::kPrefixBytes, prefix.value().header_bytes));
  assert_true(message.ok());
  assert_int_equal(message.value()->body_as_Report()->number(), 7);
  return status::read_report(*message.value()->body_as_Report());
}

/// Three processes, peers 1 to 3, each a worker and a server, as the first one sees them.
status::Overview three() {
  status::Overview overview;
  overview.seen_by = 1;
  overview.view.sync = true;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    cluster::Member member;
    member.rank = rank;
    member.peer = rank + 1;
    member.pid = 4000 + rank;
    member.host = "here";
    overview.view.members.push_back(member);
    overview.reports[member.peer].phase = "ready";
    if (rank > 0) overview.silence[member.peer] = 100ms;
  }
  return overview;
}

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  print_message("no %s in:\n%s\n", part.c_str(), text.c_str());
  return false;
}

void a_report_arrives_as_it_was(void**) {
  status::Report report;
  report.phase = "ready";
  report.uptime = 90s;
  report.in_flight = 5;
  report.metrics = "127.0.0.1:9100";
  report.choice = "transport=tcp: also within a machine";
  report.peers.push_back({2, {"tcp", 10, 20, "TLS_AES_128_GCM_SHA256"}, 1.5, 2.5, 3s});
  report.own.push_back({"w", "an array", shard::Consistency::kStale, true, {{1, 2, 3, 4}}});
  report.held.push_back({"v", "a matrix", shard::Consistency::kSync, false, {}, table::PartSize{10, 640}});
  report.waits.push_back({WaitKind::kStaleGet, 2, "w", 4, 12s, 11s, {{3, "is at clock 1, 3 is needed"}}});
  report.groups.push_back({77, {2, 3}, 1, "shm", 41, "worker 0 is lost", "4K: inline (kept)"});
  report.reported.push_back({"loss", 0.25, 8, 3s});
  report.reported.push_back({"rate", std::numeric_limits<double>::infinity(), 1, 0s});
  const status::Report got = sent(report);
  assert_true(got.reported.size() == 2 && got.reported[0].name == "loss" && got.reported[0].value == 0.25 && got.reported[0].count == 8 && got.reported[0].age == 3s);
  assert_true(std::isinf(got.reported[1].value));
  assert_true(got.groups.size() == 1 && got.groups[0].id == 77 && got.groups[0].ranks.size() == 2 &&
              got.groups[0].ranks[1] == 3 && got.groups[0].rank == 1);
  assert_true(got.groups[0].transport == "shm" && got.groups[0].operations == 41 &&
              got.groups[0].broken == "worker 0 is lost" && got.groups[0].tuning == "4K: inline (kept)");
  assert_string_equal(got.phase.c_str(), "ready");
  assert_string_equal(got.metrics.c_str(), "127.0.0.1:9100");
  assert_string_equal(got.choice.c_str(), "transport=tcp: also within a machine");
  assert_true(got.uptime == 90s && got.in_flight == 5 && got.left_out == 0);
  assert_true(got.peers.size() == 1 && got.peers[0].peer == 2 && got.peers[0].path.transport == "tcp" &&
              got.peers[0].path.sent == 10 && got.peers[0].path.received == 20 && got.peers[0].path.cipher == "TLS_AES_128_GCM_SHA256" && got.peers[0].send_rate == 1.5 &&
              got.peers[0].receive_rate == 2.5 && got.peers[0].silence == 3s);
  assert_true(got.own.size() == 1 && got.own[0].name == "w" && got.own[0].consistency == shard::Consistency::kStale &&
              got.own[0].complete);
  assert_true(got.own[0].tallies.size() == 1 && got.own[0].tallies[0].worker == 1 && got.own[0].tallies[0].adds == 2 &&
              got.own[0].tallies[0].gets == 3 && got.own[0].tallies[0].clock == 4);
  assert_true(got.held.size() == 1 && got.held[0].what == "a matrix" && !got.held[0].complete);
  assert_true(got.held[0].part && got.held[0].part->stored == 10 && got.held[0].part->memory_bytes == 640 && !got.own[0].part);
  assert_true(got.waits.size() == 1 && got.waits[0].kind == WaitKind::kStaleGet && got.waits[0].who == 2 &&
              got.waits[0].number == 4 && got.waits[0].age == 12s && got.waits[0].still == 11s);
  assert_true(got.waits[0].awaited.size() == 1 && got.waits[0].awaited[0].peer == 3 &&
              got.waits[0].awaited[0].what == "is at clock 1, 3 is needed");
}

void a_huge_report_is_cut_and_says_so(void**) {
  status::Report report;
  for (uint64_t i = 0; i < 20'000; ++i) {
    report.peers.push_back({i + 1, {"tcp", i, i, ""}, 0, 0, {}});
    report.waits.push_back({WaitKind::kGet, i + 1, std::string(10'000, 'x'), 1, 1s, 1s,
                            std::vector<cluster::Awaited>(50, {1, std::string(1000, 'y')})});
    report.held.push_back(
        {std::string(1000, 'n'), std::string(1000, 'w'), shard::Consistency::kSync, true, std::vector<table::Tally>(30)});
  }
  const status::Report got = sent(report);
  assert_true(!got.peers.empty() && !got.waits.empty() && !got.held.empty());
  assert_true(got.left_out > 50'000);
}

void rates_that_are_no_numbers_become_zero(void**) {
  status::Report report;
  report.peers.push_back(
      {1, {"tcp", 1, 1, ""}, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), {}});
  const status::Report got = sent(report);
  assert_true(got.peers[0].send_rate == 0 && got.peers[0].receive_rate == 0);
}

void a_wait_at_several_servers_is_one_line_with_all_names(void**) {
  status::Overview overview = three();
  overview.reports[1].waits.push_back(
      {WaitKind::kGet, 2, "weights", 41, 12'300ms, 12'300ms, {{3, "has made 40 of 41 adds"}}});
  overview.reports[2].waits.push_back({WaitKind::kGet,
                                       2,
                                       "weights",
                                       41,
                                       12'200ms,
                                       12'200ms,
                                       {{3, "has made 40 of 41 adds"}, {1, "has made 40 of 41 adds"}}});
  overview.silence[3] = 12'100ms;
  const auto waits = status::waits_of(overview);
  assert_int_equal(waits.size(), 1);
  assert_int_equal(waits[0].awaited.size(), 2);
  const std::string text = status::to_text(overview);
  assert_true(has(text,
                  "worker 1 waits 12.3 s in get #41 of \"weights\" for worker 2 (has made 40 of 41 adds; last heard "
                  "12.1 s ago), worker 0 (has made"));
}

void a_missing_answer_without_a_gates_reason_is_reported(void**) {
  status::Overview overview = three();
  overview.reports[2].waits.push_back({WaitKind::kAnswer, 2, "a", 0, 3s, 3s, {{3, "has not answered"}}});
  overview.reports[2].waits.push_back({WaitKind::kAnswer, 2, "b", 0, 3s, 3s, {{3, "has not answered"}}});
  overview.reports[2].waits.push_back({WaitKind::kAnswer, 2, "c", 0, 10ms, 10ms, {{3, "has not answered"}}});
  overview.reports[1].waits.push_back({WaitKind::kGet, 2, "b", 1, 3s, 3s, {{1, "has made 0 of 1 adds"}}});
  const auto waits = status::waits_of(overview);
  assert_int_equal(waits.size(), 2);
  assert_true(has(status::to_text(overview), "worker 1 waits 3.0 s in a call on \"a\" for worker 2 (has not answered"));
}

void the_choice_of_transports_is_shown_once_or_with_its_ranks(void**) {
  status::Overview overview = three();
  for (base::Peer peer : {1, 2, 3}) overview.reports[peer].choice = "auto: by itself";
  assert_true(has(status::to_text(overview), "\ntransports: auto: by itself\n"));
  overview.reports[3].choice = "transport=ucx: also within a machine";
  const std::string text = status::to_text(overview);
  assert_true(has(text, "\ntransports of rank 0, 1: auto: by itself\n"));
  assert_true(has(text, "\ntransports of rank 2: transport=ucx: also within a machine\n"));
  const auto json = nlohmann::json::parse(status::to_json(overview));
  assert_true(json["members"][2]["transport_choice"] == "transport=ucx: also within a machine");
  assert_true(json["members"][0]["keeper"].is_null() && !has(text, "keeper"));
  overview.reports[1].keeper = "etcd at a:2379, cluster \"n\": this process is rank 0";
  assert_true(has(status::to_text(overview), "\nkeeper, as of rank 0: etcd at a:2379, cluster \"n\": this process is rank 0\n"));
  assert_true(nlohmann::json::parse(status::to_json(overview))["members"][0]["keeper"] == overview.reports[1].keeper);
}

void groups_are_shown_with_their_ranks_and_waiters(void**) {
  status::Overview overview = three();
  overview.reports[1].groups.push_back({77, {1, 2, 3}, 0, "shm", 41, "", "4K: inline (kept)"});
  overview.reports[2].groups.push_back({77, {1, 2, 3}, 1, "shm", 41, ""});
  overview.reports[2].groups.push_back({78, {2, 3}, 0, "messages", 3, "worker 2 is lost"});
  overview.reports[2].waits.push_back({WaitKind::kCollective, 2, "allreduce", 41, 3s, 3s, {{3, "has not arrived"}}});
  overview.reports.erase(3);
  const std::string text = status::to_text(overview);
  assert_true(has(text, "worker 0, worker 1, worker 2      3  shm        41, 41, ?   works"));
  assert_true(has(text, "broken: worker 2 is lost"));
  assert_true(
      has(text, "worker 1 waits 3.0 s in allreduce (operation 41 of a group) for worker 2 (has not arrived"));
  const auto json = nlohmann::json::parse(status::to_json(overview));
  assert_true(json["groups"].size() == 2 && json["groups"][0]["ranks"][1]["operations"] == 41 &&
              json["groups"][0]["ranks"][2]["operations"].is_null());
  assert_true(json["groups"][0]["broken"].is_null() && json["waits"][0]["kind"] == "collective");
  assert_true(json["groups"][0]["tuning"] == "4K: inline (kept)" && json["groups"][1]["tuning"].is_null());
  assert_true(has(text, "all-reduces of the group of worker 0: 4K: inline (kept)\n"));
}

void the_silent_the_lost_and_the_finished_are_shown_so(void**) {
  status::Overview overview = three();
  overview.reports.erase(2);
  overview.silence[2] = 12s;
  overview.reports.erase(3);
  overview.view.members[2].state = cluster::MemberState::kLost;
  overview.view.members[2].why = "its process ended";
  std::string text = status::to_text(overview);
  assert_true(has(text, "silent for 12.0 s") && has(text, "lost: its process ended") &&
              has(text, "no call is waiting"));
  overview.view.members[2].state = cluster::MemberState::kFinished;
  overview.silence.erase(2);
  text = status::to_text(overview);
  assert_true(has(text, "finished") && has(text, "not connected"));
}

void a_workers_own_report_overrides_a_servers(void**) {
  status::Overview overview = three();
  overview.reports[1].held.push_back(
      {"w", "an array of 2 f32", shard::Consistency::kSync, true, {{0, 3, 3, 0}, {1, 5, 4, 0}}});
  overview.reports[2].own.push_back({"w", "an array of 2 f32", shard::Consistency::kSync, true, {{1, 6, 5, 0}}});
  const auto tables = status::tables_of(overview);
  assert_int_equal(tables.size(), 1);
  const auto& tallies = tables[0].state.tallies;
  assert_int_equal(tallies.size(), 2);
  assert_true(tallies[0].adds == 3 && !tables[0].own_word[0]);
  assert_true(tallies[1].adds == 6 && tallies[1].gets == 5 && tables[0].own_word[1]);
}

void received_text_cannot_send_commands_to_the_terminal(void**) {
  status::Overview overview = three();
  overview.view.members[1].host = "\033[2Jhost";
  overview.reports[2].phase = "\nready";
  overview.reports[2].reported.push_back({"lo\x1bss", 0.25, 8, 3s});
  overview.reports[1].held.push_back({"na\x1bme\xff", "\x07", shard::Consistency::kAsync, true, {}});
  const std::string text = status::to_text(overview);
  assert_true(text.find('\033') == std::string::npos && text.find('\x07') == std::string::npos);
  assert_true(has(text, "worker 1    0.25      8  3.0 s ago"));
  const auto json = nlohmann::json::parse(status::to_json(overview), nullptr, false);
  assert_false(json.is_discarded());
}

void programs_get_the_same(void**) {
  status::Overview overview = three();
  overview.reports[1].peers.push_back({2, {"tcp", 100, 50, "TLS_AES_128_GCM_SHA256"}, 10, 5, 1s});
  overview.reports[1].waits.push_back({WaitKind::kBarrier, 2, "", 0, 2s, 2s, {{3, "has not arrived"}}});
  overview.reports[1].held.push_back({"v", "a matrix", shard::Consistency::kAsync, true, {}, table::PartSize{6, 24}});
  overview.reports[3].held.push_back({"v", "a matrix", shard::Consistency::kAsync, true, {}, table::PartSize{4, 16}});
  const auto json = nlohmann::json::parse(status::to_json(overview));
  const auto& servers = json["tables"][0]["servers"];
  assert_true(servers.size() == 2 && servers[0]["server"] == 0 && servers[0]["stored"] == 6 && servers[1]["memory_bytes"] == 16);
  assert_true(json["sync"] == true && json["seen_by"] == 0 && json["members"].size() == 3);
  assert_true(json["members"][0]["sent_bytes"] == 100 && json["members"][0]["peers"][0]["transport"] == "tcp" &&
              json["members"][0]["peers"][0]["cipher"] == "TLS_AES_128_GCM_SHA256" && has(status::to_text(overview), "tcp TLS_AES_128_GCM_SHA256 1") &&
              json["members"][0]["peers"][0]["rank"] == 1);
  assert_true(json["waits"][0]["kind"] == "barrier" && json["waits"][0]["worker"] == 1 &&
              json["waits"][0]["awaited"][0]["who"] == "worker 2");
  assert_true(json["waits"][0]["table"].is_null() && json["waits"][0]["seconds"] == 2.0);
}

void replicas_show_who_serves_and_who_has_a_copy(void**) {
  status::Overview overview = three();
  const auto alone = nlohmann::json::parse(status::to_json(overview));
  assert_true(alone["parts"].size() == 3 && alone["parts"][2]["served_by"] == 2 && alone["parts"][2]["backup"].is_null() && alone["max_servers"] == 3);
  assert_true(status::to_text(overview).find("back-up") == std::string::npos);
  overview.replicas = 1;
  overview.view.members[1].is_out = true;
  overview.view.members[1].stand_in = 1 + 2;
  overview.view.members[2].backups = {1 + 0};
  overview.view.members[1].next_backup = 1 + 0;
  const auto parts = nlohmann::json::parse(status::to_json(overview))["parts"];
  assert_true(parts.size() == 3 && parts[0]["served_by"] == 0 && parts[0]["backup"].is_null());
  assert_true(parts[1]["server"] == 1 && parts[1]["served_by"] == 2 && parts[1]["backup"].is_null() && parts[1]["next_backup"] == 0);
  assert_true(parts[1]["moves_to"].is_null());
  assert_true(has(status::to_text(overview), "server 1   server 2   server 0, copying\n"));
  assert_true(parts[2]["served_by"] == 2 && parts[2]["backup"] == 0);
  overview.view.members[1].backups = {1 + 0, 1 + 1};  // one more than it keeps: server 1 is about to serve its own part again
  overview.view.members[1].next_backup = 0;
  overview.view.members[1].is_out = false;
  assert_true(nlohmann::json::parse(status::to_json(overview))["parts"][1]["moves_to"] == 1);
  overview.view.members[1].is_out = true;
  overview.view.members[1].backups.clear();
  overview.view.members[1].stand_in = cluster::kNobodyServes;
  assert_true(nlohmann::json::parse(status::to_json(overview))["parts"][1]["served_by"].is_null());
  overview.view.members[0].drained = true;
  const std::string text = status::to_text(overview);
  assert_true(has(text, " workers, 2 servers (at most 3), "));
  assert_true(has(text, "server 0   server 0   nobody\n") && has(text, "server 1   nobody     nobody\n") && has(text, "server 2   server 2   server 0\n"));
}

/// `others` peers, of which peer i gets i bytes per second.
status::Report busy(uint64_t others) {
  status::Report report;
  for (uint64_t i = 1; i <= others; ++i) report.peers.push_back({i, {i % 2 == 0 ? "tcp" : "shm", 10, 20, ""}, static_cast<double>(i), 0, 0s});
  return report;
}

void a_shortened_report_keeps_the_busiest_peers_and_the_sums(void**) {
  status::Report report = busy(100);
  const status::PeerState before = status::total_of(report);
  status::shorten_peers(report);
  report = sent(report);
  assert_int_equal(report.peers.size(), status::kBusiestPairs);
  for (const status::PeerState& each : report.peers) assert_true(each.send_rate > 80);
  const status::PeerState after = status::total_of(report);
  assert_true(after.path.sent == before.path.sent && after.path.received == before.path.received && after.send_rate == before.send_rate);
  const auto transports = status::transports_of(report);
  assert_true(transports.size() == 2 && transports.at("shm") == 50 && transports.at("tcp") == 50);
  status::Report small = busy(status::kBusiestPairs);
  status::shorten_peers(small);
  assert_true(small.peers.size() == status::kBusiestPairs && small.rest_transports.empty());
}

void a_live_status_of_a_large_cluster_has_the_busiest_pairs_only(void**) {
  status::Overview overview;
  for (uint32_t rank = 0; rank < 40; ++rank) {
    cluster::Member member;
    member.rank = rank;
    member.peer = rank + 1;
    overview.view.members.push_back(member);
    overview.reports[member.peer] = busy(40);
  }
  const auto whole = nlohmann::json::parse(status::to_json(overview));
  assert_true(!whole.contains("busiest") && whole["members"][0]["peers"].size() == 40 && whole["members"][0]["transports"]["tcp"] == 20);
  overview.live = true;
  for (auto& [peer, report] : overview.reports) status::shorten_peers(report);
  const auto live = nlohmann::json::parse(status::to_json(overview));
  assert_true(!live["members"][0].contains("peers") && live["members"][0]["transports"]["tcp"] == 20);
  assert_true(live["members"][0]["sent_bytes"] == whole["members"][0]["sent_bytes"]);
  assert_int_equal(live["busiest"].size(), status::kBusiestPairs);
  for (const auto& pair : live["busiest"]) assert_true(pair["to"] == 39 && pair["transport"] == "tcp" && pair["sent_bytes_per_second"] == 40.0);
  overview.view.members.resize(status::kMostMembersWithPairs);
  assert_true(nlohmann::json::parse(status::to_json(overview))["members"][0].contains("peers"));
}

/// Encodes and decodes the answer to a request for the log.
base::LogTail sent_log(const base::LogTail& tail) {
  wire::FrameBuilder builder;
  const base::Frame frame = builder.finish(wire::Body::Report, status::write_log(builder.fbb(), 7, tail));
  const auto prefix = wire::read_prefix(frame.head);
  assert_true(prefix.ok());
  const auto message = wire::read_header(std::span(frame.head).subspan(wire::kPrefixBytes, prefix.value().header_bytes));
  assert_true(message.ok());
  return status::read_log(*message.value()->body_as_Report());
}

void the_last_lines_of_the_log_are_kept_whatever_is_written(void**) {
  base::set_log_level(MV_LOG_OFF);
  const base::LogTail before = base::log_tail();
  base::log_debug("nobody keeps this");
  base::log_info("a line with {}", "\x1b[2J");
  base::LogTail tail = base::log_tail();
  assert_int_equal(tail.lines.size(), before.lines.size() + 1);
  assert_true(has(tail.lines.back(), " info: a line with \x1b[2J"));
  assert_true(has(status::log_text(tail), "info: a line with ?[2J\n"));
  const auto json = nlohmann::json::parse(status::log_json(3, sent_log(tail)));
  assert_true(json["rank"] == 3 && json["lines"].back() == tail.lines.back() && json["left_out"] == tail.left_out);
}

void the_kept_log_is_bounded_in_lines_their_length_and_their_rate(void**) {
  base::set_log_level(MV_LOG_OFF);
  const base::LogTail before = base::log_tail();
  constexpr size_t kLines = 100'000;
  for (size_t i = 0; i < kLines; ++i) base::log_error("{}", std::string(10'000, 'x'));
  const base::LogTail tail = base::log_tail();
  assert_true(tail.lines.size() <= base::kMostKeptLines);
  for (const std::string& line : tail.lines) assert_true(line.size() <= base::kLongestKeptLine + 50);
  assert_true(tail.left_out > before.left_out + kLines / 2);
  const base::LogTail got = sent_log(tail);
  assert_true(got.lines == tail.lines && got.left_out == tail.left_out);
}

void an_incomplete_cluster_names_the_missing_members(void**) {
  status::Overview overview;
  overview.missing = "only 1 of 3 processes have arrived";
  assert_true(has(status::to_text(overview), "only 1 of 3"));
  assert_true(nlohmann::json::parse(status::to_json(overview))["joining"] == true);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_report_arrives_as_it_was),
      cmocka_unit_test(a_huge_report_is_cut_and_says_so),
      cmocka_unit_test(rates_that_are_no_numbers_become_zero),
      cmocka_unit_test(a_wait_at_several_servers_is_one_line_with_all_names),
      cmocka_unit_test(a_missing_answer_without_a_gates_reason_is_reported),
      cmocka_unit_test(the_choice_of_transports_is_shown_once_or_with_its_ranks),
      cmocka_unit_test(groups_are_shown_with_their_ranks_and_waiters),
      cmocka_unit_test(the_silent_the_lost_and_the_finished_are_shown_so),
      cmocka_unit_test(a_workers_own_report_overrides_a_servers),
      cmocka_unit_test(received_text_cannot_send_commands_to_the_terminal),
      cmocka_unit_test(programs_get_the_same),
      cmocka_unit_test(replicas_show_who_serves_and_who_has_a_copy),
      cmocka_unit_test(a_shortened_report_keeps_the_busiest_peers_and_the_sums),
      cmocka_unit_test(a_live_status_of_a_large_cluster_has_the_busiest_pairs_only),
      cmocka_unit_test(the_last_lines_of_the_log_are_kept_whatever_is_written),
      cmocka_unit_test(the_kept_log_is_bounded_in_lines_their_length_and_their_rate),
      cmocka_unit_test(an_incomplete_cluster_names_the_missing_members),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
