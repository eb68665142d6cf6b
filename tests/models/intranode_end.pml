/* How a rank that sleeps on another rank learns that the group has ended: core/intranode/rank_context.cpp and waiting.hpp.
 *
 * The waiter sleeps on the bell of a rank whose value never comes. Either a thread of the waiter's process ends the group
 * (RankContext::end, lose, give_up, hear_left), or another rank does (RankContext::say_left). Neither can change the bell on which the
 * waiter sleeps, because it is in another rank's memory. So the kernel does not notice a wake-up between the waiter's last check and its
 * sleep. RankContext::wake_sleeper() therefore repeats the wake-up until the waiter says that it is awake. The code repeats it for at
 * most 10 ms, in case the waiter is stopped; the limit on each sleep (kLongest) covers that case and is left out here.
 *
 *   BUG_WAKES_ONCE: one wake-up only
 *   BUG_NO_FENCE_BEFORE_WAKING: checks for a sleeping waiter without a fence after the store of the end
 *   BUG_NO_FENCE_IN_SLEEP: the waiter checks for the end without a fence after it has announced its sleep
 *   BUG_NO_LOOK_FOR_THE_END: the waiter does not call trouble() before it sleeps
 */
#include "memory.h"

word(ended, 1);      /* RankContext::is_broken_, heard_left_, or Words::left of the rank that ends the group */
word(asleep_on, 1);  /* Words::asleep_on of the waiter */
bool in_futex;

active proctype Waiter() {
  bool trouble;
  do
  ::
    store(asleep_on, 0, 1);
#ifndef BUG_NO_FENCE_IN_SLEEP
    settle(asleep_on, 0);  /* full_fence() */
#endif
#ifndef BUG_NO_LOOK_FOR_THE_END
    trouble = load(ended, 0);  /* RankContext::trouble() */
#endif
    if
    :: !trouble ->
      /* sleep_by(): the bell does not change, so the kernel always puts the waiter to sleep */
      d_step { settle(asleep_on, 0); in_futex = true };
      !in_futex
    :: else
    fi;
    store(asleep_on, 0, 0);
    if :: trouble -> break :: else fi
  od
}

active proctype Breaker() {
  store(ended, 0, 1);  /* RankContext::note_broken(), or Words::left.store() in say_left() */
#ifndef BUG_NO_FENCE_BEFORE_WAKING
  settle(ended, 0);  /* full_fence() */
#endif
  do  /* RankContext::wake_sleeper() */
  ::
    if :: load(asleep_on, 0) == 0 -> break :: else fi;
    in_futex = false;
#ifdef BUG_WAKES_ONCE
    break
#endif
  od
}

active proctype Drain() {
end:
  do
  :: d_step { !settled(ended, 0) -> settle(ended, 0) }
  :: d_step { !settled(asleep_on, 0) -> settle(asleep_on, 0) }
  od
}
