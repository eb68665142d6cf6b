"""Clusters whose messages go by UCX: workers in several languages, processes that are killed, and the choice of UCX."""

import json
import shutil
import signal
import subprocess
import time

import pytest

from conftest import COMMAND
from launchers_test import environment

SOON = 1.5  # seconds from a death to the errors of waiting calls
# UCX's own transports. Over its shared memory alone, UCX notices no failures: TCP does.
NETWORKS = ["all", "self,tcp", "self,posix", "self,sysv"]

PYTHON = """
from polyverso import kvstore
node = pv.init()
table = node.array(500_000, name="weights")
ones = np.ones(500_000, np.float32)
for step in range(5):
    table.add(ones)
node.barrier()
assert (table.get() == 10).all(), table.get()
store = kvstore.create("dist_sync")
store.init("key", np.zeros(30_000, np.float32))
store.push("key", ones[:30_000] * (1 + node.rank))
out = np.zeros(30_000, np.float32)
store.pull("key", out=out)
say("pulled", out[0], out[-1])
say("peers", *(f"{peer['rank']}={peer['transport']}" for peer in sorted(node.doctor()["peers"], key=lambda peer: peer["rank"])))
import json
say("status", json.dumps(dict(node.status(), text=node.status_text(), metrics=node.metrics())))
wait_for_word()
node.shutdown()
"""

PERL = """
use Polyverso;
use Polyverso::KVStore;
$| = 1;
my $node = Polyverso->init;
my $table = $node->array(size => 500_000, name => 'weights');
$table->add([(1) x 500_000]) for 1 .. 5;
$node->barrier;
my $got = $table->get(as => 'array');
die $got->[0] unless $got->[0] == 10 && $got->[499_999] == 10;
my $store = Polyverso::KVStore->create('dist_sync');
my $out = Polyverso::Tensor->zeros([30_000]);
$store->init('key', $out);
$store->push('key', Polyverso::Tensor->full([30_000], 2));
$store->pull('key', $out);
my $list = $out->to_list;
print "pulled $list->[0] $list->[-1]\\n";
<STDIN>;
$node->shutdown;
"""

BARRIER = """
node = pv.init()
table = node.array(300_000, name="weights")
table.add(np.ones(300_000, np.float32))
say("up", *sorted({peer["transport"] for peer in node.doctor()["peers"]}))
if node.rank == RANK:
    wait_for_word()
attempt(node.barrier)
attempt(node.shutdown)
"""

GROUP = """
from polyverso.group import Group
node = pv.init()
group = Group(node)
for count in (1, 1000, 1_000_000):
    for step in range(5):
        assert (group.allreduce(np.ones(count, np.float32)) == group.size).all()
say("reduced", *sorted({peer["transport"] for peer in node.doctor()["peers"]}))
node.barrier()
node.shutdown()
"""


@pytest.fixture(params=NETWORKS)
def networks(request, monkeypatch):
    monkeypatch.setenv("UCX_TLS", request.param)
    return request.param


def test_workers_in_two_languages_and_servers(cluster, networks):
    job = cluster(2, 2, transport="ucx")
    python, perl = job.python(0, PYTHON), job.start(1, ["perl", "-e", PERL])
    servers = [job.server(0), job.server(1)]
    assert python.hear("pulled").split()[1:] == ["3.0", "3.0"]
    assert perl.hear("pulled").split()[1:] == ["3", "3"]
    peers = python.hear("peers")
    assert "2=ucx 3=ucx" in peers and "tcp" not in peers and "shm" not in peers, peers
    status = json.loads(python.hear("status").split(" ", 1)[1])
    for member in status["members"]:
        assert member["transport_choice"] == "transport=ucx: also within a machine"
        assert {peer["transport"] for peer in member["peers"]} <= {"ucx"}, member
    assert "transports: transport=ucx: also within a machine\n" in status["text"]
    assert 'transport="ucx"' in status["metrics"]
    # All values went by UCX: TCP carried the addresses only.
    for line in status["metrics"].splitlines():
        if 'transport="tcp"' in line and "bytes_total" in line:
            assert float(line.split()[-1]) < 10_000, line
    for node in (python, perl):
        node.tell("go on")
    for node in (python, perl, *servers):
        node.ends()


