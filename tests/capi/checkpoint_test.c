/* Checkpoints: saved tables are loaded, also by another number of nodes; damaged or mismatched files are refused. */
#define _XOPEN_SOURCE 700 /* nftw() */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nodes.h"

enum { kMostHere = 3, kRows = 40, kCols = 3, kKeys = 50 };

static char directory[] = "/tmp/polyverso-checkpoint-test-XXXXXX";

static int remove_one(const char* path, const struct stat* stat, int kind, struct FTW* walk) {
  (void)stat, (void)kind, (void)walk;
  return remove(path);
}

static const char* in(const char* name) {
  static __thread char path[3][256]; /* one thread per node */
  static __thread int next = 0;
  next = (next + 1) % 3;
  snprintf(path[next], sizeof(path[next]), "%s/%s", directory, name);
  return path[next];
}

static int exists(const char* path) {
  struct stat stat_of;
  return stat(path, &stat_of) == 0;
}

/* ------------------------------------------------------------ tables and their values */

struct tables {
  mv_table dense, half, sparse, keys;
};

static struct tables create_all(struct member* self) {
  struct tables all;
  expect_ok(mv_table_create_text(self->node, "kind=matrix rows=40 cols=3 name=dense updater=\"adagrad rate=0.5\"", NULL,
                                 0, MV_F32, &all.dense));
  expect_ok(mv_table_create_text(self->node, "size=40 dtype=f16", NULL, 0, MV_F32, &all.half));
  expect_ok(mv_table_create_text(self->node,
                                 "kind=sparse rows=1000000000000 cols=3 dtype=f64 name=sparse initial=7 staleness=2",
                                 NULL, 0, MV_F32, &all.sparse));
  expect_ok(mv_table_create_text(self->node, "kind=keyvalue cols=1 dtype=i64 name=keys", NULL, 0, MV_F32, &all.keys));
  return all;
}

static void add_ones(const struct tables* all) {
  float ones[kRows * kCols];
  uint16_t halves[kRows];
  for (int i = 0; i < kRows * kCols; ++i) ones[i] = (float)(1 + i % 3);
  for (int i = 0; i < kRows; ++i) halves[i] = 0x3c00; /* 1.0 */
  expect_ok(mv_table_add(all->dense, ones, kRows * kCols, MV_F32, NULL));
  expect_ok(mv_table_add(all->half, halves, kRows, MV_F16, NULL));
  for (int64_t key = 0; key < kKeys; ++key) {
    const int64_t id = key * key * 100003, value = key + 1;
    const double row[kCols] = {(double)key, 1, 2};
    expect_ok(mv_table_add_rows(all->sparse, &id, 1, row, kCols, MV_F64, NULL));
    const int64_t far = -id;
    expect_ok(mv_table_add_rows(all->keys, &far, 1, &value, 1, MV_I64, NULL));
  }
}

struct shown {
  float dense[kRows * kCols];
  uint16_t half[kRows];
  double sparse[kKeys * kCols];
  int64_t keys[kKeys];
  uint64_t stored, clock;
};

static struct shown read_all(const struct tables* all) {
  static const struct shown nothing;
  struct shown shown = nothing;
  int64_t ids[kKeys], far[kKeys];
  for (int64_t key = 0; key < kKeys; ++key) ids[key] = key * key * 100003, far[key] = -ids[key];
  expect_ok(mv_table_get(all->dense, shown.dense, kRows * kCols, MV_F32, NULL));
  expect_ok(mv_table_get(all->half, shown.half, kRows, MV_F16, NULL));
  expect_ok(mv_table_peek_rows(all->sparse, ids, kKeys, shown.sparse, kKeys * kCols, MV_F64, NULL));
  expect_ok(mv_table_get_rows(all->keys, far, kKeys, shown.keys, kKeys, MV_I64, NULL));
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(all->keys, &info));
  shown.stored = info.stored;
  expect_ok(mv_table_describe(all->sparse, &info));
  shown.clock = info.clock;
  return shown;
}

static struct shown at_save, one_more;

