"""Processes that don't belong to a cluster: another user's without a secret, floods of connections, and rejects."""

import os
import socket
import subprocess
import threading
import time

import pytest

from conftest import COMMAND
from ports import free_ports

NOBODY = 65534

MEMBER = """
node = pv.init()
table = node.array(100, name="weights")
table.add(np.ones(100))
node.barrier()
say("up", table.get()[0])
wait_for_word()
attempt(lambda: table.add(np.ones(100)))
say("sum", table.get()[0], table.get()[99])
wait_for_word()
node.shutdown()
"""

# The process that takes the place of the lost worker. It does everything that a worker may do.
INTRUDER = """
import socket
os.setgroups([])
os.setgid({nobody})
os.setuid({nobody})
found = []
for line in open("/proc/net/unix"):
    name = line.split()[-1]
    if not name.startswith("@polyverso"):
        continue
    asking = socket.socket(socket.AF_UNIX)
    asking.settimeout(5)
    try:
        asking.connect("\\0" + name[1:])
        asking.send(b"\\0" * 256)
        found.append(asking.recv(4096))
    except OSError:
        pass
say("told", sorted(set(found)))
def intrude():
    node = pv.init()
    table = node.open("weights")
    say("read", table.get()[0])
    table.add(np.full(100, 1e6))
    table.destroy()
attempt(intrude)
"""

REPLACEMENT = """
node = pv.init()
table = node.array(100, name="weights")
say("found", table.get()[0])
node.shutdown()
"""


@pytest.fixture
def manual(cluster):
    """manual(workers, servers): a cluster that uses only POLYVERSO_MASTER=127.0.0.1:PORT, without a secret."""

    def begin(workers, servers, **settings):
        job = cluster(workers, servers, secret=None, **settings)
        job.listener.close()
        job.listener = None
        job.address = f"127.0.0.1:{free_ports()}"  # rank 0 opens the listener itself
        return job

    return begin


def with_two_workers_of_which_one_is_killed(job):
    workers, server = [job.python(rank, MEMBER) for rank in range(2)], job.server(0)
    for node in workers:
        assert node.hear("up") == "up 2.0"
    workers[1].kill()
    workers[1].process.wait()
    return workers[0], server


def test_another_user_can_not_take_the_place_of_a_lost_worker(manual):
    if os.geteuid() != 0:
        pytest.skip("processes of two users are needed: this wants root")
    job = manual(2, 1)
    survivor, server = with_two_workers_of_which_one_is_killed(job)
    intruder = job.python(1, INTRUDER.format(nobody=NOBODY))
    assert intruder.hear("told") in ("told []", "told [b'']")
    took, ending = intruder.hear_attempt()
    assert ending.startswith("PeerError") and "MV_EAUTH" in ending, ending
    assert "belongs to another user" in ending and "POLYVERSO_SECRET" in ending, ending
    assert took < 5
    intruder.ends()

    survivor.tell("go on")
    assert survivor.hear_attempt()[1] == "ok"
    assert survivor.hear("sum") == "sum 3.0 3.0"
    replacement = job.python(1, REPLACEMENT)  # same user: no secret is needed
    assert replacement.hear("found") == "found 3.0"
    replacement.ends()
    survivor.tell("end")
    survivor.ends()
    server.ends()


def test_two_users_meet_by_a_secret(manual):
    if os.geteuid() != 0:
        pytest.skip("processes of two users are needed: this wants root")
    script = """
if os.environ["POLYVERSO_RANK"] == "1":
    os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
node = pv.init()
table = node.array(100, name="weights")
table.add(np.ones(100))
node.barrier()
say("sum", table.get()[0])
node.shutdown()
""".format(nobody=NOBODY)
    job = manual(2, 0)
    nodes = [job.python(rank, script, secret="of both") for rank in range(2)]
    for node in nodes:
        assert node.hear("sum") == "sum 2.0"
        node.ends()


def ask(job, secret=None, **more):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
    if secret is not None:
        environment["POLYVERSO_SECRET"] = secret
    told = subprocess.run([COMMAND, "status", "--master", job.address], env=environment, text=True, capture_output=True, timeout=20,
                          check=False, **more)
    return told.returncode, told.stdout, told.stderr


def test_the_same_user_needs_no_secret_and_others_see_nothing(manual):
    job = manual(2, 0)
    nodes = [job.python(rank, MEMBER) for rank in range(2)]
    for node in nodes:
        assert node.hear("up") == "up 2.0"
    status, out, err = ask(job)
    assert status == 0 and "weights" in out, err
    status, out, err = ask(job, secret="some secret")
    assert status == 1 and out == "" and "has no secret and this process has one" in err, err
    if os.geteuid() == 0:
        try:
            status, out, err = ask(job, user=NOBODY, group=NOBODY, extra_groups=[])
            assert status == 1 and out == "" and "another user" in err and "POLYVERSO_SECRET" in err, err
        except PermissionError:
            pass  # that user cannot start the program here
    for node in nodes:
        node.tell("go on")
    for node in nodes:
        node.hear("sum")
        node.tell("end")
    for node in nodes:
        node.ends()


def test_a_relay_of_another_user_is_no_way_in(manual):
    """A relay between two processes of one user could forward their handshake, and then alter messages."""
    job = manual(2, 0)
    master = job.python(0, MEMBER)
    host, port = job.address.split(":")
    relay = socket.create_server(("127.0.0.1", 0))

    def pass_on(here, there):
        try:
            while data := here.recv(4096):
                there.sendall(data)
            there.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve():
        while True:
            try:
                accepted, _ = relay.accept()
                onward = socket.create_connection((host, int(port)), 5)
            except OSError:
                return
            threading.Thread(target=pass_on, args=(accepted, onward), daemon=True).start()
            threading.Thread(target=pass_on, args=(onward, accepted), daemon=True).start()

    deadline = time.monotonic() + 10
    while socket.socket().connect_ex((host, int(port))) != 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    threading.Thread(target=serve, daemon=True).start()
    through = job.python(1, MEMBER, master="127.0.0.1:%d" % relay.getsockname()[1])
    assert "MV_EAUTH" in through.hear("POLYVERSO_SECRET")
    relay.close()
    direct = job.python(1, MEMBER)
    for node in (master, direct):
        assert node.hear("up") == "up 2.0"
    for node in (master, direct):
        node.tell("go on")
    for node in (master, direct):
        node.hear("sum")
        node.tell("end")
    for node in (master, direct):
        node.ends()


def test_a_crowd_of_the_silent_does_not_keep_anybody_out(cluster):
    job = cluster(2, 1, transport="tcp")
    host, port = job.address.split(":")
    nodes = [job.python(0, MEMBER)]
    stop = threading.Event()

    def crowd():
        connections = []
        while not stop.is_set():
            try:
                connections.append(socket.create_connection((host, int(port)), 5))
            except OSError:
                time.sleep(0.01)
            if len(connections) > 400:
                for each in connections[:100]:
                    each.close()
                del connections[:100]

    people = [threading.Thread(target=crowd, daemon=True) for _ in range(2)]
    for each in people:
        each.start()
    time.sleep(0.5)
    try:
        nodes += [job.python(1, MEMBER)]
        server = job.server(0)
        for node in nodes:
            assert node.hear("up") == "up 2.0"
        for node in nodes:
            node.tell("go on")
        for node in nodes:
            assert node.hear_attempt()[1] == "ok"
            node.hear("sum")
    finally:
        stop.set()
        for each in people:
            each.join()
    for node in nodes:
        node.tell("end")
    for node in [*nodes, server]:
        node.ends()

