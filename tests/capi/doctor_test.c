/* mv_doctor_text(): without a node, with one, and with peers; its text, and its argument checks. */
#include <stdlib.h>
#include <unistd.h>

#include "nodes.h"

static int clean(void** state) {
  static const char* const kNames[] = {"NODES", "RANK", "MASTER", "SECRET", "BIND", "NODE", "SPIN_US", "IO"};
  char name[64];
  (void)state;
  for (size_t i = 0; i < COUNT_OF(kNames); ++i) {
    snprintf(name, sizeof name, "POLYVERSO_%s", kNames[i]);
    unsetenv(name);
  }
  unsetenv("WORLD_SIZE");
  return 0;
}

/* The whole text, in a static buffer. */
static const char* doctor(mv_node node, uint32_t flags) {
  static char text[1 << 16];
  uint64_t length = 0;
  expect_ok(mv_doctor_text(node, flags, text, sizeof text, &length));
  assert_true(length < sizeof text && strlen(text) == length);
  return text;
}

static void expect_part(const char* text, const char* part) {
  if (strstr(text, part) != NULL) return;
  print_error("%s\n  lacks %s\n", text, part);
  fail();
}

static void without_a_node_it_tells_what_one_would_be(void** state) {
  (void)state;
  expect_part(doctor(0, 0), "no node runs in this process");
  expect_part(doctor(0, 0), "a cluster of one process");
  expect_part(doctor(0, MV_JSON), "\"running\": false");
  expect_part(doctor(0, MV_JSON), "\"nodes\": 1");
  setenv("POLYVERSO_NODES", "3", 1);
  setenv("POLYVERSO_RANK", "0", 1);
  setenv("POLYVERSO_MASTER", "127.0.0.1:1", 1);
  expect_part(doctor(0, 0), "rank 0 of 3 processes, rank 0 at 127.0.0.1:1");
  expect_part(doctor(0, 0), "POLYVERSO_NODES=3 in the environment");
  expect_part(doctor(0, MV_JSON), "\"source\": \"environment\"");
}

static void the_last_line_says_whether_all_is_well(void** state) {
  (void)state;
  static const char kWell[] = "\nall is well\n";
  const int well = strstr(doctor(0, MV_JSON), "\"well\": true") != NULL;
  const char* text = doctor(0, 0);
  assert_int_equal(well, strcmp(text + strlen(text) - (sizeof kWell - 1), kWell) == 0);
  setenv("POLYVERSO_NODES", "many", 1);
  expect_part(doctor(0, 0), "POLYVERSO_NODES=many in the environment is not a whole number");
  assert_null(strstr(doctor(0, 0), kWell));
  expect_part(doctor(0, MV_JSON), "\"well\": false");
}

static void a_conflict_and_a_slip_of_the_pen_are_problems(void** state) {
  (void)state;
  setenv("POLYVERSO_MASTER", "127.0.0.1:1", 1);
  expect_part(doctor(0, 0), "is set, but nodes is not");
  clean(NULL);
  setenv("WORLD_SIZE", "2", 1);
  expect_part(doctor(0, 0), "WORLD_SIZE=2 is set, but RANK is not");
  clean(NULL);
  setenv("POLYVERSO_NODE", "2", 1);
  expect_part(doctor(0, 0), "POLYVERSO_NODE is not a setting");
  expect_part(doctor(0, 0), "-> did you mean POLYVERSO_NODES?");
}

static void a_secret_is_never_told(void** state) {
  (void)state;
  setenv("POLYVERSO_SECRET", "xyzzy-plugh", 1);
  setenv("POLYVERSO_NODES", "2", 1);
  setenv("POLYVERSO_RANK", "0", 1);
  setenv("POLYVERSO_MASTER", "127.0.0.1:1", 1);
  for (uint32_t flags = 0; flags <= MV_JSON; ++flags) {
    assert_null(strstr(doctor(0, flags), "xyzzy"));
    expect_part(doctor(0, flags), "only 11 characters");
  }
}

static void the_master_is_reached_for_without_a_place_in_its_cluster(void** state) {
  (void)state;
  expect_part(doctor(0, MV_REACH), "no master is set");
  setenv("POLYVERSO_MASTER", "127.0.0.1:1", 1);
  expect_part(doctor(0, MV_REACH), "127.0.0.1:1: Connection refused");
  expect_part(doctor(0, MV_REACH), "-> start rank 0");
  setenv("POLYVERSO_MASTER", "no-such-host.invalid:7000", 1);
  expect_part(doctor(0, MV_REACH), "check its spelling");
}

