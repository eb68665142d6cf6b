/* The effect of adds on the servers: each updater compared with its formula, in every kind of table, and changes of the updater. */
#include <math.h>
#include <stdio.h>

#include "nodes.h"

/* ------------------------------------------------------------ the formulas of the header, for one element */

struct element {
  double w, a, b; /* value, states */
};
typedef void (*step)(struct element* e, double g);

static void add(struct element* e, double g) { e->w += g; }
static void assign(struct element* e, double g) { e->w = g; }
static void sgd(struct element* e, double g) { e->w -= 0.25 * (g + 0.01 * e->w); }
static void momentum(struct element* e, double g) {
  e->a = 0.5 * e->a + (1 - 0.125) * (g + 0.01 * e->w);
  e->w -= 0.25 * e->a;
}
static void nesterov(struct element* e, double g) {
  e->a = 0.5 * e->a + g;
  e->w -= 0.25 * (g + 0.5 * e->a);
}
static void adagrad(struct element* e, double g) {
  g += 0.01 * e->w; /* weight decay is part of the gradient */
  e->a += g * g;
  e->w -= 0.25 * g / (sqrt(e->a) + 1e-3);
}
static void ftrl(struct element* e, double g) { /* McMahan et al., algorithm 1: a is z, b is n */
  const double sigma = (sqrt(e->b + g * g) - sqrt(e->b)) / 0.5;
  e->a += g - sigma * e->w;
  e->b += g * g;
  const double sign = e->a < 0 ? -1 : 1;
  e->w = fabs(e->a) <= 0.125 ? 0 : -(e->a - sign * 0.125) / ((0.75 + sqrt(e->b)) / 0.5 + 0.0625);
}

static const struct {
  const char* text;
  step model;
} updaters[] = {
    {"add", add},
    {"assign", assign},
    {"sgd rate=0.25 decay=0.01", sgd},
    {"momentum rate=0.25 momentum=0.5 dampening=0.125 decay=0.01", momentum},
    {"momentum rate=0.25 momentum=0.5 nesterov=1", nesterov},
    {"adagrad rate=0.25 epsilon=1e-3 decay=0.01", adagrad},
    {"ftrl alpha=0.5 beta=0.75 l1=0.125 l2=0.0625", ftrl},
};

static mv_table create_with(const char* spec, const char* updater) {
  char text[200];
  snprintf(text, sizeof(text), "%s updater=\"%s\"", spec, updater);
  return create_table(text);
}

static double gradient(int round, int i) { return ((round * 7 + i * 13) % 11 - 5) / 4.0; }

enum { kRows = 3, kCols = 5, kAll = kRows * kCols, kRounds = 30 };
static const char* const kinds[] = {"kind=matrix rows=3 cols=5", "kind=sparse rows=3 cols=5", "kind=keyvalue cols=5"};
static const int64_t rows[kRows] = {2, 0, 1};

static void every_updater_follows_its_formula(void** state) {
  (void)state;
  for (size_t u = 0; u < COUNT_OF(updaters); ++u) {
    for (size_t k = 0; k < COUNT_OF(kinds); ++k) {
      char spec[100];
      snprintf(spec, sizeof(spec), "%s dtype=f64", kinds[k]);
      const mv_table table = create_with(spec, updaters[u].text);
      struct element model[kAll] = {{0, 0, 0}};
      double given[kAll], got[kAll];
      for (int round = 0; round < kRounds; ++round) {
        const int touched = 1 + round % kRows; /* rows that are not named must not change */
        for (int i = 0; i < touched * kCols; ++i) updaters[u].model(&model[i], given[i] = gradient(round, i));
        expect_ok(mv_table_add_rows(table, rows, (uint64_t)touched, given, (uint64_t)(touched * kCols), MV_F64, NULL));
        expect_ok(mv_table_get_rows(table, rows, kRows, got, kAll, MV_F64, NULL));
        for (int i = 0; i < kAll; ++i) {
          if (fabs(got[i] - model[i].w) <= 1e-12 * (1 + fabs(model[i].w))) continue;
          fail_msg("%s, %s, round %d, element %d: %.17g, the formula says %.17g", updaters[u].text, kinds[k], round, i,
                   got[i], model[i].w);
        }
      }
    }
  }
}

