"""Signals and forks."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

import polyverso
from polyverso import capi

JOIN_FOREVER = "import polyverso; print('waiting'); polyverso.init(init_timeout_ms=60000)"

WAIT_AT_BARRIER = """
    import polyverso
    node = polyverso.init()
    print("waiting")
    node.barrier()
"""

STAY = """
    import sys, polyverso
    node = polyverso.init()
    sys.stdin.readline()
"""

GET_IN_SYNC = """
    import numpy, polyverso
    node = polyverso.init(sync=True)
    table = node.array(4, name="w")
    print("waiting")
    table.add(numpy.ones(4, "f4"))
    table.get()
"""

STAY_IN_SYNC = """
    import sys, polyverso
    node = polyverso.init(sync=True)
    table = node.array(4, name="w")
    sys.stdin.readline()
"""


GET_AHEAD = """
    import polyverso
    node = polyverso.init()
    table = node.keyvalue(name="w", staleness=1)
    for _ in range(2): table.clock()
    print("waiting")
    table.get(keys=[1])
"""

STAY_BEHIND = """
    import sys, polyverso
    node = polyverso.init()
    table = node.keyvalue(name="w", staleness=1)
    sys.stdin.readline()
"""

SAVE = """
    import polyverso
    node = polyverso.init()
    print("waiting")
    node.save("/nowhere")
"""


@pytest.mark.parametrize(
    "scripts",
    [(JOIN_FOREVER,), (WAIT_AT_BARRIER, STAY), (GET_IN_SYNC, STAY_IN_SYNC), (GET_AHEAD, STAY_BEHIND), (SAVE, STAY)],
    ids=["init", "barrier", "get", "stale get", "save"],
)
def test_ctrl_c_ends_a_wait(cluster, scripts):
    first = [cluster.start(script, nodes=2) for script in scripts][0]
    assert first.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    first.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, errors = first.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert first.returncode == -signal.SIGINT
    assert time.monotonic() - started < 5


def test_a_handler_that_returns_lets_the_wait_go_on(cluster):
    first = cluster.start(
        """
        import signal, numpy, polyverso
        signals = []
        signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
        with polyverso.init(sync=True) as node:
            table = node.array(2, name="w")
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            table.add(numpy.ones(2, "f4"))
            print(table.get().tolist())
            node.barrier()
            print(node.poll(1, timeout=0.2))
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(signals) > 3)
        """,
        nodes=2,
    )
    cluster.start(
        """
        import time, numpy, polyverso
        with polyverso.init(sync=True) as node:
            table = node.array(2, name="w")
            time.sleep(0.4)
            table.add(numpy.ones(2, "f4"))
            time.sleep(0.4)
            table.get()
            time.sleep(0.4)
            node.barrier()
        """,
        nodes=2,
    )
    output, errors = first.communicate(timeout=30)
    assert errors == ""
    assert output == "[2.0, 2.0]\n[]\nTrue\n"


def in_child(child):
    """The result of `child` in a forked process."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=lambda: results.put(child()))
    process.start()
    result = results.get(timeout=20)
    process.join(20)
    assert process.exitcode == 0
    return result


def test_a_forked_child_is_told_so(node):
    table = node.array(3, init=[1, 2, 3])

    def child():
        failures = []
        for call in (lambda: node.rank, table.get, lambda: table.add([1, 1, 1]), node.barrier, node.shutdown):
            try:
                call()
                failures.append("nothing")
            except polyverso.StateError as error:
                failures.append(error.name)
        return failures

    assert in_child(child) == ["MV_EFORK"] * 5
    assert table.get().tolist() == [1, 2, 3]


def test_a_forked_child_may_begin_anew(node):
    table = node.array(3, init=[1, 2, 3])

    def child():
        with polyverso.init() as own:
            fresh = own.array(2, init=[5, 6])
            fresh.add([1, 1])
            return os.getpid(), own.size, fresh.get().tolist()

    pid, size, values = in_child(child)
    assert pid != os.getpid()
    assert (size, values) == (1, [6, 7])
    table.add([1, 1, 1])
    assert table.get().tolist() == [2, 3, 4]


LEAVES_BLOCKS = """
import os, sys, polyverso
from polyverso import distlearn, kvstore
from polyverso.group import Group
with polyverso.init() as node, Group(node) as group, kvstore.create("dist_sync") as kv, node.array(1, init=[7]) as table:
    with distlearn.AllReduceSGD(group):
        pid = os.fork()
        if pid == 0:
            sys.exit(STATUS)
        print(os.waitpid(pid, 0)[1] >> 8, table.get().tolist())
"""


@pytest.mark.parametrize("status", [0, 3])
def test_a_forked_child_leaves_blocks_without_a_word(status):
    script = LEAVES_BLOCKS.replace("STATUS", str(status))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{status} [7.0]\n", "")


def test_a_forked_child_exits_without_a_word(node):
    assert in_child(lambda: capi.mv_version() > 0)
    node.barrier()