static void expect_shown(const struct shown* got, const struct shown* want) {
  assert_memory_equal(got->dense, want->dense, sizeof(got->dense));
  assert_memory_equal(got->half, want->half, sizeof(got->half));
  assert_memory_equal(got->sparse, want->sparse, sizeof(got->sparse));
  assert_memory_equal(got->keys, want->keys, sizeof(got->keys));
  assert_int_equal(got->stored, want->stored);
}

/* ------------------------------------------------------------ saving and loading */

static void save_twice(struct member* self) {
  const struct tables all = create_all(self);
  add_ones(&all);
  for (int i = 0; i < 5; ++i) expect_ok(mv_table_clock(all.sparse));
  expect_ok(mv_checkpoint_save(self->node, in("runs"), 2, NULL));
  if (self->index == 0) at_save = read_all(&all);
  expect_ok(mv_barrier(self->node, NULL));
  /* A change after an asynchronous save has begun is not in it. */
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = &request;
  expect_ok(mv_checkpoint_save(self->node, in("runs"), 2, &options));
  if (self->index == 0) add_ones(&all);
  expect_ok(mv_request_wait(request, 0));
  expect_ok(mv_barrier(self->node, NULL));
  if (self->index == 0) one_more = read_all(&all);
}

static void load_and_go_on(struct member* self) {
  expect_ok(mv_checkpoint_load(self->node, in("runs"), NULL));
  const struct tables all = create_all(self); /* opens the existing tables */
  const struct shown loaded = read_all(&all);
  expect_shown(&loaded, &at_save);
  assert_int_equal(loaded.clock, 5);
  expect_ok(mv_barrier(self->node, NULL));
  if (self->index == 0) add_ones(&all); /* the updater's states were loaded */
  expect_ok(mv_barrier(self->node, NULL));
  const struct shown after = read_all(&all);
  expect_shown(&after, &one_more);
}

static void load_into_others(struct member* self) {
  const struct tables all = create_all(self);
  const int64_t stranger = 4711 + self->index, value = 1;
  add_ones(&all);
  expect_ok(mv_table_add_rows(all.keys, &stranger, 1, &value, 1, MV_I64, NULL));
  for (int i = 0; i < 9; ++i) expect_ok(mv_table_clock(all.sparse));
  expect_ok(mv_checkpoint_load(self->node, in("runs/checkpoint-000001"), NULL));
  const struct shown loaded = read_all(&all);
  expect_shown(&loaded, &at_save);
  assert_int_equal(loaded.clock, 5);
}

static void a_checkpoint_is_loaded_on_any_number_of_nodes(void** state) {
  (void)state;
  run_nodes(2, NULL, save_twice);
  for (int nodes = 1; nodes <= kMostHere; ++nodes) run_nodes(nodes, NULL, load_and_go_on);
  run_nodes(3, NULL, load_into_others);
}

/* ------------------------------------------------------------ refusals */

static void refused(struct member* self) {
  mv_table table;
  expect_error(mv_checkpoint_load(self->node, in("nowhere"), NULL), MV_ENOTFOUND, "no such directory");
  expect_ok(mv_table_create_text(self->node, "kind=matrix rows=41 cols=3 name=dense", NULL, 0, MV_F32, &table));
  expect_error(mv_checkpoint_load(self->node, in("runs"), NULL), MV_EDISAGREE, "41 x 3");
  expect_error(mv_checkpoint_load(self->node, in("runs"), NULL), MV_EDISAGREE, "nothing was changed");
  mv_table other;
  expect_error(mv_table_open(self->node, "sparse", &other), MV_ENOTFOUND, "sparse");
  expect_error(mv_checkpoint_save(self->node, self->index == 0 ? in("a") : in("b"), 0, NULL), MV_EDISAGREE, "save to");
}

static void mismatched_checkpoints_are_refused(void** state) {
  (void)state;
  run_nodes(2, NULL, refused);
  assert_false(exists(in("a")) || exists(in("b")));
}

