"""collective=auto|own|mpi in jobs of the real mpirun and mpiexec: all-reduces of groups by MPI's own."""

import sys

import pytest
from conftest import TRAIN
from mpi_test import KILLED, MPI_H, MPICH, OPEN_MPI, OWN_MPI, Mpi, finish, mpi, run  # pylint: disable=unused-import

# All ranks print a checksum of the bits of each result, which has to be the same.
REDUCE = TRAIN + """
import hashlib
from polyverso.group import Group

def digest(*arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]

def reduce_all(group):
    ranks = group.size
    before = np.random.default_rng(7 + group.rank)
    seen = []
    for dtype in ("f4", "f8", "i8", "i4", "u1", "i1", "f2"):
        for op in ("sum", "min", "max", "prod"):
            for count in (1, 3, 1000, 700_001 if op == "sum" else 5000):
                mine = (before.standard_normal(count) * 3).astype(dtype)
                out = group.allreduce(mine.copy(), op=op)
                seen.append(out)
    parts = [np.arange(5, dtype="f4"), np.full(3, 1.5, "f8"), np.zeros(0, "f4"), np.full(600_000, group.rank, "f4")]
    group.allreduce_many(parts, op="avg")
    middle = (ranks - 1) / 2
    assert (parts[0] == np.arange(5)).all() and (parts[1] == 1.5).all() and (parts[3] == middle).all(), parts
    assert group.allreduce(np.zeros(0, "f4")).size == 0
    begun = [group.allreduce_async(np.full(count, 1 + group.rank, "f4")) for count in (10, 1_000_000, 1, 300_000)]
    for request in begun:
        assert (request.wait() == ranks * (ranks + 1) / 2).all()
    nan = np.array([np.float32("nan"), -np.float32("nan"), group.rank], "f4")
    if group.rank % 2:
        nan[:2] = np.array([0xFFC01234, 0x7FC04321], "u4").view("f4")
    nan = group.allreduce(nan)
    assert np.isnan(nan[:2]).all() and nan[2] == ranks * middle
    say("bits", digest(*seen, *parts, nan))

def who(group):
    info = group.info
    say("all-reduces by", info["collective"], "because", info["collective_why"])
    return info["collective"]
"""

WHOLE_GROUP = REDUCE + """
with pv.init() as node, Group(node) as group:
    who(group)
    reduce_all(group)
    got = group.broadcast(np.full(100, group.rank, "f4"), root=1)
    assert (got == 1).all()
    group.barrier()
    if group.rank == 0:
        say(node.status_text())
    group.barrier()
"""


def bits(out):
    return {line for line in out.splitlines() if line.startswith("bits ")}


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("transport", ["auto", "tcp", "mpi"])
def test_all_reduces_by_mpi(mpi, run, transport, ranks):
    status, out = run(WHOLE_GROUP, n=ranks, POLYVERSO_TRANSPORT=transport, POLYVERSO_COLLECTIVE="mpi")
    name = {"openmpi": "Open MPI 4.", "mpich": "MPICH 4."}[mpi.name]
    assert status == 0 and out.count(f"all-reduces by mpi because collective=mpi: {name}") == ranks, out
    assert out.count("bits ") == ranks and len(bits(out)) == 1, out
    assert f"collective=mpi: all-reduces also by {name}" in out and f"messages, {name}" in out, out


def test_own_and_auto_on_one_machine_stay_ours(run):
    for collective, why in (("own", "collective=own"), ("auto", "auto: the ranks share memory")):
        status, out = run(WHOLE_GROUP, n=2, POLYVERSO_COLLECTIVE=collective)
        assert status == 0 and out.count(f"all-reduces by own because {why}") == 2 and len(bits(out)) == 1, out
    status, out = run(WHOLE_GROUP, n=2, POLYVERSO_TRANSPORT="tcp")
    assert status == 0 and out.count("all-reduces by own because auto: MPI is not in use, as it is with transport=mpi") == 2, out


def test_the_lowest_ranks_setting_counts(mpi, engine):
    """The others have MPI in use, too, but would not hand over by themselves."""
    first = "import os\nos.environ['POLYVERSO_COLLECTIVE'] = '{}' if os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK')) == '0' else '{}'\n"
    for settings, by in ((("mpi", "auto"), "mpi"), (("own", "mpi"), "own")):
        status, out = finish(mpi.job(engine, (3, sys.executable, "-B", engine.script(first.format(*settings) + WHOLE_GROUP))))
        if settings[0] == "own":  # rank 0 does not open MPI for all-reduces, and has it in use for messages
            assert status == 0 and out.count("all-reduces by own because collective=own") == 3, out
        else:
            assert status == 0 and out.count(f"all-reduces by {by} because") == 3, out


MANY_GROUPS = REDUCE + """
import threading
with pv.init() as node:
    me = node.worker_id
    pairs = [Group(node, workers=sorted({me, (me + step) % 4})) for step in (2,)]
    whole = Group(node)
    halves = Group(node, workers=[0, 1] if me < 2 else [2, 3])
    groups = [whole, halves, *pairs]
    assert all(who(group) == "mpi" for group in groups)
    failed = []
    def use(group, turns):
        try:
            for turn in range(turns):
                out = group.allreduce(np.full(1 + turn * 1000, 1 + group.rank, "f4"))
                assert (out == group.size * (group.size + 1) / 2).all(), out
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=use, args=(group, 40)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    for group in groups:
        group.close()
    for turn in range(20):  # groups come and go
        with Group(node) as again:
            assert again.allreduce(np.ones(10, "f4"))[0] == 4
    say("all groups reduce")
    node.barrier()
"""


