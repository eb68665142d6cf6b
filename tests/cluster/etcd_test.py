"""keeper=etcd://: clusters whose processes meet by a name in a real etcd, which is killed, stopped and emptied meanwhile."""

import contextlib
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import COMMAND
from elastic_test import adder, stop, up
from etcd import Etcd, Proxy, is_installed
from named import JOIN, WORK, Named, end, sums, whole

pytestmark = pytest.mark.skipif(not is_installed(), reason="etcd is missing: apt install etcd-server")
PATIENT = dict(init_timeout_ms=60000)
KEYS, END_OF_KEYS = "L3BvbHl2ZXJzby8=", "L3BvbHl2ZXJzbzA="  # from /polyverso/ to /polyverso0


@pytest.fixture
def etcd():
    server = Etcd().start()
    yield server
    server.end()


@pytest.fixture
def named(etcd):
    """named(workers, name, **settings): a Named in the etcd of this test."""
    made = []

    def begin(workers, name="job", **settings):
        made.append(Named(workers, settings.pop("keeper", etcd.keeper(name)), **settings))
        return made[-1]

    yield begin
    for each in made:
        each.end()


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill_all(nodes):
    for node in nodes:
        node.kill()
        node.process.wait()


def step(nodes):
    for node in nodes:
        node.tell("step")
    for node in nodes:
        assert node.hear_attempt()[1] == "ok"


def test_several_clusters_at_once_each_form_by_their_names(named, etcd):
    jobs = {name: named(3, name).begin() for name in ("one", "two")}
    for nodes in jobs.values():
        assert sums(nodes) == whole(3)
    for nodes in jobs.values():
        end(nodes)
    assert "kvs" not in etcd.call("kv/range", key="Lw==", range_end="MA==")  # from "/" to "0": nothing is left
    assert not etcd.leases()


def test_ranks_are_those_that_were_asked_for(named):
    job = named(3)
    nodes = [job.python(rank, WORK, rank=rank) for rank in (2, 1, 0)]
    assert [int(node.hear("sum ").split()[6]) for node in nodes] == [2, 1, 0]
    end(nodes)


def test_a_second_start_is_refused_and_the_first_cluster_goes_on(named):
    nodes = named(2).begin()
    assert sums(nodes) == whole(2)
    job = named(2, heartbeat_timeout_ms=1000)
    second, late = job.python(0, JOIN, rank=0), job.python(1, JOIN)
    ending = second.hear_attempt()[1]
    assert "has a rank 0 already: pid" in ending, ending
    assert "already complete" in late.hear_attempt()[1]
    step(nodes)
    end(nodes)


def test_a_name_is_free_when_the_lease_of_a_killed_cluster_expires(named):
    job = named(2, heartbeat_timeout_ms=1000, **PATIENT)
    nodes = job.begin()
    assert sums(nodes) == whole(2)
    kill_all(nodes)
    begun = time.monotonic()
    again = job.begin()
    assert sums(again, 40) == whole(2)
    assert time.monotonic() - begun < 20  # the lease lasts two seconds
    end(again)
    begun = time.monotonic()
    third = [job.python(rank, WORK, rank=rank) for rank in range(2)]
    assert sums(third) == whole(2)
    assert time.monotonic() - begun < 10  # an end in good order frees the name at once
    end(third)


def test_processes_wait_for_an_etcd_that_starts_late_and_name_one_that_does_not(named, etcd):
    etcd.kill()
    failed = named(2, init_timeout_ms=1500).python(0, JOIN)
    took, ending = failed.hear_attempt()
    assert "does not answer" in ending and "is it running?" in ending and etcd.endpoint in ending and took < 12, ending
    nodes = named(2, **PATIENT).begin()
    for node in nodes:
        node.hear("trying again")
    etcd.start()
    assert sums(nodes, 40) == whole(2)
    end(nodes)


