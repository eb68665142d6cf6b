/* Groups of ranks of this process, each with a device of its own: all-reduces between the devices, which are emulated.
 * tests/cluster/nccl_test.py has processes that are killed. */
#include <dlfcn.h>
#include <stdlib.h>

#include "nodes.h"

enum { kCount = 50000 };

/** A tensor of equal values on the device of this rank, and its memory. */
struct there {
  mv_tensor tensor;
  float* data;
};
static struct there there_of(const struct member* self, float value) {
  const int64_t shape[] = {kCount};
  struct there made = {0, NULL};
  uint64_t address = 0;
  expect_ok(mv_tensor_create_on(self->index % 2, MV_F32, shape, 1, &made.tensor));
  expect_ok(mv_tensor_fill(made.tensor, value));
  expect_ok(mv_tensor_address(made.tensor, &address));
  made.data = (float*)(uintptr_t)address;
  return made;
}
static void expect_all(struct there array, float value) {
  mv_tensor here = 0;
  void* data = NULL;
  expect_ok(mv_tensor_to(array.tensor, MV_HOST, &here));
  expect_ok(mv_tensor_data(here, &data, NULL, NULL));
  for (int i = 0; i < kCount; ++i) assert_true(((const float*)data)[i] == value);
  expect_ok(mv_tensor_free(here));
}
static void expect_and_free(struct there array, float value) {
  expect_all(array, value);
  expect_ok(mv_tensor_free(array.tensor));
}

static mv_group open_all(const struct member* self) {
  mv_group group = 0;
  expect_ok(mv_group_open(self->node, NULL, 0, &group));
  return group;
}
static void expect_collective(mv_group group, const char* by, const char* why) {
  mv_group_info info = MV_GROUP_INFO_INIT;
  expect_ok(mv_group_describe(group, &info));
  assert_string_equal(info.collective, by);
  if (strstr(info.collective_why, why) == NULL) fail_msg("\"%s\" lacks \"%s\"", info.collective_why, why);
}

static void reduce(struct member* self) {
  const mv_group group = open_all(self);
  const struct there in = there_of(self, (float)self->index + 1), out = there_of(self, 0);
  expect_collective(group, "own", "NCCL is tried");
  expect_ok(mv_allreduce(group, in.data, out.data, kCount, MV_F32, MV_REDUCE_SUM, NULL));
  expect_collective(group, "nccl", "emulated NCCL 1.0 reduces arrays on devices from 64 KiB on");
  expect_all(in, (float)self->index + 1);
  expect_all(out, 3);
  expect_ok(mv_allreduce(group, NULL, out.data, kCount, MV_F32, MV_REDUCE_PROD, NULL));
  expect_all(out, 9);
  expect_ok(mv_allreduce(group, in.data, out.data, kCount, MV_F32, MV_REDUCE_MAX, NULL)); /* by the host */
  expect_all(out, 2);

  uint64_t contributors = 0;
  const mv_array arrays[] = {{in.data, kCount, MV_F32, 0}, {out.data, 10, MV_F32, 0}, {NULL, 0, MV_F64, 0}};
  expect_ok(mv_allreduce_many(group, NULL, arrays, 3, MV_REDUCE_AVG, 0, &contributors, NULL));
  assert_int_equal(contributors, 2);
  expect_all(in, 1.5F);
  expect_error(mv_allreduce(group, in.data, in.data + 1, kCount - 1, MV_F32, MV_REDUCE_SUM, NULL), MV_EINVAL, "overlap");
  expect_error(mv_allreduce(group, NULL, in.data, kCount, MV_RAW, MV_REDUCE_SUM, NULL), MV_EDTYPE, "can't be reduced");
  expect_ok(mv_tensor_free(in.tensor));
  expect_ok(mv_tensor_free(out.tensor));
  expect_ok(mv_group_close(group));
}

static void ranks_of_one_process_reduce_between_devices(void** state) {
  (void)state;
  run_nodes(2, NULL, reduce);
  run_nodes(2, "collective=nccl", reduce);
}

