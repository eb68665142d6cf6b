"""Processes that die or hang: the others report their names soon, and no call waits forever."""

import os
import signal
import time

import pytest

SOON = 1.5  # seconds from a death to the errors of waiting calls; the closed connection reports it immediately


def workers(cluster, count, script, **settings):
    return [cluster.python(rank, script, **settings) for rank in range(count)]


CREATE = """
node = pv.init()
table = node.array(1000, name="weights")
say("up")
"""

BARRIER = CREATE + """
if node.rank == 0:
    wait_for_word()
attempt(node.barrier)
attempt(node.shutdown)
"""

GET = CREATE + """
if node.rank == 0:
    wait_for_word()
table.add(np.ones(1000), wait=False)
attempt(table.get)
attempt(node.shutdown)
"""


def test_workers_that_wait_learn_of_a_servers_death_at_once(cluster):
    job = cluster(3, 2)
    nodes = workers(job, 3, BARRIER)
    servers = [job.server(0), job.server(1)]
    for node in nodes:
        node.hear("up")
    time.sleep(0.2)
    servers[1].kill()
    for node in nodes[1:]:
        took, ending = node.hear_attempt(SOON)
        assert ending.startswith("PeerError") and "server 1" in ending, ending
    nodes[0].tell("go on")
    _, ending = nodes[0].hear_attempt(SOON)
    assert ending.startswith("PeerError") and "server 1" in ending, ending
    for node in nodes:
        node.hear_attempt()
        node.ends()
    servers[0].ends()


def test_a_get_in_sync_mode_fails_at_once_when_a_server_dies(cluster):
    job = cluster(3, 1, sync=1)
    nodes = workers(job, 3, GET)
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    time.sleep(0.2)
    server.kill()
    for node in nodes[1:]:
        _, ending = node.hear_attempt(SOON)
        assert ending.startswith("PeerError") and "server 0" in ending, ending


PULL = """
from polyverso import kvstore
node = pv.init()
store = kvstore.create("dist_sync")
keys = [f"key {i}" for i in range(16)]
store.init(keys, [np.zeros(10, np.float32)] * 16)
say("up")
if node.rank == 1:
    wait_for_word()
store.push(keys, [np.ones(10, np.float32)] * 16)
attempt(lambda: store.pull(keys, out=[np.zeros(10, np.float32) for _ in keys]))
attempt(node.shutdown)
"""


@pytest.mark.parametrize("script", [GET.replace("node.rank == 0", "node.rank == 1"), PULL])
def test_a_call_to_two_servers_fails_at_once_though_one_of_them_waits_for_another_worker(cluster, script):
    job = cluster(2, 2, sync=1)
    nodes = workers(job, 2, script)
    servers = [job.server(0), job.server(1)]
    for node in nodes:
        node.hear("up")
    time.sleep(0.2)
    servers[1].kill()
    _, ending = nodes[0].hear_attempt(SOON)  # worker 1 never makes its call
    assert ending.startswith("PeerError") and "server 1" in ending, ending
    nodes[1].tell("go on")
    _, ending = nodes[1].hear_attempt(SOON)
    assert ending.startswith("PeerError") and "server 1" in ending, ending
    for node in nodes:
        node.hear_attempt()
        node.ends()
    servers[0].ends()


def test_a_killed_worker_is_named_to_those_who_wait_for_it_in_sync_mode(cluster):
    job = cluster(3, 1, sync=1)
    nodes = workers(job, 3, GET)
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    time.sleep(0.3)
    nodes[0].kill()
    for node in nodes[1:]:
        _, ending = node.hear_attempt(SOON)
        assert ending.startswith("PeerError") and "worker 0" in ending, ending
        node.hear_attempt()
        node.ends()
    server.ends()


