/* How two gossiping nodes agree on a symmetric exchange: core/engine/gossip/pair_exchange.cpp. exchange.hpp describes the protocol.
 *
 * Each node begins a fetch (ATTEMPTS times), proposes or accepts, and reads the other node's version; then either both take it or
 * neither does. At any moment, the connection may break and come back, which loses all messages in flight, and a node may time out. An
 * acceptor that times out between its Ready and the Commit does not know the outcome and counts the exchange as unsettled. That is the
 * only exception.
 *
 * Checked: an acceptor takes a version only if the proposer has committed. If a proposer has committed, the acceptor takes the version
 * or counts the exchange as unsettled. Without time-outs, no node waits for ever, except for a partner that has noted its proposal and
 * begins no fetch.
 *
 *   BUG_COMMITS_WITHOUT_READY: the proposer commits as soon as it has everything itself
 *   BUG_ACCEPTOR_DOES_NOT_WAIT: the acceptor takes the version when it sends Ready
 *   BUG_COMMIT_IS_NOT_REPEATED: the proposer forgets what it has committed
 *   BUG_READY_IS_NOT_REPEATED: the acceptor sends Ready once
 *   BUG_AGREE_IS_NOT_REPEATED: a repeated proposal is not answered
 *   BUG_NO_PRIORITY: two simultaneous proposals are both ignored
 *   NIGHTLY_TWO_ATTEMPTS: -DATTEMPTS=2
 */
#ifndef ATTEMPTS
#define ATTEMPTS 1
#endif
#define BREAKS 1
#define LATE 1

mtype = { Propose, Wait, Agree, Decline, Ready, Commit, Withdraw, Connected };
chan to[2] = [16] of { mtype, byte, bool };  /* word, number, Exchange::proposer */

bool fetching[2];                            /* Gossip::attempt_ */
byte begun[2], questions[2];
bool has[2];                                 /* attempt_->exchange, and its fields: */
byte number[2];
bool proposer[2], agreed[2], noted[2], ready[2], whole[2];
byte held[2];                                /* held_: the partner's waiting proposal; 0: none */
byte committed[2], accepted[2];              /* committed_, accepted_ */
byte taken[2], taken_from[2];                /* numbers of the exchanges that are valid here: as proposer, as acceptor */
byte unsettled[2];
byte breaks, late;
bool can_be_late;
bit greater;                                 /* the node whose proposals have the higher priority */

#define other (1 - me)
inline say(word, which, by_proposer) { assert(nfull(to[other])); to[other]!word, which, by_proposer }
inline drop() { has[me] = false; number[me] = 0; proposer[me] = false; agreed[me] = false; noted[me] = false; ready[me] = false; whole[me] = false }
inline finish() { drop(); fetching[me] = false }
#define is_ours(which, by_proposer) (has[me] && number[me] == which && proposer[me] != by_proposer)  /* exchange_with() */

inline propose() {
  if
  :: !has[me] -> questions[me]++; number[me] = questions[me]; has[me] = true; proposer[me] = true
  :: else
  fi;
  say(Propose, number[me], true)
}

inline accept(which) {
  drop();
  has[me] = true; number[me] = which; agreed[me] = true;
  say(Agree, which, false)
}

inline withdraw() {
  if
  :: has[me] ->
    if :: !proposer[me] && ready[me] -> unsettled[me]++ :: else fi;
    say(Withdraw, number[me], proposer[me]);
    drop()
  :: else
  fi
}

inline commit() {
  committed[me] = number[me]; taken[me] = number[me];
  say(Commit, number[me], true);
  finish()
}

/* Gossip::settle_proposal(). Each node has only this partner. */
inline on_propose(which) {
  if
  :: !fetching[me] -> held[me] = which; say(Wait, which, false)
  :: else ->
    held[me] = 0;
    if
    :: has[me] && !proposer[me] && number[me] == which ->
#ifdef BUG_AGREE_IS_NOT_REPEATED
      skip
#else
      say(Agree, which, false)
#endif
    :: has[me] && (proposer[me] || number[me] != which) ->
#ifdef BUG_NO_PRIORITY
#define counts_more false
#else
#define counts_more (greater == other)
#endif
      if
      :: !agreed[me] && (noted[me] || counts_more) -> withdraw(); accept(which)
      :: !agreed[me] && !(noted[me] || counts_more) -> skip  /* it has this node's proposal, which has priority */
      :: agreed[me] -> say(Decline, which, false)
      fi
    :: !has[me] -> accept(which)
    fi
  fi
}

