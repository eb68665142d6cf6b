"""How a run ends early: processes that never join, failures, and Ctrl-C."""

import re
import signal
import sys
import time

import pytest

JOINS = """
import os, sys, time
import polyverso
begun = time.monotonic()
try:
    node = polyverso.init()
except polyverso.errors.PeerError as lost:
    print("told", time.monotonic() - begun, lost, flush=True)
    sys.exit(0)
print("joined", flush=True)
node.shutdown()
"""

WAITS = """
import time
import polyverso
node = polyverso.init()
print("up", flush=True)
while True: time.sleep(0.05)
"""


def told(out):
    return [line.split(" ", 3) for line in out.splitlines() if " told " in line]


# ---- a process that ends before it joins


@pytest.mark.parametrize("keep_going", [[], ["--keep-going"]], ids=["alone", "keep-going"])
@pytest.mark.parametrize("leaver, ending, words", [
    (0, "exit 0", "exited with status 0"), (1, "exit 7", "exited with status 7"), (2, "kill -9 $$", "was killed by SIGKILL")])
def test_those_that_wait_are_told_at_once_who_ended_before_it_joined(start, keep_going, leaver, ending, words):
    script = f"test $POLYVERSO_RANK = {leaver} && {ending}; exec {sys.executable} -c \"$0\""
    _, out, err = start("run", "-n", "3", *keep_going, "--", "sh", "-c", script, JOINS).finish()
    lines = told(out)
    assert len(lines) == 2, out + err
    for _, _, seconds, text in lines:
        assert float(seconds) < 3
        assert re.search(rf"worker {leaver} \(pid \d+\) {words} before it joined$", text), text


def test_those_that_wait_already_are_told_too(start):
    script = f"test $POLYVERSO_RANK = 1 && {{ sleep 2; exit 5; }}; exec {sys.executable} -c \"$0\""
    _, out, _ = start("run", "-n", "3", "--keep-going", "--", "sh", "-c", script, JOINS).finish()
    assert len(told(out)) == 2 and all(float(seconds) < 5 and "worker 1 " in text for _, _, seconds, text in told(out))


def test_a_server_that_never_joins_is_named(start):
    job = start("run", "-n", "2", "-s", "1", "--server-command", "false", "--", sys.executable, "-c", JOINS)
    _, out, err = job.finish()
    assert len(told(out)) == 2 and all(re.search(r"server 0 \(pid \d+\) exited with status 1 before it joined", text) for *_, text in told(out)), out + err


def test_who_ends_well_after_a_whole_cluster_disturbs_nobody(start):
    # Worker 0 ends at once; the other stays in the cluster, then opens one of its own, and one of its size with another process.
    script = """
import time
import polyverso
node = polyverso.init()
rank = node.rank
node.shutdown()
if rank == 1:
    time.sleep(0.5)
    with polyverso.init(nodes=1) as alone:
        print("alone", alone.size, flush=True)
"""
    status, out, err = start("run", "-n", "2", "--", sys.executable, "-c", script).finish()
    assert (status, out, err) == (0, "[w1] alone 1\n", "")


def test_a_cluster_of_another_size_is_not_the_launchers(start):
    script = f"test $POLYVERSO_RANK = 2 && exit 0; sleep $POLYVERSO_RANK; exec {sys.executable} -c \"$0\""
    joins = JOINS.replace("polyverso.init()", "polyverso.init(nodes=2)")
    status, out, err = start("run", "-n", "3", "--", "sh", "-c", script, joins).finish()
    assert (status, sorted(out.splitlines()), err) == (0, ["[w0] joined", "[w1] joined"], "")


# ---- a failing worker


@pytest.mark.parametrize("options", [[], ["--keep-going"], ["-v"], ["-v", "--keep-going"]])
def test_a_failure_is_told_once(start, options):
    status, _, err = start("run", "-n", "2", *options, "--", "sh", "-c", "test $POLYVERSO_RANK = 1 && exit 3; exit 0").finish()
    assert status == 3
    assert len(re.findall(r"worker 1 \(pid \d+, rank 1\) exited with 3", err)) == 1


# ---- Ctrl-C


def interrupted(start, *words, up=2):
    job = start("run", "-n", "2", *words)
    for _ in range(up):
        job.read_until("up")
    begun = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    status, out, err = job.finish()
    assert status == -signal.SIGINT  # a shell shows 130
    assert time.monotonic() - begun < 9
    job.wait_until_gone()
    return out, err


LANGUAGES = {
    "python": ["python3", "-c", WAITS],
    "perl": ["perl", "-MPolyverso", "-e", '$| = 1; my $node = Polyverso->init; print "up\\n"; sleep 100;'],
    **{lua.split()[0]: [*lua.split(), "-e", 'local node = require("polyverso").init() print("up") io.stdout:flush() for i = 1, 1e300 do io.stdout:write("") end']
       for lua in ("lua5.1", "lua5.4", "luajit -joff")},  # compiled loops hear no signals
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_ctrl_c_is_one_line_that_names_the_stopped(start, language):
    assert interrupted(start, "--", *LANGUAGES[language]) == ("", "polyverso run: interrupted by SIGINT: stopped workers 0-1\n")


def test_ctrl_c_ends_the_servers_too(start):
    out, err = interrupted(start, "-s", "1", "--", *LANGUAGES["python"])
    assert out == "" and "Traceback" not in err
    assert err.splitlines()[-1].startswith("polyverso run: interrupted by SIGINT: stopped workers 0-1")


def test_verbose_shows_the_tracebacks(start):
    _, err = interrupted(start, "-v", "--", *LANGUAGES["python"])
    assert err.count("Traceback (most recent call last):") == 2 and err.count("] KeyboardInterrupt\n") == 2


def test_what_else_is_written_after_ctrl_c_is_shown(start):
    script = """
import sys, time
try:
    print("up", flush=True)
    while True: time.sleep(0.05)
except KeyboardInterrupt:
    print("saving", file=sys.stderr)
    raise RuntimeError("the disk is full")
"""
    _, err = interrupted(start, "--", "python3", "-c", script)
    assert err.count("] saving\n") == 2 and err.count("] RuntimeError: the disk is full\n") == 2
    assert "KeyboardInterrupt" not in err and err.count("Traceback (most recent call last):") == 2
    assert err.splitlines()[-1] == "polyverso run: interrupted by SIGINT: stopped workers 0-1"


def test_a_second_ctrl_c_kills_at_once_and_says_whom(start):
    job = start("run", "-n", "3", "--", "sh", "-c", "test $POLYVERSO_RANK = 1 || trap '' INT TERM; echo up; while :; do sleep 0.05; done")
    for _ in range(3):
        job.read_until("up")
    job.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    begun = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    status, _, err = job.finish()
    assert status == -signal.SIGINT and time.monotonic() - begun < 2
    assert err == "polyverso run: interrupted by SIGINT: stopped worker 1; killed workers 0, 2\n"
