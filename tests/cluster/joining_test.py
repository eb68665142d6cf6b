"""Cluster start-up: how members join, and which processes are rejected."""

import random
import socket
import struct
import threading
import time

import pytest

from conftest import COMMAND
from ports import free_ports

JOIN = """
node = None
def join():
    global node
    node = pv.init()
attempt(join)
if node is None:
    sys.exit(0)
table = node.array(100, name="weights")
table.add(np.ones(100))
node.barrier()
say("sum", table.get()[0])
node.shutdown()
"""


def test_processes_may_come_late_and_in_any_order(cluster):
    job = cluster(3, 1)
    late = job.python(2, JOIN)
    time.sleep(0.3)
    server = job.server(0)
    time.sleep(0.3)
    nodes = [job.python(0, JOIN)]
    time.sleep(0.5)
    nodes.append(job.python(1, JOIN))
    for node in [*nodes, late]:
        assert node.hear_attempt()[1] == "ok"
        assert node.hear("sum") == "sum 3.0"
        node.ends()
    server.ends()


def test_processes_that_start_before_rank_0_may_ask_each_other(cluster):
    """They have a list of addresses, and do not know which of those is the master's."""
    job = cluster(1, 2)
    port = free_ports(2)
    listed = f"127.0.0.1:{port},127.0.0.1:{port + 1},{job.address}"
    servers = [job.start(1 + number, [COMMAND, "server"], master=listed, bind=f"127.0.0.1:{port + number}") for number in range(2)]
    time.sleep(0.7)
    node = job.python(0, JOIN)
    assert node.hear_attempt()[1] == "ok"
    node.ends()
    for server in servers:
        server.ends()


def test_ranks_are_given_out_when_nobody_asks_for_one(cluster):
    job = cluster(3)
    any_rank = {"rank": None}
    script = "node = pv.init(); say('rank', node.rank, node.size); node.shutdown()"
    nodes = [job.python(0, script), job.python(1, script, **any_rank), job.python(2, script, **any_rank)]
    assert sorted(node.hear("rank") for node in nodes) == ["rank 0 3", "rank 1 3", "rank 2 3"]
    for node in nodes:
        node.ends()


def test_a_time_out_at_the_start_names_who_is_missing(cluster):
    job = cluster(3, init_timeout_ms=800)
    nodes = [job.python(0, JOIN), job.python(2, JOIN)]
    took, ending = nodes[0].hear_attempt()
    assert ending.startswith("TimeoutError") and "rank 1" in ending.replace("ranks", "rank"), ending
    assert took < 3
    nodes[1].hear_attempt()


def test_an_unreachable_master_is_named(cluster):
    job = cluster(2, init_timeout_ms=800)
    job.listener.close()
    job.listener = None
    node = job.python(1, JOIN)
    took, ending = node.hear_attempt()
    assert ending.split(":")[0] in ("PeerError", "TimeoutError") and job.address in ending, ending
    assert took < 3


def test_a_port_in_use_is_named(cluster):
    job = cluster(2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = "127.0.0.1:%d" % other.getsockname()[1]
        job.listener.close()
        job.listener = None
        node = job.python(0, JOIN, master=address)
        took, ending = node.hear_attempt()
    assert ending.startswith("PeerError") and address in ending and "EADDRINUSE" in ending, ending
    assert took < 2


def test_a_wrong_secret_is_refused_and_the_cluster_waits_for_the_right_one(cluster):
    job = cluster(2)
    first = job.python(0, JOIN)
    stranger = job.python(1, JOIN, secret="wrong")
    took, ending = stranger.hear_attempt()
    assert ending.startswith("PeerError") and "secret" in ending, ending
    assert took < 5
    second = job.python(1, JOIN)
    for node in (first, second):
        assert node.hear("sum") == "sum 2.0"
        node.ends()


def test_processes_that_disagree_about_the_mode_are_told_so(cluster):
    job = cluster(2, init_timeout_ms=4000)
    nodes = [job.python(0, JOIN, sync=1), job.python(1, JOIN, sync=0)]
    ending = nodes[1].hear_attempt()[1]
    assert ending.startswith("StateError") and "sync" in ending, ending


def hello_of_version(version):
    """The first bytes of a process of another version; for the record's layout, see core/wire/handshake.cpp."""
    return struct.pack("<IIIIHHIQQ", 0x4D564801, 0x01020304, 1, 0, version, version, 0, 77, 0) + bytes(32 + 64)


def closes(connection, seconds=5.0):
    """Whether the peer closes the connection within `seconds`."""
    connection.settimeout(seconds)
    try:
        while connection.recv(4096):
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_another_protocol_version_is_refused_in_words(cluster):
    job = cluster(2)
    nodes = [job.python(0, JOIN)]
    host, port = job.address.split(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(hello_of_version(99))
        connection.settimeout(5)
        answer = connection.recv(136 + 16, socket.MSG_WAITALL)  # its own Hello, which tells the peer the reason; and
        assert struct.unpack("<IIII", answer[136:]) == (0x4D564801, 0x01020304, 3, 1)  # a Refuse because of the version
        assert closes(connection)
    nodes.append(job.python(1, JOIN))
    for node in nodes:
        assert node.hear("sum") == "sum 2.0"
        node.ends()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50, bytes(4096), b"\xff" * 4096])
