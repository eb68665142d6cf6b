/* The decisions about views: core/engine/cluster/quorum_keeper.cpp. Paxos with one instance for each view; a view names the voters of the next
 * instance and its master, which may propose once without a first phase.
 *
 * Messages may be lost, and any process may stop for good between two of its messages: a voter may be left out in each phase, and an attempt
 * may end anywhere. A voter handles a request in one step, and what it answers does not change afterwards, so a request and its answer are one
 * step here. Checked: in each instance one view is decided at most.
 *
 *   BUG_PROPOSES_ITS_OWN: a proposer ignores what voters have accepted
 *   BUG_ACCEPTS_BELOW_ITS_PROMISE: a voter accepts a ballot lower than the one that it has promised
 *   BUG_HALF_IS_ENOUGH: half of the voters are a quorum, without the master, too
 *   BUG_FIRST_BALLOT_TWICE: the master proposes another view with the ballot that needs no first phase
 *   BUG_OLD_VOTERS: a proposer counts the voters of the first view for ever
 *   NIGHTLY_LATER: -DLATER
 *
 * Two attempts of all nodes together, of any length, take seconds. Three have some 90 million states, too many for a test.
 */
#if defined(BUG_HALF_IS_ENOUGH) || defined(BUG_OLD_VOTERS)
#define LATER  /* starts when the second view, without node 2, is decided, and node 2 does not know it */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2  /* of all nodes together */
#endif
#define NODES 3
#define LAST 2
#define has(set, node) (((set) >> (node)) & 1)
#define count(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
/* A view: its master and its voters. 0: none */
#define view(master, voters) (128 | ((master) << 4) | (voters))
#define master_of(v) (((v) >> 4) & 7)
#define voters_of(v) ((v) & 15)

byte decided[LAST + 1];   /* by instance; 0 is the first view */
byte attempts;
byte at[NODES];           /* the instance that the node takes part in: it knows the decisions before */
byte promised[NODES], accepted[NODES], value[NODES];

#ifdef BUG_HALF_IS_ENOUGH
#define is_quorum(base, set) (2 * count((set) & voters_of(base)) >= count(voters_of(base)))
#else
#define is_quorum(base, set) (2 * count((set) & voters_of(base)) > count(voters_of(base)) || \
  (2 * count((set) & voters_of(base)) == count(voters_of(base)) && has((set) & voters_of(base), master_of(base))))
#endif

/* QuorumKeeper::take() */
inline learn(node, instance) {
  at[node] = instance; promised[node] = 0; accepted[node] = 0; value[node] = 0
}

proctype Node(byte me) {
  byte instance, base, ballot, best, mine, agreed, i, first_used_in, told;
  do
  :: d_step { attempts < ATTEMPTS ->
      attempts++;
      agreed = 0; best = 0; mine = 0; ballot = 0
    };
    /* It may have heard of decisions. */
    if
    :: atomic { at[me] <= LAST && decided[at[me]] != 0 -> told = at[me] + 1; learn(me, told) }
    :: true
    fi;
    if
    :: at[me] > LAST -> break
    :: else
    fi;
    instance = at[me];
    base = decided[instance - 1];
#ifdef BUG_OLD_VOTERS
    if
  :: me == 1 -> base = decided[0]
  :: else
  fi;
#endif
    /* What it would like to be next: itself the master, all voters, or without one of them */
    if
    :: mine = view(me, voters_of(base))
    :: instance == 1 -> mine = view(me, voters_of(base) & ~(1 << ((me + 1) % NODES)))
    :: instance == 1 -> mine = view(me, voters_of(base) & ~(1 << ((me + 2) % NODES)))
    fi;
    if
#ifdef BUG_FIRST_BALLOT_TWICE
    :: master_of(base) == me -> ballot = 1
#else
    :: master_of(base) == me && first_used_in != instance && promised[me] <= 1 && accepted[me] == 0 -> ballot = 1; first_used_in = instance
#endif
    :: else ->
      ballot = attempts * 4 + me;
      i = 0;
      do
      :: i < NODES && has(voters_of(base), i) ->
        if
        :: atomic {
            if
            :: at[i] < instance -> told = i; learn(told, instance)
            :: else
            fi;
            if
            :: at[i] == instance && ballot >= promised[i] ->
              promised[i] = ballot; agreed = agreed | (1 << i);
              if
#ifndef BUG_PROPOSES_ITS_OWN
              :: accepted[i] > best -> best = accepted[i]; mine = value[i]
#endif
              :: else
              fi
            :: else
            fi
          }
        :: true  /* lost */
        fi;
        i++
      :: i < NODES && !has(voters_of(base), i) -> i++
      :: i == NODES -> break
      od;
      if
      :: !is_quorum(base, agreed) -> goto again
      :: else -> agreed = 0
      fi
    fi;
    i = 0;
    do
    :: i < NODES && has(voters_of(base), i) ->
      if
      :: atomic {
          if
          :: at[i] < instance -> told = i; learn(told, instance)
          :: else
          fi;
          if
#ifdef BUG_ACCEPTS_BELOW_ITS_PROMISE
          :: at[i] == instance ->
#else
          :: at[i] == instance && ballot >= promised[i] ->
#endif
            promised[i] = ballot; accepted[i] = ballot; value[i] = mine; agreed = agreed | (1 << i)
          :: else
          fi
        }
      :: true
      fi;
      i++
    :: i < NODES && !has(voters_of(base), i) -> i++
    :: i == NODES -> break
    od;
    if
    :: d_step {
        is_quorum(base, agreed) ->
        assert(decided[instance] == 0 || decided[instance] == mine);
        decided[instance] = mine
      }
    :: !is_quorum(base, agreed)
    fi;
again: skip
  :: attempts == ATTEMPTS -> break
  :: break  /* it stops */
  od
}

init {
  atomic {
    decided[0] = view(0, 7);
    at[0] = 1; at[1] = 1; at[2] = 1;
#ifdef LATER
    decided[1] = view(0, 3);
    at[0] = 2; at[1] = 2;
#endif
    run Node(0); run Node(1); run Node(2)
  }
}
