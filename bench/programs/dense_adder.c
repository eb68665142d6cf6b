/* One of several workers that add to a large table at the same time:  dense_adder BYTES ADDS
 * Each adds 1 to every element ADDS times. Worker 0 then checks the sum and writes {"seconds": s}. All workers stay until worker 0's
 * standard input ends, so that the server's memory can be measured. */
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "programs/batch.h"

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

/* `bytes` of ones in little memory, so that several such workers fit on a small machine: maps the same few pages again and again. */
static float *many_ones(uint64_t bytes) {
  enum { kRun = 2 << 20 };
  const int fd = memfd_create("ones", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kRun) != 0) batch_fail("memfd_create or ftruncate failed");
  char *all = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) batch_fail("no addresses for %llu bytes", (unsigned long long)bytes);
  for (uint64_t at = 0; at < bytes; at += kRun) {
    const uint64_t length = bytes - at < kRun ? bytes - at : kRun;
    if (mmap(all + at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) batch_fail("mmap");
  }
  close(fd);
  float *ones = (float *)all;
  for (uint64_t i = 0; i < (bytes < kRun ? bytes : kRun) / sizeof(float); ++i) ones[i] = 1;
  return ones;
}

static void check(mv_table table, uint64_t count, float wanted) {
  enum { kProbes = 1024 };
  for (uint64_t i = 0; i < kProbes; ++i) {
    const int64_t row = (int64_t)(i * (count - 1) / (kProbes - 1));
    float value = 0;
    expect_ok(mv_table_get_rows(table, &row, 1, &value, 1, MV_F32, NULL), "mv_table_get_rows");
    if (value != wanted) batch_fail("element %lld is %.9g, not %.9g", (long long)row, value, wanted);
  }
}

int main(int argc, char **argv) {
  if (argc != 3) batch_fail("usage: dense_adder BYTES ADDS");
  const uint64_t bytes = strtoull(argv[1], NULL, 10), count = bytes / sizeof(float);
  const long adds = strtol(argv[2], NULL, 10);
  const float *ones = many_ones(bytes);
  expect_ok(mv_init(NULL), "mv_init");
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.rows = count;
  mv_table table;
  expect_ok(mv_table_create(0, &spec, NULL, 0, MV_F32, &table), "mv_table_create");

  const double begun = batch_now();
  for (long i = 0; i < adds; ++i) expect_ok(mv_table_add(table, ones, count, MV_F32, NULL), "mv_table_add");
  expect_ok(mv_barrier(0, NULL), "mv_barrier");
  const double seconds = batch_now() - begun;

  int64_t workers = 0;
  int32_t is_master = 0;
  expect_ok(mv_num_workers(0, &workers), "mv_num_workers");
  expect_ok(mv_is_master(0, &is_master), "mv_is_master");
  if (is_master) {
    check(table, count, (float)(workers * adds));
    printf("{\"seconds\": %.6g}\n", seconds);
    fflush(stdout);
    while (getchar() != EOF) continue;
  }
  expect_ok(mv_barrier(0, NULL), "mv_barrier");
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
