/* What fails around this process once that is armed. allocation.c and system_calls.c are two sorts of it; a worker has one of them. */
#ifndef POLYVERSO_TESTS_FAULT_H
#define POLYVERSO_TESTS_FAULT_H

#include <stdint.h>

/** allocation.c: the n-th allocation from now on fails, once, counted over all threads. system_calls.c: calls fail as the seed n says.
 *  0: none does. */
void fault_arm(uint64_t n);
/** Whether anything has failed. Disarms it. */
int fault_happened(void);
/** What might have failed since fault_arm(): how many allocations, or calls. */
uint64_t fault_count(void);
/** What fails, for people. */
const char* fault_name(void);
/** Whether all calls are to succeed all the same. */
int fault_is_absorbed(void);

#endif
