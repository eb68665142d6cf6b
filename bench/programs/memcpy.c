/* glibc's memcpy between two warm, distinct buffers. Operation: copy. */
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"

typedef struct copier {
  void *from, *to;
  uint64_t bytes;
} copier;

static void prepare(void *self, const char *operation, uint64_t bytes) {
  copier *c = self;
  if (strcmp(operation, "copy") != 0) batch_fail("memcpy: unknown operation %s", operation);
  if (bytes == c->bytes) return;
  free(c->from);
  free(c->to);
  c->from = batch_memory(bytes);
  c->to = batch_memory(bytes);
  c->bytes = bytes;
}

static void repeat(void *self, uint64_t times) {
  const copier *c = self;
  for (uint64_t i = 0; i < times; ++i) {
    memcpy(c->to, c->from, c->bytes);
    __asm__ volatile("" : : "r"(c->to) : "memory"); /* keeps the compiler from removing the copy */
  }
}

int main(void) {
  copier self = {0};
  batch_serve(&(batch_program){prepare, repeat, NULL, &self});
  return 0;
}
