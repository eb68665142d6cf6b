#ifndef POLYVERSO_BENCH_BATCH_H
#define POLYVERSO_BENCH_BATCH_H
/* The protocol between every measuring program and the driver (bench/harness/session.py).
 *
 * Once a program can measure, it writes {"ready": true}. Then each line of standard input is a batch,
 *
 *     OPERATION BYTES SECONDS BLOCK
 *
 * which requests repetitions of the operation on BYTES bytes for about SECONDS. The program reads the clock every BLOCK repetitions: 1
 * for calls of microseconds and more, many for shorter ones. The answer is one line, in seconds per repetition:
 *
 *     {"median": 1.2e-05, "mean": 1.3e-05, "least": 1.1e-05, "p99": 2.0e-05, "count": 8000}
 *
 * In a batch of "each-OPERATION", every repetition counts by itself: the program reads the clock around each one.
 *
 * The end of standard input ends the program. A program that cannot continue writes {"error": "..."} and exits with 1. */

#include <stdint.h>

typedef struct batch_program {
  /** Prepares an operation, so that repetitions find warm memory; calls batch_fail() for an unknown one. */
  void (*prepare)(void *self, const char *operation, uint64_t bytes);
  /** Repeats it `times` times. */
  void (*repeat)(void *self, uint64_t times);
  /** Checks the results of the batch. NULL if that is not possible. */
  void (*check)(void *self);
  void *self;
  /** Repeats it likewise, and writes the seconds of each repetition, for "each-OPERATION". NULL if that is not possible. */
  void (*repeat_each)(void *self, uint64_t times, double *seconds);
} batch_program;

/** Serves batches until standard input ends. */
void batch_serve(const batch_program *program);

/** Reports an error, formatted like printf(), and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) void batch_fail(const char *format, ...);

/** The monotonic clock in seconds. */
double batch_now(void);

/** `bytes` of memory, with every page touched, aligned to a cache line. Never NULL. */
void *batch_memory(uint64_t bytes);

/** `bytes` of memory of which no page exists yet; batch_free_fresh() gives them back to the kernel. */
void *batch_fresh_memory(uint64_t bytes);
void batch_free_fresh(void *memory, uint64_t bytes);

#endif
