/* Gossiping nodes of one process, for tests: each listens at its own free port and knows the others. */
#ifndef POLYVERSO_TESTS_GOSSIP_NODES_H
#define POLYVERSO_TESTS_GOSSIP_NODES_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "expect.h"

static inline void state_of(mv_gossip gossip, char* text, size_t capacity) {
  uint64_t length = 0;
  expect_ok(mv_gossip_state_text(gossip, MV_JSON, text, capacity, &length));
  assert_true(length < capacity);
}

/** The number after `key` in the JSON of a node's state, searched from `after` on (NULL: from its beginning). */
static inline double figure_of(mv_gossip gossip, const char* after, const char* key) {
  char text[32768], quoted[64];
  state_of(gossip, text, sizeof text);
  const char* from = after == NULL ? text : strstr(text, after);
  assert_non_null(from);
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char* at = strstr(from, quoted);
  if (at == NULL) fail_msg("no %s in %s", key, from);
  return strtod(at + strlen(quoted), NULL);
}

static inline int port_of(mv_gossip gossip) {
  char text[32768];
  state_of(gossip, text, sizeof text);
  const char* address = strstr(text, "\"address\":\"127.0.0.1:");
  assert_non_null(address);
  return atoi(address + strlen("\"address\":\"127.0.0.1:"));
}

static inline mv_gossip open_with(const char* name, const char* settings) {
  char config[1024];
  snprintf(config, sizeof config, "nodes: [{name: %s, host: 127.0.0.1, port: 0}]\n%s", name, settings);
  mv_gossip gossip = 0;
  expect_ok(mv_gossip_open_text(config, name, &gossip));
  assert_true(gossip > 0 && gossip < (INT64_C(1) << 53));
  return gossip;
}

static inline void introduce(mv_gossip to, mv_gossip peer, const char* name) { expect_ok(mv_gossip_add_peer(to, name, "127.0.0.1", port_of(peer))); }

/** Asserts that a peer's snapshot has arrived. */
static inline void expect_got(const mv_gossip_fetched* fetched, const char* from) {
  if (!fetched->got) fail_msg("nothing was fetched: %s", fetched->why);
  assert_string_equal(fetched->peer, from);
}

static inline void begin_fetch(mv_gossip gossip) {
  int32_t started = 0;
  expect_ok(mv_gossip_fetch_start(gossip, &started));
  assert_int_equal(started, 1);
}

static inline mv_gossip_fetched end_fetch(mv_gossip gossip, double loss) {
  mv_gossip_fetched fetched = MV_GOSSIP_FETCHED_INIT;
  expect_ok(mv_gossip_fetch_wait(gossip, loss, &fetched));
  return fetched;
}

static inline mv_gossip_fetched fetch(mv_gossip gossip, double loss) {
  begin_fetch(gossip);
  return end_fetch(gossip, loss);
}

static inline void sleep_ms(long milliseconds) {
  const struct timespec span = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&span, NULL);
}

/** Nodes n00, n01, … with models of doubles, which know each other. */
typedef struct {
  int count;
  size_t elements;
  mv_gossip nodes[16];
  double* models[16];
} swarm;

static inline void open_swarm(swarm* all, int count, size_t elements, const char* settings) {
  *all = (swarm){.count = count, .elements = elements};
  char name[16];
  for (int i = 0; i < count; ++i) {
    snprintf(name, sizeof name, "n%02d", i);
    all->nodes[i] = open_with(name, settings);
    all->models[i] = calloc(elements, sizeof(double));
  }
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j) {
      snprintf(name, sizeof name, "n%02d", j);
      if (i != j) introduce(all->nodes[i], all->nodes[j], name);
    }
}

static inline void close_swarm(swarm* all) {
  for (int i = 0; i < all->count; ++i) {
    expect_ok(mv_gossip_close(all->nodes[i]));
    free(all->models[i]);
  }
}

static inline void publish_model(const swarm* all, int i) {
  expect_ok(mv_gossip_add(all->nodes[i], all->models[i], all->elements, MV_F64));
  expect_ok(mv_gossip_publish(all->nodes[i], 1));
}

/** Waits, and averages if a snapshot arrived; returns whether one did. */
static inline int average_model(const swarm* all, int i) {
  const mv_gossip_fetched fetched = end_fetch(all->nodes[i], 1);
  if (fetched.got) expect_ok(mv_gossip_average(all->nodes[i], all->models[i], all->elements, MV_F64));
  return fetched.got;
}

/** All nodes publish, then all fetch, then all average; returns how many got a snapshot. */
static inline int round_of(const swarm* all) {
  int got = 0;
  for (int i = 0; i < all->count; ++i) publish_model(all, i);
  for (int i = 0; i < all->count; ++i) begin_fetch(all->nodes[i]);
  mv_gossip_fetched fetched[16];
  for (int i = 0; i < all->count; ++i) fetched[i] = end_fetch(all->nodes[i], 1);
  for (int i = 0; i < all->count; ++i) {
    if (!fetched[i].got) continue;
    ++got;
    expect_ok(mv_gossip_average(all->nodes[i], all->models[i], all->elements, MV_F64));
  }
  return got;
}

#endif
