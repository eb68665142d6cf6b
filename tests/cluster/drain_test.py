"""Servers that get SIGTERM hand their tables over to others: workers notice no more than a delay, also without replicas."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import COMMAND
from nodes import PRELUDE

# Adds 1 to all elements of tables of each kind until it is told to end, and then checks the sums. A table in shared memory, a keyed one, small
# keys, and an updater with states.
WORKER = """
import threading
node = pv.init()
dense = node.array(60_000, name="dense", dtype="float64")
matrix = node.matrix(300, 70, name="matrix", dtype="float32")
keyed = node.keyvalue(2, name="keyed", dtype="int64")
momentum = node.array(30, name="momentum", dtype="float64", updater="momentum rate=1 momentum=0")
rows = np.arange(500)
ended = threading.Event()
def listen():
    while wait_for_word() != "end":
        say("address of rank 2:", node.status()["members"][2]["address"])
    ended.set()
node.barrier()
threading.Thread(target=listen, daemon=True).start()
adds = longest = 0
say("up")
while not ended.is_set():
    begun = time.monotonic()
    dense.add(np.ones(60_000))
    matrix.add(np.ones((300, 70), np.float32))
    keyed.add(np.ones((500, 2), np.int64), keys=rows)
    momentum.add(np.ones(30))
    adds += 1
    seen = dense.get(), matrix.get(), keyed.get(keys=rows)
    assert all((values >= adds).all() for values in seen), (adds, [values.min() for values in seen])
    longest = max(longest, time.monotonic() - begun)
    time.sleep(0.001)  # others start meanwhile
    if adds % 20 == 0:
        say("round", adds)
say("adds", adds, "longest", f"{longest:.2f}")
node.barrier()
all_adds = node.array(node.num_workers, name="adds", dtype="int64")
mine = np.zeros(node.num_workers, np.int64)
mine[node.worker_id] = adds
all_adds.add(mine)
node.barrier()
total = int(all_adds.get().sum())
sums = dense.get(), matrix.get(), keyed.get(keys=rows), -momentum.get()
say("wrong", sum(int((values != total).sum()) for values in sums), total)
print(node.status_text(), flush=True)
node.barrier()
attempt(node.shutdown)
"""


def serving(node, seconds=30):
    node.hear("round", seconds)


def check(nodes, words=30):
    for node in nodes:
        node.tell("end")
    for node in nodes:
        assert node.hear("wrong ", words).split()[1] == "0"
    for node in nodes:
        node.hear_attempt()
        node.ends()


def ends_drained(server, seconds=20):
    server.ends(0, seconds)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("replicas", [0, 1])
def test_servers_end_one_after_another_and_nothing_is_lost(cluster, transport, replicas):
    job = cluster(2, 4, replicas=replicas, transport=transport)
    nodes = [job.python(rank, WORKER) for rank in range(2)]
    servers = [job.server(number) for number in range(4)]
    for node in nodes:
        node.hear("up")
    for victim in (0, 2, 1):
        serving(nodes[0])
        servers[victim].kill(signal.SIGTERM)
        ends_drained(servers[victim])
        for node in nodes:
            node.forget()
            serving(node)
    check(nodes)
    assert sum(line.startswith("rank ") and line.endswith("has handed its tables over and left") for line in nodes[0].lines) == 3, nodes[0].lines
    servers[3].ends(seconds=10)


def test_a_new_process_takes_the_place_and_the_tables_in_turn(cluster):
    job = cluster(1, 2)
    node, servers = job.python(0, WORKER), [job.server(number) for number in range(2)]
    node.hear("up")
    for victim in (0, 1, 0):
        serving(node)
        servers[victim].kill(signal.SIGTERM)
        ends_drained(servers[victim])
        servers[victim] = job.server(victim, log_level="info")
        servers[victim].hear("serving as server")
        node.forget()
        serving(node)
    check([node])
    for server in servers:
        server.ends(seconds=10)


def test_a_new_process_waits_for_the_place_of_a_server_that_is_draining(cluster):
    job = cluster(1, 2)
    node, servers = job.python(0, WORKER), [job.server(number) for number in range(2)]
    node.hear("up")
    servers[0].kill(signal.SIGSTOP)  # it is to get the tables, and takes none for now
    servers[1].kill(signal.SIGTERM)
    time.sleep(0.3)
    fresh = job.server(1, log_level="info")
    time.sleep(1.5)
    servers[0].kill(signal.SIGCONT)
    ends_drained(servers[1])
    fresh.hear("serving as server")
    check([node])
    for server in (servers[0], fresh):
        server.ends(seconds=10)


SLOW = """
node = pv.init()
table = node.array(10, merge=True)
say("up")
for step in range(2):
    wait_for_word()
    table.add(np.ones(10))
    table.get()
    say("step", step)