def test_several_groups_at_once(run):
    status, out = run(MANY_GROUPS, POLYVERSO_COLLECTIVE="mpi")
    assert status == 0 and out.count("all groups reduce") == 4, out


DISAGREE = REDUCE + """
with pv.init() as node, Group(node) as group:
    assert who(group) == "mpi"
    for turn in range(5):
        try:
            group.allreduce(np.zeros(10 + (group.rank == 1), "f4"))
            say("no error")
        except pv.StateError as error:
            say("disagree", error)
        out = group.allreduce(np.full(100_000, 1.0, "f4"))
        assert (out == group.size).all()
    # uneven numbers of steps
    steps = 2 + group.rank
    for step in range(steps):
        values = [np.full(70_000, 3.0, "f4")]
        assert group.allreduce_many(values, op="avg") == group.size - step if step < 2 else True
        assert (values[0] == 3).all()
    while coming := group.drain():
        group.allreduce_many([np.zeros(count, dtype) for count, dtype in coming.arrays], op=coming.op, draining=True)
    say("drained")
"""


def test_differences_and_draining_ranks_are_noticed_as_always(run):
    status, out = run(DISAGREE.replace(" == group.size - step if step < 2 else True", " > 0"), n=3, POLYVERSO_COLLECTIVE="mpi")
    assert status == 0 and "no error" not in out and out.count("drained") == 3, out
    assert out.count("disagree") == 15 and "allreduce (sum) of 10 f32" in out and "allreduce (sum) of 11 f32" in out, out


SHRINKS = REDUCE + """
import signal, threading
node = pv.init(heartbeat_timeout_ms=1000, timeout_ms=20_000)
group = Group(node)
assert who(group) == "mpi"
values = np.ones(2_000_000, "f4")
group.allreduce(values)
node.barrier()
if group.rank == 1:
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
try:
    while True:
        group.allreduce(np.ones(2_000_000, "f4"))
except pv.PeerError as error:
    say("lost", error)
group = group.shrink()
out = group.allreduce(np.ones(2_000_000, "f4"))
assert (out == 3).all()
who(group)
say("goes on")
os._exit(3)
"""


def test_survivors_of_a_killed_rank_go_on_without_mpi(engine):
    """Where the launcher lets them: MPICH's ends the job in any case."""
    if OPEN_MPI.launcher is None or not OPEN_MPI.plugin.exists():
        pytest.skip("Open MPI is missing: apt install openmpi-bin libopenmpi-dev")
    own = Mpi(OPEN_MPI.name, OPEN_MPI.launcher, ["--enable-recovery", *OPEN_MPI.arguments])
    for transport in ("auto", "mpi"):
        job = own.job(engine, (4, sys.executable, "-B", engine.script(SHRINKS)), POLYVERSO_COLLECTIVE="mpi", POLYVERSO_TRANSPORT=transport)
        _, out = finish(job, timeout=60)
        assert out.count("goes on") == 3 and out.count("lost MV_EPEERLOST") == 3, out
        assert out.count("all-reduces by own because collective=mpi, but the group has shrunk or grown") == 3, out


def test_without_an_mpi_job_it_is_an_error(engine, mpi):
    status, out = engine.run("polyverso", "run", "-n", "2", "--set", "collective=mpi", "--", sys.executable, "-B", engine.script(WHOLE_GROUP),
                             POLYVERSO_MPI_PLUGIN=str(mpi.plugin), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", UCX_TLS="self,sysv,posix")
    assert status != 0 and "collective=mpi, but the MPI job has 1 process" in out and "start all processes by one mpiexec -n 2" in out, out


def test_a_process_that_does_not_come_is_an_error(mpi, run):
    text = REDUCE + "import ctypes" + MPI_H[mpi.name] + OWN_MPI + """
begin(3)
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
    time.sleep(4)
    os._exit(1)
try:
    pv.init()
except pv.Error as error:
    say("init:", error)
"""
    _, out = run(text, n=2, POLYVERSO_TRANSPORT="auto", POLYVERSO_COLLECTIVE="mpi", POLYVERSO_INIT_TIMEOUT_MS="1500")
    assert "init: MV_ETIMEOUT" in out and "collective=mpi: mpi: not all of the 2 processes" in out, out


def test_a_program_that_uses_mpi_itself(mpi, run):
    text = REDUCE + "import ctypes" + MPI_H[mpi.name] + OWN_MPI + """
begin(3)
reduce()
with pv.init() as node, Group(node) as group:
    assert who(group) == "mpi"
    thread = threading.Thread(target=reduce, args=(300,))
    thread.start()
    for turn in range(30):
        group.allreduce(np.ones(30_000, "f4"))
    thread.join()
reduce()
say("MPI goes on")
assert mpi.MPI_Finalize() == 0
"""
    for transport in ("auto", "mpi"):
        status, out = run(text, POLYVERSO_TRANSPORT=transport, POLYVERSO_COLLECTIVE="mpi")
        assert status == 0 and out.count("MPI goes on") == 4, out


APART = REDUCE + """
import resource
with pv.init() as node:
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, kept[1]))  # no memory to show to the others, as on several machines
    group = Group(node)
    resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    who(group)
    assert group.info["transport"] == "messages"
    reduce_all(group)
    group.close()
"""


def test_auto_measures_where_ranks_share_no_memory(run):
    status, out = run(APART, n=3)
    assert status == 0 and len(bits(out)) == 1, out
    told = [line for line in out.splitlines() if line.startswith("all-reduces by ")]
    assert len(told) == 3 and len(set(told)) == 1 and "because measured: " in told[0], out
