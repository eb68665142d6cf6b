// mv_doctor_text()'s assessment of peers, above a fake node whose peers the test defines.

#include <cstdlib>
#include <string>
#include <vector>

#include "doctor/peers.hpp"
#include "fake_node.hpp"

#include "cpp_expect.hpp"

namespace {

namespace fake = mv::fake;
using mv::api::PeerReport;
using namespace std::chrono_literals;

int fresh(void**) {
  fake::reset();
  return 0;
}

std::string doctor(uint32_t flags) {
  std::string text(1 << 16, '\0');
  uint64_t length = 0;
  expect_ok(mv_doctor_text(0, flags, text.data(), text.size(), &length));
  text.resize(length);
  return text;
}

/// The text about one peer.
std::string told_of(const PeerReport& peer) {
  fake::script.peers = {peer};
  expect_ok(mv_init_text("nodes=2 rank=0 master=m transport=inproc"));
  const std::string text = doctor(0);
  expect_ok(mv_shutdown(0));
  const size_t begin = text.find("\npeers\n"), end = text.find("\nbuild\n");
  assert_true(begin != std::string::npos && end != std::string::npos);
  return text.substr(begin, end - begin);
}
void expect_part(const std::string& text, const char* part) {
  if (text.find(part) == std::string::npos) fail_msg("%s\n  lacks %s", text.c_str(), part);
}

PeerReport neighbour() {
  PeerReport peer;
  peer.rank = 1;
  peer.host = "node7";
  peer.address = "10.0.0.7:4000";
  peer.pid = 4711;
  peer.same_host = true;
  peer.transport = mv::base::TransportKind::kShm;
  peer.round_trip = 20us;
  return peer;
}

void a_good_way_is_ok(void**) {
  const std::string text = told_of(neighbour());
  expect_part(text, "ok       rank 1               all, pid 4711 on node7: by shm, round trip 20 us");
  assert_true(text.find("->") == std::string::npos);
}

void tcp_within_a_machine_says_why(void**) {
  PeerReport peer = neighbour();
  peer.transport = mv::base::TransportKind::kTcp;
  peer.why_not_shm = "can't reach it: Connection refused";
  expect_part(told_of(peer),
              "note     rank 1               all, pid 4711 on node7: by tcp, round trip 20 us; no shared "
              "memory: can't reach it");
  expect_part(told_of(peer), "-> start both as the same user and in one network namespace");
  peer.why_not_shm = "transport=tcp";
  expect_part(told_of(peer), "-> leave transport (POLYVERSO_TRANSPORT) unset");
  peer.same_host = false;
  expect_part(told_of(peer), "ok       rank 1               all, pid 4711 on node7: by tcp");
  assert_string_equal(mv::doctor::why_not_shm(peer).c_str(), "it is on another machine, node7");
}

void a_slow_neighbour_is_noted(void**) {
  PeerReport peer = neighbour();
  peer.round_trip = 30ms;
  expect_part(told_of(peer),
              "note     rank 1               all, pid 4711 on node7: by shm, round trip 30000 us, which is long");
}

void who_does_not_answer_is_a_problem(void**) {
  PeerReport peer = neighbour();
  peer.round_trip = mv::base::kNever;
  expect_part(told_of(peer),
              "problem  rank 1               all, pid 4711 on node7: does not answer within a second, by shm");
  expect_part(told_of(peer), "-> check whether pid 4711 on node7 is stopped");
  expect_ok(mv_init_text("nodes=2 rank=0 master=m transport=inproc"));
  expect_part(doctor(0), "\nthere are problems: see the lines with ->\n");
  expect_part(doctor(MV_JSON), "\"round_trip_us\": null");
  expect_ok(mv_shutdown(0));
}

void a_missing_connection_is_one_only_where_it_is_needed(void**) {
  PeerReport peer = neighbour();
  peer.transport.reset();
  peer.round_trip = mv::base::kNever;
  expect_part(told_of(peer),
              "problem  rank 1               all, pid 4711 on node7: no connection to it at 10.0.0.7:4000");
  peer.needed = false;
  expect_part(told_of(peer),
              "ok       rank 1               all, pid 4711 on node7: no connection (none is needed: workers "
              "communicate only with servers)");
  peer.needed = true;
  peer.state = PeerReport::State::kFinished;
  expect_part(told_of(peer), "ok       rank 1               all, pid 4711 on node7: has finished");
}

void who_is_lost_is_a_problem_and_its_words_stay_words(void**) {
  PeerReport peer = neighbour();
  peer.state = PeerReport::State::kLost;
  peer.why_lost = "killed\x1b[2J";
  expect_part(told_of(peer), "problem  rank 1               all, pid 4711 on node7: lost: killed?[2J");
  expect_part(told_of(peer), "-> see its own output; restart all processes");
  peer.role = MV_ROLE_WORKER;
  expect_part(told_of(peer), "a new worker may be started in its place");
}

}  // namespace

int main() {
#define TEST(function) cmocka_unit_test_setup(function, fresh)
  const CMUnitTest tests[] = {
      TEST(a_good_way_is_ok),
      TEST(tcp_within_a_machine_says_why),
      TEST(a_slow_neighbour_is_noted),
      TEST(who_does_not_answer_is_a_problem),
      TEST(a_missing_connection_is_one_only_where_it_is_needed),
      TEST(who_is_lost_is_a_problem_and_its_words_stay_words),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