static void narrower_floats_do_so_in_their_precision(void** state) {
  (void)state;
  for (size_t u = 0; u < COUNT_OF(updaters); ++u) {
    const mv_table table = create_with("size=5", updaters[u].text);
    struct element model[kCols] = {{0, 0, 0}};
    float given[kCols], got[kCols];
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kCols; ++i) updaters[u].model(&model[i], given[i] = (float)gradient(round, i));
      expect_ok(mv_table_add(table, given, kCols, MV_F32, NULL));
    }
    expect_ok(mv_table_get(table, got, kCols, MV_F32, NULL));
    for (int i = 0; i < kCols; ++i) assert_true(fabs(got[i] - model[i].w) <= 1e-4 * (1 + fabs(model[i].w)));
  }
  /* Servers keep f16 as f32, so steps too small for f16 add up. */
  const mv_table half = create_table("size=1 dtype=f16 updater=\"sgd rate=0.0001\"");
  const uint16_t one = 0x3c00;
  uint16_t got = 0;
  expect_ok(mv_table_set(half, &one, 1, MV_F16, NULL));
  for (int i = 0; i < 1000; ++i) expect_ok(mv_table_add(half, &one, 1, MV_F16, NULL));
  expect_ok(mv_table_get(half, &got, 1, MV_F16, NULL));
  assert_true(got >= 0x3b32 && got <= 0x3b34); /* 0.9 */
}

static void repeated_rows_are_one_gradient(void** state) {
  (void)state;
  for (size_t k = 0; k < COUNT_OF(kinds); ++k) {
    const mv_table table = create_with(kinds[k], "adagrad rate=1 epsilon=1e-30");
    const int64_t twice[2] = {1, 1};
    const float given[2 * kCols] = {1, 1, 1, 1, 1, 3, 3, 3, 3, 3};
    float got[kCols];
    expect_ok(mv_table_add_rows(table, twice, 2, given, 2 * kCols, MV_F32, NULL));
    expect_ok(mv_table_get_rows(table, twice, 1, got, kCols, MV_F32, NULL));
    for (int i = 0; i < kCols; ++i)
      assert_true(got[i] == -1); /* 4 / sqrt(16); one after the other would give -1 - 3 / sqrt(10) */
  }
}

static void set_passes_by_the_updater(void** state) {
  (void)state;
  const mv_table table = create_table("size=1 updater=\"momentum rate=1 momentum=1\"");
  const float one = 1, ten = 10;
  float got = 0;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL));
  expect_ok(mv_table_set(table, &ten, 1, MV_F32, NULL));
  expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL));
  expect_ok(mv_table_get(table, &got, 1, MV_F32, NULL));
  assert_true(got == 10 - 2); /* the velocity was kept */
}

/* ------------------------------------------------------------ changes of the updater */

static void expect_updater(mv_table table, const char* text) {
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(table, &info));
  assert_string_equal(info.updater, text);
}

static void new_parameters_keep_the_states(void** state) {
  (void)state;
  const mv_table table = create_table("size=1 updater=\"momentum rate=1 momentum=1\"");
  const float one = 1;
  float got = 0;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL)); /* v = 1 */
  expect_ok(mv_table_set_updater(table, "momentum rate=0.5 momentum=1", NULL));
  expect_updater(table, "momentum rate=0.5 momentum=1 dampening=0 nesterov=0 decay=0");
  expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL)); /* v = 2 */
  expect_ok(mv_table_get(table, &got, 1, MV_F32, NULL));
  assert_true(got == -1 - 0.5f * 2);
  expect_ok(mv_table_set_updater(table, "add", NULL));
  expect_ok(mv_table_set_updater(table, "momentum rate=1 momentum=1", NULL)); /* the other updater zeroed it */
  expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL));
  expect_ok(mv_table_get(table, &got, 1, MV_F32, NULL));
  assert_true(got == -2 - 1);
}