def test_groups_reduce_by_ucx(cluster, networks):
    job = cluster(3, transport="ucx")
    for node in [job.python(rank, GROUP) for rank in range(3)]:
        assert node.hear("reduced") == "reduced ucx"
        node.ends()


def test_a_killed_server_is_noticed(cluster, networks):
    job = cluster(2, 2, transport="ucx")
    nodes = [job.python(rank, BARRIER.replace("RANK", "0")) for rank in range(2)]
    servers = [job.server(0), job.server(1)]
    for node in nodes:
        assert "shm" not in node.hear("up")
    time.sleep(0.2)
    servers[1].kill()
    _, ending = nodes[1].hear_attempt(SOON)
    assert ending.startswith("PeerError") and "server 1" in ending, ending
    nodes[0].tell("go on")
    _, ending = nodes[0].hear_attempt(SOON)
    assert ending.startswith("PeerError") and "server 1" in ending, ending
    for node in nodes:
        node.hear_attempt()
        node.ends()
    servers[0].ends()


def test_a_killed_worker_is_noticed(cluster, networks):
    job = cluster(3, transport="ucx")
    nodes = [job.python(rank, BARRIER.replace("RANK", "2")) for rank in range(3)]
    for node in nodes:
        assert node.hear("up") == "up ucx"
    time.sleep(0.2)
    nodes[2].kill()
    for node in nodes[:2]:
        _, ending = node.hear_attempt(SOON)
        assert ending.startswith("PeerError") and "worker 2" in ending, ending
        node.hear_attempt()
        node.ends()


@pytest.mark.parametrize("call", ["table.add(np.ones(300_000))", "table.get()"])
def test_a_stopped_server_counts_as_lost_after_the_heartbeat_limit(cluster, networks, call):
    job = cluster(2, 1, heartbeat_timeout_ms=1000, transport="ucx")
    nodes = [job.python(rank, f"""
node = pv.init()
table = node.array(300_000, name="weights")
say("up")
wait_for_word()
attempt(lambda: {call})
attempt(node.shutdown)
""") for rank in range(2)]
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


