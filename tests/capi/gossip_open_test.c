/* Gossip: who may open a node, and with which secret. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

static const char kOnLoopback[] = "nodes: [{name: a, host: 127.0.0.1, port: 0}]";
static const char kBeyond[] = "nodes: [{name: a, host: 0.0.0.0, port: 0}]";

static void the_secret_may_be_the_environment_s(void** state) {
  (void)state;
  mv_gossip node = 0;
  unsetenv("POLYVERSO_SECRET");
  expect_error(mv_gossip_open_text(kBeyond, "a", &node), MV_EINVAL, "needs a secret");
  setenv("POLYVERSO_SECRET", "of this test", 1);
  expect_ok(mv_gossip_open_text(kBeyond, "a", &node));
  expect_ok(mv_gossip_close(node));
  unsetenv("POLYVERSO_SECRET");
}

/** A forked child, such as a data loader, has no part in its parent's nodes, and may open its own. */
static void a_forked_child_has_its_own(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  skip(); /* TSan ends a forked child that starts a thread; under ASan the parent's loop may hold a lock of malloc() at the fork */
#endif
  const float value = 1;
  mv_gossip node = 0;
  expect_ok(mv_gossip_open_text(kOnLoopback, "a", &node));
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    mv_gossip own = 0;
    alarm(30);
    if (mv_gossip_publish(node, 1) != MV_EFORK) _exit(1);
    if (mv_gossip_open_text(kOnLoopback, "a", &own) != MV_OK) _exit(2);
    if (own == node || mv_gossip_publish(node, 1) != MV_EHANDLE) _exit(3);
    if (mv_gossip_add(own, &value, 1, MV_F32) != MV_OK || mv_gossip_publish(own, 1) != MV_OK) _exit(4);
    _exit(mv_gossip_close(own) == MV_OK ? 0 : 5);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  expect_ok(mv_gossip_add(node, &value, 1, MV_F32));
  expect_ok(mv_gossip_publish(node, 1));
  expect_ok(mv_gossip_close(node));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_secret_may_be_the_environment_s),
      cmocka_unit_test(a_forked_child_has_its_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
