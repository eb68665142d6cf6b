/* A rank of the group of all workers. Operations: an allreduce of BYTES bytes of f32, "out" of place or "in" place, in private memory,
 * or ("tensor-out", "tensor-in") in Polyverso's tensors; "many": in place, of 100 tensors that share BYTES evenly. */
#include <polyverso/polyverso.h>
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"
#include "programs/ranks.h"

enum { kMany = 100 };

typedef struct worker {
  mv_group group;
  int64_t ranks;
  int in_place, arrays;
  uint64_t count;
  mv_tensor tensors[kMany + 1];
  float *private_from, *private_to, *from, *to;
  mv_array each[kMany];
} worker;

static void expect_ok(mv_status status, const char *doing) {
  if (status != MV_OK) batch_fail("%s: %s: %s", doing, mv_status_name(status), mv_last_error());
}

static void tell(void *self, void *message, uint64_t bytes) {
  const worker *w = self;
  expect_ok(mv_broadcast(w->group, message, bytes, MV_RAW, 0, NULL), "mv_broadcast");
}

static float *make_tensor(worker *w, int place, uint64_t count) {
  const int64_t shape[] = {(int64_t)count};
  void *data = NULL;
  expect_ok(mv_tensor_create(MV_F32, shape, 1, &w->tensors[place]), "mv_tensor_create");
  expect_ok(mv_tensor_data(w->tensors[place], &data, NULL, NULL), "mv_tensor_data");
  ranks_fill(data, count);
  return data;
}

static void drop(worker *w) {
  for (int i = 0; i <= kMany; ++i) {
    if (w->tensors[i] != 0) expect_ok(mv_tensor_free(w->tensors[i]), "mv_tensor_free");
    w->tensors[i] = 0;
  }
  free(w->private_from);
  free(w->private_to);
  w->private_from = w->private_to = NULL;
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  worker *w = self;
  drop(w);
  const int in_tensors = strncmp(operation, "tensor-", 7) == 0;
  const char *const place = in_tensors ? operation + 7 : operation;
  w->arrays = strcmp(operation, "many") == 0 ? kMany : 1;
  w->in_place = strcmp(place, "out") != 0;
  w->count = bytes / sizeof(float) / (uint64_t)w->arrays;
  if (w->arrays > 1) {
    for (int i = 0; i < w->arrays; ++i) w->each[i] = (mv_array){make_tensor(w, i, w->count), w->count, MV_F32, 0};
    w->from = w->to = w->each[0].data;
  } else if (in_tensors) {
    w->from = make_tensor(w, 0, w->count);
    w->to = make_tensor(w, 1, w->count);
  } else {
    w->from = w->private_from = batch_memory(bytes);
    w->to = w->private_to = batch_memory(bytes);
    ranks_fill(w->from, w->count);
    ranks_fill(w->to, w->count);
  }
}

static void repeat(void *self, uint64_t times) {
  const worker *w = self;
  const float *from = w->in_place ? NULL : w->from;
  for (uint64_t i = 0; i < times; ++i) {
    if (w->arrays > 1) {
      expect_ok(mv_allreduce_many(w->group, NULL, w->each, kMany, MV_REDUCE_SUM, 0, NULL, NULL), "mv_allreduce_many");
    } else {
      expect_ok(mv_allreduce(w->group, from, w->to, w->count, MV_F32, MV_REDUCE_SUM, NULL), "mv_allreduce");
    }
  }
}

static void check(void *self) {
  const worker *w = self;
  ranks_fill(w->to, w->count);
  for (int i = 1; i < w->arrays; ++i) ranks_fill(w->each[i].data, w->count);
  repeat(self, 1);
  ranks_check(w->to, w->count, (float)w->ranks);
}

int main(void) {
  expect_ok(mv_init(NULL), "mv_init");
  worker self = {0};
  mv_group_info about = MV_GROUP_INFO_INIT;
  expect_ok(mv_group_open(0, NULL, 0, &self.group), "mv_group_open");
  expect_ok(mv_group_describe(self.group, &about), "mv_group_describe");
  self.ranks = about.ranks;
  ranks_serve(&(ranks_program){(int)about.rank, (int)about.ranks, tell, prepare, repeat, check, &self});
  drop(&self);
  expect_ok(mv_group_close(self.group), "mv_group_close");
  expect_ok(mv_shutdown(0), "mv_shutdown");
  return 0;
}
