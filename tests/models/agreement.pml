/* The protocol by which the survivors of a group agree on the list of survivors, and on a newcomer: core/engine/collective/agreement.cpp.
 *
 * Ranks crash at any moment, also between two messages that announce a decision. Every survivor eventually learns of every crash. It
 * either detects the crash itself, and then receives no earlier message of that rank, or another survivor tells it, and then it may.
 * Messages between two ranks keep their order. No rank mistakes a living rank for a lost one, because losses come from the cluster's
 * view. The newcomer asks the ranks one by one, at any moment, or some of them never. Checked: all survivors decide, and decide the same; and
 * whoever is told to continue with the newcomer has been asked by it.
 *
 * A rank handles one event (a message, a loss, its own call) in one step, as on the loop's thread. It can crash before each message of
 * that step.
 *
 *   BUG_DECIDES_BY_ITSELF: a coordinator decides without a report from every survivor
 *   BUG_DECIDED_ARE_SILENT: a rank that has decided does not answer reports
 *   BUG_FORGETS_DECISIONS: ranks ignore decisions in messages
 *   BUG_REPORTS_ONCE: a rank reports to the first coordinator only
 *   BUG_HEARS_THE_GONE: a rank that has reported a lost rank to the next coordinator still accepts a decision of the lost rank
 *   BUG_TAKES_UNKNOWN_NEWCOMERS: a coordinator takes a newcomer that has not asked all survivors
 *   NIGHTLY_FOUR_RANKS: -DRANKS=4 -DCRASHES=2
 */
#ifndef RANKS
#define RANKS 3
#define CRASHES 2
#endif
#define NOBODY 255
#define ALL ((1 << RANKS) - 1)
#define has(set, rank) (((set) >> (rank)) & 1)

#define NEWCOMER (1 << RANKS)  /* in a Word and in a decision */

typedef Row { chan to[RANKS] = [5] of { byte, byte } };  /* Word: gone and newcomers, decided (0: none is known) */
Row from[RANKS];
bool crashed[RANKS];
byte decided[RANKS];  /* Agreement::decided_; 0: nothing */
byte wish[RANKS];     /* Agreement::wish_: NEWCOMER once it has asked this rank */
byte crashes;

/* Agreement::tell_() */
inline tell(to_) {
  if
  :: !crashed[me] && crashes < CRASHES -> crashed[me] = true; crashes++
  :: else
  :: true
  fi;
  if
  :: !crashed[me] && !crashed[to_] -> assert(nfull(from[me].to[to_])); from[me].to[to_]!(gone | wish[me]), decided[me]
  :: else
  fi
}

/* Agreement::coordinator() */
inline find_coordinator() {
  lead = 0;
  do
  :: lead < RANKS && has(gone, lead) -> lead++
  :: else -> break
  od
}

/* Agreement::decide() */
inline decide(ranks) {
  decided[me] = (ranks);
  i = 0;
  do
  :: i < RANKS -> 
    assert(crashed[me] || crashed[i] || decided[i] == 0 || decided[i] == decided[me]);
    assert(crashed[i] || !has(decided[me], i) || !has(decided[me], RANKS) || wish[i]);
    i++
  :: else -> break
  od;
  assert(crashed[me] || has(decided[me], me));
  find_coordinator();
  i = 0;
  do
  :: i < RANKS -> if :: i != me && (lead == me || !has(decided[me], i)) -> tell(i) :: else fi; i++
  :: else -> break
  od;
  i = 0; lead = 0
}

