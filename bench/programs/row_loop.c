/* The time of a plain loop over chosen rows of a matrix in its own memory. Operations on BYTES bytes of rows: gather copies them into
 * one warm buffer, scatter adds a warm buffer to them. */
#include <stdlib.h>
#include <string.h>

#include "programs/batch.h"
#include "programs/chosen.h"

typedef struct looper {
  int scatter;
  uint64_t count;
  int64_t *rows;
  float *matrix, *values;
} looper;

static void prepare(void *self, const char *operation, uint64_t bytes) {
  looper *l = self;
  l->scatter = strcmp(operation, "scatter") == 0;
  if (!l->scatter && strcmp(operation, "gather") != 0) batch_fail("row_loop: unknown operation %s", operation);
  const uint64_t count = bytes / (kCols * sizeof(float));
  if (count == l->count) return;
  free(l->rows);
  free(l->values);
  l->rows = chosen_rows(count);
  l->values = batch_memory(bytes);
  l->count = count;
}

static void gather(const looper *l) {
  for (uint64_t i = 0; i < l->count; ++i) {
    memcpy(l->values + i * kCols, l->matrix + l->rows[i] * kCols, kCols * sizeof(float));
  }
}

static void scatter(const looper *l) {
  for (uint64_t i = 0; i < l->count; ++i) {
    float *row = l->matrix + l->rows[i] * kCols;
    const float *values = l->values + i * kCols;
    for (int c = 0; c < kCols; ++c) row[c] += values[c];
  }
}

static void repeat(void *self, uint64_t times) {
  const looper *l = self;
  for (uint64_t i = 0; i < times; ++i) {
    if (l->scatter) {
      scatter(l);
    } else {
      gather(l);
    }
    __asm__ volatile("" : : "r"(l->values), "r"(l->matrix) : "memory"); /* keeps the compiler from removing the loop */
  }
}

int main(void) {
  looper self = {.matrix = batch_memory(sizeof(float) * kRows * kCols)};
  batch_serve(&(batch_program){prepare, repeat, NULL, &self, NULL});
  return 0;
}
