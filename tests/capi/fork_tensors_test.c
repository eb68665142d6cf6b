/* A forked child keeps its parent's tensors as its own: neither process sees the other's writes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

#define SMALL 100
#define LARGE (1 << 20) /* 4 MiB: a segment of its own */

/** Ends the child with the number of the failed line, so that the parent's assertion shows it. */
#define CHILD_CHECK(holds) \
  if (!(holds)) _exit(__LINE__ % 127 + 1)

struct array {
  mv_tensor tensor;
  float* data;
  int64_t count;
};

static struct array make(int64_t count, double value) {
  struct array made = {0, NULL, count};
  void* data = NULL;
  expect_ok(mv_tensor_create(MV_F32, &count, 1, &made.tensor));
  expect_ok(mv_tensor_fill(made.tensor, value));
  expect_ok(mv_tensor_data(made.tensor, &data, NULL, NULL));
  made.data = data;
  return made;
}

static int holds(const float* data, int64_t count, float value) {
  for (int64_t i = 0; i < count; ++i)
    if (data[i] != value) return 0;
  return 1;
}

/** A child that has run: it signals the parent with a byte, waits for another byte, and continues. */
struct child {
  pid_t pid;
  int to, from;
};

static struct child bear(void) {
  struct child born;
  int down[2], up[2];
  assert_int_equal(pipe(down), 0);
  assert_int_equal(pipe(up), 0);
  born.pid = fork();
  assert_true(born.pid >= 0);
  const int mine = born.pid == 0;
  close(mine ? down[1] : down[0]);
  close(mine ? up[0] : up[1]);
  born.to = mine ? up[1] : down[1];
  born.from = mine ? down[0] : up[0];
  if (mine) alarm(60);
  return born;
}
static void tell(const struct child* other) { assert_int_equal(write(other->to, "x", 1), 1); }
static void hear(const struct child* other) {
  char byte;
  assert_int_equal(read(other->from, &byte, 1), 1);
}
static void end_of(const struct child* born) {
  int status = -1;
  close(born->to);
  close(born->from);
  assert_int_equal(waitpid(born->pid, &status, 0), born->pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_parent_never_sees_the_childs_writes(void** state) {
  (void)state;
  const int64_t counts[] = {SMALL, LARGE};
  for (size_t i = 0; i < COUNT_OF(counts); ++i) {
    const struct array array = make(counts[i], 3);
    const struct child child = bear();
    if (child.pid == 0) {
      mv_tensor sum = 0;
      double value = 0;
      int64_t integer = 0;
      CHILD_CHECK(holds(array.data, array.count, 3));
      for (int64_t e = 0; e < array.count; ++e) array.data[e] = 7;
      CHILD_CHECK(mv_tensor_scalar(MV_ADD, array.tensor, 1, 0, array.tensor, &sum) == MV_OK);
      CHILD_CHECK(holds(array.data, array.count, 8));
      CHILD_CHECK(mv_tensor_reduce(MV_SUM, array.tensor, MV_ALL_AXES, &sum) == MV_OK);
      CHILD_CHECK(mv_tensor_get(sum, NULL, 0, &value, &integer) == MV_OK && integer == 8 * array.count);
      tell(&child);
      hear(&child);
      CHILD_CHECK(holds(array.data, array.count, 8)); /* nor does the child see the parent's later writes */
      _exit(0);
    }
    hear(&child);
    assert_true(holds(array.data, array.count, 3));
    expect_ok(mv_tensor_fill(array.tensor, 4));
    tell(&child);
    end_of(&child);
    assert_true(holds(array.data, array.count, 4));
    expect_ok(mv_tensor_free(array.tensor));
  }
}

/** Memory that the parent frees may still be in the child's use: no other tensor gets it. */
static void memory_freed_by_the_parent_stays_with_the_child(void** state) {
  (void)state;
  const int64_t counts[] = {SMALL, LARGE};
  for (size_t i = 0; i < COUNT_OF(counts); ++i) {
    const struct array array = make(counts[i], 3);
    const struct child child = bear();
    if (child.pid == 0) {
      hear(&child);
      CHILD_CHECK(holds(array.data, array.count, 3));
      _exit(0);
    }
    expect_ok(mv_tensor_free(array.tensor));
    mv_tensor others[8];
    for (size_t o = 0; o < COUNT_OF(others); ++o) others[o] = make(counts[i], 9).tensor;
    tell(&child);
    end_of(&child);
    for (size_t o = 0; o < COUNT_OF(others); ++o) expect_ok(mv_tensor_free(others[o]));
  }
}

static void memory_freed_by_the_child_stays_with_the_parent(void** state) {
  (void)state;
  const struct array small = make(SMALL, 3), large = make(LARGE, 5);
  const struct child child = bear();
  if (child.pid == 0) {
    CHILD_CHECK(mv_tensor_free(small.tensor) == MV_OK);
    CHILD_CHECK(mv_tensor_free(large.tensor) == MV_OK);
    CHILD_CHECK(mv_tensor_free(large.tensor) == MV_EHANDLE);
    for (int i = 0; i < 20; ++i) {
      mv_tensor_info info = MV_TENSOR_INFO_INIT;
      const int64_t count = i % 2 == 0 ? SMALL : LARGE;
      mv_tensor other = 0;
      CHILD_CHECK(mv_tensor_create(MV_F32, &count, 1, &other) == MV_OK);
      CHILD_CHECK(mv_tensor_fill(other, 9) == MV_OK);
      CHILD_CHECK(mv_tensor_describe(other, &info) == MV_OK && info.is_shared); /* with the child's own cluster */
      if (i % 3 == 0) CHILD_CHECK(mv_tensor_free(other) == MV_OK);
    }
    _exit(0);
  }
  end_of(&child);
  assert_true(holds(small.data, small.count, 3));
  assert_true(holds(large.data, large.count, 5));
  expect_ok(mv_tensor_free(small.tensor));
  expect_ok(mv_tensor_free(large.tensor));
}

/** A process shares only tensors that it has created itself. */
static void a_child_and_its_children(void** state) {
  (void)state;
  const struct array array = make(SMALL, 3);
  const struct child child = bear();
  if (child.pid == 0) {
    mv_tensor_info info = MV_TENSOR_INFO_INIT;
    CHILD_CHECK(mv_tensor_describe(array.tensor, &info) == MV_OK && !info.is_shared);
    const struct array own = make(SMALL, 5);
    array.data[0] = 4;
    const struct child grandchild = bear();
    if (grandchild.pid == 0) {
      CHILD_CHECK(array.data[0] == 4 && holds(own.data, own.count, 5));
      array.data[0] = 6;
      CHILD_CHECK(mv_tensor_fill(own.tensor, 6) == MV_OK);
      CHILD_CHECK(mv_tensor_free(own.tensor) == MV_OK);
      CHILD_CHECK(mv_tensor_free(array.tensor) == MV_OK);
      _exit(0);
    }
    end_of(&grandchild);
    CHILD_CHECK(array.data[0] == 4 && holds(own.data, own.count, 5));
    _exit(0);
  }
  end_of(&child);
  assert_true(holds(array.data, array.count, 3));
  expect_ok(mv_tensor_free(array.tensor));
}

/** A data loader beside training: the children read and write, while the parent's table stays in use. */
static void training_continues_while_children_run(void** state) {
  (void)state;
  const struct array gradient = make(LARGE, 1), weights = make(LARGE, 0);
  mv_table table = 0;
  expect_ok(mv_init(NULL));
  expect_ok(mv_table_create_text(0, "size=1048576 name=w", NULL, 0, MV_F32, &table));
  for (int step = 1; step <= 5; ++step) {
    const struct child child = bear();
    if (child.pid == 0) {
      int64_t rank = 0;
      mv_tensor sum = 0;
      CHILD_CHECK(mv_tensor_binary(MV_ADD, gradient.tensor, weights.tensor, 0, &sum) == MV_OK);
      CHILD_CHECK(mv_tensor_fill(gradient.tensor, 100) == MV_OK);
      CHILD_CHECK(mv_rank(0, &rank) == MV_EFORK);
      CHILD_CHECK(mv_table_get(table, weights.data, LARGE, MV_F32, NULL) == MV_EFORK);
      _exit(0);
    }
    expect_ok(mv_table_add(table, gradient.data, LARGE, MV_F32, NULL));
    end_of(&child);
    expect_ok(mv_table_get(table, weights.data, LARGE, MV_F32, NULL));
    assert_true(holds(weights.data, LARGE, (float)step));
  }
  expect_ok(mv_shutdown(0));
  expect_ok(mv_tensor_free(gradient.tensor));
  expect_ok(mv_tensor_free(weights.tensor));
}

/** Lines of /proc/self/maps with the library's memory whose writes other processes could see. */
static int shared_mappings(void) {
  char line[512];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return -1;
  while (fgets(line, sizeof line, maps) != NULL) {
    const char* rights = strchr(line, ' '); /* "rw-s" */
    found += strstr(line, "memfd:polyverso") != NULL && rights != NULL && rights[4] == 's';
  }
  fclose(maps);
  return found;
}
/** The memory of shards, rings, groups and gossip is not mapped at all. */
static void nothing_in_the_child_is_shared(void** state) {
  (void)state;
#ifdef __SANITIZE_ADDRESS__
  skip(); /* the loop may hold a lock of malloc() at the fork */
#endif
  const struct array array = make(SMALL, 3);
  mv_gossip gossip = 0;
  mv_table table = 0;
  expect_ok(mv_init(NULL));
  expect_ok(mv_table_create_text(0, "size=1048576 name=w", NULL, 0, MV_F32, &table));
  expect_ok(mv_gossip_open_text("nodes: [{name: a, host: 127.0.0.1, port: 0}]", "a", &gossip));
  expect_ok(mv_gossip_add(gossip, array.data, SMALL, MV_F32));
  expect_ok(mv_gossip_publish(gossip, 1));
  assert_true(shared_mappings() >= 2);
  const struct child child = bear();
  if (child.pid == 0) {
    CHILD_CHECK(shared_mappings() == 0);
    CHILD_CHECK(holds(array.data, array.count, 3));
    _exit(0);
  }
  end_of(&child);
  expect_ok(mv_gossip_close(gossip));
  expect_ok(mv_shutdown(0));
  expect_ok(mv_tensor_free(array.tensor));
}

static void* makes_and_frees(void* stop) {
  while (!__atomic_load_n((int*)stop, __ATOMIC_RELAXED)) {
    const struct array small = make(SMALL, 1), large = make(LARGE / 2, 2);
    if (mv_tensor_free(small.tensor) != MV_OK || mv_tensor_free(large.tensor) != MV_OK) return stop;
  }
  return NULL;
}
static void whatever_other_threads_do_to_theirs(void** state) {
  (void)state;
#ifdef __SANITIZE_ADDRESS__
  skip(); /* another thread may hold a lock of malloc() at the fork */
#endif
  const struct array kept = make(SMALL, 3);
  int stop = 0;
  void* failed = NULL;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, makes_and_frees, &stop), 0);
  for (int i = 0; i < 100; ++i) {
    const struct child child = bear();
    if (child.pid == 0) {
      CHILD_CHECK(holds(kept.data, kept.count, 3));
      const int64_t count = SMALL;
      mv_tensor made = 0;
      CHILD_CHECK(mv_tensor_create(MV_F32, &count, 1, &made) == MV_OK && mv_tensor_free(made) == MV_OK);
      CHILD_CHECK(mv_tensor_free(kept.tensor) == MV_OK);
      _exit(0);
    }
    end_of(&child);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  assert_int_equal(pthread_join(thread, &failed), 0);
  assert_null(failed);
  expect_ok(mv_tensor_free(kept.tensor));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_parent_never_sees_the_childs_writes),
      cmocka_unit_test(memory_freed_by_the_parent_stays_with_the_child),
      cmocka_unit_test(memory_freed_by_the_child_stays_with_the_parent),
      cmocka_unit_test(a_child_and_its_children),
      cmocka_unit_test(training_continues_while_children_run),
      cmocka_unit_test(nothing_in_the_child_is_shared),
      cmocka_unit_test(whatever_other_threads_do_to_theirs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
