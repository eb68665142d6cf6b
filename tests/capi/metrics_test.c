/* A node's metrics and traces. tests/cluster reads them with Prometheus's own parser, and over HTTP. */
#include <stdlib.h>

#include "expect.h"
#include "nodes.h"

typedef mv_status (*text_function)(mv_node node, char* text, uint64_t capacity, uint64_t* length);

/* The whole text; the caller frees it. */
static char* text_of(text_function function, mv_node node) {
  uint64_t length = 0, capacity = 0;
  char* text = NULL;
  do {
    capacity = length + 1;
    text = realloc(text, capacity);
    assert_non_null(text);
    expect_ok(function(node, text, capacity, &length));
  } while (length >= capacity);
  assert_int_equal(strlen(text), length);
  return text;
}

static void expect_in(text_function function, mv_node node, const char* part) {
  char* text = text_of(function, node);
  if (strstr(text, part) == NULL) print_error("%s\n  is not in\n%s\n", part, text);
  assert_non_null(strstr(text, part));
  free(text);
}

static mv_status text_of_status(mv_node node, char* text, uint64_t capacity, uint64_t* length) {
  return mv_status_text(node, MV_JSON, text, capacity, length);
}

static void local_calls_are_counted_by_kind_and_way(void** state) {
  (void)state;
  const mv_table table = create_table("name=w size=4");
  const float ones[4] = {1, 1, 1, 1};
  const int64_t row = 2;
  float values[4];
  for (int i = 0; i < 3; ++i) expect_ok(mv_table_add(table, ones, 4, MV_F32, NULL));
  expect_ok(mv_table_add_rows(table, &row, 1, ones, 1, MV_F32, NULL));
  expect_ok(mv_table_get(table, values, 4, MV_F32, NULL));
  expect_ok(mv_table_peek(table, values, 4, MV_F32, NULL));
  expect_ok(mv_table_set(table, ones, 4, MV_F32, NULL));
  expect_error(mv_table_add(table, ones, 3, MV_F32, NULL), MV_ESHAPE, "");
  expect_in(mv_metrics_text, 0, "polyverso_table_calls_total{table=\"w\",call=\"add\",path=\"local\"} 4\n");
  expect_in(mv_metrics_text, 0, "polyverso_table_call_bytes_total{table=\"w\",call=\"add\",path=\"local\"} 52\n");
  expect_in(mv_metrics_text, 0, "polyverso_table_calls_total{table=\"w\",call=\"peek\",path=\"local\"} 1\n");
  expect_in(mv_metrics_text, 0, "polyverso_table_calls_total{table=\"w\",call=\"set\",path=\"local\"} 1\n");
  expect_in(mv_metrics_text, 0, "polyverso_table_stored_rows{table=\"w\"} 4\n");
  expect_ok(mv_table_close(table)); /* a closed handle's calls stay counted */
  mv_table again = 0;
  expect_ok(mv_table_open(0, "w", &again));
  expect_ok(mv_table_get(again, values, 4, MV_F32, NULL));
  expect_in(mv_metrics_text, 0, "polyverso_table_calls_total{table=\"w\",call=\"get\",path=\"local\"} 2\n");
}

static void a_cut_text_says_how_long_it_is(void** state) {
  (void)state;
  const text_function functions[] = {mv_metrics_text, mv_trace_text};
  mv_node node = 0;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.text = "trace_events=10";
  expect_ok(mv_node_open(&options, &node));
  for (size_t i = 0; i < COUNT_OF(functions); ++i) {
    uint64_t length = 0;
    char small[8];
    expect_ok(functions[i](node, NULL, 0, &length));
    assert_true(length > sizeof small);
    expect_ok(functions[i](node, small, sizeof small, &length));
    assert_int_equal(strlen(small), sizeof small - 1);
    expect_error(functions[i](node, NULL, 5, &length), MV_EINVAL, "text is NULL");
    expect_error(functions[i](node, small, 5, NULL), MV_EINVAL, "length is NULL");
  }
  expect_ok(mv_shutdown(node));
}