def test_a_killed_worker_is_named_to_those_who_wait_at_the_barrier(cluster):
    job = cluster(3)
    nodes = workers(job, 3, CREATE + """
if node.rank == 2:
    wait_for_word()
attempt(node.barrier)
attempt(node.shutdown)
""")
    for node in nodes:
        node.hear("up")
    time.sleep(0.2)
    nodes[2].kill()
    for node in nodes[:2]:
        _, ending = node.hear_attempt(SOON)
        assert ending.startswith("PeerError") and "worker 2" in ending, ending
        node.hear_attempt()
        node.ends()


def test_the_masters_death_ends_everybodys_waiting(cluster):
    job = cluster(3, 1)
    nodes = workers(job, 3, BARRIER)
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    time.sleep(0.2)
    nodes[0].kill()
    for node in nodes[1:]:
        _, ending = node.hear_attempt(SOON)
        assert ending.startswith("PeerError") and "worker 0" in ending, ending
        node.hear_attempt()
        node.ends()
    server.ends(seconds=5)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_worker_that_is_late_learns_whose_loss_has_ended_the_master(cluster, transport):
    """The master's program ends at its error. A call that begins later fails because of the master, and names the first loss, too."""
    job = cluster(3, transport=transport)
    first = job.python(0, "node = pv.init()\nsay('up')\nattempt(node.barrier)\nos._exit(1)")
    late = job.python(1, "node = pv.init()\nsay('up')\nwait_for_word()\nattempt(node.barrier)\nos._exit(1)")
    killed = job.python(2, "node = pv.init()\nsay('up')\nwait_for_word()")
    for node in (first, late, killed):
        node.hear("up")
    killed.kill()
    assert "worker 2" in first.hear_attempt()[1]
    first.process.wait()
    late.tell("go on")
    ending = late.hear_attempt()[1]
    assert "worker 0" in ending and "; lost before it: worker 2" in ending, ending


def test_a_server_without_connections_to_the_workers_ends_soon_if_the_master_dies_first(cluster):
    """The master can't report the deaths of the other workers, and nothing listens at their addresses any more."""
    job = cluster(3, 1)
    nodes = workers(job, 3, "node = pv.init()\nsay('up')\nwait_for_word()")
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    time.sleep(0.2)
    server.kill(signal.SIGSTOP)
    for node in nodes:
        node.kill()
        node.process.wait()
    server.kill(signal.SIGCONT)
    server.ends(seconds=2.5)


@pytest.mark.parametrize("operation, transport", [("table.add(np.ones(1000))", "auto"), ("table.add(np.ones(1000))", "tcp"), ("table.get()", "tcp")])
def test_a_stopped_server_counts_as_lost_after_the_heartbeat_limit(cluster, operation, transport):
    job = cluster(2, 1, heartbeat_timeout_ms=1000, transport=transport)
    nodes = workers(job, 2, CREATE + f"""
wait_for_word()
attempt(lambda: {operation})
attempt(node.shutdown)
""")
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    server.kill(signal.SIGSTOP)
    stopped = time.monotonic()
    for node in nodes:
        node.tell("go on")
    for node in nodes:
        _, ending = node.hear_attempt(5)
        assert ending.startswith("PeerError") and "server 0" in ending, ending
        assert 0.8 < time.monotonic() - stopped < 3
    for node in nodes:
        node.hear_attempt(5)
        node.ends()


def test_a_mapped_table_is_read_without_its_server_until_that_is_lost(cluster):
    job = cluster(2, 1, heartbeat_timeout_ms=1000, transport="auto")
    nodes = workers(job, 2, CREATE + """
table.add(np.ones(1000))
node.barrier()
for _ in range(10):
    table.get()  # the first ones may come before the memory has been mapped
    time.sleep(0.02)
wait_for_word()
say("sum", table.get()[0])
time.sleep(2.5)
attempt(table.get)
attempt(node.shutdown)
""")
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    time.sleep(1)
    server.kill(signal.SIGSTOP)
    for node in nodes:
        node.tell("go on")
    for node in nodes:
        assert float(node.hear("sum").split()[1]) == 2
        _, ending = node.hear_attempt(8)
        assert ending.startswith("PeerError") and "server 0" in ending, ending
    for node in nodes:
        node.hear_attempt(5)
        node.ends()


