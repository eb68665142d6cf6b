/* One of the workers of a cluster. Worker 1 ends in the way that the argument names, the others wait for it. */
#include <polyverso/polyverso.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, mv_status status) {
  printf("%s: %s: %s\n", what, mv_status_name(status), status == MV_OK ? "" : mv_last_error());
  fflush(stdout);
}

static void must(mv_status status) {
  if (status == MV_OK) return;
  say("failed", status);
  _exit(9);
}

static mv_table table;

static void *exit_elsewhere(void *unused) {
  (void)unused;
  exit(0);
}

/* The callback of a further exit handler, which runs before the library's. */
static void add_late(void) {
  const float more[4] = {1, 1, 1, 1};
  must(mv_table_add(table, more, 4, MV_F32, NULL));
}

/* How worker 1 ends. Returns main()'s status if it does not end the process. */
static int end(const char *how) {
  const float ones[4] = {1, 1, 1, 1};
  mv_call_options forget = MV_CALL_OPTIONS_INIT;
  forget.flags = MV_FORGET;
  if (strcmp(how, "abort") == 0) {
    must(mv_abort(0, "ValueError: 7 is\nnot a rate"));
    must(mv_abort(0, NULL));
    say("after", mv_barrier(0, NULL));
    return 0;
  }
  if (strcmp(how, "abort twice inited") == 0) {
    must(mv_init(NULL));
    must(mv_abort(0, ""));
    return 0;
  }
  if (strcmp(how, "return 0") == 0) {
    for (int i = 0; i < 1000; ++i) must(mv_table_add(table, ones, 4, MV_F32, &forget));
    return 0;
  }
  if (strcmp(how, "return 3") == 0) return 3;
  if (strcmp(how, "exit 0") == 0) exit(0);
  if (strcmp(how, "exit 5") == 0) exit(5);
  if (strcmp(how, "handler") == 0) {
    atexit(add_late);
    exit(0);
  }
  if (strcmp(how, "thread") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, exit_elsewhere, NULL);
    pthread_join(thread, NULL);
  }
  if (strcmp(how, "child") == 0) {
    const pid_t child = fork();
    if (child == 0) exit(4);
    waitpid(child, NULL, 0);
    must(mv_barrier(0, NULL));
    must(mv_shutdown(0));
    return 0;
  }
  if (strcmp(how, "_exit 0") == 0) _exit(0);
  if (strcmp(how, "kill") == 0) raise(SIGKILL);
  return 9;
}

int main(int argc, char **argv) {
  int64_t worker = 0;
  mv_call_options few = MV_CALL_OPTIONS_INIT;
  few.timeout_ms = 10000;
  if (argc < 2) return 9;
  must(mv_init(NULL));
  must(mv_worker_id(0, &worker));
  must(mv_table_create_text(0, "size=4 name=t", NULL, 0, MV_F32, &table));
  must(mv_barrier(0, NULL));
  if (worker == 1) return end(argv[1]);
  say("barrier", mv_barrier(0, &few));
  float values[4] = {0};
  if (mv_table_get(table, values, 4, MV_F32, &few) == MV_OK) printf("value: %g\n", (double)values[0]);
  mv_shutdown(0);
  return 0;
}
