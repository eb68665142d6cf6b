/* How the two sides of a shared-memory connection sleep and wake each other: core/transport/shm/connection.cpp and shm.cpp.
 *
 * Each side writes records into its own ring and reads the other side's ring. It rings the other side's bell, an eventfd, only if that
 * side has announced its sleep: after it has written records (flush), and after it has read as much as the other side waits for (look).
 * A sleeping side either has nothing to read and nothing to write, or has nothing to read and no room to write. Checked: no side sleeps
 * for ever while there is work. SPIN reports a state in which no process can continue.
 *
 * The patterns are Dekker's, with a full fence between the store and the load on both sides.
 *
 *   BUG_NO_FENCE_IN_FLUSH: flush() checks for a sleeping peer without a fence
 *   BUG_NO_FENCE_AFTER_READING: the same after records were read
 *   BUG_NO_FENCE_BEFORE_SLEEP: before_sleep() checks for news without a fence
 *   BUG_LOOKS_BEFORE_IT_SAYS_SO: before_sleep() checks for news before it announces its sleep
 *   BUG_RINGS_ONCE_FOR_ALL: a side that has rung once does not ring again; naps are not distinguished
 *   BUG_NO_RING_AFTER_READING: the writer is not told that there is room again; a closing side once omitted this when it passed over
 *   records
 *   NIGHTLY_LONGER: -DRECORDS=3
 */
#include "memory.h"
#ifndef RECORDS
#define RECORDS 2
#endif
#define ROOM 1  /* the ring's capacity in records */
#define NO_WISH 200

word(written, 2);     /* Control::written of each side, in records */
word(read, 2);        /* Control::read: the number of the other side's records that it has read */
word(naps, 2);        /* Control::naps: odd while it sleeps */
word(wants_read, 2);  /* Control::wants_read: the peer wakes this side after reading this many */
bool bell[2];         /* the eventfd on which this side sleeps; poll() resets it */

/* full_fence() */
inline fence(s) {
  d_step { settle(written, s); settle(read, s); settle(naps, s); settle(wants_read, s) }
}

/* ShmConnection::ring_bell() */
inline ring_bell(s) {
  nap = load(naps, 1 - s);
  if
  :: nap % 2 == 1 && nap != rung_for ->
#ifdef BUG_RINGS_ONCE_FOR_ALL
    if :: rung_for == 0 -> bell[1 - s] = true :: else fi;
#else
    bell[1 - s] = true;
#endif
    rung_for = nap
  :: else
  fi;
  nap = 0
}

inline look(s) {
  /* ShmConnection::take(), or pass_over() on a closing side */
  if
  :: load(written, 1 - s) > mine(read, s) ->
    store(read, s, load(written, 1 - s));
#ifndef BUG_NO_RING_AFTER_READING
#ifndef BUG_NO_FENCE_AFTER_READING
    fence(s);
#endif
    if :: load(wants_read, 1 - s) <= mine(read, s) -> ring_bell(s) :: else fi
#endif
  :: else
  fi;
  /* ShmConnection::flush() */
  if
  :: mine(written, s) < RECORDS && mine(written, s) - load(read, 1 - s) < ROOM ->
    store(written, s, mine(written, s) + 1);
#ifndef BUG_NO_FENCE_IN_FLUSH
    fence(s);
#endif
    ring_bell(s)
  :: else
  fi
}

#define news(s) (load(written, 1 - s) > mine(read, s) || load(read, 1 - s) >= mine(wants_read, s))

proctype Side(byte s) {
  byte nap, rung_for;
  bool quiet;
  do
  ::
    look(s);
    if
    :: mine(written, s) == RECORDS && mine(read, s) == RECORDS -> break
    :: else
    fi;
    /* ShmTransport::before_sleep(): say_asleep() */
#ifdef BUG_LOOKS_BEFORE_IT_SAYS_SO
    store(wants_read, s, (mine(written, s) < RECORDS -> mine(written, s) - ROOM + 1 : NO_WISH));
    quiet = !news(s);
#endif
    store(wants_read, s, (mine(written, s) < RECORDS -> mine(written, s) - ROOM + 1 : NO_WISH));
    store(naps, s, mine(naps, s) + 1);
#ifndef BUG_NO_FENCE_BEFORE_SLEEP
    fence(s);
#endif
#ifndef BUG_LOOKS_BEFORE_IT_SAYS_SO
    quiet = !news(s);  /* ShmConnection::is_quiet() */
#endif
    if
    :: quiet -> bell[s] -> bell[s] = false  /* poll() */
    :: else
    fi;
    quiet = false;
    store(naps, s, mine(naps, s) + 1)  /* ShmConnection::say_awake() */
  od;
  fence(s)
}

/* A store buffer drains at any time. */
proctype Drain(byte s) {
end:
  do
  :: d_step { !settled(written, s) -> settle(written, s) }
  :: d_step { !settled(read, s) -> settle(read, s) }
  :: d_step { !settled(naps, s) -> settle(naps, s) }
  :: d_step { !settled(wants_read, s) -> settle(wants_read, s) }
  od
}

init {
  atomic {
    wants_read_own[0] = NO_WISH; wants_read_seen[0] = NO_WISH;
    wants_read_own[1] = NO_WISH; wants_read_seen[1] = NO_WISH;
    run Side(0); run Side(1); run Drain(0); run Drain(1)
  }
}
