/* The capacity of a TCP connection: the messages of a blocking add or get, without any table.
 * raw_socket server [ADDRESS]        writes {"port": n}, then serves one client; received bytes go into reused memory
 * raw_socket client PORT [ADDRESS]   operations: add (bytes there, one back), get (one there, bytes back), add_get,
 *                                    swap (bytes in both directions at the same time)
 * ADDRESS is an IPv4 address, by default loopback's. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "programs/batch.h"

/* Precedes each payload: its length, and the length of the wanted answer. Where `swaps` is set, both are sent at once. */
typedef struct request {
  uint64_t bytes, wanted, swaps;
} request;

typedef struct client {
  int fd;
  char operation[16];
  uint64_t bytes;
  char *memory, *received;
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

static int failed(ssize_t moved) { return moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR); }

static void swap(int fd, const char *from, char *to, uint64_t bytes) {
  uint64_t sent = 0, got = 0;
  while (sent < bytes || got < bytes) {
    struct pollfd ready = {fd, (short)((sent < bytes ? POLLOUT : 0) | (got < bytes ? POLLIN : 0)), 0};
    poll(&ready, 1, -1);
    if (ready.revents & ~POLLOUT) {
      const ssize_t n = recv(fd, to + got, bytes - got, MSG_DONTWAIT);
      if (failed(n)) batch_fail("raw_socket: recv failed");
      if (n > 0) got += (uint64_t)n;
    }
    if (ready.revents & POLLOUT) {
      const ssize_t n = send(fd, from + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (failed(n)) batch_fail("raw_socket: send failed");
      if (n > 0) sent += (uint64_t)n;
    }
  }
}

/* Chooses the fastest congestion control for loopback. bbr, many systems' default, paces its packets, which costs a third.
 * A line between hosts keeps the system's choice. */
static void hurry(int fd, const struct sockaddr_in *address) {
  const int on = 1;
  const char cubic[] = "cubic";
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (ntohl(address->sin_addr.s_addr) == INADDR_LOOPBACK) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cubic, sizeof(cubic) - 1);
}

static int tcp_socket(const struct sockaddr_in *address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) batch_fail("raw_socket: no socket");
  hurry(fd, address);
  return fd;
}

static struct sockaddr_in address_of(const char *text, uint16_t port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  if (inet_pton(AF_INET, text, &address.sin_addr) != 1) batch_fail("raw_socket: not an IPv4 address: %s", text);
  return address;
}

static void exchange(client *c, uint64_t bytes, uint64_t wanted) {
  request head = {bytes, wanted, 0};
  struct iovec parts[] = {{&head, sizeof(head)}, {c->memory, bytes}};
  send_all(c->fd, parts, 2);
  if (!receive_all(c->fd, c->memory, wanted)) batch_fail("raw_socket: the server is gone");
}

static void swap_with_server(client *c) {
  request head = {c->bytes, c->bytes, 1};
  send_all(c->fd, &(struct iovec){&head, sizeof(head)}, 1);
  swap(c->fd, c->memory, c->received, c->bytes);
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  client *c = self;
  if (strcmp(operation, "add") != 0 && strcmp(operation, "get") != 0 && strcmp(operation, "add_get") != 0 && strcmp(operation, "swap") != 0) {
    batch_fail("raw_socket: unknown operation %s", operation);
  }
  snprintf(c->operation, sizeof(c->operation), "%s", operation);
  if (bytes == c->bytes) return;
  free(c->memory);
  free(c->received);
  c->memory = batch_memory(bytes);
  c->received = batch_memory(bytes);
  c->bytes = bytes;
}

static void repeat(void *self, uint64_t times) {
  client *c = self;
  for (uint64_t i = 0; i < times; ++i) {
    if (c->operation[0] == 's') swap_with_server(c);
    if (c->operation[0] == 'a') exchange(c, c->bytes, 1);
    if (strcmp(c->operation, "get") == 0 || strcmp(c->operation, "add_get") == 0) exchange(c, 1, c->bytes);
  }
}

static int run_client(struct sockaddr_in to) {
  client self = {.fd = tcp_socket(&to)};
  if (connect(self.fd, (const struct sockaddr *)&to, sizeof(to)) != 0) batch_fail("raw_socket: can't connect");
  batch_serve(&(batch_program){prepare, repeat, NULL, &self, NULL});
  return 0;
}

static int run_server(struct sockaddr_in at) {
  const int listener = tcp_socket(&at);
  socklen_t length = sizeof(at);
  if (bind(listener, (const struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&at, &length) != 0) {
    batch_fail("raw_socket: can't listen");
  }
  printf("{\"port\": %d}\n", ntohs(at.sin_port));
  fflush(stdout);
  const int fd = accept(listener, NULL, NULL);
  if (fd < 0) batch_fail("raw_socket: accept failed");
  hurry(fd, &at);

  uint64_t room = 0;
  char *memory = NULL, *received = NULL;
  request head;
  while (receive_all(fd, &head, sizeof(head))) {
    const uint64_t need = head.bytes > head.wanted ? head.bytes : head.wanted;
    if (need > room) {
      free(memory);
      free(received);
      memory = batch_memory(room = need);
      received = batch_memory(room);
    }
    if (head.swaps) {
      swap(fd, memory, received, head.bytes);
      continue;
    }
    if (!receive_all(fd, memory, head.bytes)) break;
    send_all(fd, &(struct iovec){memory, head.wanted}, 1);
  }
  free(memory);
  free(received);
  return 0;
}

int main(int argc, char **argv) {
  const char loopback[] = "127.0.0.1";
  if ((argc == 2 || argc == 3) && strcmp(argv[1], "server") == 0) return run_server(address_of(argc == 3 ? argv[2] : loopback, 0));
  if ((argc == 3 || argc == 4) && strcmp(argv[1], "client") == 0) {
    return run_client(address_of(argc == 4 ? argv[3] : loopback, (uint16_t)atoi(argv[2])));
  }
  batch_fail("usage: raw_socket server [ADDRESS] | raw_socket client PORT [ADDRESS]");
}