def test_a_process_without_it_is_reached_by_tcp_and_doctor_says_why(tmp_path):
    script = f"[ $POLYVERSO_RANK = 1 ] && export POLYVERSO_TRANSPORT=tcp; {COMMAND} doctor --join --json > {tmp_path}/$POLYVERSO_RANK"
    done = subprocess.run([COMMAND, "run", "-n", "2", "--set", "transport=ucx", "--", "sh", "-c", script], env=environment(), capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done
    reports = [json.loads((tmp_path / str(rank)).read_text()) for rank in (0, 1)]
    assert [report["peers"][0]["transport"] for report in reports] == ["tcp", "tcp"]
    assert "transport=ucx is not set there" in reports[0]["peers"][0]["why_not_shm"]
    assert "go by TCP, not by UCX" in done.stderr
    chosen = [finding for finding in reports[0]["findings"] if finding["subject"] == "transport"]
    assert chosen[0]["verdict"] == "ok" and "transport=ucx" in chosen[0]["text"] and "UCX 1." in chosen[0]["text"]


READER = """
node = pv.init()
table = node.{table}
whole = np.empty({shape})
say("up")
if node.worker_id == 1:  # writes until it is told to stop
    import select
    adds = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        table.add(np.ones({shape}))
        {tick}
        adds += 1
    say("added", adds)
else:
    import itertools, re, time
    def paths():
        return dict(re.findall(r'table_calls_total{{[^}}]*call="get"[^}}]*path="(\\w+)"[^}}]*}} (\\S+)', node.metrics()))
    before = np.zeros({shape}).reshape(-1)
    until = time.monotonic() + 30
    for step in itertools.count():
        # A get that three writes overlap, or that has to wait for the other's clock, is a message: on a busy machine nearly each one.
        if step >= 60 and (float(paths().get("mapped", 0)) > 3 or time.monotonic() > until): break
        {tick}
        table.add(np.ones({shape}))
        own = step + 1
        table.get(out=whole)
        flat = whole.reshape(-1)
        assert flat.min() >= own and (flat >= before).all(), (step, flat.min())
        stripes = [stripe for half in np.split(flat, 2) for stripe in np.split(half, range(STRIPE, half.size, STRIPE))]
        assert all((stripe == stripe[0]).all() for stripe in stripes), step
        before = flat.copy()
        {more}
    say("gets", paths().get("mapped", "0"), "of", paths(), "in", step)
wait_for_word()
node.barrier()
say("sum", table.get().min(), table.get().max())
node.shutdown()
"""
STRIPE = (1 << 20) // 8  # elements


@pytest.mark.parametrize("chosen", ["all", "self,tcp"])
@pytest.mark.parametrize(
    "table, shape, tick, more",
    [
        ('array(600_000, name="t", dtype="float64")', "600_000", "", ""),
        ('array(1_000, name="t", dtype="float64", staleness=3)', "1_000", "table.clock()", ""),
        ('matrix(3_000, 40, name="t", dtype="float64")', "(3_000, 40)", "",
         "rows = table.get([0, 1, 2, 2_999, 1_500, 7]); assert (rows == rows[:, :1]).all() and rows.min() >= own"),
    ],
    ids=["array", "stale", "matrix"],
)
def test_tables_are_read_in_their_servers_memory(cluster, monkeypatch, chosen, table, shape, tick, more):
    """While another worker writes: every stripe is as it was between two writes, and has this worker's own adds."""
    monkeypatch.setenv("UCX_TLS", chosen)
    job = cluster(2, 2, transport="ucx", ucx_gets="yes")
    script = READER.format(table=table, shape=shape, tick=tick, more=more).replace("STRIPE", str(STRIPE))
    servers = [job.server(number) for number in range(2)]
    nodes = [job.python(rank, script) for rank in range(2)]
    for node in nodes:
        node.hear("up")
    told = nodes[0].hear("gets", 60)
    assert float(told.split()[1]) > 3, told
    nodes[1].tell("stop")
    adds = int(nodes[1].hear("added").split()[1]) + int(told.split()[-1])
    nodes[0].tell("go on")
    for node in nodes:
        assert node.hear("sum") == f"sum {adds:.1f} {adds:.1f}"
        node.ends()
    for server in servers:
        server.ends()


def test_a_server_whose_memory_was_read_is_killed(cluster):
    """Gets fail with the reason, and don't return what is left in that memory."""
    job = cluster(1, 2, transport="ucx", ucx_gets="yes")
    servers = [job.server(number) for number in range(2)]
    node = job.python(0, """
node = pv.init()
table = node.array(10_000, name="t")
table.add(np.ones(10_000))
for _ in range(50): table.get()
say("up")
wait_for_word()
attempt(lambda: [table.get() for _ in range(100_000)])
attempt(node.shutdown)
""")
    node.hear("up")
    servers[1].kill()
    node.tell("go on")
    _, ending = node.hear_attempt(SOON + 5)
    assert ending.startswith("PeerError") and "server 1" in ending, ending


# Two workers read what they write, in the memory of its servers. One of the servers is killed, or stopped: then its memory has old values, and can
# still be read.
SURVIVOR = """
node = pv.init()
table = node.array(60_000, name="t", dtype="float64")
node.barrier()
say("up")
import re, select
def mapped():
    calls = dict(re.findall(r'table_calls_total{[^}]*call="get"[^}]*path="(\\w+)"[^}]*} (\\S+)', node.metrics()))
    return float(calls.get("mapped", "0"))
adds = 0
before = np.zeros(60_000)
while not select.select([sys.stdin], [], [], 0)[0]:
    table.add(np.ones(60_000))
    adds += 1
    seen = table.get()
    assert seen.min() >= adds and (seen >= before).all(), (adds, seen.min(), (seen - before).min())
    before = seen
    if adds % 50 == 0:
        say("round", mapped())
wait_for_word()
node.barrier()
totals = node.array(1, name="adds", dtype="float64")
totals.add(np.full(1, float(adds)))
node.barrier()
say("wrong", int((table.get() != totals.get()[0]).sum()))
node.shutdown()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("chosen", ["all", "self,tcp"])
def test_a_server_whose_memory_is_read_is_replaced_by_its_backup(cluster, monkeypatch, chosen, how):
    monkeypatch.setenv("UCX_TLS", chosen)
    job = cluster(2, 3, transport="ucx", ucx_gets="yes", replicas=1, heartbeat_timeout_ms=1500)
    servers = [job.server(number) for number in range(3)]
    nodes = [job.python(rank, SURVIVOR) for rank in range(2)]
    for node in nodes:
        node.hear("up")
    nodes[0].hear("round")
    assert float(nodes[0].hear("round").split()[1]) > 3
    servers[1].kill(how)
    time.sleep(3)  # adds go on with the back-up while the stopped server's memory is there
    if how == signal.SIGSTOP:
        servers[1].kill(signal.SIGCONT)
    for node in nodes:
        node.forget()
        node.hear("round")
        node.tell("stop")
        node.tell("go on")
    for node in nodes:
        assert node.hear("wrong") == "wrong 0"
        node.ends()
    for number in (0, 2):
        servers[number].ends(seconds=10)


def test_memory_of_destroyed_tables_is_given_back(cluster):
    job = cluster(1, 1, transport="ucx", ucx_gets="yes")
    server = job.server(0)
    node = job.python(0, """
node = pv.init()
for step in range(40):
    table = node.array(1_000_000, name=f"t{step}")
    table.add(np.ones(1_000_000, np.float32))
    for _ in range(3):
        assert (table.get() == 1).all()
    table.destroy()
say("done")
wait_for_word()
node.shutdown()
""")
    node.hear("done", 60)
    pages = int(open(f"/proc/{server.process.pid}/statm").read().split()[1])
    assert pages * 4096 < 140 << 20, pages  # 40 tables of 4 MB would take 160 MB
    node.tell("end")
    node.ends()
    server.ends()


def test_a_missing_plug_in_says_what_to_install():
    settings = {"POLYVERSO_TRANSPORT": "ucx", "POLYVERSO_UCX_PLUGIN": "/nowhere/libpolyverso-ucx.so", "POLYVERSO_NODES": "2", "POLYVERSO_RANK": "0",
                "POLYVERSO_MASTER": "127.0.0.1:1"}
    done = subprocess.run(["perl", "-MPolyverso", "-e", "Polyverso->init"], env=environment(**settings), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "/nowhere/libpolyverso-ucx.so" in done.stderr
    assert "install the package libpolyverso-ucx" in done.stderr and "transport=auto" in done.stderr
    told = subprocess.run([shutil.which(COMMAND), "doctor", "--json"], env=environment(**settings), capture_output=True, text=True, timeout=60)
    chosen = [finding for finding in json.loads(told.stdout)["findings"] if finding["subject"] == "transport"]
    assert chosen[0]["verdict"] == "problem" and "libpolyverso-ucx" in chosen[0]["todo"]


def test_a_fork_of_a_process_with_ucx_is_told_to_start_afresh(cluster):
    job = cluster(2, transport="ucx")
    nodes = [job.python(rank, """
node = pv.init()
child = os.fork()
if child == 0:
    attempt(pv.init, nodes=2, rank=1, master="127.0.0.1:1", transport="ucx")
    os._exit(0)
os.waitpid(child, 0)
say("reduced", node.array(10, name="alive").get().sum())
node.barrier()
node.shutdown()
""") for rank in range(2)]
    for node in nodes:
        _, ending = node.hear_attempt()
        assert "UCX can't be used in process" in ending and "spawn" in ending, ending
        node.hear("reduced")
        node.ends()


def test_a_wrong_value_of_ucx_gets_is_refused():
    settings = {"POLYVERSO_TRANSPORT": "ucx", "POLYVERSO_UCX_GETS": "true", "POLYVERSO_NODES": "2", "POLYVERSO_RANK": "0", "POLYVERSO_MASTER": "127.0.0.1:1"}
    done = subprocess.run(["perl", "-MPolyverso", "-e", "Polyverso->init"], env=environment(**settings), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "POLYVERSO_UCX_GETS=true: set it to yes or no" in done.stderr, done.stderr


def test_what_does_not_exist_in_ucx_is_named():
    settings = {"POLYVERSO_TRANSPORT": "ucx", "UCX_TLS": "nonsense", "POLYVERSO_NODES": "2", "POLYVERSO_RANK": "0", "POLYVERSO_MASTER": "127.0.0.1:1"}
    done = subprocess.run(["perl", "-MPolyverso", "-e", "Polyverso->init"], env=environment(**settings), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "UCX_TLS" in done.stderr and "ucx_info -d" in done.stderr, done.stderr