static void flip(const char* path, long at) {
  FILE* file = fopen(path, "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
  const int byte = fgetc(file);
  assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
  fputc(byte ^ 1, file);
  fclose(file);
}

static void load_damaged(struct member* self) {
  expect_error(mv_checkpoint_load(self->node, in("runs"), NULL), MV_EINVAL, "checksum");
}
static void load_incomplete(struct member* self) {
  expect_error(mv_checkpoint_load(self->node, in("runs/checkpoint-000002"), NULL), MV_EINVAL, "not completed");
  expect_ok(mv_checkpoint_load(self->node, in("runs"), NULL)); /* the previous one */
}

static void damaged_checkpoints_are_refused(void** state) {
  (void)state;
  static char text[1 << 16];
  uint64_t length = 0;
  expect_ok(mv_checkpoint_inspect(in("runs"), text, sizeof(text), &length));
  assert_true(length == strlen(text) && strstr(text, "\"damage\": []") != NULL &&
              strstr(text, "\"name\": \"sparse\"") != NULL);
  flip(in("runs/checkpoint-000002/server-1.safetensors"), -3);
  run_nodes(2, NULL, load_damaged);
  expect_ok(mv_checkpoint_inspect(in("runs/checkpoint-000002/server-1.safetensors"), text, sizeof(text), &length));
  assert_non_null(strstr(text, "is damaged"));
  assert_int_equal(remove(in("runs/checkpoint-000002/manifest.json")), 0);
  run_nodes(2, NULL, load_incomplete);
  expect_error(mv_checkpoint_inspect(in("nowhere"), NULL, 0, &length), MV_ENOTFOUND, "nowhere");
  expect_error(mv_checkpoint_inspect(NULL, NULL, 0, &length), MV_EINVAL, "path");
  expect_error(mv_checkpoint_save(0, "", 0, NULL), MV_EINVAL, "directory");
}

/* ------------------------------------------------------------ one node */

static void the_newest_stay_and_failures_leave_nothing(void** state) {
  (void)state;
  expect_ok(mv_init(NULL));
  mv_table table;
  expect_ok(mv_table_create_text(0, "size=100 name=w", NULL, 0, MV_F32, &table));
  for (int i = 0; i < 4; ++i) expect_ok(mv_checkpoint_save(0, in("kept"), 2, NULL));
  assert_true(!exists(in("kept/checkpoint-000002")) && exists(in("kept/checkpoint-000003/manifest.json")) &&
              exists(in("kept/checkpoint-000004/manifest.json")));
  FILE* file = fopen(in("file"), "w");
  fclose(file);
  expect_error(mv_checkpoint_save(0, in("file/in/a/file"), 2, NULL), MV_ESYSTEM, "file/in/a/file");
  expect_ok(mv_checkpoint_save(0, in("kept"), 0, NULL));
  assert_true(exists(in("kept/checkpoint-000005/manifest.json")) && exists(in("kept/checkpoint-000003")));
  expect_ok(mv_shutdown(0));
}

static void worker_0_saves_by_the_clock(void** state) {
  (void)state;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.checkpoint = in("clock");
  options.checkpoint_every_ms = 20;
  options.checkpoint_keep = 2;
  expect_ok(mv_init(&options));
  mv_table table;
  expect_ok(mv_table_create_text(0, "size=100 name=w", NULL, 0, MV_F32, &table));
  const char *second = "clock/checkpoint-000003/manifest.json", *third = "clock/checkpoint-000004/manifest.json";
  const struct timespec a_while = {0, 10000000};
  for (int i = 0; i < 1000 && !exists(in(second)) && !exists(in(third)); ++i) nanosleep(&a_while, NULL);
  expect_ok(mv_shutdown(0));
  assert_false(exists(in("clock/checkpoint-000001")));
  uint64_t length = 0;
  static char text[1 << 16];
  expect_ok(mv_checkpoint_inspect(in("clock"), text, sizeof(text), &length));
  assert_non_null(strstr(text, "\"damage\": []"));
}

static int make_directory(void** state) {
  (void)state;
  return mkdtemp(directory) == NULL;
}
static int remove_directory(void** state) {
  (void)state;
  return nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_checkpoint_is_loaded_on_any_number_of_nodes),
      cmocka_unit_test(mismatched_checkpoints_are_refused),
      cmocka_unit_test(damaged_checkpoints_are_refused),
      cmocka_unit_test(the_newest_stay_and_failures_leave_nothing),
      cmocka_unit_test(worker_0_saves_by_the_clock),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