static void no_events_are_kept_when_tracing_is_off(void** state) {
  (void)state;
  uint64_t length = 0;
  expect_ok(mv_init(NULL));
  expect_error(mv_trace_text(0, NULL, 0, &length), MV_ESTATE, "trace_events");
  expect_ok(mv_metrics_text(0, NULL, 0, &length));
  expect_ok(mv_shutdown(0));
}

static void use_and_look(struct member* self) {
  const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  float values[8];
  const mv_table table = create_on(self, "name=shared size=8 staleness=0");
  for (int i = 0; i < 5; ++i) {
    expect_ok(mv_table_add(table, ones, 8, MV_F32, NULL));
    expect_ok(mv_table_get(table, values, 8, MV_F32, NULL));
  }
  expect_ok(mv_barrier(self->node, NULL));
  expect_in(mv_metrics_text, self->node, "polyverso_table_calls_total{table=\"shared\",call=\"get\",path=\"message\"} 5\n");
  expect_in(mv_metrics_text, self->node, "polyverso_call_seconds_count{call=\"get\"} 5\n");
  expect_in(mv_metrics_text, self->node, "polyverso_gate_wait_seconds_count{request=\"get\"} 10\n");
  expect_in(mv_metrics_text, self->node, "polyverso_members{state=\"here\"} 2\n");
  char peer[96];
  snprintf(peer, sizeof peer, "polyverso_peer_received_messages_total{peer=\"%d\",transport=\"inproc\"}", 1 - self->index);
  expect_in(mv_metrics_text, self->node, peer);
  snprintf(peer, sizeof peer, "\"to worker %d (rank %d)\"", 1 - self->index, 1 - self->index);
  expect_in(mv_trace_text, self->node, peer);
  expect_in(mv_trace_text, self->node, "\"cat\": \"gate\"");
  expect_in(mv_trace_text, self->node, "\"cat\": \"call\"");
  expect_ok(mv_barrier(self->node, NULL));
}

static void members_report_each_other(void** state) {
  (void)state;
  run_nodes(2, "trace_events=1000", use_and_look);
}

static void a_programs_numbers_are_shown_by_name(void** state) {
  (void)state;
  char name[300];
  expect_ok(mv_report(0, "loss", 0.5));
  expect_ok(mv_report(0, "loss", 0.25)); /* the latest counts */
  expect_ok(mv_report(0, "a \"b\"\n\x1b[31m", 1e300 * 1e10));
  expect_in(mv_metrics_text, 0, "polyverso_reported{name=\"loss\"} 0.25\n");
  expect_in(mv_metrics_text, 0, "polyverso_reported{name=\"a \\\"b\\\"\\n\x1b[31m\"} +Inf\n");
  expect_in(text_of_status, 0, "\"name\":\"loss\",\"value\":0.25,\"count\":2,");
  expect_in(text_of_status, 0, "\"value\":null,\"count\":1,");
  expect_error(mv_report(0, NULL, 1), MV_EINVAL, "name is NULL");
  expect_error(mv_report(0, "", 1), MV_EINVAL, "the number's name is empty");
  expect_error(mv_report(0, "\xff", 1), MV_EINVAL, "UTF-8");
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  expect_error(mv_report(0, name, 1), MV_EINVAL, "the limit is 255");
  for (int i = 2; i < 64; ++i) {
    snprintf(name, sizeof name, "number %d", i);
    expect_ok(mv_report(0, name, i));
  }
  expect_error(mv_report(0, "one more", 1), MV_EINVAL, "at most 64");
  expect_ok(mv_report(0, "loss", 0.125));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_ALONE(local_calls_are_counted_by_kind_and_way),
      TEST_ALONE(a_cut_text_says_how_long_it_is),
      TEST_ALONE(a_programs_numbers_are_shown_by_name),
      cmocka_unit_test(no_events_are_kept_when_tracing_is_off),
      cmocka_unit_test(members_report_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
