#ifndef POLYVERSO_BENCH_CHOSEN_H
#define POLYVERSO_BENCH_CHOSEN_H
/* The table of the row benchmarks and a random choice of its rows: the same for Polyverso and for the reference loop. Size and share are
 * those of Multiverso's own matrix benchmark. */
#include <stdint.h>

enum { kRows = 1000000, kCols = 50 };

/** A random number generator; begin with any state but 0. */
uint64_t chosen_random(uint64_t *state);

/** `count` different rows out of kRows, at random and in random order, the same on every run. The caller frees them. */
int64_t *chosen_rows(uint64_t count);

#endif
