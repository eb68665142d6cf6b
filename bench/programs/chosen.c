#include "programs/chosen.h"

#include <stdlib.h>

#include "programs/batch.h"

uint64_t chosen_random(uint64_t *state) { /* xorshift64* */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 2685821657736338717u;
}

int64_t *chosen_rows(uint64_t count) {
  if (count > kRows) batch_fail("can't choose %llu different rows of %d", (unsigned long long)count, kRows);
  int64_t *rows = batch_memory(kRows * sizeof(int64_t));
  for (int64_t i = 0; i < kRows; ++i) rows[i] = i;
  uint64_t state = 2026;
  for (uint64_t i = 0; i < count; ++i) { /* the first steps of a Fisher-Yates shuffle */
    const uint64_t other = i + chosen_random(&state) % (kRows - i);
    const int64_t row = rows[other];
    rows[other] = rows[i];
    rows[i] = row;
  }
  return rows;
}