/* Agreement::proceed() */
inline proceed() {
  if
  :: begun && decided[me] == 0 ->
    find_coordinator();
    if
    :: lead != me ->
      if
#ifdef BUG_REPORTS_ONCE
      :: told == NOBODY ->
#else
      :: told != lead || told_gone != (gone | wish[me]) ->
#endif
        told = lead; told_gone = gone | wish[me]; tell(lead)
      :: else
      fi
    :: else ->
      do
      :: i < RANKS -> if :: i != me && !has(gone | asked, i) -> asked = asked | (1 << i); tell(i) :: else fi; i++
      :: else -> break
      od;
      i = 0;
#ifdef BUG_DECIDES_BY_ITSELF
      decide(ALL & ~gone)
#else
      if
      :: (ALL & ~gone & ~reported & ~(1 << me)) == 0 ->
        if
#ifdef BUG_TAKES_UNKNOWN_NEWCOMERS
        :: wish[me] -> decide((ALL & ~gone) | NEWCOMER)
#else
        :: wish[me] && (ALL & ~gone & ~wishes & ~(1 << me)) == 0 -> decide((ALL & ~gone) | NEWCOMER)  /* Agreement::joining() */
#endif
        :: else -> decide(ALL & ~gone)
        fi
      :: else
      fi
#endif
    fi;
    lead = 0
  :: else
  fi
}

/* Agreement::heard() */
inline hear(q) {
  from[q].to[me]?their_gone, their_decided;
  if
#ifdef BUG_DECIDED_ARE_SILENT
  :: decided[me] != 0 -> skip
#else
  :: decided[me] != 0 -> if :: their_decided == 0 -> tell(q) :: else fi
#endif
#ifndef BUG_HEARS_THE_GONE
  :: decided[me] == 0 && has(gone, q) -> skip
#define heard_of(q) (!has(gone, q))
#else
#define heard_of(q) true
#endif
#ifndef BUG_FORGETS_DECISIONS
  :: heard_of(q) && decided[me] == 0 && their_decided != 0 -> decide(their_decided)
#endif
  :: else ->
    gone = gone | (their_gone & ALL);
    reported = reported | (1 << q);
    wishes = (wishes & ~(1 << q)) | (has(their_gone, RANKS) << q);
    proceed()
  fi;
  their_gone = 0; their_decided = 0
}

/* Agreement::gone() */
inline lose(q) {
  lost = lost | (1 << q);
  if
  :: !has(gone, q) -> gone = gone | (1 << q); proceed()
  :: else
  fi
}

#define can_hear(q) (!crashed[me] && q != me && !has(lost, q) && nempty(from[q].to[me]))
#define can_lose(q) (!crashed[me] && crashed[q] && !has(lost, q))

proctype Rank(byte me) {
  byte gone, lost, reported, wishes, asked, told = NOBODY, told_gone, i, lead, their_gone, their_decided;
  bool begun;
end:
  do
  :: atomic { !begun && !crashed[me] -> begun = true; proceed() }  /* Agreement::begin() */
  :: atomic { !wish[me] && !crashed[me] && decided[me] == 0 -> wish[me] = NEWCOMER; proceed() }  /* Agreement::change() */
  :: atomic { crashes < CRASHES && !crashed[me] -> crashed[me] = true; crashes++ }
  :: atomic { can_hear(0) -> hear(0) }
  :: atomic { can_hear(1) -> hear(1) }
  :: atomic { can_hear(2) -> hear(2) }
  :: atomic { can_lose(0) -> lose(0) }
  :: atomic { can_lose(1) -> lose(1) }
  :: atomic { can_lose(2) -> lose(2) }
#if RANKS > 3
  :: atomic { can_hear(3) -> hear(3) }
  :: atomic { can_lose(3) -> lose(3) }
#endif
  od
}

init {
  byte r;
  atomic {
    do  /* some of the possible crashes do not happen */
    :: crashes < CRASHES -> crashes++
    :: break
    od;
    do
    :: r < RANKS -> run Rank(r); r++
    :: else -> break
    od
  }
  timeout;  /* nothing more can happen */
  atomic {
    r = 0;
    do
    :: r < RANKS -> assert(crashed[r] || decided[r] != 0); r++
    :: else -> break
    od
  }
}
