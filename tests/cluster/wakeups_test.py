"""No wake-up is lost between threads: the end of an operation wakes its waiter, not the next timer.

Timers are postponed for an hour, so a lost wake-up stalls its operation until the probe gives up. Stalls are counted.
"""

import json
import os

import pytest

from conftest import Run

PROBE = os.environ.get("WAKEUP_PROBE", "wakeup_probe")
COUNT = int(os.environ.get("POLYVERSO_TEST_WAKEUPS", "4000"))


def probe(ranks, what, how, transport):
    quiet = ["heartbeat_timeout_ms=36000000", "stuck_after_ms=36000000"]
    settings = [word for setting in [f"transport={transport}", *quiet] for word in ("--set", setting)]
    run = Run("run", "--no-color", "-n", str(ranks), *settings, "--", PROBE, what, how, str(COUNT), "1")
    status, out, err = run.finish(timeout=250)
    assert status == 0, out + err
    told = json.loads(out[out.index("{"):out.rindex("}") + 1])
    assert told["count"] == COUNT and told["stalled"] == 0
    return told


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_an_all_reduce_wakes_its_waiter(ranks, transport):
    probe(ranks, "allreduce", "wait", transport)


@pytest.mark.parametrize("what", ["add", "get", "push", "pull"])
def test_other_operations_wake_their_waiters(what):
    probe(2, what, "wait", "auto")


@pytest.mark.parametrize("what", ["allreduce", "get"])
@pytest.mark.parametrize("how", ["poll", "fd"])
def test_a_poll_is_woken(what, how):
    probe(2, what, how, "auto")