node.barrier()
attempt(node.shutdown)
"""


def test_a_new_process_waits_as_long_as_the_drain_takes(cluster):
    """Here a worker computes, and the drain waits for its part of a round: for more than twice the heartbeat's time-out."""
    job = cluster(2, 2, heartbeat_timeout_ms=600)
    nodes, servers = [job.python(rank, SLOW) for rank in range(2)], [job.server(number) for number in range(2)]
    for node in nodes:
        node.hear("up")
    nodes[0].tell("go")  # it waits in the round
    time.sleep(0.3)
    servers[1].kill(signal.SIGTERM)
    time.sleep(0.3)
    fresh = job.server(1, log_level="info")
    time.sleep(2.5)
    nodes[1].tell("go")
    for node in nodes:
        node.hear("step 0")
    ends_drained(servers[1])
    fresh.hear("serving as server")
    for node in nodes:
        node.tell("go")
    for node in nodes:
        node.hear_attempt()
        node.ends()
    for server in (servers[0], fresh):
        server.ends(seconds=10)


LOADING = """
node = pv.init()
table = node.array(3_000_000, dtype="float64")
table.add(np.ones(3_000_000))
node.save({where!r})
for _ in range(3):
    say("up")
    wait_for_word()
    node.load({where!r})
wait_for_word()
say("wrong", int((table.get() != 1).sum()))
attempt(node.shutdown)
"""


def test_a_drain_that_meets_the_load_of_a_checkpoint_ends(cluster, tmp_path):
    job = cluster(1, 4, replicas=1)
    node = job.python(0, LOADING.format(where=str(tmp_path / "saved")))
    servers = [job.server(number) for number in range(4)]
    for server, delay in zip(servers[1:], (0.02, 0.05, 0.08)):
        node.hear("up", 30)
        node.tell("go")
        time.sleep(delay)
        server.kill(signal.SIGTERM) if server is not servers[3] else None
    for server in servers[1:3]:
        ends_drained(server, 15)
    node.tell("end")
    assert node.hear("wrong", 30) == "wrong 0"
    node.hear_attempt()
    node.ends()
    for server in (servers[0], servers[3]):
        server.ends(seconds=10)


def test_tables_go_back_to_a_server_that_was_replaced(cluster):
    """They are spread over all servers again, while they are in use, in each turn."""
    job = cluster(1, 3)
    node, servers = job.python(0, WORKER, log_level="info"), [job.server(number) for number in range(3)]
    node.hear("up")
    for victim in (1, 2, 1):
        serving(node)
        servers[victim].kill(signal.SIGTERM)
        ends_drained(servers[victim])
        node.forget()
        servers[victim] = job.server(victim)
        assert f"server {victim} (rank {1 + victim}, " in node.hear("serves its own part of the tables")
        serving(node)
    check([node])
    for server in servers:
        server.ends(seconds=10)


