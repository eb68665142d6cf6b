#ifndef POLYVERSO_BENCH_RANKS_H
#define POLYVERSO_BENCH_RANKS_H
/* Measuring programs of several ranks: rank 0 follows the protocol of batch.h, and sends the common work to the others. */

#include <stdint.h>

typedef struct ranks_program {
  int rank, ranks;
  /** Broadcasts rank 0's bytes. */
  void (*tell)(void *self, void *message, uint64_t bytes);
  /** As in batch_program, on every rank. */
  void (*prepare)(void *self, const char *operation, uint64_t bytes);
  void (*repeat)(void *self, uint64_t times);
  void (*check)(void *self);
  void *self;
} ranks_program;

/** Runs until rank 0's standard input ends. Each block is timed as a whole, including the message that starts it, so request long
 * blocks; or "each-OPERATION", which times each call on rank 0. In "paused-OPERATION" some rank, chosen at random, pauses for a millisecond
 * before one call in twenty. */
void ranks_serve(const ranks_program *program);

/** The input of an f32 allreduce; ranks_check() expects its first sum. Ones: a sum in place grows by the number of ranks each time and
 * soon becomes infinite. That costs no time, because no number is subnormal. */
void ranks_fill(float *values, uint64_t count);
void ranks_check(const float *values, uint64_t count, float expected);

#endif
