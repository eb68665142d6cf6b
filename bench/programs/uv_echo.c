/* The cost of a round trip with libuv alone: a message to another process and back.
 * uv_echo server            writes {"port": n}, then echoes one client's bytes
 * uv_echo client PORT       operation: echo, of BYTES bytes */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "programs/batch.h"

enum { kRoom = 64 << 10 };
static char room[kRoom];

static void expect_ok(int error, const char *doing) {
  if (error < 0) batch_fail("uv_echo: %s: %s", doing, uv_strerror(error));
}

/* One message at a time: its bytes stay in `room` until all of them are sent. */
static void lend_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
  (void)handle;
  (void)suggested;
  *buffer = uv_buf_init(room, kRoom);
}

static void on_sent(uv_write_t *write, int status) {
  (void)write;
  expect_ok(status, "uv_write");
}

static void send_bytes(uv_stream_t *stream, size_t bytes) {
  static uv_write_t write;
  const uv_buf_t buffer = uv_buf_init(room, (unsigned)bytes);
  expect_ok(uv_write(&write, stream, &buffer, 1, on_sent), "uv_write");
}

/* ---------------------------------------------------------------- server */

static void on_message(uv_stream_t *stream, ssize_t bytes, const uv_buf_t *buffer) {
  (void)buffer;
  if (bytes == UV_EOF) uv_stop(stream->loop);
  if (bytes > 0) send_bytes(stream, (size_t)bytes);
}

static void on_client(uv_stream_t *listener, int status) {
  static uv_tcp_t peer;
  expect_ok(status, "uv_listen");
  expect_ok(uv_tcp_init(listener->loop, &peer), "uv_tcp_init");
  expect_ok(uv_accept(listener, (uv_stream_t *)&peer), "uv_accept");
  expect_ok(uv_tcp_nodelay(&peer, 1), "uv_tcp_nodelay");
  expect_ok(uv_read_start((uv_stream_t *)&peer, lend_room, on_message), "uv_read_start");
}

static int run_server(uv_loop_t *loop) {
  uv_tcp_t listener;
  struct sockaddr_in at;
  int length = sizeof(at);
  expect_ok(uv_ip4_addr("127.0.0.1", 0, &at), "uv_ip4_addr");
  expect_ok(uv_tcp_init(loop, &listener), "uv_tcp_init");
  expect_ok(uv_tcp_bind(&listener, (const struct sockaddr *)&at, 0), "uv_tcp_bind");
  expect_ok(uv_listen((uv_stream_t *)&listener, 1, on_client), "uv_listen");
  expect_ok(uv_tcp_getsockname(&listener, (struct sockaddr *)&at, &length), "uv_tcp_getsockname");
  printf("{\"port\": %d}\n", ntohs(at.sin_port));
  fflush(stdout);
  uv_run(loop, UV_RUN_DEFAULT);
  return 0;
}

/* ---------------------------------------------------------------- client */

typedef struct client {
  uv_tcp_t tcp;
  size_t bytes, missing; /* of the message; of the echo */
  uint64_t left;         /* round trips */
} client;

static void on_echo(uv_stream_t *stream, ssize_t bytes, const uv_buf_t *buffer) {
  client *c = (client *)stream;
  (void)buffer;
  expect_ok((int)bytes, "uv_read");
  c->missing -= (size_t)bytes;
  if (c->missing > 0) return;
  if (--c->left == 0) {
    uv_stop(stream->loop);
    return;
  }
  c->missing = c->bytes;
  send_bytes(stream, c->bytes);
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  client *c = self;
  if (strcmp(operation, "echo") != 0 || bytes == 0 || bytes > kRoom) {
    batch_fail("uv_echo: %s of %llu bytes: only an echo of 1 to %d", operation, (unsigned long long)bytes, kRoom);
  }
  c->bytes = bytes;
}

static void repeat(void *self, uint64_t times) {
  client *c = self;
  c->left = times;
  c->missing = c->bytes;
  send_bytes((uv_stream_t *)&c->tcp, c->bytes);
  uv_run(c->tcp.loop, UV_RUN_DEFAULT);
}

static void on_connected(uv_connect_t *connect, int status) {
  expect_ok(status, "uv_tcp_connect");
  expect_ok(uv_read_start(connect->handle, lend_room, on_echo), "uv_read_start");
  uv_stop(connect->handle->loop);
}

static int run_client(uv_loop_t *loop, int port) {
  client self;
  uv_connect_t connect;
  struct sockaddr_in to;
  expect_ok(uv_ip4_addr("127.0.0.1", port, &to), "uv_ip4_addr");
  expect_ok(uv_tcp_init(loop, &self.tcp), "uv_tcp_init");
  expect_ok(uv_tcp_nodelay(&self.tcp, 1), "uv_tcp_nodelay");
  expect_ok(uv_tcp_connect(&connect, &self.tcp, (const struct sockaddr *)&to, on_connected), "uv_tcp_connect");
  uv_run(loop, UV_RUN_DEFAULT);
  batch_serve(&(batch_program){prepare, repeat, NULL, &self, NULL});
  return 0;
}

int main(int argc, char **argv) {
  uv_loop_t loop;
  expect_ok(uv_loop_init(&loop), "uv_loop_init");
  if (argc == 2 && strcmp(argv[1], "server") == 0) return run_server(&loop);
  if (argc == 3 && strcmp(argv[1], "client") == 0) return run_client(&loop, atoi(argv[2]));
  batch_fail("usage: uv_echo server | uv_echo client PORT");
}
