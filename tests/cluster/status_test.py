"""The status of a cluster, requested by members in three languages and from outside, while a member is stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import COMMAND
from nodes import PRELUDE

# Creates a table in sync mode and makes one round. After a word on its input, makes the round that worker 0 omits.
WORKER = """
node = pv.init()
table = node.array(4, name="weights")
table.add(np.ones(4, np.float32))
table.get()
say("up")
word = wait_for_word()
if word == "round":
    table.add(np.ones(4, np.float32), wait=False)
    attempt(table.get)
    say("done")
node.shutdown()
"""

# Waits in the same round, and requests the status meanwhile.
ASKER = """
node = pv.init()
table = node.array(4, name="weights")
table.add(np.ones(4, np.float32))
table.get()
say("up")
wait_for_word()
import json; say(json.dumps(node.status()))
wait_for_word()
table.add(np.ones(4, np.float32))
table.get()
node.shutdown()
"""

PERL = """
use Polyverso;
$| = 1;
my $node = Polyverso->init;
my $table = $node->array(size => 4, name => 'weights');
$table->add([1, 1, 1, 1]);
$table->get;
print "up\\n";
<STDIN>;
$table->add([1, 1, 1, 1], forget => 1);
$table->get;
print "done\\n";
$node->shutdown;
"""

LUA = """
local polyverso = require('polyverso')
io.stdout:setvbuf('line')
local node = polyverso.init()
local table = node:array{size = 4, name = 'weights'}
table:add({1, 1, 1, 1})
table:get()
print('up')
io.read()
table:add({1, 1, 1, 1}, {wait = false})
table:get()
print('done')
node:shutdown()
"""


def ask(job, *arguments, secret="of the tests", address=None, timeout=20):
    """Returns (status, standard output, standard error) of a `polyverso status`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
    if secret is not None:
        environment["POLYVERSO_SECRET"] = secret
    told = subprocess.run([COMMAND, "status", "--master", address or job.address, *arguments], env=environment, text=True,
                          capture_output=True, timeout=timeout, check=False)
    return told.returncode, told.stdout, told.stderr


