"""The number of servers changes while workers train: `polyverso scale`, mv_cluster_resize(), and servers that just come."""

import json
import os
import signal
import subprocess
import time

import conftest
import pytest
from conftest import COMMAND
from drain_test import WORKER, check, ends_drained, serving

# Two workers add and get until the file appears, then check the sums. Rank 0 executes the lines that it is given.
TRAINING = """
import os, sys, threading, time
import numpy as np
import polyverso as pv
node = pv.init()
dense = node.array(20_000, name="dense", dtype="float64", updater="momentum rate=1 momentum=0")
keyed = node.keyvalue(2, name="keyed", dtype="int64")
rows = np.arange(300)
node.barrier()
print("up", flush=True)
adds = 0
stop = os.environ["STOP"]
while not os.path.exists(stop):
    dense.add(-np.ones(20_000))
    keyed.add(np.ones((300, 2), np.int64), keys=rows)
    adds += 1
    assert (dense.get() >= adds).all() and (keyed.get(keys=rows) >= adds).all()
all_adds = node.array(node.num_workers, name="adds", dtype="int64")
mine = np.zeros(node.num_workers, np.int64)
mine[node.worker_id] = adds
all_adds.add(mine)
node.barrier()
total = int(all_adds.get().sum())
print("wrong", int((dense.get() != total).sum() + (keyed.get(keys=rows) != total).sum()), "of", total, flush=True)
node.barrier()
node.shutdown()
"""


def status_of(*which, env=None):
    text = subprocess.run([COMMAND, "status", *map(str, which), "--json"], env=env, capture_output=True, text=True, timeout=30).stdout
    return json.loads(text)


def environment_of(job):
    """In which commands ask this cluster."""
    return dict(os.environ, POLYVERSO_MASTER=job.address, POLYVERSO_SECRET=job.environment(0)["POLYVERSO_SECRET"])


def owners(state):
    """How many parts each serving rank has."""
    counts = {}
    for part in state["parts"]:
        counts[part["served_by"]] = counts.get(part["served_by"], 0) + 1
    return counts


