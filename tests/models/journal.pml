/* How a part's server and its back-up share a journal: core/engine/replica/journal.cpp.
 *
 * The server writes each input into a ring, and acknowledges it if the back-up's gate is open afterwards. It overwrites what the back-up has
 * processed. The back-up gets the inputs as messages, too, late. When it takes over, it closes the gate, copies the ring, and processes what
 * has not come. The server may still run then: it was stopped for a while, and does not know that it was replaced. Checked: the back-up
 * processes every acknowledged input, and never a record that is being overwritten.
 *
 *   BUG_NO_FENCE_AFTER_APPENDING: append() looks at the gate without a fence
 *   BUG_NO_FENCE_AFTER_CLOSING: close() copies the ring without a fence
 *   BUG_LOOKS_AT_THE_GATE_BEFORE: append() looks at the gate only before it has written
 *   BUG_TRUSTS_THE_FIRST_BEGIN: close() does not look again from where on its copy is valid
 *   BUG_OVERWRITES_BEFORE_IT_SAYS_SO: drop_released() publishes the beginning without a fence before the records are overwritten
 *   NIGHTLY_LONGER: -DRECORDS=5
 */
#include "memory.h"
#ifndef RECORDS
#define RECORDS 3
#endif
#define ROOM 2  /* the ring's capacity in records */

word(begin, 1);   /* JournalPage::begin and end, in records */
word(end, 1);
word(slot, ROOM); /* the ring: the number of the record in each place */
word(closed, 1);  /* GatePage::is_closed */
byte sent;         /* inputs that the server has sent as messages */
byte processed;    /* by the back-up */
byte acknowledged; /* by the server, to its clients */
bool over;         /* the back-up has taken over */
byte ended;

/* JournalWriter::append() */
proctype Server() {
  byte n;
  bool open;
  do
  :: n == RECORDS -> break
  :: n < RECORDS ->
    open = load(closed, 0) == 0;
    if
    :: n - mine(begin, 0) == ROOM ->
      if
      :: processed > mine(begin, 0) && !over ->  /* the back-up has acknowledged it */
        store(begin, 0, processed);
#ifndef BUG_OVERWRITES_BEFORE_IT_SAYS_SO
        settle(begin, 0)  /* sequence_fence() */
#endif
      :: else -> break  /* no room: the input is acknowledged later, if at all */
      fi
    :: else
    fi;
    store(slot, n % ROOM, n + 1);
    d_step { settle(slot, 0); settle(slot, 1); store(end, 0, n + 1) }  /* a release store */
#ifndef BUG_NO_FENCE_AFTER_APPENDING
    d_step { settle(begin, 0); settle(end, 0) }
#endif
#ifndef BUG_LOOKS_AT_THE_GATE_BEFORE
    open = load(closed, 0) == 0;
#endif
    n++;
    sent = n;
    if
    :: open -> acknowledged = n
    :: else -> break
    fi
  od;
  ended++
}

/* JournalReader::close(), and the back-up's life before it */
proctype Backup() {
  byte from, to, valid, at, copy[ROOM];
  do
  :: processed < sent -> processed++  /* a message */
  :: break
  od;
  store(closed, 0, 1);
#ifndef BUG_NO_FENCE_AFTER_CLOSING
  settle(closed, 0);
#endif
  over = true;
  from = load(begin, 0);
  to = load(end, 0);
  at = from;
  do
  :: at < to -> copy[at % ROOM] = load(slot, at % ROOM); at++
  :: else -> break
  od;
  valid = load(begin, 0);
#ifdef BUG_TRUSTS_THE_FIRST_BEGIN
  valid = from;
#endif
  at = valid;
  do
  :: at < to ->
    if
    :: at >= processed ->
      assert(copy[at % ROOM] == at + 1);
      if :: at == processed -> processed = at + 1 :: else fi
    :: else -> assert(copy[at % ROOM] == at + 1)  /* it walks over this record */
    fi;
    at++
  :: else -> break
  od;
  ended++
}

/* A store buffer drains at any time. */
proctype Drain() {
end:
  do
  :: d_step { !settled(begin, 0) -> settle(begin, 0) }
  :: d_step { !settled(end, 0) -> settle(end, 0) }
  :: d_step { !settled(slot, 0) -> settle(slot, 0) }
  :: d_step { !settled(slot, 1) -> settle(slot, 1) }
  :: d_step { !settled(closed, 0) -> settle(closed, 0) }
  od
}

init {
  atomic { run Server(); run Backup(); run Drain() }
  ended == 2 -> assert(acknowledged <= processed)
}