def ask_json(job, holds=lambda told: True, seconds=20):
    """Repeats the request until `holds` accepts the JSON, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        status, out, err = ask(job, "--json")
        assert status == 0, err
        told = json.loads(out)
        if holds(told):
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.1)


def gets(told):
    return [wait for wait in told["waits"] if wait["kind"] == "get"]


def test_a_stopped_worker_is_named_to_everyone_who_asks(cluster):
    job = cluster(4, 1, sync=1, heartbeat_timeout_ms=60000, stuck_after_ms=1500)
    nodes = [job.python(0, ASKER), job.start(1, ["perl", "-e", PERL]), job.start(2, ["luajit", "-e", LUA]), job.python(3, WORKER)]
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    nodes[3].kill(signal.SIGSTOP)
    for node in nodes[1:3]:
        node.tell("round")
    told = ask_json(job, lambda told: len(gets(told)) == 2 and all(wait["seconds"] > 2 for wait in gets(told)))
    assert [member["state"] for member in told["members"]] == ["here"] * 5
    assert [member["answered"] for member in told["members"]] == [True, True, True, False, True]
    assert told["members"][3]["silence_seconds"] > 1
    for wait in gets(told):
        assert wait["worker"] in (1, 2) and wait["table"] == "weights" and wait["number"] == 2
        assert {awaited["who"] for awaited in wait["awaited"]} == {"worker 0", "worker 3"}
    tallies = {each["worker"]: each for each in told["tables"][0]["workers"]}
    assert (tallies[1]["adds"], tallies[1]["gets"]) == (2, 2)
    assert (tallies[3]["adds"], tallies[3]["gets"]) == (1, 1) and not tallies[3]["own_word"]
    [part] = told["tables"][0]["servers"]
    assert part["server"] == 0 and part["stored"] == 4 and part["memory_bytes"] == 16
    assert told["members"][4]["received_bytes"] > 0 and told["members"][0]["peers"][0]["transport"] in ("shm", "tcp")

    status, text, err = ask(job)
    assert status == 0, err
    assert "silent for" in text and "worker 1 waits" in text and 'in get #2 of "weights"' in text
    assert "worker 3 (has made 1 of 2 adds; last heard" in text

    # The stall is logged automatically, once, by the master, though a server has detected it.
    nodes[0].hear('table "weights": no progress for 1.5 s')
    nodes[0].hear("worker 3 (has made 1 of 2 adds; last heard")

    # A member gets the same status: here the master queries the server's gate for it.
    nodes[0].tell("ask")
    own = json.loads(nodes[0].hear('{"sync"'))
    assert {wait["worker"] for wait in gets(own)} == {1, 2}

    nodes[3].kill(signal.SIGCONT)
    nodes[0].tell("go on")
    nodes[3].tell("round")
    for node in nodes[1:]:
        node.hear("done")
    for node in (*nodes, server):
        node.ends()
    said = [line for node in (*nodes, server) for line in node.lines if "no progress" in line]
    assert len(said) == 1, said


def test_the_log_of_each_process_can_be_read(cluster):
    job = cluster(2, 1, stuck_after_ms=60000)
    nodes = [job.python(rank, WORKER) for rank in range(2)]
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    for rank in range(3):  # info is not written to standard error
        status, out, err = ask(job, "--log", str(rank))
        assert (status, err) == (0, "") and f" info: rank {rank} of 3: " in out, out
    assert ask(job, "--log", "3") == (1, "", "polyverso status: there is no process of rank 3\n")
    told = json.loads(ask(job, "--log", "1", "--json")[1])
    assert told["rank"] == 1 and told["left_out"] == 0 and any("rank 1 of 3" in line for line in told["lines"])
    member = next(member for member in ask_json(job)["members"] if member["rank"] == 2)
    assert " info: rank 2 of 3: " in ask(job, "--log", "2", address=member["address"])[1]  # of itself, without the master
    nodes[1].kill(signal.SIGSTOP)
    status, out, err = ask(job, "--log", "1")
    assert (status, out) == (1, "") and "the process of rank 1 has not answered within 1 s" in err, (status, out, err)
    for wrong in ("-1", "x"):
        status, out, err = ask(job, "--log", wrong)
        assert status == 2 and f'"{wrong}" is not a whole number in 0 .. 4294967295' in err, (wrong, err)
    for node in (*nodes, server):
        node.kill()


def test_the_master_itself_may_be_the_one_that_is_stopped(cluster):
    job = cluster(2, 1, sync=1, heartbeat_timeout_ms=5000, stuck_after_ms=60000)
    nodes = [job.python(0, WORKER), job.python(1, """
node = pv.init()
table = node.array(4, name="weights")
table.add(np.ones(4, np.float32))
table.get()
say("up")
wait_for_word()
begun = time.monotonic()
import json; say(json.dumps(node.status()))
say("took", time.monotonic() - begun)
wait_for_word()
""")]
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    nodes[0].kill(signal.SIGSTOP)
    try:
        nodes[1].tell("ask")
        told = json.loads(nodes[1].hear('{"sync"'))
        assert float(nodes[1].hear("took").split()[1]) < 4.9
    finally:
        nodes[0].kill(signal.SIGCONT)
    answered = {member["rank"]: member["answered"] for member in told["members"]}
    assert told["seen_by"] == 1 and answered == {0: False, 1: True, 2: True}
    for node in (*nodes, server):
        node.kill()


def test_a_barrier_and_a_creation_that_do_not_end_print_the_picture(cluster):
    job = cluster(3, 0, stuck_after_ms=700)
    script = """
node = pv.init()
say("up")
word = wait_for_word()
if word == "wait":
    node.barrier()
wait_for_word()
if node.rank != 2:
    table = node.array(4, name="late")