def test_a_cluster_outlives_etcds_death_and_has_its_name_again_afterwards(named, etcd):
    job = named(2, heartbeat_timeout_ms=1000, log_level="info")
    nodes = job.begin()
    assert sums(nodes) == whole(2)
    etcd.kill()
    master = next(node for node in nodes if any("is rank 0 of the cluster" in line for line in node.lines))
    master.hear("does not answer")
    step(nodes)
    etcd.wipe()
    etcd.start()
    master.hear("again")
    late = job.python(0, JOIN)
    assert "already complete" in late.hear_attempt()[1]  # it has found this cluster
    step(nodes)
    end(nodes)


def test_a_stopped_etcd_stops_nobody(named, etcd):
    nodes = named(2, heartbeat_timeout_ms=1000).begin()
    assert sums(nodes) == whole(2)
    etcd.signal(signal.SIGSTOP)
    begun = time.monotonic()
    step(nodes)
    assert time.monotonic() - begun < 5
    end(nodes)  # their ends do not wait for it
    assert time.monotonic() - begun < 10
    etcd.signal(signal.SIGCONT)


def test_a_rank_0_whose_lease_has_expired_learns_who_has_the_name(named, etcd):
    nodes = named(2, heartbeat_timeout_ms=1000).begin()
    assert sums(nodes) == whole(2)
    master = next(node for node in nodes if node.lines[-1].split()[6] == "0")
    master.kill(signal.SIGSTOP)
    wait_until(lambda: not etcd.leases())
    others = named(2, **PATIENT).begin()
    assert sums(others) == whole(2)
    master.kill(signal.SIGCONT)
    master.hear("belongs to another process now")
    step(others)
    end(others)


LATE = """
node = pv.init()
table = node.open("sums")
say("found", *table.get().astype(int))
attempt(node.shutdown)
"""


