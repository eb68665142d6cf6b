#ifndef POLYVERSO_BENCH_BATCH_H
#define POLYVERSO_BENCH_BATCH_H
/* The dialogue of every measuring program with the driver (bench/harness/session.py).
 *
 * Once a program can measure, it writes {"ready": true}. Then each line of standard input is a batch,
 *
 *     OPERATION BYTES SECONDS BLOCK
 *
 * and asks to repeat the operation on BYTES bytes for about SECONDS. The clock is read every BLOCK repetitions: 1 for
 * calls of microseconds and more, many for shorter ones. The answer is one line, in seconds for one repetition:
 *
 *     {"median": 1.2e-05, "mean": 1.3e-05, "least": 1.1e-05, "p99": 2.0e-05, "count": 8000}
 *
 * Standard input's end ends the program. What can't go on writes {"error": "..."} and ends with 1. */

#include <stdint.h>

typedef struct batch_program {
  /** Makes ready for an operation, so that repetitions find warm memory; batch_fail() for one it does not know. */
  void (*prepare)(void *self, const char *operation, uint64_t bytes);
  /** Does it `times` times. */
  void (*repeat)(void *self, uint64_t times);
  /** Was the work of the batch really done? NULL if that can't be told. */
  void (*check)(void *self);
  void *self;
} batch_program;

/** Serves batches until standard input ends. */
void batch_serve(const batch_program *program);

/** Says why, in printf's way, and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) void batch_fail(const char *format, ...);

/** Seconds of the monotonic clock. */
double batch_now(void);

/** `bytes` of memory, every page of it touched, aligned to a cache line. Never NULL. */
void *batch_memory(uint64_t bytes);

#endif