say("there")
wait_for_word()
if node.rank == 2:
    table = node.array(4, name="late")
node.shutdown()
"""
    nodes = [job.python(rank, script) for rank in range(3)]
    for node in nodes:
        node.hear("up")
    for node in nodes[1:]:
        node.tell("wait")
    nodes[0].hear("a barrier: no progress for 0.7 s")
    nodes[0].hear("in a barrier for worker 0 (has not arrived)")
    nodes[0].tell("wait")
    for node in nodes:
        node.tell("create")
    nodes[0].hear('table "late": no progress for 0.7 s')
    nodes[0].hear('in the creation of "late" for worker 2 (has not created it')
    for node in nodes:
        node.tell("end")
    for node in nodes:
        node.ends()


def test_observers_are_no_members_and_disturb_nobody(cluster):
    job = cluster(2, 0, heartbeat_timeout_ms=1000)
    first = job.python(0, WORKER)
    deadline = time.monotonic() + 20
    while True:  # the status is available while the processes join, too
        status, out, err = ask(job)
        if "only 1 of 2 processes have arrived" in out:
            break
        assert time.monotonic() < deadline, (status, out, err)
        time.sleep(0.1)
    second = job.python(1, WORKER)
    for node in (first, second):
        node.hear("up")
    while (before := ask_json(job))["epoch"] == 0:  # the first view comes after the processes
        assert time.monotonic() < deadline
    for _ in range(5):
        ask_json(job)
    time.sleep(1.5)  # longer than a member's heartbeat time-out
    after = ask_json(job)
    assert after["epoch"] == before["epoch"] and len(after["members"]) == 2
    assert [peer["rank"] for peer in after["members"][0]["peers"]] == [peer["rank"] for peer in before["members"][0]["peers"]]
    # Any member answers requests.
    status, out, err = ask(job, address=after["members"][1]["address"])
    assert status == 0 and "seen by rank" in out, err
    for node in (first, second):
        node.tell("end")
    for node in (first, second):
        node.ends()


def test_strangers_learn_nothing(cluster):
    job = cluster(2, 0)
    nodes = [job.python(rank, WORKER) for rank in range(2)]
    for node in nodes:
        node.hear("up")
    for secret in ("another", None):
        status, out, err = ask(job, secret=secret)
        assert status == 1 and out == "" and "POLYVERSO_SECRET" in err
    status, out, err = ask(job, address="127.0.0.1:1")
    assert status == 1 and out == "" and "127.0.0.1:1" in err
    for node in nodes:
        node.tell("end")
    for node in nodes:
        node.ends()


def test_a_run_is_found_without_a_word_and_forgotten_at_its_end(start, tmp_path):
    tmp_path.chmod(0o700)
    found = {"XDG_RUNTIME_DIR": str(tmp_path)}
    script = PRELUDE + """
node = pv.init()
table = node.array(4, name="weights")
node.barrier()
say("up")
time.sleep(60)
"""
    runs = [start("run", "-n", "2", "--", sys.executable, "-c", script, env=found) for _ in range(2)]
    for run in runs:
        run.read_until("up")
        run.read_until("up")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")} | found

    def status(*arguments):
        return subprocess.run([COMMAND, "status", *arguments], env=environment, text=True, capture_output=True, timeout=20, check=False)

    files = sorted((tmp_path / "polyverso").iterdir())
    assert [int(file.name) for file in files] == sorted(run.process.pid for run in runs)
    assert all(file.stat().st_mode & 0o077 == 0 for file in (*files, tmp_path / "polyverso"))
    both = status()
    assert both.returncode == 0 and both.stdout.count("2 workers, 2 servers") == 2, both.stderr
    one = status("--json", str(runs[0].process.pid))
    assert len(json.loads(one.stdout)["members"]) == 2
    assert status("--json").returncode == 2
    assert status("1").returncode == 2
    runs[0].process.send_signal(signal.SIGTERM)
    runs[0].finish()
    runs[1].process.kill()  # without cleanup: its leftovers do not count as a run
    runs[1].finish()
    runs[1].wait_until_gone(10)
    none = status()
    assert none.returncode == 2 and "--master" in none.stderr
    assert list((tmp_path / "polyverso").iterdir()) == []


def test_a_folder_that_others_can_enter_is_not_trusted(tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / "polyverso").mkdir()
    (tmp_path / "polyverso").chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
    environment["XDG_RUNTIME_DIR"] = str(tmp_path)
    told = subprocess.run([COMMAND, "status"], env=environment, text=True, capture_output=True, timeout=20, check=False)
    assert told.returncode == 1 and "is not a private folder" in told.stderr


# Worker 0 waits at a barrier of a group, which worker 1 reaches only after a word on its input.
MEMBER = """
from polyverso.group import Group
node = pv.init()
group = Group(node)
group.allreduce(np.ones(3))
say("up")
if node.rank == 1:
    wait_for_word()