def test_garbage_costs_its_own_connection_only(cluster, garbage):
    job = cluster(2)
    nodes = [job.python(0, JOIN)]
    host, port = job.address.split(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(garbage)
        assert closes(connection)
    nodes.append(job.python(1, JOIN))
    for node in nodes:
        assert node.hear("sum") == "sum 2.0"
        node.ends()


def test_a_scan_of_all_ports_during_a_run_disturbs_nothing(cluster):
    job = cluster(2, 1)
    script = """
node = pv.init()
table = node.array(1000, name="weights")
say("up")
begun = time.monotonic()
count = 0
while time.monotonic() - begun < 2:
    table.add(np.ones(1000))
    count += 1
say("made", count)
node.barrier()
say("sum", int(table.get()[0]))
node.shutdown()
"""
    nodes = [job.python(rank, script) for rank in range(2)]
    server = job.server(0)
    for node in nodes:
        node.hear("up")
    ports = listening_ports(node.process.pid for node in [*nodes, server])
    assert ports
    over = threading.Event()
    scanner = threading.Thread(target=scan, args=(ports, over))
    scanner.start()
    made = sum(int(node.hear("made").split()[1]) for node in nodes)
    over.set()
    scanner.join()
    for node in nodes:
        assert node.hear("sum") == f"sum {made}"
        node.ends()
    server.ends()


def scan(ports, over):
    dice = random.Random(7)
    silent = []
    while not over.is_set():
        for port in ports:
            try:
                connection = socket.create_connection(("127.0.0.1", port), 1)
            except OSError:
                continue
            kind = dice.randrange(4)
            try:
                if kind == 0:
                    connection.sendall(dice.randbytes(dice.randrange(1, 3000)))
                elif kind == 1:
                    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                elif kind == 2 and len(silent) < 20:
                    silent.append(connection)  # stays connected without sending
                    continue
            except OSError:
                pass
            connection.close()
        time.sleep(0.005)
    for connection in silent:
        connection.close()


def listening_ports(pids):
    """The TCP ports that these processes listen on."""
    import os

    inodes = set()
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports = []
    with open("/proc/net/tcp") as file:
        for line in list(file)[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.append(int(fields[1].split(":")[1], 16))
    return ports


def test_a_server_can_be_started_manually(cluster, tmp_path):
    job = cluster(1, 1)
    (tmp_path / "secret").write_text("of the tests\n")
    options = ["--master", job.address, "--nodes", "2", "--secret-file", str(tmp_path / "secret"), "--set", "log_level=info"]
    nothing = dict.fromkeys(["master", "nodes", "rank", "role", "secret", "init_timeout_ms"])
    server = job.start(1, [COMMAND, "server", *options], **nothing)
    worker = job.python(0, JOIN)
    assert worker.hear("sum") == "sum 1.0"
    server.hear("serving as server 0 of 1 (rank 1 of 2")
    worker.ends()
    server.ends()


def test_a_server_without_a_cluster_says_what_is_missing(cluster):
    server = cluster(1).start(1, [COMMAND, "server"], **dict.fromkeys(["master", "nodes", "rank", "role", "secret"]))
    server.hear("polyverso server: can't join: ")
    server.ends(1)