static void a_change_comes_after_earlier_adds(void** state) {
  (void)state;
  const mv_table table = create_table("kind=keyvalue");
  const int64_t key = 5;
  const float one = 1, seven = 7;
  float got = 0;
  mv_request request = 0;
  mv_call_options forget = MV_CALL_OPTIONS_INIT, async = MV_CALL_OPTIONS_INIT;
  forget.flags = MV_FORGET;
  async.flags = MV_ASYNC;
  async.request = &request;
  for (int i = 0; i < 100; ++i) expect_ok(mv_table_add_rows(table, &key, 1, &one, 1, MV_F32, &forget));
  expect_ok(mv_table_set_updater(table, "assign", &async));
  expect_ok(mv_table_add_rows(table, &key, 1, &seven, 1, MV_F32, &forget));
  expect_ok(mv_request_wait(request, 0));
  expect_ok(mv_barrier(0, NULL));
  expect_ok(mv_table_get_rows(table, &key, 1, &got, 1, MV_F32, NULL));
  assert_true(got == 7);
  expect_error(mv_table_set_updater(table, "add", &forget), MV_EINVAL, "adds only");
}

static void what_is_no_updater_is_refused(void** state) {
  (void)state;
  const mv_table table = create_table("size=1"), whole = create_table("size=1 dtype=i64");
  static const struct {
    const char *text, *part;
  } wrong[] = {
      {"sdg", "sgd"},           {"sgd speed=1", "rate"},           {"sgd rate", "rate"},   {"sgd rate=fast", "rate"},
      {"sgd rate=nan", "rate"}, {"sgd rate=0.1 rate=0.2", "rate"}, {"add rate=1", "rate"}, {"rate=1", "rate"}};
  mv_table made = 77;
  for (size_t i = 0; i < COUNT_OF(wrong); ++i) {
    expect_error(mv_table_set_updater(table, wrong[i].text, NULL), MV_EINVAL, wrong[i].part);
    mv_table_spec spec = MV_TABLE_SPEC_INIT;
    spec.rows = 1;
    spec.updater = wrong[i].text;
    expect_error(mv_table_create(0, &spec, NULL, 0, MV_F32, &made), MV_EINVAL, wrong[i].part);
  }
  assert_int_equal(made, 77);
  expect_error(mv_table_set_updater(whole, "sgd rate=0.5", NULL), MV_EINVAL, "i64");
  expect_error(mv_table_set_updater(table, NULL, NULL), MV_EINVAL, "updater is NULL");
  expect_error(mv_table_set_updater(12345, "add", NULL), MV_EHANDLE, "12345");
  expect_updater(table, "add");
  expect_ok(mv_table_set_updater(whole, "assign", NULL));
  expect_ok(mv_table_set_updater(table, "  sgd\trate=1e-3 ", NULL));
  expect_updater(table, "sgd rate=0.001 decay=0");
  expect_ok(mv_table_set_updater(table, "", NULL));
  expect_updater(table, "add");
}

/* ------------------------------------------------------------ delay compensation */

static void dcasgd_compensates_what_changed_since_the_last_get(void** state) {
  (void)state;
  for (size_t k = 0; k < COUNT_OF(kinds); ++k) {
    char spec[100];
    snprintf(spec, sizeof(spec), "%s dtype=f64", kinds[k]);
    const mv_table table = create_with(spec, "dcasgd rate=0.5 lambda=0.25");
    const double g[kCols] = {1, -2, 3, 0.5, 0};
    double got[kCols], w[kCols] = {1, 1, 1, 1, 1};
    expect_ok(mv_table_set_rows(table, rows, 1, w, kCols, MV_F64, NULL)); /* gets of rows not stored are not recorded */
    expect_ok(mv_table_get_rows(table, rows, 1, got, kCols, MV_F64, NULL));
    double b[kCols];
    memcpy(b, got, sizeof(b));
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < kCols; ++i) w[i] -= 0.5 * (g[i] + 0.25 * g[i] * g[i] * (w[i] - b[i]));
      expect_ok(mv_table_add_rows(table, rows, 1, g, kCols, MV_F64, NULL));
    }
    expect_ok(mv_table_get_rows(table, rows, 1, got, kCols, MV_F64, NULL));
    for (int i = 0; i < kCols; ++i) assert_true(fabs(got[i] - w[i]) < 1e-12);
  }
}

