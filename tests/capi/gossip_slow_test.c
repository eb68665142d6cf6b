/* Gossip over a slow line: snapshots whose transfer takes longer than the publishing of the next ones, and slow peers. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gossip_nodes.h"

/** A line to `target` with a limited rate in bytes per second and a delay of `delay_ms`. For one connection. */
typedef struct {
  int target, rate, delay_ms;
  int listener, port;
  int to[2]; /* the two ends */
  pthread_t threads[2];
} line;

static void pass_on(int from, int to, int rate, int delay_ms) {
  char bytes[16384];
  for (ssize_t got; (got = recv(from, bytes, sizeof bytes, 0)) > 0;) {
    sleep_ms(delay_ms);
    delay_ms = 0;
    for (ssize_t sent = 0, more; sent < got; sent += more)
      if ((more = send(to, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL)) <= 0) return;
    if (rate > 0) sleep_ms((long)(got * 1000 / rate));
  }
}

static void* pass_back(void* given) {
  line* self = given;
  pass_on(self->to[1], self->to[0], self->rate, self->delay_ms);
  shutdown(self->to[0], SHUT_RDWR);
  return NULL;
}

static void* serve_line(void* given) {
  line* self = given;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)self->target), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int small = 65536;
  self->to[0] = accept(self->listener, NULL, NULL);
  self->to[1] = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(self->to[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  if (self->to[0] < 0 || connect(self->to[1], (struct sockaddr*)&address, sizeof address) != 0) return NULL;
  pthread_create(&self->threads[1], NULL, pass_back, self);
  pass_on(self->to[0], self->to[1], 0, 0);
  shutdown(self->to[1], SHUT_RDWR);
  pthread_join(self->threads[1], NULL);
  return NULL;
}

static void open_line(line* self, mv_gossip target, int rate, int delay_ms) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  *self = (line){.target = port_of(target), .rate = rate, .delay_ms = delay_ms, .to = {-1, -1}};
  self->listener = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(self->listener, (struct sockaddr*)&address, sizeof address), 0);
  assert_int_equal(listen(self->listener, 4), 0);
  assert_int_equal(getsockname(self->listener, (struct sockaddr*)&address, &length), 0);
  self->port = ntohs(address.sin_port);
  assert_int_equal(pthread_create(&self->threads[0], NULL, serve_line, self), 0);
}

/** To be called after the node that uses the line is closed. */
static void close_line(line* self) {
  shutdown(self->listener, SHUT_RDWR);
  pthread_join(self->threads[0], NULL);
  close(self->listener);
  for (int i = 0; i < 2; ++i)
    if (self->to[i] >= 0) close(self->to[i]);
}

/** Publishes versions of equal values every few milliseconds. */
typedef struct {
  mv_gossip gossip;
  size_t count;
  int versions;
  int stop; /* accessed atomically by both threads */
} busy;

static void publish_values(mv_gossip gossip, size_t count, float value) {
  float* values = malloc(count * sizeof *values);
  for (size_t i = 0; i < count; ++i) values[i] = value;
  expect_ok(mv_gossip_add(gossip, values, count, MV_F32));
  expect_ok(mv_gossip_publish(gossip, 1));
  free(values);
}

static void* publish_on_and_on(void* given) {
  busy* self = given;
  for (; !__atomic_load_n(&self->stop, __ATOMIC_ACQUIRE); ++self->versions) {
    publish_values(self->gossip, self->count, (float)self->versions);
    sleep_ms(10);
  }
  return NULL;
}

static mv_gossip_peer only_peer(mv_gossip gossip) {
  mv_gossip_peer peer = MV_GOSSIP_PEER_INIT;
  uint64_t count = 0;
  expect_ok(mv_gossip_peers(gossip, &peer, 1, &count));
  assert_int_equal(count, 1);
  return peer;
}

/** A version stays available while it is read, however many newer ones are published. */
static void a_slow_reader_gets_a_version_whole_while_others_are_published(void** state) {
  (void)state;
  enum { kCount = 1500000 }; /* 6 MB, at 8 MB a second */
  busy publisher = {open_with("b", "transport: tcp\ntimeout_ms: 20000"), kCount, 0, 0};
  mv_gossip a = open_with("a", "transport: tcp\ntimeout_ms: 20000");
  publish_values(publisher.gossip, kCount, -1);
  publish_values(a, kCount, 0);
  line slow;
  open_line(&slow, publisher.gossip, 8000000, 0);
  expect_ok(mv_gossip_add_peer(a, "b", "127.0.0.1", slow.port));
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, publish_on_and_on, &publisher), 0);
  float* got = malloc(kCount * sizeof *got);
  float before = -2;
  for (int i = 0; i < 2; ++i) {
    const mv_gossip_fetched fetched = fetch(a, 1);
    expect_got(&fetched, "b");
    expect_ok(mv_gossip_read(a, got, kCount, MV_F32));
    for (size_t at = 1; at < kCount; ++at)
      if (got[at] != got[0]) fail_msg("element %zu is %g, the first one %g", at, (double)got[at], (double)got[0]);
    assert_true(got[0] > before); /* the next fetch gets a newer version */
    before = got[0];
  }
  __atomic_store_n(&publisher.stop, 1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  assert_true(publisher.versions > 10);
  const mv_gossip_peer peer = only_peer(a);
  assert_true(peer.score == 1000 && peer.fetched == 2 && peer.failed == 0);
  /* Nothing is fetched twice, except a beginning: on a busy machine, a second version may be published before the first is held. */
  assert_true(figure_of(a, NULL, "fetched_bytes") < 2.5 * kCount * sizeof *got);
  expect_ok(mv_gossip_close(a));
  expect_ok(mv_gossip_close(publisher.gossip));
  close_line(&slow);
  free(got);
}

/** A peer that sends bytes is not silent, though none of its chunks is complete yet. If there is no other peer, it has unlimited time. */
static void slow_is_not_silent(void** state) {
  (void)state;
  enum { kCount = 100000 }; /* 400 kB */
  mv_gossip b = open_with("b", "transport: tcp"), a = open_with("a", "transport: tcp\ntimeout_ms: 3000");
  publish_values(b, kCount, 2);
  publish_values(a, kCount, 0);
  line slow;
  open_line(&slow, b, 250000, 0); /* 1.6 s; a third of the time-out is 1 s */
  expect_ok(mv_gossip_add_peer(a, "b", "127.0.0.1", slow.port));
  expect_ok(mv_gossip_add_peer(a, "nobody", "127.0.0.1", 1));
  for (int i = 0; i < 3; ++i) {
    const mv_gossip_fetched fetched = fetch(a, 1);
    expect_got(&fetched, "b");
  }
  assert_true(figure_of(a, "\"name\":\"b\"", "failed") == 0);
  expect_ok(mv_gossip_close(a));
  close_line(&slow);

  a = open_with("a", "transport: tcp\ntimeout_ms: 3000");
  publish_values(a, kCount, 0);
  open_line(&slow, b, 0, 1500);
  expect_ok(mv_gossip_add_peer(a, "b", "127.0.0.1", slow.port));
  const mv_gossip_fetched fetched = fetch(a, 1);
  expect_got(&fetched, "b");
  expect_ok(mv_gossip_close(a));
  expect_ok(mv_gossip_close(b));
  close_line(&slow);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_slow_reader_gets_a_version_whole_while_others_are_published),
      cmocka_unit_test(slow_is_not_silent),
  };
  setenv("POLYVERSO_SECRET", "of this test", 1); /* without it, the proxy's connection would be refused */
  return cmocka_run_group_tests_name("gossip over slow lines", tests, NULL, NULL);
}
