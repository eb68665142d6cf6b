#ifndef POLYVERSO_BENCH_DRAWS_H
#define POLYVERSO_BENCH_DRAWS_H
/* The keys of the key-value benchmarks, the same for Polyverso and for its peers: a long list of draws, with replacement, from a million
 * random 64-bit keys. Programs iterate over it cyclically, a batch at a time. */
#include <stdint.h>

enum { kKeys = 1000000, kDraws = 1000000, kFill = 10000 };

/** The i-th of the keys. */
int64_t draws_key(uint64_t i);

/** kDraws of them, at random, the same on every run. The caller frees them. */
int64_t *draws_make(void);

/** Something that stores a value for each key. */
typedef struct draws_map {
  /** Adds 1 to each of `count` keys, at most kFill. */
  void (*add)(void *self, const int64_t *keys, uint64_t count);
  /** Checks that it holds what was added. */
  void (*check)(void *self);
  void *self;
} draws_map;

/** Measures the memory of a map with `count` keys, together with the driver: writes {"ready": true}, waits for a line, adds to `count`
 *  different keys, kFill at a time, writes {"seconds": 1.5}, and waits for the end of standard input, with the map in memory. */
void draws_fill(const draws_map *map, uint64_t count);

#endif