static void dcasgd_may_scale_by_the_mean_square(void** state) {
  (void)state;
  const mv_table table =
      create_table("size=1 dtype=f64 updater=\"dcasgd rate=0.5 lambda=0.25 mean_square=0.75 epsilon=1e-3\"");
  double w = 0, b = 0, m = 0, got = 0;
  expect_ok(mv_table_get(table, &got, 1, MV_F64, NULL));
  for (int round = 0; round < 10; ++round) {
    const double g = gradient(round, 1);
    m = 0.75 * m + 0.25 * g * g;
    w -= 0.5 * (g + 0.25 / sqrt(m + 1e-3) * g * g * (w - b));
    expect_ok(mv_table_add(table, &g, 1, MV_F64, NULL));
    if (round % 3 != 0) continue;
    expect_ok(mv_table_get(table, &got, 1, MV_F64, NULL));
    b = w;
    assert_true(fabs(got - w) < 1e-12);
  }
}

/** Worker 0 gets, then worker 1 gets and adds, then worker 0 adds: the compensation uses worker 0's get, not worker 1's. */
static void take_turns(struct member* self) {
  const mv_table table = create_on(self, "size=7 dtype=f64 name=w updater=\"dcasgd rate=0.5 lambda=0.25\"");
  double g[7], got[7];
  for (int i = 0; i < 7; ++i) g[i] = i - 2;
  if (self->index == 0) expect_ok(mv_table_get(table, got, 7, MV_F64, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  if (self->index == 1) {
    expect_ok(mv_table_get(table, got, 7, MV_F64, NULL));
    expect_ok(mv_table_add(table, g, 7, MV_F64, NULL));
  }
  expect_ok(mv_barrier(self->node, NULL));
  if (self->index == 0) expect_ok(mv_table_add(table, g, 7, MV_F64, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_table_get(table, got, 7, MV_F64, NULL));
  for (int i = 0; i < 7; ++i) {
    const double after_one = -0.5 * g[i];
    assert_true(fabs(got[i] - (after_one - 0.5 * (g[i] + 0.25 * g[i] * g[i] * after_one))) < 1e-12);
  }
}
static void each_worker_has_its_own_backup(void** state) {
  (void)state;
  run_nodes(3, NULL, take_turns);
}

/** Every worker changes the updater in turn; all adds go through the updater that is set on all servers. */
static void change_together(struct member* self) {
  const mv_table dense = create_on(self, "size=1000 name=d"), keys = create_on(self, "kind=keyvalue name=k");
  float ones[1000], got[1000];
  int64_t ids[1000];
  for (int i = 0; i < 1000; ++i) {
    ones[i] = 1;
    ids[i] = i * 7919;
  }
  float expected = 0;
  for (int turn = 0; turn < self->nodes; ++turn) {
    char text[50];
    snprintf(text, sizeof(text), "sgd rate=%d", turn + 1);
    if (self->index == turn) {
      expect_ok(mv_table_set_updater(dense, text, NULL));
      expect_ok(mv_table_set_updater(keys, text, NULL));
    }
    expect_ok(mv_barrier(self->node, NULL));
    expect_ok(mv_table_add(dense, ones, 1000, MV_F32, NULL));
    expect_ok(mv_table_add_rows(keys, ids, 1000, ones, 1000, MV_F32, NULL));
    expect_ok(mv_barrier(self->node, NULL));
    expected -= (float)(self->nodes * (turn + 1));
    expect_ok(mv_table_get(dense, got, 1000, MV_F32, NULL));
    for (int i = 0; i < 1000; ++i) assert_true(got[i] == expected);
    expect_ok(mv_table_get_rows(keys, ids, 1000, got, 1000, MV_F32, NULL));
    for (int i = 0; i < 1000; ++i) assert_true(got[i] == expected);
    expect_ok(mv_barrier(self->node, NULL));
  }
}
static void one_worker_changes_the_updater_of_all_servers(void** state) {
  (void)state;
  run_nodes(3, NULL, change_together);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_ALONE(every_updater_follows_its_formula),
      TEST_ALONE(narrower_floats_do_so_in_their_precision),
      TEST_ALONE(repeated_rows_are_one_gradient),
      TEST_ALONE(set_passes_by_the_updater),
      TEST_ALONE(new_parameters_keep_the_states),
      TEST_ALONE(a_change_comes_after_earlier_adds),
      TEST_ALONE(what_is_no_updater_is_refused),
      TEST_ALONE(dcasgd_compensates_what_changed_since_the_last_get),
      TEST_ALONE(dcasgd_may_scale_by_the_mean_square),
      cmocka_unit_test(each_worker_has_its_own_backup),
      cmocka_unit_test(one_worker_changes_the_updater_of_all_servers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
