"""Rank 0, the master, is killed or stopped while workers change tables and wait in barriers: another server takes its place."""

import signal

import pytest

ROUNDS = 300

# A worker that adds 1 again and again. Barriers may fail once for each lost worker.
WORKER = f"""
node = pv.init()
table = node.array(3000, name="dense", dtype="float64")
node.barrier()
say("up")
wait_for_word()
for number in range({ROUNDS}):
    table.add(np.ones(3000))
    if number == 50:
        say("round 50")
for _ in range(2):
    attempt(node.barrier)
say("sum", table.get().min(), table.get().max())
wait_for_word()
attempt(node.shutdown)
"""

# Rank 0: a worker that only waits.
IDLE = """
node = pv.init()
table = node.array(3000, name="dense", dtype="float64")
node.barrier()
say("up")
wait_for_word()
attempt(node.barrier)
attempt(node.shutdown)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_master_that_was_a_worker(cluster, how):
    job = cluster(3, 3, replicas=1, heartbeat_timeout_ms=1500)
    master, workers = job.python(0, IDLE), [job.python(rank, WORKER) for rank in (1, 2)]
    servers = [job.server(number) for number in range(3)]
    for node in [master, *workers]:
        node.hear("up")
    for node in workers:
        node.tell("go on")
    workers[0].hear("round 50")
    master.kill(how)
    endings = [[node.hear_attempt(30)[1] for _ in range(2)] for node in workers]
    for failed, passed in endings:  # a lost worker fails one barrier of each other one
        assert "EPEERLOST" in failed or "rank 0" in failed, endings
        assert passed == "ok", endings
    for node in workers:
        _, least, most = node.hear("sum ", 30).split()
        assert float(least) == float(most) == 2 * ROUNDS
    for node in workers:
        node.tell("go on")
    for node in workers:
        assert node.hear_attempt()[1] == "ok"
        node.ends()
    if how == signal.SIGSTOP:
        master.kill(signal.SIGCONT)
        master.tell("go on")
        assert "MV_EPEERLOST" in master.hear_attempt(30)[1]  # it is cut off, or has heard that it was declared lost
        master.kill()
    for server in servers:
        server.ends(seconds=10)


def test_masters_that_are_lost_one_after_another(cluster):
    job = cluster(2, 4, replicas=1, heartbeat_timeout_ms=1500)
    master, worker = job.python(0, IDLE), job.python(1, WORKER)
    servers = [job.server(number) for number in range(4)]
    master.hear("up")
    worker.hear("up")
    worker.tell("go on")
    worker.hear("round 50")
    master.kill()
    servers[0].hear("this process is the master now")
    servers[0].kill()
    servers[1].hear("this process is the master now")
    failed, passed = worker.hear_attempt(30)[1], worker.hear_attempt(30)[1]
    assert "rank 0" in failed and passed == "ok"
    _, least, most = worker.hear("sum ", 30).split()
    assert float(least) == float(most) == ROUNDS
    worker.tell("go on")
    worker.ends()
    for server in servers[1:]:
        server.ends(seconds=10)


def test_a_server_that_nobody_can_decide_about_ends_with_an_error(cluster):
    job = cluster(2, 3, replicas=1, heartbeat_timeout_ms=1000)
    workers, servers = [job.python(rank, IDLE) for rank in range(2)], [job.server(number) for number in range(3)]
    for node in workers:
        node.hear("up")
    for node in (workers[0], *servers[:2]):
        node.kill()
    servers[2].hear("too few are left to choose a new master", 30)
    workers[1].tell("go on")
    assert "MV_EPEERLOST" in workers[1].hear_attempt(30)[1]
    workers[1].hear_attempt(30)
    servers[2].ends(status=1)
