/* glibc's memcpy between two warm, distinct buffers. Operations: copy; fresh: to memory that the kernel has just given. */
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"

typedef struct copier {
  void *from, *to;
  uint64_t bytes;
  int fresh;
} copier;

static void prepare(void *self, const char *operation, uint64_t bytes) {
  copier *c = self;
  c->fresh = strcmp(operation, "fresh") == 0;
  if (!c->fresh && strcmp(operation, "copy") != 0) batch_fail("memcpy: unknown operation %s", operation);
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
    void *const to = c->fresh ? batch_fresh_memory(c->bytes) : c->to;
    memcpy(to, c->from, c->bytes);
    __asm__ volatile("" : : "r"(to) : "memory"); /* keeps the compiler from removing the copy */
    if (c->fresh) batch_free_fresh(to, c->bytes);
  }
}

int main(void) {
  copier self = {0};
  batch_serve(&(batch_program){prepare, repeat, NULL, &self, NULL});
  return 0;
}