static void do_not_block(struct member* self) {
  enum { kRequests = 20 };
  const mv_group group = open_all(self);
  struct there arrays[kRequests];
  mv_request requests[kRequests];
  double small = 1;
  for (int i = 0; i < kRequests; ++i) {
    arrays[i] = there_of(self, (float)(self->index + i));
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.flags = MV_ASYNC;
    options.request = &requests[i];
    expect_ok(mv_allreduce(group, NULL, arrays[i].data, kCount, MV_F32, MV_REDUCE_SUM, &options));
  }
  expect_ok(mv_allreduce(group, NULL, &small, 1, MV_F64, MV_REDUCE_SUM, NULL)); /* after all others */
  assert_true(small == 2);
  for (int i = kRequests; i-- > 0;) expect_ok(mv_request_wait(requests[i], 0));
  for (int i = 0; i < kRequests; ++i) expect_and_free(arrays[i], (float)(2 * i + 1));
  expect_collective(group, "nccl", "emulated");
  expect_ok(mv_group_close(group));
}
static void requests_end_in_the_order_of_the_calls(void** state) {
  (void)state;
  run_nodes(2, NULL, do_not_block);
}

/** Rank 0 runs out of data after one step, and rank 1 after three. */
static void drain(struct member* self) {
  const mv_group group = open_all(self);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int step = 0; step < 1 + 2 * self->index; ++step) {
      const struct there array = there_of(self, 4);
      uint64_t contributors = 0;
      const mv_array arrays[] = {{array.data, kCount, MV_F32, 0}};
      expect_ok(mv_allreduce_many(group, NULL, arrays, 1, MV_REDUCE_AVG, 0, &contributors, NULL));
      assert_int_equal(contributors, step == 0 ? 2 : 1);
      expect_and_free(array, 4);
    }
    expect_ok(mv_allreduce_zeros(group, NULL));
  }
  expect_collective(group, "nccl", "emulated");
  expect_ok(mv_group_close(group));
}
static void ranks_that_drain_take_part_through_the_host(void** state) {
  (void)state;
  run_nodes(2, NULL, drain);
}

static void give_up(struct member* self) {
  const mv_group group = open_all(self);
  mv_group smaller = 0;
  const struct there array = there_of(self, 1);
  expect_ok(mv_allreduce(group, NULL, array.data, kCount, MV_F32, MV_REDUCE_SUM, NULL));
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.timeout_ms = 300;
  expect_error(mv_allreduce(group, NULL, array.data, kCount, MV_F32, MV_REDUCE_SUM, &options), MV_ETIMEOUT,
               "emulated NCCL 1.0 has not ended an all-reduce that all ranks have begun");
  expect_error(mv_allreduce(group, NULL, array.data, kCount, MV_F32, MV_REDUCE_SUM, NULL), MV_ETIMEOUT, "mv_group_shrink()");
  expect_ok(mv_group_shrink(group, NULL, &smaller));
  expect_ok(mv_tensor_fill(array.tensor, 5));
  expect_ok(mv_allreduce(smaller, NULL, array.data, kCount, MV_F32, MV_REDUCE_SUM, NULL));
  expect_and_free(array, 10);
  expect_collective(smaller, "nccl", "emulated");
  expect_ok(mv_group_close(smaller));
  expect_ok(mv_group_close(group));
}
static void a_deadline_aborts_and_a_new_group_goes_on(void** state) {
  (void)state;
  /* After the first one of each rank: the number counts all of the process. */
  void* const plugin = dlopen(getenv("POLYVERSO_DEVICE_PLUGIN"), RTLD_NOW);
  int64_t (*reductions)(void) = NULL;
  char setting[40];
  assert_non_null(plugin);
  *(void**)&reductions = dlsym(plugin, "emulation_reductions");
  assert_non_null(reductions);
  snprintf(setting, sizeof(setting), "comm_stall=%d", (int)reductions() + 2);
  setenv("POLYVERSO_EMULATION", setting, 1);
  run_nodes(2, NULL, give_up);
  unsetenv("POLYVERSO_EMULATION");
}