group.barrier()
group.close()
node.shutdown()
"""


@pytest.mark.parametrize("settings", [{}, {"transport": "tcp"}])
def test_a_groups_ranks_and_who_waits_there_are_shown(cluster, settings):
    job = cluster(2, **settings)
    nodes = [job.python(rank, MEMBER) for rank in range(2)]
    for node in nodes:
        node.hear("up")
    told = ask_json(job, lambda told: any(wait["kind"] == "collective" for wait in told["waits"]))
    (group,) = told["groups"]
    assert group["transport"] == ("messages" if settings else "shm") and group["broken"] is None
    assert [each["rank"] for each in group["ranks"]] == [0, 1]
    assert group["ranks"][0]["operations"] == group["ranks"][1]["operations"] + 1
    (wait,) = [wait for wait in told["waits"] if wait["kind"] == "collective"]
    assert wait["worker"] == 0 and wait["table"] == "barrier" and [each["who"] for each in wait["awaited"]] == ["worker 1"]
    assert "worker 0 waits" in ask(job)[1]
    nodes[1].tell("go on")
    for node in nodes:
        node.ends()


def test_a_silent_process_is_logged_once_and_its_loss_too(cluster):
    job = cluster(3, 0, heartbeat_timeout_ms=7000, stuck_after_ms=60000)
    nodes = [job.python(rank, WORKER) for rank in range(3)]
    for node in nodes:
        node.hear("up")
    nodes[1].kill(signal.SIGSTOP)
    line = nodes[0].hear("worker 1")
    assert "has been silent for" in line and "after 7 s it is lost" in line, line
    line = nodes[0].hear("worker 1")
    assert "is lost: nothing heard from it for" in line, line
    nodes[0].kill()
    nodes[0].process.wait()
    assert not [line for line in nodes[2].lines if "worker 1" in line]
    for node in nodes[1:]:
        node.kill()


def test_a_stopped_master_is_named_and_watch_goes_on(cluster):
    job = cluster(2, 0, heartbeat_timeout_ms=60000)
    nodes = [job.python(rank, WORKER) for rank in range(2)]
    for node in nodes:
        node.hear("up")
    nodes[0].kill(signal.SIGSTOP)
    status, out, err = ask(job)
    assert (status, out) == (1, "") and len(err.splitlines()) == 1
    assert "within 5 s" in err and "is stopped" in err and "rank 0" in err and "--master ADDRESS" in err, err
    for node in nodes:
        node.kill()
        node.process.wait()
    command = [COMMAND, "status", "--watch=0.1", "--master", job.address]
    with subprocess.Popen(command, env=dict(os.environ, POLYVERSO_SECRET="of the tests"), stdout=subprocess.PIPE, text=True) as watch:
        lines = [watch.stdout.readline() for _ in range(3)]
        assert watch.poll() is None and lines[0] == lines[2] and lines[0].startswith("no answer: ") and job.address in lines[0], lines
        watch.send_signal(signal.SIGINT)
        assert watch.wait(20) == -signal.SIGINT