# A table large enough that its copy takes some time.
LARGE = WORKER.replace('node.array(60_000, name="dense"', 'node.array(6_000_000, name="dense"').replace("np.ones(60_000)", "ONES").replace(
    "node.barrier()", "ONES = np.ones(6_000_000)\nnode.barrier()", 1).replace("adds % 20", "adds % 1")


@pytest.mark.parametrize("delay", [0, 0.05, 0.15, 0.4])
def test_the_new_server_is_killed_while_tables_go_back(cluster, delay):
    """Nothing is lost as long as the server that gives them back serves them, and the next process gets them."""
    job = cluster(1, 2, transport="tcp")
    node, servers = job.python(0, LARGE, log_level="info"), [job.server(number) for number in range(2)]
    node.hear("up")
    serving(node)
    servers[1].kill(signal.SIGTERM)
    ends_drained(servers[1])
    node.forget()
    new = job.server(1, log_level="info")
    new.hear("serving as server")
    time.sleep(delay)
    new.kill()
    try:
        node.hear("serves its own part of the tables", 2)
    except AssertionError:
        node.forget()
        serving(node)
        servers[1] = job.server(1, log_level="info")
        node.hear("serves its own part of the tables")
        servers[1].hear("serving as server")
        serving(node)
        check([node])
        for server in servers:
            server.ends(seconds=10)
    else:  # it had them already, so they are lost with it
        assert node.hear("PeerError", 30)


@pytest.mark.parametrize("delay", [0, 0.05, 0.15])
def test_the_giver_is_killed_while_tables_go_back(cluster, delay):
    """Without replicas its own part is lost with it, so calls fail, but none hangs, and the new server ends."""
    job = cluster(1, 2, transport="tcp")
    node, servers = job.python(0, LARGE), [job.server(number) for number in range(2)]
    node.hear("up")
    serving(node)
    servers[1].kill(signal.SIGTERM)
    ends_drained(servers[1])
    servers[1] = job.server(1, log_level="info")
    servers[1].hear("serving as server")
    time.sleep(delay)
    servers[0].kill()
    assert "server 0 (rank 1, " in node.hear("PeerError", 30)
    node.ends(1)
    servers[1].ends(seconds=10)


def test_two_servers_end_at_once(cluster):
    job = cluster(2, 4)
    nodes = [job.python(rank, WORKER) for rank in range(2)]
    servers = [job.server(number) for number in range(4)]
    for node in nodes:
        node.hear("up")
    serving(nodes[0])
    for victim in (1, 2):
        servers[victim].kill(signal.SIGTERM)
    for victim in (1, 2):
        ends_drained(servers[victim])
    for node in nodes:
        node.forget()
        serving(node)
    check(nodes)
    for survivor in (0, 3):
        servers[survivor].ends(seconds=10)


# All workers make the same calls in sync mode: rounds and gates move with the tables.
SYNC = """
node = pv.init(sync=True)
table = node.array(5000, name="t", dtype="float64")
say("up")
for number in range(400):
    table.add(np.ones(5000))
    seen = table.get()
    assert (seen == node.num_workers * (number + 1)).all(), (number, seen.min(), seen.max())
    if number % 20 == 0:
        say("round", number)
node.barrier()
say("done")
attempt(node.shutdown)
"""


def test_rounds_go_on_in_sync_mode(cluster):
    job = cluster(2, 3)
    nodes = [job.python(rank, SYNC) for rank in range(2)]
    servers = [job.server(number, sync=1) for number in range(3)]
    nodes[0].hear("round 40")
    for victim in (0, 1):
        servers[victim].kill(signal.SIGTERM)
        ends_drained(servers[victim])
    for node in nodes:
        node.hear("done", 60)
        node.hear_attempt()
        node.ends()
    servers[2].ends(seconds=10)


def test_the_only_server_says_that_there_is_no_other(cluster):
    job = cluster(1, 1)
    node, server = job.python(0, WORKER), job.server(0)
    node.hear("up")
    server.kill(signal.SIGTERM)
    assert "no other server" in server.hear("ends without handing its tables over")
    server.ends(-signal.SIGTERM)


