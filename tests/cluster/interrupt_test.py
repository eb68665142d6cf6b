"""Ctrl-C during a blocking call reaches the script, in every language."""

import os
import shutil
import signal
import time

import pytest

# Each script announces itself, then waits at a barrier that the other worker never reaches.
SCRIPTS = {
    "python": ["python3", "-c", """
import polyverso
node = polyverso.init()
print("waiting", flush=True)
try:
    node.barrier()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""],
    "perl": ["perl", "-e", """
use Polyverso;
my $node = Polyverso->init;
$| = 1;
print "waiting\\n";
local $SIG{INT} = sub { print "interrupted\\n"; exit 130 };
$node->barrier;
"""],
    # The Lua interpreter turns SIGINT into the error "interrupted!" as soon as Lua runs again. LuaJIT is then in the
    # handler of the error that ended the call, which makes it "error in error handling".
    **{
        lua: [lua, "-e", """
local pv = require("polyverso")
pv.mv_init()
print("waiting") io.stdout:flush()
pv.mv_barrier(0)
"""]
        for lua in ("luajit", "lua5.1", "lua5.4")
    },
}


TICKING = """
ticks = []
signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
begun = time.monotonic()
node = pv.init()
table = node.matrix(100, 100, name="w")
table.add(np.ones((100, 100)))
node.barrier()
say("sum", table.get().sum(), len(ticks))
node.shutdown()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_processes_with_a_fast_timer_join_all_the_same(cluster):
    job = cluster(3)
    nodes = [job.python(rank, TICKING) for rank in (1, 0)]
    time.sleep(1)
    nodes.append(job.python(2, TICKING))
    for node, fewest in zip(nodes, (100, 100, 1)):  # the first two wait a second for the third
        _, total, ticks = node.hear("sum").split()
        assert float(total) == 30000 and int(ticks) >= fewest
        node.ends()


def test_the_deadline_of_joining_counts_from_the_first_try(cluster):
    job = cluster(2, init_timeout_ms=1500)
    script, _ = TICKING.split("node = pv.init()")
    node = job.python(1, script + "attempt(pv.init); signal.setitimer(signal.ITIMER_REAL, 0)")
    took, ending = node.hear_attempt()
    assert ending.startswith(("TimeoutError", "PeerError")) and took < 5, (took, ending)
    node.ends()


@pytest.mark.parametrize("language", SCRIPTS)
def test_a_waiting_script_is_interrupted(cluster, language):
    command = SCRIPTS[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    job = cluster(2)
    other = job.python(0, "node = pv.init(); say('up'); wait_for_word(); os._exit(0)")
    waiting = job.start(1, command)
    other.hear("up")
    waiting.hear("waiting")
    time.sleep(0.3)
    begun = time.monotonic()
    waiting.kill(signal.SIGINT)
    waiting.hear("interrupted" if language != "luajit" else "err", 2)
    waiting.process.wait(2)
    assert time.monotonic() - begun < 1
    assert waiting.process.returncode != 0


def test_a_signal_that_the_script_handles_does_not_end_the_wait(cluster):
    job = cluster(2)
    script = """
node = pv.init()
caught = []
signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
say("up")
if node.rank == 0: wait_for_word()
node.barrier()
say("passed", len(caught))
node.shutdown()
"""
    nodes = [job.python(rank, script) for rank in range(2)]
    for node in nodes:
        node.hear("up")
    for _ in range(3):
        time.sleep(0.1)
        nodes[1].kill(signal.SIGUSR1)
    time.sleep(0.1)
    nodes[0].tell("go on")
    assert nodes[1].hear("passed") == "passed 3"
    for node in nodes:
        node.ends()


@pytest.mark.parametrize("servers", [[], ["--servers", "1"]])
def test_a_run_that_waits_ends_on_one_interrupt(start, servers):
    script = "import polyverso as pv; n = pv.init(); print('up', flush=True)\nif n.rank: n.barrier()\nelse:\n  import time; time.sleep(100)"
    job = start("run", "-n", "3", *servers, "--", "python3", "-c", script)
    for _ in range(3):
        job.read_until("up")
    time.sleep(0.2)
    begun = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    assert job.finish()[0] == -signal.SIGINT
    assert time.monotonic() - begun < 3


def test_an_interrupted_run_does_not_wait_for_a_server_without_workers(start):
    """A server may go on for the sake of a worker that failed; here it does not even notice that all have gone."""
    script = "import polyverso as pv; pv.init().barrier(); print('up', flush=True)\nimport time; time.sleep(100)"
    job = start("run", "-n", "1", "--servers", "1", "--", "python3", "-c", script)
    job.read_until("up")
    os.kill(job.pid_of(1), signal.SIGSTOP)
    begun = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    status, _, error = job.finish()
    assert status == -signal.SIGINT and error.endswith("stopped worker 0, server 0\n"), error
    assert time.monotonic() - begun < 6  # half of it is the worker's, which tells the server that it leaves
