/* Several nodes in this process, one thread each: a whole cluster in one test. */
#ifndef POLYVERSO_TESTS_NODES_H
#define POLYVERSO_TESTS_NODES_H

#include <pthread.h>
#include <stdio.h>

#include "expect.h"

enum { kMostNodes = 4 };

struct member {
  int index, nodes;
  const char* settings; /* as mv_init_text() takes them; may be NULL */
  char cluster[64];
  mv_node node;
  void (*body)(struct member* self);
};

static inline void* live_as_member(void* argument) {
  struct member* self = argument;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.transport = "inproc";
  options.text = self->settings;
  options.nodes = self->nodes;
  options.rank = self->index;
  options.master = self->cluster;
  options.init_timeout_ms = 20000;
  options.gate_timeout_ms = 20000;
  expect_ok(mv_node_open(&options, &self->node));
  self->body(self);
  expect_ok(mv_shutdown(self->node));
  return NULL;
}

/** Runs `body` on each of `nodes` nodes, all worker and server at once, and shuts them down. */
static inline void run_nodes(int nodes, const char* settings, void (*body)(struct member* self)) {
  static int clusters = 0;
  struct member members[kMostNodes];
  pthread_t threads[kMostNodes];
  ++clusters;
  for (int i = 0; i < nodes; ++i) {
    memset(&members[i], 0, sizeof(members[i]));
    members[i].index = i;
    members[i].nodes = nodes;
    members[i].settings = settings;
    members[i].body = body;
    snprintf(members[i].cluster, sizeof(members[i].cluster), "nodes-%d", clusters);
    assert_int_equal(pthread_create(&threads[i], NULL, live_as_member, &members[i]), 0);
  }
  for (int i = 0; i < nodes; ++i) pthread_join(threads[i], NULL);
}

/** A table of every member, from a specification as text. */
static inline mv_table create_on(const struct member* self, const char* spec) {
  mv_table table = 0;
  expect_ok(mv_table_create_text(self->node, spec, NULL, 0, MV_F32, &table));
  return table;
}

#endif
