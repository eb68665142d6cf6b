/* Deadlines of waits that are repeated after a signal, with the rest of their time. */
#ifndef POLYVERSO_SWIG_DEADLINE_H
#define POLYVERSO_SWIG_DEADLINE_H

#include <stdint.h>
#include <time.h>

static inline int64_t pv_clock_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Lowers a time-out of `whole` to the rest since `started`: at least 1, because 0 and negative values have special
 * meanings. Returns 1, for use in a loop's condition. */
static inline int pv_shorten(int64_t *timeout_ms, int64_t whole, int64_t started) {
  if (whole > 0) {
    int64_t left = whole - (pv_clock_ms() - started);
    *timeout_ms = left > 0 ? left : 1;
  }
  return 1;
}

#endif
