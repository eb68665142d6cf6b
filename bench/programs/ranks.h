#ifndef POLYVERSO_BENCH_RANKS_H
#define POLYVERSO_BENCH_RANKS_H
/* Measuring programs of several ranks: rank 0 has the dialogue of batch.h, and tells the others what to do together. */

#include <stdint.h>

typedef struct ranks_program {
  int rank;
  /** Rank 0's bytes to all. */
  void (*tell)(void *self, void *message, uint64_t bytes);
  /** As in batch_program, on every rank. */
  void (*prepare)(void *self, const char *operation, uint64_t bytes);
  void (*repeat)(void *self, uint64_t times);
  void (*check)(void *self);
  void *self;
} ranks_program;

/** Until rank 0's standard input ends. Only a batch's block is timed as a whole, as the telling costs a message: ask for long ones. */
void ranks_serve(const ranks_program *program);

/** What an allreduce of f32 starts from, and what its first sum must be. Ones: a sum in place grows by the number of ranks each time,
 *  and is infinite soon; that costs no time, for it is no subnormal. */
void ranks_fill(float *values, uint64_t count);
void ranks_check(const float *values, uint64_t count, float expected);

#endif
