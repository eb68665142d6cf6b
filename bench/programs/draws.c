#include "programs/draws.h"

#include "programs/batch.h"
#include "programs/chosen.h"

int64_t draws_key(uint64_t i) { return (int64_t)((i + 1) * 0x9e3779b97f4a7c15u); /* odd, so that different i give different keys */ }

int64_t *draws_make(void) {
  int64_t *draws = batch_memory(kDraws * sizeof(int64_t));
  uint64_t state = 1;
  for (int i = 0; i < kDraws; ++i) draws[i] = draws_key(chosen_random(&state) % kKeys);
  return draws;
}
