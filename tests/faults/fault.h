/* Injects failures into this process once it is armed. allocation.c and system_calls.c are two implementations; a worker links one of
 * them. */
#ifndef POLYVERSO_TESTS_FAULT_H
#define POLYVERSO_TESTS_FAULT_H

#include <stdint.h>

/** allocation.c: the n-th allocation from now on fails, once, counted over all threads. system_calls.c: n is the seed that decides which
 * calls fail. 0: no failures. */
void fault_arm(uint64_t n);
/** Whether anything has failed. Disarms the injection. */
int fault_happened(void);
/** The number of allocations, or calls, since fault_arm(). */
uint64_t fault_count(void);
/** The name of the kind of failure, for messages. */
const char* fault_name(void);
/** Whether all calls have to succeed despite the failures. */
int fault_is_absorbed(void);

#endif