def wait_for(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "in vain"
        time.sleep(0.05)
    return found


def scale(*arguments, seconds=60):
    return subprocess.run([COMMAND, "scale", *map(str, arguments)], capture_output=True, text=True, timeout=seconds)


@pytest.fixture
def training(start, tmp_path):
    """Starts a run with room for more servers; the returned function ends it, and checks that nothing was lost."""
    stop = tmp_path / "stop"

    def begin(*options, workers=2, servers=1):
        script = tmp_path / "train.py"
        script.write_text(TRAINING)
        job = start("run", "-n", str(workers), "--servers", str(servers), *options, "--", "python3", str(script), env={"STOP": str(stop)})
        for _ in range(workers):
            job.read_until("up")
        return job

    def end(job):
        stop.touch()
        status, out, err = job.finish(60)
        assert status == 0, (status, out, err)
        assert out.count("wrong 0 of") == 2, (out, err)
        return err

    return begin, end


def test_a_run_grows_and_shrinks_while_it_trains(training):
    begin, end = training
    job = begin("--max-servers", "6")
    pid = job.process.pid
    for wanted in (4, 2, 6, 1, 3):
        done = scale(pid, "--servers", wanted)
        assert done.returncode == 0, (wanted, done)
        assert done.stdout.splitlines()[-1] == f"{wanted} server" + ("s" if wanted > 1 else "")
        state = status_of(pid)
        counts = owners(state)
        assert len(counts) == wanted and max(counts.values()) - min(counts.values()) <= 1, counts
        assert len(state["parts"]) == state["max_servers"] == 6 and state["wanted_servers"] == wanted
        assert sum(member["server"] is not None and member["state"] == "here" for member in state["members"]) == wanted
    assert end(job) == ""


def test_servers_whose_processes_end_late_are_not_counted(training, monkeypatch):
    """All six ranks are taken by processes when five servers are wanted again, four of them of servers that have left."""
    begin, end = training
    monkeypatch.setenv("LD_PRELOAD", os.environ["SLOW_END"])
    job = begin("--max-servers", "6")
    for wanted in (6, 2, 5):
        done = scale(job.process.pid, "--servers", wanted)
        assert done.returncode == 0, (wanted, done)
    assert end(job) == ""


def test_servers_that_come_too_late_leave_again(training, tmp_path):
    """They were asked for before the number became smaller, and join after that."""
    begin, end = training
    server = tmp_path / "server.sh"
    server.write_text(f'[ "$POLYVERSO_RANK" -lt 5 ] || sleep 1; exec {COMMAND} server')
    for replicas in ("0", "1"):
        job = begin("--max-servers", "6", "--replicas", replicas, "--server-command", f"sh {server}", servers=3)
        pid = job.process.pid
        assert scale(pid, "--servers", "6", "--timeout", "0").returncode == 0
        assert scale(pid, "--servers", "3").returncode == 0
        wait_for(lambda: any(member["rank"] >= 5 for member in status_of(pid)["members"]))
        wait_for(lambda: not {"5", "6", "7"} & {conftest.environment_of(process).get("POLYVERSO_RANK") for process in job.processes()})
        assert len(owners(status_of(pid))) == 3
        assert scale(pid, "--servers", "5").returncode == 0  # their places are free
        end(job)
        (tmp_path / "stop").unlink()


def test_a_server_that_is_not_ready_yet_leaves(cluster):
    """It waits for a connection with another new server, which has stopped."""
    job = cluster(1, 3, max_servers=5, replicas=1, heartbeat_timeout_ms=30000)
    node = job.python(0, WORKER)
    servers = [job.server(number) for number in range(3)]
    node.hear("up")
    stopped = job.start(1, [COMMAND, "server"], rank=None, log_level="info")
    stopped.hear("info: rank ")
    stopped.kill(signal.SIGSTOP)
    late = job.start(1, [COMMAND, "server"], rank=None)
    wait_for(lambda: any(member["rank"] == 5 for member in status_of(env=environment_of(job))["members"]))
    asked = subprocess.run([COMMAND, "scale", "--servers", "3", "--timeout", "0"], env=environment_of(job), capture_output=True, text=True, timeout=30)
    assert asked.returncode == 0, asked
    ends_drained(late, 10)
    stopped.kill(signal.SIGCONT)
    ends_drained(stopped)
    check([node])
    for server in servers:
        server.ends(seconds=10)


def test_scale_tells_that_another_request_came_later_or_that_the_cluster_has_ended(training, tmp_path):
    begin, end = training
    server = tmp_path / "server.sh"
    server.write_text(f'[ "$POLYVERSO_RANK" -gt 2 ] || exec {COMMAND} server')  # others do not come
    job = begin("--max-servers", "4", "--server-command", f"sh {server}")
    pid = job.process.pid

    def waiting():
        process = subprocess.Popen([COMMAND, "scale", str(pid), "--servers", "4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: status_of(pid)["wanted_servers"] == 4)
        return process

    overridden = waiting()
    assert scale(pid, "--servers", "1").returncode == 0
    assert overridden.communicate(timeout=20)[1] == "polyverso scale: another request came later, for 1 server\n" and overridden.returncode == 1
    left_alone = waiting()
    end(job)
    said = left_alone.communicate(timeout=30)[1]
    assert left_alone.returncode == 1 and "does not answer any more: can't reach" in said and "has ended" in said, said


def test_a_program_changes_the_number_itself(start):
    script = """
import numpy as np, polyverso as pv
node = pv.init()
table = node.array(1000, name="t", dtype="float64")
for servers in (3, 1, 2):
    node.barrier()
    if node.rank == 0: node.resize(servers)
    node.barrier()
    table.add(np.ones(1000))
    if node.rank == 1: node.resize(servers)
node.barrier()
kinds = []
while (event := node.next_event()) is not None: kinds.append(event["kind"])
assert kinds.count("joined") == 3 and kinds.count("drained") == 2, kinds
print("sum", table.get().sum(), flush=True)
try: node.resize(5)
except pv.Error as error: print(type(error).__name__, error, flush=True)
try: node.resize(0)
except pv.Error as error: print(type(error).__name__, error, flush=True)
node.barrier()
node.shutdown()
"""
    job = start("run", "-n", "2", "--servers", "1", "--max-servers", "3", "--no-color", "--", "python3", "-c", script)
    status, out, err = job.finish(60)
    assert (status, err) == (0, ""), (out, err)
    assert out.count("sum 6000.0") == 2 and out.count("room for 3: set max_servers") == 2, out


def test_workers_that_are_servers_get_help(training):
    begin, end = training
    job = begin("--max-servers", "4", servers=0)
    assert scale(job.process.pid, "--servers", "4").returncode == 0
    assert owners(status_of(job.process.pid)) == {0: 1, 1: 1, 2: 1, 3: 1}
    refused = scale(job.process.pid, "--servers", "1")
    assert refused.returncode == 1 and "workers stay" in refused.stderr, refused
    assert scale(job.process.pid, "--servers", "2").returncode == 0
    assert owners(status_of(job.process.pid)) == {0: 2, 1: 2}
    end(job)


def test_a_size_without_room_is_refused(training):
    begin, end = training
    job = begin()
    for servers, reason in ((2, "room for 1: set max_servers"), (0, "--servers")):
        refused = scale(job.process.pid, "--servers", servers)
        assert refused.returncode != 0 and reason in refused.stderr, refused
    assert scale(job.process.pid, "--servers", 1).returncode == 0
    end(job)


def test_servers_without_a_launcher_come_and_leave(cluster):
    job = cluster(2, 2, max_servers=5)
    nodes = [job.python(rank, WORKER) for rank in range(2)]
    servers = [job.server(number) for number in range(2)]
    for node in nodes:
        node.hear("up")
    ask = environment_of(job)

    def state():
        return status_of(env=ask)

    assert owners(state()) == {2: 3, 3: 2}
    servers += [job.start(2, [COMMAND, "server"], rank=None) for _ in range(2)]
    wait_for(lambda: sorted(owners(state()).values()) == [1, 1, 1, 2])
    late = job.start(2, [COMMAND, "server"], rank=None)
    wait_for(lambda: set(owners(state()).values()) == {1})
    too_many = job.start(2, [COMMAND, "server"], rank=None)
    too_many.hear("already complete")
    too_many.ends(1)
    for node in nodes:
        node.forget()
        serving(node)
    late.kill(signal.SIGTERM)
    ends_drained(late)
    asked = subprocess.run([COMMAND, "scale", "--servers", "2", "--timeout", "30"], env=ask, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked
    for server in servers[2:]:
        server.ends(0)
    assert owners(state()) == {2: 3, 3: 2}
    missing = subprocess.run([COMMAND, "scale", "--servers", "3", "--timeout", "0.5"], env=ask, capture_output=True, text=True, timeout=60)
    assert missing.returncode == 1 and "start the missing ones with `polyverso server`" in missing.stderr, missing
    check(nodes)
    for server in servers[:2]:
        server.ends(seconds=10)


def test_a_new_server_that_is_killed_takes_nothing_with_it_until_it_serves(cluster):
    """Its copy is lost; the part stays where it is, and the next server gets it."""
    job = cluster(1, 1, max_servers=3)
    node, server = job.python(0, WORKER), job.server(0)
    node.hear("up")
    ask = environment_of(job)
    for delay in (0.0, 0.02, 0.05):
        late = job.start(1, [COMMAND, "server"], rank=None, log_level="info")
        rank = int(late.hear("info: rank ").partition("info: rank ")[2].split()[0])  # it has joined
        time.sleep(delay)
        late.kill(signal.SIGSTOP)
        # If it has confirmed everything, the master may be giving it the part at this moment. A snapshot of the status is used again for a while.
        time.sleep(1.5)
        if rank in owners(status_of(env=ask)):
            late.kill(signal.SIGCONT)
            late.kill(signal.SIGTERM)
            ends_drained(late)
        else:
            late.kill()
            late.process.wait()
        node.forget()
        serving(node)
    late = job.start(1, [COMMAND, "server"], rank=None)
    wait_for(lambda: len(owners(status_of(env=ask))) == 2)
    check([node])
    server.ends(seconds=10)


def test_with_replicas_servers_come_and_leave(training):
    begin, end = training
    job = begin("--max-servers", "5", "--replicas", "1", servers=3)
    pid = job.process.pid
    assert scale(pid, "--servers", "5").returncode == 0
    state = status_of(pid)
    assert len(owners(state)) == 5 and all(len(part["backups"]) == 1 for part in state["parts"]), state
    assert scale(pid, "--servers", "2").returncode == 0
    state = status_of(pid)
    assert len(owners(state)) == 2
    wait_for(lambda: all(part["backup"] is not None for part in status_of(pid)["parts"]))
    refused = scale(pid, "--servers", "1")
    assert refused.returncode == 1 and "at least 2" in refused.stderr, refused
    end(job)


@pytest.mark.parametrize("when", ["meanwhile", "before"])
def test_a_server_that_dies_is_replaced_when_as_many_are_wanted_again(training, when):
    begin, end = training
    job = begin("--max-servers", "6", "--replicas", "1", servers=3)
    pid = job.process.pid
    victim = next(member["pid"] for member in status_of(pid)["members"] if member["rank"] == 3)
    if when == "before":
        assert scale(pid, "--servers", "5").returncode == 0
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: next(member["state"] for member in status_of(pid)["members"] if member["rank"] == 3) == "lost")
        assert scale(pid, "--servers", "5", "--timeout", "20").returncode == 0
        # The process that answers hears of the newcomer a moment after the master.
        wait_for(lambda: sum(member["server"] is not None and member["state"] == "here" for member in status_of(pid)["members"]) == 5)
    else:
        growing = subprocess.Popen([COMMAND, "scale", str(pid), "--servers", "5", "--timeout", "20"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        time.sleep(0.1)
        os.kill(victim, signal.SIGKILL)
        said = growing.communicate(timeout=30)[0]
        assert growing.returncode == 0, said
    end(job)


def test_a_checkpoint_is_saved_while_servers_come_and_loaded_on_another_number(start, tmp_path):
    script = """
import sys, threading, numpy as np, polyverso as pv
node = pv.init()
table = node.array(50_000, name="t", dtype="float64")
table.add(np.arange(50_000.0))
node.barrier()
if node.rank == 0: resizing = threading.Thread(target=lambda: node.resize(4)); resizing.start()
for _ in range(5): node.save(sys.argv[1])
if node.rank == 0: resizing.join()
table.add(np.ones(50_000))
node.load(sys.argv[1])
assert (table.get() == 2 * np.arange(50_000.0)).all()
node.barrier()
if node.rank == 0: node.resize(2)
node.load(sys.argv[1])
assert (table.get() == 2 * np.arange(50_000.0)).all()
node.barrier()
print("fine", flush=True)
node.shutdown()
"""
    job = start("run", "-n", "2", "--servers", "1", "--max-servers", "4", "--", "python3", "-c", script, str(tmp_path))
    status, out, err = job.finish(60)
    assert status == 0 and out.count("fine") == 2, (status, out, err)
    load = "import sys, numpy as np, polyverso as pv; n = pv.init(); t = n.array(50_000, name='t', dtype='float64'); n.load(sys.argv[1]); " \
           "assert (t.get() == 2 * np.arange(50_000.0)).all(); n.shutdown()"
    status, out, err = start("run", "-n", "1", "--", "python3", "-c", load, str(tmp_path)).finish(60)
    assert (status, err) == (0, ""), (status, out, err)