@pytest.mark.parametrize("workers", [2, 3])
def test_a_lost_rank_0_is_replaced_and_new_processes_find_its_successor(named, workers):
    # By etcd, two servers suffice. Without it, a majority of the processes would have to be there.
    job = named(workers, replicas=1, heartbeat_timeout_ms=1000, log_level="info", **PATIENT)
    nodes = job.begin()
    assert sums(nodes) == whole(workers)
    master, successor = (next(node for node in nodes if node.lines[-1].split()[6] == rank) for rank in "01")
    master.kill()
    master.process.wait()
    others = [node for node in nodes if node is not master]
    for node in others:
        node.tell("step")
    for node in others:
        assert "MV_EPEERLOST" in node.hear_attempt()[1]
    named_itself = "has this process as the master"
    if not any(named_itself in line for line in successor.lines):
        successor.hear(named_itself)
    step(others)
    late = job.python(0, LATE)
    assert late.hear("found ").split()[1:3] == [str(workers + 2 * len(others)), str(workers * (workers + 1) // 2 + 2 * len(others))]
    end(others)
    late.ends()


def test_a_process_that_asks_a_master_that_hangs_follows_its_successor(named):
    job = named(1, servers=3, replicas=1, heartbeat_timeout_ms=1500, log_level="info", **PATIENT)
    servers = [job.start(number, [COMMAND, "server"], rank=number, role="server") for number in range(3)]
    worker = job.python(3, WORK, rank=3, role="worker")
    assert worker.hear("sum ").split()[1] == "1"
    servers[0].kill(signal.SIGSTOP)
    late = job.start(4, [COMMAND, "server"], role="server")
    worker.tell("step")
    assert worker.hear_attempt(30)[1] == "ok"
    late.hear("the master is at ")
    late.hear("polyverso server: serving as server 0 of 3")
    servers[0].kill()
    worker.tell("step")
    assert worker.hear_attempt(30)[1] == "ok"
    end([worker])
    for server in [*servers[1:], late]:
        server.ends()


def test_an_etcd_that_is_away_too_long_is_named(named, etcd):
    job = named(3, replicas=1, heartbeat_timeout_ms=500, **PATIENT)
    nodes = job.begin()
    assert sums(nodes) == whole(3)
    master, *others = sorted(nodes, key=lambda node: int(node.lines[-1].split()[6]))
    etcd.kill()
    master.kill()
    for node in others:
        node.tell("step")
    for node in others:
        ending = node.hear_attempt(40)[1]
        assert "MV_EPEERLOST" in ending and f"etcd at {etcd.endpoint} does not answer" in ending, ending
    kill_all(others)


def test_a_name_without_an_address_is_told(named):
    ending = named(2, keeper="etcd://nowhere.invalid:2379/job", init_timeout_ms=500).python(0, JOIN).hear_attempt(60)[1]
    assert "the name nowhere.invalid has no address" in ending, ending


def test_calls_wait_for_an_etcd_that_is_away_while_a_server_dies(named, etcd):
    job = named(3, replicas=1, heartbeat_timeout_ms=1000, log_level="debug", **PATIENT)
    nodes = job.begin()
    assert sums(nodes) == whole(3)
    victim = next(node for node in nodes if node.lines[-1].split()[6] == "2")
    etcd.kill()
    victim.kill()
    victim.process.wait()
    others = [node for node in nodes if node is not victim]
    for node in others:
        node.hear("ended without calling shutdown()")  # until then, its journal on this machine counts as the back-up
    for node in others:
        node.tell("add")
    time.sleep(1.8)  # longer than a process is waited for that the master, who could decide, has not declared lost
    etcd.start()
    for node in others:
        took, ending = node.hear_attempt()
        assert ending == "ok" and took > 1.5, (took, ending)
    end(others)


@pytest.fixture
def proxy(etcd):
    with contextlib.closing(Proxy(etcd)) as between:
        yield between


def test_a_server_that_never_hears_that_it_has_become_the_master(named, etcd, proxy):
    """Its write arrives at etcd, the answer and all that follows is lost: the others take it for the master, and it does not know that it is."""
    job = named(5, replicas=2, heartbeat_timeout_ms=1000, log_level="info", **PATIENT)
    servers = [job.start(rank, [COMMAND, "server"], rank=rank, role="server", keeper=(proxy if rank == 1 else etcd).keeper("job")) for rank in range(3)]
    workers = [job.python(rank, WORK, rank=rank, role="worker") for rank in (3, 4)]
    for node in workers:
        assert node.hear("sum ").split()[1:3] == ["2", "3"]
    proxy.ends_with_write.set()
    servers[0].kill()
    for node in workers:
        node.tell("step")
    assert proxy.is_lost.wait(10)
    for node in workers:
        took, ending = node.hear_attempt(30)
        assert ending == "ok" and took < 12, (took, ending)
    step(workers)
    end(workers)


def test_workers_come_to_a_cluster_that_etcd_keeps(named, etcd):
    """By its name alone: while etcd is there, while it is away, and after rank 0 was lost."""
    job = named(3, replicas=1, max_workers=5, heartbeat_timeout_ms=1000, log_level="info", **PATIENT)
    script = adder().replace("node = pv.init()", "node = pv.init(); say('my rank is', node.rank)")
    nodes = job.begin(script=script)
    ranks = {int(node.hear("my rank is").split()[3]): node for node in nodes}
    for node in nodes:
        up(node)

    def newcomer():
        return job.python(0, adder(), role="worker")

    first = newcomer()
    assert up(first) == (3, 4, 4)
    etcd.kill()
    second = newcomer()
    second.hear("does not answer", 30)
    etcd.start()
    second.hear("up as", 40)
    assert stop(second) > 0
    ranks[0].kill()
    ranks[0].process.wait()
    third = newcomer()  # the successor admits it, in the place of the lost one or another one
    third.hear("up as", 40)
    others = (third, first, ranks[1], ranks[2])
    for node in others:  # servers stay until the last worker has finished
        node.tell("stop")
    for node in others:
        assert int(node.hear("added").split()[1]) > 0
    for node in others:
        node.ends()


def test_doctor_and_status_name_the_keeper(named, etcd):
    job = named(2)
    nodes = job.begin()
    assert sums(nodes) == whole(2)
    outside = {key: value for key, value in job.environment(0).items() if key not in ("POLYVERSO_RANK", "POLYVERSO_ROLE")}
    shown = subprocess.run([COMMAND, "status"], env=outside, capture_output=True, text=True, timeout=30)
    assert shown.returncode == 0, shown.stderr
    assert f"etcd at {etcd.endpoint}, cluster \"job\": this process is rank 0, kept by a lease of 10 s" in shown.stdout, shown.stdout
    nodes[1].tell("doctor")
    line = nodes[1].hear("rank 0 of")
    assert 'keeper ok rank 0 of "job" is pid' in line and "by a lease that lasts" in line, line
    etcd.signal(signal.SIGSTOP)
    nodes[1].tell("doctor")
    line = nodes[1].hear("keeper problem")
    assert "does not answer" in line and "-> start it, or correct keeper" in line, line
    etcd.signal(signal.SIGCONT)
    end(nodes)
    gone = subprocess.run([COMMAND, "status"], env=outside, capture_output=True, text=True, timeout=30)
    assert gone.returncode != 0 and 'no cluster "job" runs' in gone.stderr, gone.stderr


def add_users(etcd):
    etcd.call("auth/user/add", name="root", password="of root")
    etcd.call("auth/role/add", name="root")
    etcd.call("auth/user/grant", user="root", role="root")
    etcd.call("auth/user/add", name="job", password="of:job")
    etcd.call("auth/role/add", name="jobs")
    etcd.call("auth/role/grant", name="jobs", perm=dict(permType="READWRITE", key=KEYS, range_end=END_OF_KEYS))
    etcd.call("auth/user/grant", user="job", role="jobs")
    etcd.call("auth/enable")


def test_users_and_passwords(named, etcd):
    add_users(etcd)
    for auth in (None, "job:wrong"):
        ending = named(2, keeper_auth=auth).python(0, JOIN).hear_attempt()[1]
        assert ending.startswith("AuthError") or "keeper_auth" in ending, ending
        assert "wrong" not in ending
    nodes = named(2, keeper_auth="job:of:job").begin()
    assert sums(nodes) == whole(2)
    end(nodes)


def test_other_users_come_while_a_cluster_runs(named, tmp_path):
    """A token of type jwt is for one state of etcd's users: the next request needs another one."""
    openssl(tmp_path, "genrsa", "-out", "key.pem", "2048")
    openssl(tmp_path, "rsa", "-in", "key.pem", "-pubout", "-out", "pub.pem")
    token = f"jwt,pub-key={tmp_path}/pub.pem,priv-key={tmp_path}/key.pem,sign-method=RS256,ttl=10m"
    server = Etcd(options=["--auth-token", token]).start()
    try:
        add_users(server)
        nodes = named(2, keeper=server.keeper("job"), keeper_auth="job:of:job", heartbeat_timeout_ms=1000, **PATIENT).begin()
        assert sums(nodes) == whole(2)
        root = lambda: server.call("auth/authenticate", name="root", password="of root")["token"]  # noqa: E731
        server.call("auth/user/add", token=root(), name="other", password="of other")
        time.sleep(4)  # a lease of 2 s that is not renewed has expired
        assert server.call("kv/range", token=root(), key=KEYS, range_end=END_OF_KEYS).get("count") == "1"
        end(nodes)
    finally:
        server.end()


def test_a_deleted_name_is_put_back(named, etcd):
    nodes = named(2, heartbeat_timeout_ms=1000).begin()
    assert sums(nodes) == whole(2)
    deleted = etcd.call("kv/deleterange", key=KEYS, range_end=END_OF_KEYS)
    assert int(deleted["deleted"]) > 0
    wait_until(lambda: int(etcd.call("kv/range", key=KEYS, range_end=END_OF_KEYS).get("count", 0)) > 0)
    end(nodes)


@contextlib.contextmanager
def answering(answer):
    """The port of a server that is not etcd: answer(socket) for each connection, after its request."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    def attend(connection):
        with contextlib.suppress(OSError), connection:
            while connection.recv(1 << 16):
                answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def json_answer(text, status="200 OK"):
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return lambda connection: connection.sendall((head + text).encode())


@pytest.mark.parametrize("text", ["{}", '{"status":"ok"}', "[1,2]"])
def test_a_service_that_is_not_etcd_is_named_as_such(named, text):
    with answering(json_answer(text)) as port:
        ending = named(2, keeper=f"etcd://127.0.0.1:{port}/job", init_timeout_ms=1000).python(0, JOIN).hear_attempt()[1]
        assert "not one of etcd's" in ending, ending


@pytest.mark.parametrize("why, code, status", [("leader changed", 14, "503 Service Unavailable"), ("too many requests", 8, "429 Too Many Requests")])
def test_an_etcd_that_can_not_check_a_password_now_is_asked_again(named, why, code, status):
    with answering(json_answer(f'{{"error":"etcdserver: {why}","code":{code}}}', status)) as port:
        begun = time.monotonic()
        ending = named(2, keeper=f"etcd://127.0.0.1:{port}/job", keeper_auth="job:of:job", init_timeout_ms=1500).python(0, JOIN).hear_attempt()[1]
        assert why in ending and "refuses" not in ending, ending
        assert time.monotonic() - begun > 1.4


@pytest.mark.parametrize("part", [b"X-More: yes\r\n", b"x"])
def test_an_answer_that_comes_in_drips_ends_at_the_deadline(named, part):
    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + (b"Content-Length: 100000\r\n\r\n" if part == b"x" else b""))
        while True:
            connection.sendall(part)
            time.sleep(0.1)

    with answering(drip) as port:
        begun = time.monotonic()
        ending = named(2, keeper=f"etcd://127.0.0.1:{port}/job", init_timeout_ms=2000).python(0, JOIN).hear_attempt()[1]
        assert "does not answer" in ending, ending
        assert time.monotonic() - begun < 15


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def test_https(named, tmp_path):
    openssl(tmp_path, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=etcd", "-addext",
            "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem")
    server = Etcd(tls={"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}).start()
    try:
        keeper = f"etcds://{server.endpoint}/job"
        ending = named(2, keeper=keeper, init_timeout_ms=1000).python(0, JOIN).hear_attempt()[1]
        assert "certificate" in ending or "TLS handshake" in ending, ending
        (tmp_path / "other.pem").write_text("not a certificate\n")
        took, ending = named(2, keeper=f"{keeper}?ca={tmp_path}/other.pem").python(0, JOIN).hear_attempt()
        assert f"{tmp_path}/other.pem can't be used" in ending and took < 5, (took, ending)
        nodes = named(2, keeper=f"{keeper}?ca={tmp_path}/cert.pem").begin()
        assert sums(nodes) == whole(2)
        end(nodes)
    finally:
        server.end()


def test_hosts_meet_by_etcd_on_one_of_them(network):
    hosts = network(4)
    server = Etcd(host=hosts[3]).start()
    job = Named(4, server.keeper("job"), network=hosts, place=lambda rank: rank % 4, heartbeat_timeout_ms=2000, init_timeout_ms=60000)
    try:
        hosts.cut(1)  # from etcd and everybody
        nodes = [job.python(rank, WORK) for rank in range(4)]
        nodes[1].hear("trying again")
        hosts.heal(1)
        assert sums(nodes, 40) == whole(4)
        hosts.block(0, 3, server.port)  # nobody needs etcd now
        hosts.block(1, 3, server.port)
        hosts.block(2, 3, server.port)
        step(nodes)
        end(nodes)
    finally:
        job.end()
        server.end()


def test_loopback_beyond_one_host_is_an_error(network):
    hosts = network(2)
    server = Etcd(host=hosts[1]).start()
    job = Named(2, server.keeper("job"), network=hosts, place=lambda rank: rank, init_timeout_ms=60000)
    try:
        job.python(0, JOIN, rank=0, bind=None)
        ending = job.python(1, JOIN, rank=1).hear_attempt()[1]
        assert "reaches only that machine itself: set bind" in ending, ending
    finally:
        job.end()
        server.end()
