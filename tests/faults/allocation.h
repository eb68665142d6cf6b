/* Makes the N-th allocation of this process fail, once: malloc() and its relatives are replaced in the program that includes this, for
 * the library as well. Allocations by libuv itself and by getaddrinfo() are left alone: both end the process where they have no memory. */
#ifndef POLYVERSO_TESTS_ALLOCATION_H
#define POLYVERSO_TESTS_ALLOCATION_H

#include <stdint.h>

/** From now on the n-th allocation fails, counted over all threads; 0: none does. */
void allocation_fail_at(uint64_t n);
/** Whether it has come to that. Disarms it. */
int allocation_failed(void);
/** The allocations since allocation_fail_at(). */
uint64_t allocation_count(void);

#endif
