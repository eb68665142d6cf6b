/* A rank of MPI. Operations: an allreduce of BYTES bytes of f32, "out" of place or "in" place. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "programs/batch.h"
#include "programs/ranks.h"

typedef struct worker {
  int in_place, ranks;
  uint64_t count, room;
  float *from, *to;
} worker;

static void expect_ok(int status, const char *doing) {
  if (status != MPI_SUCCESS) batch_fail("%s: status %d", doing, status);
}

/** Open MPI waits by polling, which would take the processors from the other programs during their turn, so longer waits sleep here, and
 * those between two batches longer still. */
static void tell(void *self, void *message, uint64_t bytes) {
  const double kLook = 0.002, kBatch = 0.02; /* seconds; within a batch messages follow each other faster */
  const struct timespec nap = {0, 200000}, long_nap = {0, 5000000};
  const double begun = batch_now();
  MPI_Request request;
  int done = 0;
  (void)self;
  expect_ok(MPI_Ibcast(message, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request), "MPI_Ibcast");
  while (!done) {
    expect_ok(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    const double waited = batch_now() - begun;
    if (!done && waited > kLook) nanosleep(waited > kBatch ? &long_nap : &nap, NULL);
  }
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  worker *w = self;
  w->in_place = strcmp(operation, "in") == 0;
  w->count = bytes / sizeof(float);
  if (bytes != w->room) {
    free(w->from);
    free(w->to);
    w->from = batch_memory(bytes);
    w->to = batch_memory(bytes);
    w->room = bytes;
  }
  ranks_fill(w->from, w->count);
  ranks_fill(w->to, w->count);
}

static void repeat(void *self, uint64_t times) {
  const worker *w = self;
  const void *from = w->in_place ? MPI_IN_PLACE : w->from;
  for (uint64_t i = 0; i < times; ++i) {
    expect_ok(MPI_Allreduce(from, w->to, (int)w->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
  }
}

static void check(void *self) {
  const worker *w = self;
  ranks_fill(w->to, w->count);
  repeat(self, 1);
  ranks_check(w->to, w->count, (float)w->ranks);
}

int main(int argc, char **argv) {
  expect_ok(MPI_Init(&argc, &argv), "MPI_Init");
  worker self = {0};
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
  ranks_serve(&(ranks_program){rank, self.ranks, tell, prepare, repeat, check, &self});
  expect_ok(MPI_Finalize(), "MPI_Finalize");
  return 0;
}
