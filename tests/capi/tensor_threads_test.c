/* Threads on one row-sparse tensor: operations change its rows while others read it. */
#include <polyverso/polyverso.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { kTurns = 4000, kRows = 6, kCols = 2 };

/** A row-sparse tensor with ones in row `row`. */
static mv_tensor one_row(int64_t row) {
  const int64_t shape[2] = {kRows, kCols};
  float values[kRows * kCols] = {0};
  values[row * kCols] = 1;
  mv_tensor dense = 0, sparse = 0;
  assert_int_equal(mv_tensor_from(values, kRows * kCols, MV_F32, shape, 2, &dense), MV_OK);
  assert_int_equal(mv_tensor_to_sparse(dense, &sparse), MV_OK);
  assert_int_equal(mv_tensor_free(dense), MV_OK);
  return sparse;
}

struct shared {
  mv_tensor changed; /**< it gains and loses rows */
  mv_status failed;
};

static void note(struct shared *shared, mv_status status) {
  if (status != MV_OK) shared->failed = status;
}

static void *add(void *user) {
  struct shared *shared = user;
  mv_tensor rows[kRows];
  for (int64_t i = 0; i < kRows; ++i) rows[i] = one_row(i);
  for (int i = 0; i < kTurns; ++i) note(shared, mv_tensor_axpy(1, rows[i % kRows], shared->changed));
  for (int i = 0; i < kRows; ++i) note(shared, mv_tensor_free(rows[i]));
  return NULL;
}

static void *look(void *user) {
  struct shared *shared = user;
  for (int i = 0; i < kTurns; ++i) {
    mv_tensor_info info = MV_TENSOR_INFO_INIT;
    mv_tensor ids = 0, values = 0;
    note(shared, mv_tensor_describe(shared->changed, &info));
    note(shared, mv_tensor_parts(shared->changed, &ids, &values));
    note(shared, mv_tensor_free(ids));
    note(shared, mv_tensor_free(values));
  }
  return NULL;
}

static void a_tensor_that_is_replaced_may_be_looked_at(void **state) {
  (void)state;
  struct shared shared[2] = {{one_row(0), MV_OK}, {0, MV_OK}};
  shared[1] = shared[0];
  pthread_t threads[2];
  assert_int_equal(pthread_create(&threads[0], NULL, add, &shared[0]), 0);
  assert_int_equal(pthread_create(&threads[1], NULL, look, &shared[1]), 0);
  for (int i = 0; i < 2; ++i) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(shared[0].failed, MV_OK);
  assert_int_equal(shared[1].failed, MV_OK);
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  assert_int_equal(mv_tensor_describe(shared[0].changed, &info), MV_OK);
  assert_int_equal(info.row_sparse, 1);
  assert_int_equal(mv_tensor_free(shared[0].changed), MV_OK);
}

static void *free_it(void *user) {
  struct shared *shared = user;
  shared->failed = mv_tensor_free(shared->changed);
  return NULL;
}

static void a_tensor_may_be_closed_while_it_is_replaced(void **state) {
  (void)state;
  mv_tensor row = one_row(3);
  for (int i = 0; i < kTurns / 10; ++i) {
    struct shared shared = {one_row(0), MV_OK};
    const mv_tensor changed = shared.changed;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_it, &shared), 0);
    mv_status added = MV_OK;
    while (added == MV_OK) added = mv_tensor_axpy(1, row, changed);
    assert_int_equal(added, MV_EHANDLE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(shared.failed, MV_OK);
  }
  assert_int_equal(mv_tensor_free(row), MV_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tensor_that_is_replaced_may_be_looked_at),
      cmocka_unit_test(a_tensor_may_be_closed_while_it_is_replaced),
  };
  return cmocka_run_group_tests_name("tensors and threads", tests, NULL, NULL);
}
