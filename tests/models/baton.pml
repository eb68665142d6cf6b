/* How threads take turns at driving the loop, and how they wake each other: core/transport/loop/loop.cpp.
 *
 * Two callers wait in drive_until(), each for a completion. One completion comes from another thread (Completer), the other from a task
 * that another thread posts (Poster); the model tries both assignments. The background thread drives while no caller does. Checked: no
 * caller waits for ever. SPIN reports a state in which no process can continue, and each sleep here lasts until another process ends it.
 * (In the code, a driver also wakes for its timers, so a lost wake-up only delays it by up to a heartbeat.) The mutex makes sequences
 * atomic. Spinning before a sleep is left out.
 *
 *   BUG_COMPLETION_IS_NO_NEWS: wake_waiters() wakes a sleeping driver, but does not notify one that is about to sleep
 *   BUG_SLEEPS_IN_SPITE_OF_NEWS: may_sleep() ignores news_
 *   BUG_CLEARS_NEWS_LATE: run_tasks() clears news_ after the call to done()
 *   BUG_IS_NOT_HANDED_ON: leave_baton() offers the baton to no caller
 *   BUG_NOTED_IN_LINE_LATE: wait_in_line() calls done() before the caller is in line, and not again
 */
#define CALLERS 2
mtype = { nobody, background, caller };

mtype baton = nobody;
bool mutex, asleep, news, rang, notified, resting;
byte tasks;               /* in queue_; each completes posted_for */
byte posted_for, completed_for;
bool done[CALLERS], in_line[CALLERS], wake_fd[CALLERS];
byte ended;

#define lock atomic { !mutex -> mutex = true }
#define unlock mutex = false
#define anybody_in_line (in_line[0] || in_line[1])

/* uv_async_send() */
inline ring() { rang = true }

/* Loop::wake_line(), under the mutex */
inline wake_line() {
  if :: in_line[0] && done[0] -> in_line[0] = false; wake_fd[0] = true :: else fi;
  if :: in_line[1] && done[1] -> in_line[1] = false; wake_fd[1] = true :: else fi
}

/* Loop::hand_on(), under the mutex; callers in line are offered the baton in any order */
inline hand_on() {
  if
  :: in_line[0] -> in_line[0] = false; wake_fd[0] = true
  :: in_line[1] -> in_line[1] = false; wake_fd[1] = true
  :: !anybody_in_line && (resting || tasks > 0) -> notified = true
  :: !anybody_in_line && !resting && tasks == 0
  fi
}

/* Loop::run_tasks(), and wake_waiters() by the driver */
inline run_tasks() {
  lock;
  asleep = false;
#ifndef BUG_CLEARS_NEWS_LATE
  news = false;
#endif
  taken = tasks; tasks = 0;
  unlock;
  if :: taken > 0 -> done[posted_for] = true :: else fi;
  lock; wake_line(); unlock
}

/* Loop::sleep(): may_sleep(), ppoll() */
inline sleep() {
  lock;
#ifdef BUG_SLEEPS_IN_SPITE_OF_NEWS
  asleep = true;
#else
  asleep = !news;
#endif
  sleeps = asleep;
  unlock;
  if :: sleeps -> atomic { rang || ended == CALLERS -> rang = false } :: else fi  /* Loop::stop() wakes it, too */
}

proctype Caller(byte me) {
  byte taken;
  bool sleeps, is_done;
again:
  lock;
  if
  :: baton == nobody ->
    baton = caller;
    unlock;
    /* Loop::drive() */
    do
    ::
      run_tasks();
      if :: done[me] -> break :: else fi;
#ifdef BUG_CLEARS_NEWS_LATE
      news = false;
#endif
      sleep()
    od;
    lock;
    baton = nobody; asleep = false;
#ifndef BUG_IS_NOT_HANDED_ON
    hand_on();
#endif
    unlock
  :: baton != nobody ->
    /* Loop::wait_in_line() */
#ifdef BUG_NOTED_IN_LINE_LATE
    unlock; is_done = done[me]; lock;
#endif
    in_line[me] = true;
    sleeps = asleep && tasks > 0;  /* wake_driver */
    if :: sleeps -> asleep = false :: else fi;
    unlock;
    if :: sleeps -> ring() :: else fi;
#ifndef BUG_NOTED_IN_LINE_LATE
    is_done = done[me];
#endif
    if :: !is_done -> wake_fd[me] :: else fi;
    is_done = done[me];
    lock;
    if :: in_line[me] -> in_line[me] = false :: else -> wake_fd[me] = false fi;
    if
    :: is_done ->
      if :: baton == nobody -> hand_on() :: else fi;
      unlock
    :: !is_done ->
      unlock;
      goto again
    fi
  fi;
  ended++
}

/* Something is completed off the loop: done, then Loop::wake_waiters() */
proctype Completer() {
  done[completed_for] = true;
  lock;
  wake_line();
  if
  :: baton == caller ->
#ifndef BUG_COMPLETION_IS_NO_NEWS
    news = true;
#endif
    if :: asleep -> asleep = false; ring() :: else fi
  :: baton != caller
  fi;
  unlock
}

/* Loop::post() */
proctype Poster() {
  lock;
  tasks++; news = true;
  if
  :: asleep -> asleep = false; ring()
  :: !asleep && baton == nobody -> notified = true
  :: !asleep && baton != nobody
  fi;
  unlock
}

/* Loop::run_background(): pauses while callers drive, for a limited time or, behind a long call, until it is notified */
proctype Background() {
  byte taken;
  bool sleeps;
  do
  :: ended == CALLERS -> break
  :: ended < CALLERS ->
    lock;
    if
    :: baton != nobody || (tasks == 0 && !anybody_in_line) ->
      notified = false;
      resting = (baton == caller);
      unlock;
      if
      :: notified
      :: !resting && baton == nobody && (tasks > 0 || anybody_in_line)  /* its pause is over */
      :: ended == CALLERS
      fi;
      resting = false
    :: baton == nobody && (tasks > 0 || anybody_in_line) ->
      baton = background;
      unlock;
      run_tasks();
      if :: sleep() :: skip fi;  /* the code skips it if it has woken a caller; here it may at any time */
      lock;
      baton = nobody; asleep = false;
      unlock
    fi
  od
}

init {
  atomic {
    if
    :: posted_for = 0; completed_for = 1
    :: posted_for = 1; completed_for = 0
    fi;
    run Caller(0); run Caller(1); run Completer(); run Poster(); run Background()
  }
}