def test_a_short_stop_is_forgiven(cluster):
    job = cluster(2, 1, heartbeat_timeout_ms=3000)
    nodes = workers(job, 2, CREATE + """
for _ in range(5):
    table.add(np.ones(1000))
    wait_for_word()
node.barrier()
say("sum", table.get()[0])
node.shutdown()
""")
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    for _ in range(5):
        server.kill(signal.SIGSTOP)
        time.sleep(0.2)
        server.kill(signal.SIGCONT)
        for node in nodes:
            node.tell("go on")
    for node in nodes:
        assert node.hear("sum") == "sum 10.0"
        node.ends()
    server.ends()


def test_a_worker_that_leaves_without_a_word_is_lost_and_one_that_shuts_down_is_not(cluster):
    job = cluster(3, 1)
    nodes = [
        job.python(0, CREATE + "node.barrier(); wait_for_word(); attempt(node.barrier); attempt(node.shutdown)"),
        job.python(1, CREATE + "node.barrier(); node.shutdown()"),
        job.python(2, CREATE + "node.barrier(); wait_for_word(); os._exit(0)"),
    ]
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    nodes[1].ends()
    nodes[2].tell("go")
    nodes[2].ends()
    nodes[0].tell("go on")
    _, ending = nodes[0].hear_attempt(SOON)
    assert ending.startswith("PeerError") and "worker 2" in ending and "worker 1" not in ending, ending
    nodes[0].hear_attempt()
    nodes[0].ends()
    server.ends()


def test_a_finished_worker_blocks_nobody_in_sync_mode(cluster):
    job = cluster(2, 1, sync=1)
    nodes = workers(job, 2, CREATE + """
for _ in range(3 if node.rank else 6):
    table.add(np.ones(1000))
    value = table.get()[0]
say("value", value)
node.shutdown()
""")
    server = job.server(0)
    for node in nodes:
        node.hear("value")
        node.ends()
    server.ends()


def test_a_forked_child_is_told_to_call_init_itself(cluster):
    job = cluster(2)
    nodes = workers(job, 2, CREATE + """
child = os.fork()
if child == 0:
    attempt(table.get)
    os._exit(0)
os.waitpid(child, 0)
attempt(lambda: table.add(np.ones(1000)))
attempt(node.barrier)
attempt(node.shutdown)
""")
    for node in nodes:
        _, ending = node.hear_attempt()
        assert "MV_EFORK" in ending or "fork" in ending, ending
        for _ in range(3):
            assert node.hear_attempt()[1] == "ok"
        node.ends()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_launcher_names_the_server_that_died(start, number):
    script = "import polyverso as pv; n = pv.init(); t = n.array(10, name='t'); print('up', flush=True)\nwhile True: n.barrier()"
    job = start("run", "-n", "2", "--servers", "1", "--", "python3", "-c", script)
    for _ in range(2):
        job.read_until("up")
    pid = job.pid_of(2)
    os.kill(pid, number)
    status, _, err = job.finish()
    assert status == 128 + number
    assert err.splitlines()[-1] == f"polyverso run: server 0 (pid {pid}, rank 2) was killed by {number.name}"


def test_a_run_that_was_suspended_longer_than_the_heartbeat_limit_goes_on(start):
    script = """
import time, polyverso as pv
node = pv.init(); table = node.array(100, name="t"); print("up", flush=True)
begun = time.monotonic()
while time.monotonic() - begun < 3: table.add([1] * 100); time.sleep(0.01)
node.barrier(); print("done", flush=True); node.shutdown()
"""
    job = start("run", "-n", "2", "--servers", "1", "--set", "heartbeat_timeout_ms=1000", "--", "python3", "-c", script)
    for _ in range(2):
        job.read_until("up")
    job.process.send_signal(signal.SIGTSTP)
    time.sleep(2)
    job.process.send_signal(signal.SIGCONT)
    status, out, err = job.finish()
    assert (status, sorted(out.splitlines()), err) == (0, ["[w0] done", "[w1] done"], "")