@pytest.mark.parametrize("replicas", [0, 1])
def test_one_master_after_another_hands_its_tables_over(cluster, replicas):
    job = cluster(0, 4, nodes=6, replicas=replicas)
    servers = [job.server(number) for number in range(4)]
    nodes = [job.python(rank, WORKER, role="worker") for rank in (4, 5)]
    for node in nodes:
        node.hear("up")
    for master in servers[:3]:
        serving(nodes[0])
        master.kill(signal.SIGTERM)
        ends_drained(master)
        for node in nodes:
            node.forget()
            serving(node)
    check(nodes)
    assert sum(line.startswith("rank ") and line.endswith("has handed its tables over and left") for line in nodes[0].lines) == 3, nodes[0].lines
    servers[3].ends(seconds=10)


@pytest.mark.parametrize("replicas", [0, 1])
def test_any_member_redirects_a_new_process_to_the_next_master(cluster, replicas):
    """Rank 0 has left. A new server, which knows only the address of another member, takes its place."""
    job = cluster(0, 3, nodes=4, replicas=replicas)
    servers = [job.server(number) for number in range(3)]
    node = job.python(3, WORKER, role="worker")
    serving(node)
    servers[0].kill(signal.SIGTERM)
    ends_drained(servers[0])
    node.forget()
    serving(node)
    node.tell("members")
    address = node.hear("address of rank 2:").split()[-1]
    again = job.server(0, rank=None, master=address, log_level="info")
    assert "(rank 0 of 4, " in again.hear("serving as server 0")
    node.forget()
    serving(node)
    check([node])
    for server in (again, *servers[1:]):
        server.ends(seconds=10)


# Barriers follow each other closely, so that some are in progress whenever the master leaves.
BARRIERS = """
node = pv.init()
table, flags = node.array(100, name="t", dtype="int64"), node.array(1, name="flags", dtype="int64")
say("up")
import threading
ended = threading.Event()
def listen():
    wait_for_word()
    ended.set()
threading.Thread(target=listen, daemon=True).start()
passed = 0
while True:
    table.add(np.ones(100, np.int64))
    node.barrier()
    passed += 1
    assert (table.get() >= passed * node.num_workers).all(), (passed, table.get())
    if passed % 50 == 0:
        say("round", passed)
    if passed % 100 == 0:
        if ended.is_set():
            flags.add(np.ones(1, np.int64))
        node.barrier()
        if flags.get()[0] > 0:
            break
say("passed", passed)
attempt(node.shutdown)
"""


def test_barriers_go_on_with_the_next_master(cluster):
    job = cluster(0, 3, nodes=6)
    servers = [job.server(number) for number in range(3)]
    nodes = [job.python(rank, BARRIERS, role="worker") for rank in (3, 4, 5)]
    for node in nodes:
        node.hear("up")
    for master in servers[:2]:
        serving(nodes[0])
        master.kill(signal.SIGTERM)
        ends_drained(master)
        for node in nodes:
            node.forget()
            serving(node)
    nodes[1].tell("end")
    assert len({node.hear("passed") for node in nodes}) == 1
    for node in nodes:
        node.hear_attempt()
        node.ends()
    servers[2].ends(seconds=10)


def test_the_loss_of_the_next_master_is_noticed(cluster):
    job = cluster(0, 3, nodes=4)
    servers = [job.server(number, log_level="info") for number in range(3)]
    node = job.python(3, WORKER, role="worker", log_level="info")
    serving(node)
    servers[0].kill(signal.SIGTERM)
    ends_drained(servers[0])
    node.forget()
    serving(node)
    servers[1].kill(signal.SIGKILL)  # the master
    node.hear("PeerError", 10)
    node.ends(1, 10)
    servers[2].process.wait(10)  # no worker is left