static void end_with_requests(struct member* self) {
  const mv_group group = open_all(self);
  const struct there array = there_of(self, 1), other = there_of(self, 1);
  mv_request requests[2];
  const struct there* const both[] = {&array, &other};
  for (int i = 0; i < 2; ++i) {
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.flags = MV_ASYNC;
    options.request = &requests[i];
    expect_ok(mv_allreduce(group, NULL, both[i]->data, kCount, MV_F32, MV_REDUCE_SUM, &options));
  }
  expect_ok(mv_group_close(group)); /* others may not have begun: the requests end, one way or another */
  for (int i = 0; i < 2; ++i) {
    const mv_status ended = mv_request_wait(requests[i], 0);
    assert_true(ended == MV_OK || ended == MV_ESTATE || ended == MV_EPEERLOST);
  }
  expect_ok(mv_tensor_free(array.tensor));
  expect_ok(mv_tensor_free(other.tensor));
}
static void a_group_that_is_closed_ends_its_requests(void** state) {
  (void)state;
  for (int i = 0; i < 20; ++i) run_nodes(2, NULL, end_with_requests);
}

/** mine += theirs, where both are. A host's array is added by the processor. */
static mv_status add_there(void* user, const mv_array* mine, const mv_array* theirs, uint64_t arrays) {
  struct member* const self = (struct member*)user;
  const int64_t shape[] = {kCount};
  mv_tensor to = 0, from = 0;
  assert_int_equal(arrays, 2);
  expect_ok(mv_tensor_view_on(self->index % 2, (uint64_t)(uintptr_t)mine[0].data, kCount, MV_F32, shape, 1, &to));
  expect_ok(mv_tensor_view_on(self->index % 2, (uint64_t)(uintptr_t)theirs[0].data, kCount, MV_F32, shape, 1, &from));
  expect_ok(mv_tensor_axpy(1, from, to));
  expect_ok(mv_tensor_free(from));
  expect_ok(mv_tensor_free(to));
  *(double*)mine[1].data += *(const double*)theirs[1].data;
  return MV_OK;
}
static mv_status refuse(void* user, const mv_array* mine, const mv_array* theirs, uint64_t arrays) {
  (void)user, (void)mine, (void)theirs, (void)arrays;
  return MV_ECANCELED;
}
static void reduce_by_a_function(struct member* self) {
  const mv_group group = open_all(self);
  const struct there value = there_of(self, (float)self->index + 1);
  double here = 10 * (self->index + 1);
  const mv_array arrays[] = {{value.data, kCount, MV_F32, 0}, {&here, 1, MV_F64, 0}};
  uint64_t contributors = 0;
  expect_ok(mv_allreduce_custom(group, arrays, 2, add_there, self, 0, &contributors, NULL));
  expect_all(value, 6);
  assert_true(here == 60 && contributors == 3);

  assert_int_not_equal(mv_allreduce_custom(group, arrays, 2, refuse, self, 0, NULL, NULL), MV_OK); /* on all ranks */
  expect_ok(mv_tensor_fill(value.tensor, 2));
  here = 1;
  mv_array theirs[2];
  mv_custom custom = 0;
  int32_t more = 0;
  expect_ok(mv_custom_begin(group, arrays, 2, 0, NULL, &custom));
  while (mv_custom_next(custom, theirs, &more) == MV_OK && more) expect_ok(mv_custom_done(custom, add_there(self, arrays, theirs, 2)));
  expect_all(value, 6);
  expect_ok(mv_custom_end(custom, &contributors));
  assert_true(here == 3 && contributors == 3);
  expect_ok(mv_custom_begin(group, arrays, 2, 0, NULL, &custom)); /* withdrawn by all */
  assert_int_not_equal(mv_custom_end(custom, NULL), MV_OK);
  expect_ok(mv_tensor_free(value.tensor));
  expect_ok(mv_group_close(group));
}
static void functions_reduce_arrays_on_devices(void** state) {
  (void)state;
  run_nodes(3, NULL, reduce_by_a_function);
}

int main(void) {
  setenv("POLYVERSO_DEVICE_PLUGIN", EMULATION, 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_of_one_process_reduce_between_devices),
      cmocka_unit_test(requests_end_in_the_order_of_the_calls),
      cmocka_unit_test(ranks_that_drain_take_part_through_the_host),
      cmocka_unit_test(a_deadline_aborts_and_a_new_group_goes_on),
      cmocka_unit_test(functions_reduce_arrays_on_devices),
      cmocka_unit_test(a_group_that_is_closed_ends_its_requests),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
