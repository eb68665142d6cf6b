/* A worker that saves its large table, or adds to it:  checkpointer BYTES
 * Once the table exists, it writes {"ready": true}. Then each line of standard input is one command,
 *
 *     save DIRECTORY     {"seconds": s}: until it is complete and on the disk, without other work
 *     train DIRECTORY    {"seconds": s, "call": c, "longest": l, "before": b, "adds": n}: while adding rows
 *     add FILE           {"longest": l, "adds": n}: adds rows until there is such a file
 *
 * In seconds: "call" is the duration of the save call, after which training may continue; "longest" is the longest add from then to the
 * end of the save; "before" is the longest add in an equally long period before it. */
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/batch.h"

enum { kCols = 256, kRowsAtOnce = 64 };

static mv_table table;
static uint64_t rows;
static float values[kRowsAtOnce * kCols];

static void expect_ok(mv_status status, const char* doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

/* Adds to scattered rows, each in another stripe, of which the checkpoint has to keep a copy. */
static double add_once(void) {
  static uint64_t state = 88172645463325252u;
  int64_t ids[kRowsAtOnce];
  for (int i = 0; i < kRowsAtOnce; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    ids[i] = (int64_t)(state % rows);
  }
  const double begun = batch_now();
  expect_ok(mv_table_add_rows(table, ids, kRowsAtOnce, values, kRowsAtOnce * kCols, MV_F32, NULL), "mv_table_add_rows");
  return batch_now() - begun;
}

static void save(const char* directory) {
  const double begun = batch_now();
  expect_ok(mv_checkpoint_save(0, directory, 0, NULL), "mv_checkpoint_save");
  printf("{\"seconds\": %.6g}\n", batch_now() - begun);
}

static void train(const char* directory) {
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = &request;
  static double last = 1;
  double before = 0, longest = 0;
  for (const double until = batch_now() + last; batch_now() < until;) {
    const double took = add_once();
    if (took > before) before = took;
  }
  const double begun = batch_now();
  expect_ok(mv_checkpoint_save(0, directory, 0, &options), "mv_checkpoint_save");
  const double call = batch_now() - begun;
  unsigned long adds = 0;
  for (int32_t done = 0; !done; ++adds) {
    const double took = add_once();
    if (took > longest) longest = took;
    expect_ok(mv_request_test(request, &done), "the checkpoint");
  }
  last = batch_now() - begun;
  printf("{\"seconds\": %.6g, \"call\": %.6g, \"longest\": %.6g, \"before\": %.6g, \"adds\": %lu}\n", last, call,
         longest, before, adds);
}

static void add_until(const char* file) {
  double longest = 0;
  unsigned long adds = 0;
  while (access(file, F_OK) != 0) {
    const double took = add_once();
    if (took > longest) longest = took;
    ++adds;
  }
  printf("{\"longest\": %.6g, \"adds\": %lu}\n", longest, adds);
}

int main(int argc, char** argv) {
  if (argc != 2) batch_fail("usage: checkpointer BYTES");
  rows = strtoull(argv[1], NULL, 10) / (kCols * sizeof(float));
  for (int i = 0; i < kRowsAtOnce * kCols; ++i) values[i] = 1;
  expect_ok(mv_init(NULL), "mv_init");
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.kind = MV_MATRIX;
  spec.rows = rows;
  spec.cols = kCols;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), "mv_table_create");
  float* block = batch_memory(1024 * kCols * sizeof(float));
  memset(block, 0x3f, 1024 * kCols * sizeof(float));
  for (uint64_t first = 0; first < rows; first += 1024) { /* touches every page */
    int64_t ids[1024];
    uint64_t count = rows - first < 1024 ? rows - first : 1024;
    for (uint64_t i = 0; i < count; ++i) ids[i] = (int64_t)(first + i);
    expect_ok(mv_table_set_rows(table, ids, count, block, count * kCols, MV_F32, NULL), "mv_table_set_rows");
  }
  free(block);
  printf("{\"ready\": true}\n");
  fflush(stdout);
  char line[4096];
  while (fgets(line, sizeof(line), stdin)) {
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "save ", 5) == 0) {
      save(line + 5);
    } else if (strncmp(line, "train ", 6) == 0) {
      train(line + 6);
    } else if (strncmp(line, "add ", 4) == 0) {
      add_until(line + 4);
    } else {
      batch_fail("not a command: %s", line);
    }
    fflush(stdout);
  }
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