# DC-ASGD's server keeps what each worker last got. Both servers end in turn, and their places are taken: what the workers got goes with the
# tables. Worker 1 adds in between, so that the gradients of worker 0 are compensated.
DELAYED = """
node = pv.init()
updater = "dcasgd rate=0.5 lambda=1 mean_square=0.5 epsilon=0.25"
dense = node.array(30_000, name="dense", updater=updater, dtype="float64")
keyed = node.keyvalue(2, name="keyed", updater=updater, dtype="float64")
rows = np.arange(1000)
class Model:
    values = means = 0.0
    got = [None] * node.num_workers
    def add(self, worker, gradient):
        self.means = 0.5 * self.means + 0.5 * gradient * gradient
        late = 0 if self.got[worker] is None else 1 / np.sqrt(self.means + 0.25) * (gradient * gradient) * (self.values - self.got[worker])
        self.values -= 0.5 * (gradient + late)
model, wrong = Model(), 0
say("up")
while wait_for_word() != "end":
    for step in range(8):
        adds, gets, gradient = step % node.num_workers, step // 3 % node.num_workers, (1 + step) / 16
        node.barrier()
        if node.worker_id == adds:
            dense.add(np.full(30_000, gradient))
            keyed.add(np.full((1000, 2), gradient), keys=rows)
        node.barrier()
        if node.worker_id == gets:
            seen = dense.get(), keyed.get(keys=rows)
        model.add(adds, gradient)
        model.got[gets] = model.values
        if node.worker_id == gets:
            wrong += sum(int((values != model.values).sum()) for values in seen)
    say("turn", wrong, model.values)
attempt(node.shutdown)
"""


@pytest.mark.parametrize("replicas", [0, 1])
def test_what_workers_got_goes_with_the_tables(cluster, replicas):
    job = cluster(2, 3, replicas=replicas)
    nodes, servers = [job.python(rank, DELAYED) for rank in range(2)], [job.server(number) for number in range(3)]
    for node in nodes:
        node.hear("up")

    def turn():
        for node in nodes:
            node.tell("go on")
        assert [node.hear("turn", 60).split()[1] for node in nodes] == ["0", "0"]

    turn()
    for victim in (1, 2):
        servers[victim].kill(signal.SIGTERM)
        turn()
        ends_drained(servers[victim])
        turn()
        servers[victim] = job.server(victim, log_level="info")
        servers[victim].hear("serving as server")
        turn()
    if replicas > 0:
        servers[0].kill()
        turn()
    for node in nodes:
        node.tell("end")
    for node in nodes:
        node.hear_attempt()
        node.ends()
    for server in servers[replicas:]:
        server.ends(seconds=10)


# The other server is stopped, so the copy does not get on.
def test_it_ends_when_the_grace_period_is_over(cluster):
    job = cluster(1, 2, heartbeat_timeout_ms=30000)
    node, servers = job.python(0, WORKER), [job.server(0), job.start(2, [COMMAND, "server", "--grace", "1"])]
    node.hear("up")
    servers[0].kill(signal.SIGSTOP)
    begun = time.monotonic()
    servers[1].kill(signal.SIGTERM)
    line = servers[1].hear("ends without handing its tables over")
    assert "copies of its tables" in line
    servers[1].ends(-signal.SIGTERM)
    assert 0.9 < time.monotonic() - begun < 5


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(cluster, second):
    job = cluster(1, 2, heartbeat_timeout_ms=30000)
    node, servers = job.python(0, WORKER), [job.server(0), job.server(1, log_level="info")]
    node.hear("up")
    servers[0].kill(signal.SIGSTOP)
    servers[1].kill(signal.SIGTERM)
    servers[1].hear("this server is draining")
    servers[1].kill(second)
    servers[1].ends(-second, seconds=5)


