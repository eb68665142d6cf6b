#ifndef POLYVERSO_BENCH_DRAWS_H
#define POLYVERSO_BENCH_DRAWS_H
/* The keys of the key-value benchmarks, the same for Polyverso and for Redis: a long list of draws, with replacement, from a million
 * random 64-bit keys. Programs iterate over it cyclically, a batch at a time. */
#include <stdint.h>

enum { kKeys = 1000000, kDraws = 1000000 };

/** The i-th of the keys. */
int64_t draws_key(uint64_t i);

/** kDraws of them, at random, the same on every run. The caller frees them. */
int64_t *draws_make(void);

#endif
