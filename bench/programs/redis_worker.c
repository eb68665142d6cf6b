/* The client of a Redis server on a unix socket:   redis_worker SOCKET
 * Operation add: INCRBYFLOAT of 1 to each of BYTES / 8 keys, pipelined: all commands in one write, then all answers. The commands are
 * formatted beforehand, and answers are only counted, so that the client costs almost nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "programs/batch.h"
#include "programs/draws.h"

static const char kBefore[] = "*3\r\n$11\r\nINCRBYFLOAT\r\n$8\r\n", kAfter[] = "\r\n$1\r\n1\r\n"; /* the key */
enum { kLongest = 48 /* bytes of a command */, kRoom = 1 << 20 };

typedef struct client {
  int fd;
  char *commands;   /* of all draws, one after the other */
  uint64_t *begins; /* where in `commands` each one begins, and the end */
  uint64_t at;      /* the next draw */
  uint64_t count;   /* commands of an add */
  char *answers;
} client;

static int dial(const char *path) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof(to.sun_path)) batch_fail("redis_worker: %s is too long for a socket's path", path);
  memcpy(to.sun_path, path, strlen(path));
  for (int tries = 0; tries < 500; ++tries) { /* the server may still be starting */
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0) return fd;
    close(fd);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  batch_fail("redis_worker: can't connect to %s: %s", path, strerror(errno));
}

static uint64_t append(char *text, uint64_t end, const void *more, uint64_t bytes) {
  memcpy(text + end, more, bytes);
  return end + bytes;
}

static void spell(client *c) {
  int64_t *draws = draws_make();
  c->commands = batch_memory((uint64_t)kDraws * kLongest);
  c->begins = batch_memory((kDraws + 1) * sizeof(uint64_t));
  uint64_t end = 0;
  for (int i = 0; i < kDraws; ++i) {
    c->begins[i] = end;
    end = append(c->commands, end, kBefore, sizeof(kBefore) - 1);
    end = append(c->commands, end, &draws[i], sizeof(draws[i])); /* Redis keys are bytes, and the shortest are fastest */
    end = append(c->commands, end, kAfter, sizeof(kAfter) - 1);
  }
  c->begins[kDraws] = end;
  free(draws);
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  client *c = self;
  c->count = bytes / sizeof(double);
  if (strcmp(operation, "add") != 0) batch_fail("redis_worker: unknown operation %s", operation);
  if (c->count == 0 || kDraws % c->count != 0) batch_fail("redis_worker: %d draws are not a multiple of the keys of an add", kDraws);
  c->at = 0;
}

static void send_all(const client *c, const char *from, uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = write(c->fd, from, bytes);
    if (sent < 0) batch_fail("redis_worker: write: %s", strerror(errno));
    from += sent;
    bytes -= (uint64_t)sent;
  }
}

/* An answer is "$3\r\n1.5\r\n": a length and the sum; an error is one line that begins with '-'. */
static void hear(const client *c, uint64_t answers) {
  char before = '\n';
  for (uint64_t lines = 0; lines < 2 * answers;) {
    const ssize_t got = read(c->fd, c->answers, kRoom);
    if (got <= 0) batch_fail("redis_worker: the server is gone");
    for (ssize_t i = 0; i < got; ++i) {
      if (before == '\n' && c->answers[i] == '-') batch_fail("redis_worker: %.*s", (int)(got - i), c->answers + i);
      before = c->answers[i];
      lines += before == '\n';
    }
  }
}

static void repeat(void *self, uint64_t times) {
  client *c = self;
  for (uint64_t i = 0; i < times; ++i) {
    const uint64_t begin = c->begins[c->at], end = c->begins[c->at + c->count];
    send_all(c, c->commands + begin, end - begin);
    hear(c, c->count);
    c->at = (c->at + c->count) % kDraws;
  }
}

int main(int argc, char **argv) {
  if (argc != 2) batch_fail("usage: redis_worker SOCKET");
  client self = {.fd = dial(argv[1]), .answers = batch_memory(kRoom)};
  spell(&self);
  batch_serve(&(batch_program){prepare, repeat, NULL, &self, NULL});
  return 0;
}