# Each in a cluster of its own: the worker fails with the loss of the first, and the last server would end with it.
@pytest.mark.parametrize("number, grace", [(signal.SIGINT, 30), (signal.SIGTERM, 0)])
def test_ctrl_c_and_no_grace_end_it_at_once(cluster, number, grace):
    job = cluster(1, 2)
    node = job.python(0, WORKER)
    servers = [job.server(0), job.start(2, [COMMAND, "server", "--grace", str(grace)])]
    node.hear("up")
    servers[1].kill(number)
    servers[1].ends(-number, seconds=5)


def test_signals_end_a_server_that_waits_for_the_others(cluster):
    for number in (signal.SIGTERM, signal.SIGINT):
        job = cluster(1, 1)
        server = job.server(0, log_level="debug")
        time.sleep(0.3)
        server.kill(number)
        server.ends(-number, seconds=5)


def child_of(pid, seconds=5):
    """The only child of a process."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        children = open(f"/proc/{pid}/task/{pid}/children").read().split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise AssertionError("no child")


@pytest.mark.skipif(shutil.which("unshare") is None or subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode != 0,
                    reason="there are no process namespaces")
def test_the_first_process_of_a_container_heeds_signals(cluster):
    first = ["unshare", "--pid", "--fork", COMMAND, "server"]
    job = cluster(1, 3)
    node = job.python(0, WORKER)
    servers = [job.start(1, first), job.start(2, first), job.server(2)]
    node.hear("up")
    serving(node)
    os.kill(child_of(servers[0].process.pid), signal.SIGTERM)
    ends_drained(servers[0])
    node.forget()
    serving(node)
    os.kill(child_of(servers[1].process.pid), signal.SIGINT)
    servers[1].process.wait(10)  # unshare reports its child's end in its own way
    assert servers[1].process.returncode != 0


# A program that is a server calls the function itself; the program's handler of SIGTERM does.
# NumPy's threads start while SIGTERM is blocked, so that they never take it from the main thread: see docs/failures.md.
BLOCKED = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
PROGRAM = """
node = pv.init(role="server")
def end(number, frame):
    node.drain()
    say("drained")
signal.signal(signal.SIGTERM, end)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
say("serving")
node.shutdown()
say("over")
"""


def test_a_program_hands_its_tables_over(cluster):
    job = cluster(1, 2)
    program = job.start(1, [sys.executable, "-c", BLOCKED + PRELUDE + PROGRAM], role=None)
    node, server = job.python(0, WORKER), job.server(1)
    node.hear("up")
    serving(node)
    program.kill(signal.SIGTERM)
    program.hear("drained")
    program.hear("over")
    program.ends()
    node.forget()
    serving(node)
    check([node])
    server.ends(seconds=10)


def test_workers_can_not(cluster):
    job = cluster(2, 1)
    nodes = [job.python(rank, "node = pv.init()\nattempt(node.drain)\nnode.barrier()\nnode.shutdown()") for rank in range(2)]
    server = job.server(0)
    for node in nodes:
        _, ending = node.hear_attempt()
        assert "only a server can hand its tables over" in ending, ending
    for node in nodes:
        node.ends()
    server.ends()


# A worker that is also a server ends at SIGTERM, in the way of docs/failures.md, while it adds; it says how much it has added. The others go on
# until they are told the sum of all adds.
PREEMPTED = """
node = pv.init()
table = node.array(50_000, name="t", dtype="float64", CONSISTENCY)
merged = node.matrix(20, 3, name="merged", dtype="float64", merge=True)
group = pv.Group(node)
adds = 0
def leave(*_):
    node.drain()
    for use in (table.get, lambda: table.add(np.ones(50_000)), node.barrier, lambda: group.allreduce(np.ones(3)), lambda: node.array(3, name="late")):
        try: use()
        except pv.StateError as error: assert "node.drain() was called" in str(error), error
        else: raise AssertionError("a call has succeeded after the drain")
    say("drained", adds)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
node.barrier()
say("up")
ended = threading.Event()
def listen():
    wait_for_word()
    ended.set()