inline on_agree(which) {
  if
  :: is_ours(which, false) -> agreed[me] = true; noted[me] = false
  :: else -> say(Withdraw, which, true)
  fi
}

inline on_ready(which) {
  if
  :: is_ours(which, false) -> ready[me] = true; if :: whole[me] -> commit() :: else fi
#ifndef BUG_COMMIT_IS_NOT_REPEATED
  :: !is_ours(which, false) && committed[me] == which -> say(Commit, which, true)
#endif
  :: else -> say(Withdraw, which, true)
  fi
}

inline on_commit(which) {
  if
  :: is_ours(which, true) && ready[me] ->
    assert(taken[other] == which);
    accepted[me] = which; taken_from[me] = which;
    finish()
  :: !(is_ours(which, true) && ready[me]) && accepted[me] != which -> say(Withdraw, which, false)
  :: else
  fi
}

inline on_withdraw(which, by_proposer) {
  if :: by_proposer && held[me] == which -> held[me] = 0 :: else fi;
  if
  :: is_ours(which, by_proposer) -> finish()
  :: !is_ours(which, by_proposer) && !by_proposer && committed[me] == which -> committed[me] = 0
  :: else
  fi
}

/* Gossip::exchange_again() */
inline connected() {
  if
  :: has[me] && !agreed[me] -> propose()
#ifndef BUG_READY_IS_NOT_REPEATED
  :: has[me] && agreed[me] && whole[me] && !proposer[me] -> say(Ready, number[me], false)
#endif
  :: else
  fi
}

inline have_whole() {
  whole[me] = true;
  if
#ifdef BUG_COMMITS_WITHOUT_READY
  :: proposer[me] -> commit()
#else
  :: proposer[me] -> if :: ready[me] -> commit() :: else fi
#endif
  :: else ->
    ready[me] = true;
    say(Ready, number[me], false);
#ifdef BUG_ACCEPTOR_DOES_NOT_WAIT
    taken_from[me] = number[me];
    finish()
#endif
  fi
}

proctype Node(byte me) {
  byte which;
  bool by_proposer;
end:
  do
  :: atomic { !fetching[me] && begun[me] < ATTEMPTS ->
      begun[me]++; fetching[me] = true;
      if
      :: held[me] != 0 -> which = held[me]; held[me] = 0; accept(which); which = 0  /* accept_held() */
      :: else -> propose()
      fi }
  :: atomic { has[me] && agreed[me] && !whole[me] -> have_whole() }
  :: atomic { can_be_late && has[me] && late < LATE -> late++; withdraw(); finish() }  /* run_out() */
  :: atomic { nempty(to[me]) ->
      if
      :: to[me]?Propose, which, by_proposer -> on_propose(which)
      :: to[me]?Wait, which, by_proposer -> if :: is_ours(which, false) -> noted[me] = !agreed[me] :: else fi
      :: to[me]?Agree, which, by_proposer -> on_agree(which)
      :: to[me]?Decline, which, by_proposer -> if :: is_ours(which, false) && !agreed[me] -> finish() :: else fi
      :: to[me]?Ready, which, by_proposer -> on_ready(which)
      :: to[me]?Commit, which, by_proposer -> on_commit(which)
      :: to[me]?Withdraw, which, by_proposer -> on_withdraw(which, by_proposer)
      :: to[me]?Connected, which, by_proposer -> connected()
      fi;
      which = 0; by_proposer = false }
  od
}

proctype Connection() {
  mtype word;
  byte which;
  bool by_proposer;
end:
  do
  :: atomic { breaks < BREAKS ->
      breaks++;
      do
      :: nempty(to[0]) -> to[0]?word, which, by_proposer
      :: nempty(to[1]) -> to[1]?word, which, by_proposer
      :: else -> break
      od;
      to[0]!Connected, 0, false; to[1]!Connected, 0, false;
      which = 0; by_proposer = false }
  :: atomic { breaks < BREAKS -> breaks = BREAKS }
  od
}

/* Holds when no process can continue. */
inline check(me) {
  assert(!fetching[me] || noted[me] || late > 0);
  assert(taken[me] == taken_from[other] || unsettled[other] > 0)
}

init {
  atomic {
    if :: greater = 0 :: greater = 1 fi;
    if :: can_be_late = true :: true fi;
    run Node(0); run Node(1); run Connection()
  }
  timeout;
  atomic { check(0); check(1) }
}