static void a_node_of_one_has_no_peers(void** state) {
  uint64_t length = 0;
  (void)state;
  expect_ok(mv_doctor_text(0, 0, NULL, 0, &length)); /* an earlier request's answer does not include the node */
  expect_ok(mv_init_text("spin_us=0"));
  expect_part(doctor(0, 0), "rank 0 of 1");
  expect_part(doctor(0, 0), "spin_us=0 in the text");
  expect_part(doctor(0, MV_JSON), "\"peers\": []");
  expect_ok(mv_shutdown(0));
}

static void measure_costs(struct member* self) {
  char text[1 << 14];
  uint64_t length = 0;
  expect_ok(mv_doctor_text(self->node, MV_TUNE, text, sizeof text, &length));
  assert_int_equal(strncmp(text, "inproc=", 7), 0); /* valid as a value of the setting */
  assert_non_null(strstr(text, " reduce="));
  expect_ok(mv_doctor_text(self->node, MV_TUNE | (uint32_t)MV_JSON, text, sizeof text, &length));
  expect_part(text, "\"workers\": 2");
  expect_part(text, "\"algorithm\": \"");
}

static void costs_are_measured_between_two_nodes_and_not_by_one(void** state) {
  char text[64];
  uint64_t length = 0;
  (void)state;
  expect_error(mv_doctor_text(0, MV_TUNE, text, sizeof text, &length), MV_ESTATE, "call mv_init()");
  expect_ok(mv_init(NULL));
  expect_error(mv_doctor_text(0, MV_TUNE, text, sizeof text, &length), MV_ESTATE, "measuring needs at least two workers");
  expect_ok(mv_shutdown(0));
#ifndef __SANITIZE_THREAD__ /* thousands of operations: minutes */
  run_nodes(2, NULL, measure_costs);
#else
  (void)measure_costs;
#endif
}

static void tell_of_peers(struct member* self) {
  char text[1 << 16], transport[64];
  uint64_t length = 0;
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_doctor_text(self->node, 0, text, sizeof text, &length));
  for (int i = 0; i < self->nodes; ++i) {
    if (i == self->index) continue;
    snprintf(transport, sizeof transport, "rank %d               all, pid %d on ", i, (int)getpid());
    const char* line = strstr(text, transport);
    assert_non_null(line);
    assert_non_null(strstr(line, ": by inproc, "));
  }
  expect_ok(mv_barrier(self->node, NULL));
}

static void peers_of_one_process_are_told_with_their_transport(void** state) {
  (void)state;
  run_nodes(3, NULL, tell_of_peers);
}

static void the_text_goes_where_there_is_room(void** state) {
  (void)state;
  char small[8];
  uint64_t length = 0, again = 0;
  expect_ok(mv_doctor_text(0, 0, NULL, 0, &length));
  assert_true(length > 500);
  char* text = malloc(length + 1);
  assert_non_null(text);
  expect_ok(mv_doctor_text(0, 0, text, length + 1, &again));
  assert_true(again == length && strlen(text) == length); /* the cached examination */
  free(text);
  expect_ok(mv_doctor_text(0, 0, small, sizeof small, &length));
  assert_string_equal(small, "polyver");
  expect_error(mv_doctor_text(0, 0, NULL, 5, &length), MV_EINVAL, "text is NULL");
  expect_error(mv_doctor_text(0, 0, small, sizeof small, NULL), MV_EINVAL, "length is NULL");
  expect_error(mv_doctor_text(0, 8, small, sizeof small, &length), MV_EINVAL, "flags 0x8");
  expect_error(mv_doctor_text(77, 0, small, sizeof small, &length), MV_ESTATE, "mv_init() first");
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, clean, clean)
  const struct CMUnitTest tests[] = {
      TEST(without_a_node_it_tells_what_one_would_be),
      TEST(the_last_line_says_whether_all_is_well),
      TEST(a_conflict_and_a_slip_of_the_pen_are_problems),
      TEST(a_secret_is_never_told),
      TEST(the_master_is_reached_for_without_a_place_in_its_cluster),
      TEST(the_text_goes_where_there_is_room),
      TEST(a_node_of_one_has_no_peers),
      TEST(peers_of_one_process_are_told_with_their_transport),
      TEST(costs_are_measured_between_two_nodes_and_not_by_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
