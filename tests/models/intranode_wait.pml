/* How ranks of one machine wait for each other: core/intranode/waiting.hpp and waiting.cpp.
 *
 * Each rank carries out operations 1, 2, ... In each, it publishes a word and then waits for the words of all ranks. Checked: no rank
 * sleeps for ever. SPIN reports a state in which no process can continue. The code's one-second limit on a sleep (kLongest) is left out,
 * because it would turn every lost wake-up into a mere delay.
 *
 * The pattern is Dekker's: a publisher stores its word and then checks for sleepers; a sleeper announces its sleep and then checks the
 * word. With a full fence between the two steps on both sides, at least one of them sees the other.
 *
 *   BUG_NO_FENCE_IN_SETTLE: settle() checks for sleepers without a fence; a read-modify-write of the rank's own bell is not a fence
 *   BUG_NO_FENCE_IN_SLEEP: sleep() checks the word without a fence
 *   BUG_SLEEPS_WITHOUT_SETTLING: wait() sleeps although it has not checked for sleepers since it published
 *   BUG_LOOKS_BEFORE_IT_SAYS_SO: sleep() checks the word first and announces its sleep afterwards
 *   BUG_READS_THE_BELL_LAST: sleep() reads the bell after the check, so a ring between the two goes unnoticed
 *   BUG_DOES_NOT_RING: settle() wakes the futex without changing the bell first
 *   NIGHTLY_THREE_RANKS: -DRANKS=3 -DLAST=2
 */
#include "memory.h"
#ifndef RANKS
#define RANKS 2
#endif
#ifndef LAST
#define LAST 3
#endif

word(published, RANKS);  /* Header::posted, Words::staged, merged, copied, draining: one word represents all of them */
word(bell, RANKS);       /* Words::bell */
word(asleep_on, RANKS);  /* Words::asleep_on: 1 + the rank on whose bell this one sleeps; 0: awake */
bool in_futex[RANKS];    /* on the bell of rank waits_on */
byte waits_on[RANKS];

/* full_fence() */
inline fence(r) {
  d_step { settle(published, r); settle(asleep_on, r) }
}

/* FUTEX_WAKE: all that sleep on this rank's bell */
inline futex_wake(r) {
  d_step {
    j = 0;
    do
    :: j < RANKS -> if :: in_futex[j] && waits_on[j] == r -> in_futex[j] = false :: else fi; j++
    :: else -> break
    od;
    j = 0
  }
}

/* RankContext::settle() */
inline look_for_sleepers(r) {
  if
  :: !owes -> skip
  :: else ->
    owes = false;
#ifndef BUG_NO_FENCE_IN_SETTLE
    fence(r);
#else
    rmw_add(bell, r, 0);
#endif
    any = false; i = 0;
    do
    :: i < RANKS -> any = any || (i != r && load(asleep_on, i) == 1 + r); i++
    :: else -> break
    od;
    i = 0;
    if
    :: any ->
#ifndef BUG_DOES_NOT_RING
      rmw_add(bell, r, 1);
#endif
      futex_wake(r)
    :: else
    fi;
    any = false
  fi
}

proctype Rank(byte r) {
  byte operation = 1, on, i, j, seen;
  bool owes = false, any = false, ready = false;
  do
  :: operation > LAST -> break
  :: else ->
    store(published, r, operation);  /* RankContext::publish() */
    owes = true;
    on = 0;
    do
    :: on == RANKS -> break
    :: on == r -> on++
    :: else ->
      /* RankContext::wait(): if (ready()) return */
      if
      :: load(published, on) >= operation -> skip
      :: else ->
#ifndef BUG_SLEEPS_WITHOUT_SETTLING
        look_for_sleepers(r);
#endif
        /* RankContext::sleep() */
        do
        ::
#ifndef BUG_READS_THE_BELL_LAST
          seen = load(bell, on);
#endif
#ifdef BUG_LOOKS_BEFORE_IT_SAYS_SO
          ready = load(published, on) >= operation;
#endif
          store(asleep_on, r, 1 + on);
#ifndef BUG_NO_FENCE_IN_SLEEP
          fence(r);
#endif
#ifndef BUG_LOOKS_BEFORE_IT_SAYS_SO
          ready = load(published, on) >= operation;
#endif
#ifdef BUG_READS_THE_BELL_LAST
          seen = load(bell, on);
#endif
          if
          :: ready -> skip
          :: else ->
            /* sleep_by(): the kernel compares and sleeps in one step. Its own barriers make earlier stores visible */
            atomic { fence(r); if :: load(bell, on) == seen -> waits_on[r] = on; in_futex[r] = true :: else fi };
            !in_futex[r]
          fi;
          store(asleep_on, r, 0);
          if
          :: ready || load(published, on) >= operation -> break
          :: else -> skip
          fi
        od;
        ready = false; seen = 0
      fi;
      on++
    od;
    operation++
  od;
  look_for_sleepers(r);  /* RankContext::over() of the last operation; for earlier operations the next wait() does it */
}

/* A store buffer drains at any time. */
proctype Drain(byte r) {
end:
  do
  :: d_step { !settled(published, r) -> settle(published, r) }
  :: d_step { !settled(asleep_on, r) -> settle(asleep_on, r) }
  od
}

init {
  byte r;
  atomic {
    do
    :: r < RANKS -> run Rank(r); run Drain(r); r++
    :: else -> break
    od
  }
}
