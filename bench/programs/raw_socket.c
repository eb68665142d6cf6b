/* The capacity of a TCP connection over loopback: the messages of a blocking add or get, without any table.
 * raw_socket server          writes {"port": n}, then serves one client; received bytes go into reused memory
 * raw_socket client PORT     operations: add (bytes there, one back), get (one there, bytes back), add_get */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "programs/batch.h"

/* Precedes each payload: its length, and the length of the wanted answer. */
typedef struct request {
  uint64_t bytes, wanted;
} request;

typedef struct client {
  int fd;
  char operation[16];
  uint64_t bytes;
  char *memory;
} client;

static void send_all(int fd, struct iovec *parts, int count) {
  while (count > 0) {
    ssize_t sent = writev(fd, parts, count);
    if (sent < 0) batch_fail("raw_socket: writev failed");
    while (count > 0 && (size_t)sent >= parts->iov_len) {
      sent -= (ssize_t)parts->iov_len;
      ++parts;
      --count;
    }
    if (count > 0) {
      parts->iov_base = (char *)parts->iov_base + sent;
      parts->iov_len -= (size_t)sent;
    }
  }
}

/* 0 at the end of the stream. */
static int receive_all(int fd, void *to, uint64_t bytes) {
  for (uint64_t got = 0; got < bytes;) {
    const ssize_t n = recv(fd, (char *)to + got, bytes - got, 0);
    if (n < 0) batch_fail("raw_socket: recv failed");
    if (n == 0) return 0;
    got += (uint64_t)n;
  }
  return 1;
}

/* Chooses the fastest congestion control for loopback. bbr, many systems' default, paces its packets, which costs a third. */
static void hurry(int fd) {
  const int on = 1;
  const char cubic[] = "cubic";
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cubic, sizeof(cubic) - 1);
}

static int tcp_socket(void) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) batch_fail("raw_socket: no socket");
  hurry(fd);
  return fd;
}

static struct sockaddr_in loopback(uint16_t port) {
  return (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void exchange(client *c, uint64_t bytes, uint64_t wanted) {
  request head = {bytes, wanted};
  struct iovec parts[] = {{&head, sizeof(head)}, {c->memory, bytes}};
  send_all(c->fd, parts, 2);
  if (!receive_all(c->fd, c->memory, wanted)) batch_fail("raw_socket: the server is gone");
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  client *c = self;
  if (strcmp(operation, "add") != 0 && strcmp(operation, "get") != 0 && strcmp(operation, "add_get") != 0) {
    batch_fail("raw_socket: unknown operation %s", operation);
  }
  snprintf(c->operation, sizeof(c->operation), "%s", operation);
  if (bytes == c->bytes) return;
  free(c->memory);
  c->memory = batch_memory(bytes);
  c->bytes = bytes;
}

static void repeat(void *self, uint64_t times) {
  client *c = self;
  for (uint64_t i = 0; i < times; ++i) {
    if (c->operation[0] == 'a') exchange(c, c->bytes, 1);
    if (strcmp(c->operation, "add") != 0) exchange(c, 1, c->bytes);
  }
}

static int run_client(uint16_t port) {
  client self = {.fd = tcp_socket()};
  const struct sockaddr_in to = loopback(port);
  if (connect(self.fd, (const struct sockaddr *)&to, sizeof(to)) != 0) batch_fail("raw_socket: can't connect");
  batch_serve(&(batch_program){prepare, repeat, NULL, &self});
  return 0;
}

static int run_server(void) {
  const int listener = tcp_socket();
  struct sockaddr_in at = loopback(0);
  socklen_t length = sizeof(at);
  if (bind(listener, (const struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&at, &length) != 0) {
    batch_fail("raw_socket: can't listen");
  }
  printf("{\"port\": %d}\n", ntohs(at.sin_port));
  fflush(stdout);
  const int fd = accept(listener, NULL, NULL);
  if (fd < 0) batch_fail("raw_socket: accept failed");
  hurry(fd);

  uint64_t room = 0;
  char *memory = NULL;
  request head;
  while (receive_all(fd, &head, sizeof(head))) {
    const uint64_t need = head.bytes > head.wanted ? head.bytes : head.wanted;
    if (need > room) {
      free(memory);
      memory = batch_memory(room = need);
    }
    if (!receive_all(fd, memory, head.bytes)) break;
    send_all(fd, &(struct iovec){memory, head.wanted}, 1);
  }
  free(memory);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "server") == 0) return run_server();
  if (argc == 3 && strcmp(argv[1], "client") == 0) return run_client((uint16_t)atoi(argv[2]));
  batch_fail("usage: raw_socket server | raw_socket client PORT");
}
