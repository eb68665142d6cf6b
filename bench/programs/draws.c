#include "programs/draws.h"

#include <stdio.h>

#include "programs/batch.h"
#include "programs/chosen.h"

int64_t draws_key(uint64_t i) { return (int64_t)((i + 1) * 0x9e3779b97f4a7c15u); /* odd, so that different i give different keys */ }

int64_t *draws_make(void) {
  int64_t *draws = batch_memory(kDraws * sizeof(int64_t));
  uint64_t state = 1;
  for (int i = 0; i < kDraws; ++i) draws[i] = draws_key(chosen_random(&state) % kKeys);
  return draws;
}

void draws_fill(const draws_map *map, uint64_t count) {
  int64_t keys[kFill];
  char line[64];
  printf("{\"ready\": true}\n");
  fflush(stdout);
  if (!fgets(line, sizeof(line), stdin)) return;
  const double begun = batch_now();
  for (uint64_t done = 0; done < count;) {
    const uint64_t some = count - done < kFill ? count - done : kFill;
    for (uint64_t i = 0; i < some; ++i) keys[i] = draws_key(done + i);
    map->add(map->self, keys, some);
    done += some;
  }
  const double seconds = batch_now() - begun;
  map->check(map->self);
  printf("{\"seconds\": %.6g}\n", seconds);
  fflush(stdout);
  while (fgets(line, sizeof(line), stdin)) continue;
}