threading.Thread(target=listen, daemon=True).start()
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
while merged.get().max() < 1e6:  # the same for all: a round takes an add of each
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # an add that a signal interrupts may or may not count
    table.add(np.ones(50_000))
    adds += 1
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    merged.add(np.full((20, 3), 1e6 if ended.is_set() else 1.0))
    seen = table.get()
    assert (seen >= adds).all(), (adds, seen.min())
    if adds % 10 == 0:
        say("round", adds)
node.barrier()
say("adds", adds, "sum", int(table.get().min()), int(table.get().max()))
node.barrier()
node.shutdown()
"""


@pytest.mark.parametrize("replicas", [0, 1])
@pytest.mark.parametrize("consistency", ["merge=False", "staleness=3", "staleness=0"])
def test_workers_that_are_servers_hand_their_tables_over(cluster, replicas, consistency):
    job = cluster(4, 0, replicas=replicas)
    script = BLOCKED + "import threading\n" + PRELUDE + PREEMPTED.replace("CONSISTENCY", consistency)
    nodes = [job.start(rank, [sys.executable, "-c", script], role=None) for rank in range(4)]
    for node in nodes:
        node.hear("up")
    total = 0
    for victim in (2, 1):
        serving(nodes[0])
        nodes[victim].kill(signal.SIGTERM)
        total += int(nodes[victim].hear("drained").split()[1])
        ends_drained(nodes[victim])
        for node in (nodes[0], nodes[3]):
            node.forget()
            serving(node)
    for node in (nodes[0], nodes[3]):
        node.tell("end")
    found = [node.hear("adds").split() for node in (nodes[0], nodes[3])]
    total += sum(int(line[1]) for line in found)
    assert all(int(line[3]) == int(line[4]) == total for line in found), (found, total)
    for node in (nodes[0], nodes[3]):
        node.ends()


# Checkpoints are saved and loaded while servers leave; server 0 directs them at first.
SAVED = """
node = pv.init()
dense = node.array(30_000, name="dense", dtype="float64", updater="momentum rate=1 momentum=0.5")
where = "WHERE"
def values():
    node.barrier()
    seen = dense.get().copy()
    node.barrier()
    return seen
dense.add(np.ones(30_000))
say("up")
wrong = 0
while wait_for_word() != "end":
    before = values()
    node.save(where, keep=2)
    dense.add(np.ones(30_000))
    node.load(where)
    wrong += int((values() != before).sum())
    request = node.save_async(where, keep=2)
    request.wait()
    dense.add(np.ones(30_000))
    say("turn", wrong)
attempt(node.shutdown)
"""


def test_checkpoints_go_on(cluster, tmp_path):
    job = cluster(2, 3)
    nodes = [job.python(rank, SAVED.replace("WHERE", str(tmp_path / "run"))) for rank in range(2)]
    servers = [job.server(number) for number in range(3)]
    for node in nodes:
        node.hear("up")

    def turn(victim=None):
        for node in nodes:
            node.tell("go on")
        if victim is not None:
            servers[victim].kill(signal.SIGTERM)  # somewhere in the turn
        assert [node.hear("turn", 60).split()[1:] for node in nodes] == [["0"], ["0"]]

    turn()
    for victim in (0, 1):
        turn(victim)
        turn()
        ends_drained(servers[victim])
        turn()
    for node in nodes:
        node.tell("end")
    for node in nodes:
        node.hear_attempt()
        node.ends()
    servers[2].ends(seconds=10)


def test_the_end_of_a_run_is_no_drain(start):
    run = start("run", "-n", "1", "--servers", "2", "--", sys.executable, "-c", "import polyverso as pv; pv.init(); raise SystemExit(3)")
    begun = time.monotonic()
    status, _, err = run.finish(30)
    assert status == 3 and time.monotonic() - begun < 12 and "SIGTERM" not in err, err
