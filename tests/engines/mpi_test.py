"""transport=mpi in jobs of the real mpirun of Open MPI and mpiexec of MPICH: what processes do with MPI alone, programs that use
MPI too, and how such jobs fail."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import TRAIN, WHOLE, clusters_of, whole

ROOT = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
# MPICH's UCX looks at networks of the machine. These tests need none.
INSIDE = dict(UCX_TLS="self,sysv,posix")


def library():
    import polyverso.capi

    maps = pathlib.Path("/proc/self/maps").read_text()
    return pathlib.Path(re.search(r"\S*/libpolyverso\.so\S*", maps).group()).parent


class Mpi:
    """One MPI: its launcher, and how to start a job without any network."""

    def __init__(self, name, launcher, arguments):
        self.name, self.launcher, self.arguments = name, shutil.which(launcher), arguments

    @property
    def plugin(self):
        return library() / f"libpolyverso-mpi-{self.name}.so"

    def job(self, engine, *programs, **variables):
        """Starts each (count, command...) of one job."""
        parts = []
        for count, *command in programs:
            parts += ([":"] if parts else []) + ["-n", str(count), *command]
        return engine.start(self.launcher, *self.arguments, *parts, **{"POLYVERSO_TRANSPORT": "mpi", **ROOT, **INSIDE, **variables})


OPEN_MPI = Mpi("openmpi", "mpirun.openmpi", ["--oversubscribe", "--mca", "btl", "self,vader", "--mca", "pml", "ob1"])
MPICH = Mpi("mpich", "mpiexec.mpich", [])


@pytest.fixture(params=[OPEN_MPI, MPICH], ids=lambda mpi: mpi.name)
def mpi(request):
    if request.param.launcher is None:
        pytest.skip(f"{request.param.name} is missing: apt install openmpi-bin mpich")
    if not request.param.plugin.exists():
        pytest.skip(f"{request.param.plugin} has not been built: its -dev package was missing")
    return request.param


def finish(process, timeout=90):
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"still running after {timeout} s:\n{process.communicate(timeout=20)[0]}") from None
    return process.returncode, out


@pytest.fixture
def run(engine, mpi):
    """run(script, n=4, **variables): (status, output) of a Python script in a job of n processes."""

    def begin(text, n=4, **variables):
        return finish(mpi.job(engine, (n, sys.executable, "-B", engine.script(text)), **variables))

    return begin


EVERYTHING = TRAIN + """
import threading
from polyverso import kvstore
with pv.init(sync=SYNC) as node:
    train(node)
    assert all(peer["transport"] == "mpi" for peer in node.doctor()["peers"]), node.doctor()["peers"]
    many = node.array(700_000, name="many")
    ones = np.ones(700_000, np.float32)
    for step in range(4):
        many.add(ones)
        got = many.get()
        if SYNC:
            assert (got == (step + 1) * node.num_workers).all(), got
    node.barrier()
    assert (many.get() == 4 * node.num_workers).all()
    group = pv.Group(node)
    for count in (1, 1000, 2_000_000):
        values = np.full(count, 1 + node.worker_id, np.float32)
        group.allreduce(values)
        assert (values == node.num_workers * (node.num_workers + 1) / 2).all(), values
    store = kvstore.create("dist_sync")
    store.init("key", np.zeros(30_000, np.float32))
    store.push("key", np.full(30_000, 1 + node.rank, np.float32))
    store.barrier()
    out = np.zeros(30_000, np.float32)
    store.pull("key", out=out)
    say("pulled", out[0], out[-1])
    node.barrier()
    if node.rank == 0:
        say(node.status_text())
"""


@pytest.mark.parametrize("sync", [False, True])
def test_tables_groups_and_stores_go_by_mpi(mpi, run, sync):
    status, out = run(EVERYTHING.replace("SYNC", str(sync)))
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out
    name = {"openmpi": "Open MPI 4.", "mpich": "MPICH 4."}[mpi.name]
    assert f"transports of rank 3: transport=mpi: also within a machine, without TCP; {name}" in out, out


PERL = """
use Polyverso;
my $node = Polyverso->init;
my $table = $node->array(size => 2, name => 'sums');
$table->add([1 + $node->worker_id, 0]);
$node->barrier;
my $got = $table->get(as => 'array');
syswrite STDOUT, "perl has $got->[0]\\n";
$node->barrier;
$node->shutdown;
"""
LUA = """
local pv = require 'polyverso'
local node = pv.init()
local t = node:array{size = 2, name = 'sums'}
t:add({1 + node:worker_id(), 0})
node:barrier()
io.write('lua has ' .. string.format('%d', t:get()[1]) .. '\\n')
io.flush()
node:barrier()
node:shutdown()
"""


def test_languages_in_one_job(mpi, engine):
    commands = [(2, sys.executable, "-B", engine.script(WHOLE)), (1, "perl", engine.script(PERL, "train.pl"))]
    commands.append((1, "lua5.4", engine.script(LUA, "train.lua")))
    status, out = finish(mpi.job(engine, *commands))
    assert status == 0, out
    assert "perl has 10" in out and "lua has 10" in out and out.count("of 4 sum 10") == 2, out


SOCKETS = TRAIN + """
def listening():
    mine = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{entry}"))
        except OSError:
            pass
    found = []
    for file, state, at in (("tcp", "0A", 3), ("tcp6", "0A", 3)):
        for line in open(f"/proc/self/net/{file}").read().splitlines()[1:]:
            words = line.split()
            if words[at] == state and f"socket:[{words[9]}]" in mine:
                found.append(" ".join(words[1:]))  # not the number of the line, which other processes' sockets change
    for line in open("/proc/self/net/unix").read().splitlines()[1:]:
        words = line.split()
        if int(words[3], 16) & 0x10000 and f"socket:[{words[6]}]" in mine:
            found.append(line)
    return found

before = listening()  # MPICH's launcher lets its processes inherit one
with pv.init() as node:
    train(node)
    say("listening", [line for line in listening() if line not in before])
    node.barrier()
"""


def test_no_socket_listens(run):
    status, out = run(SOCKETS)
    assert status == 0 and out.count("listening []") == 4, out
    status, out = run(SOCKETS, POLYVERSO_TRANSPORT="tcp")  # the test sees such sockets
    assert status == 0 and out.count("listening []") == 0 and out.count("listening [") == 4, out


def test_init_may_be_repeated(run):
    status, out = run(TRAIN + "for turn in range(3):\n    with pv.init() as node:\n        train(node)\n")
    assert status == 0 and list(clusters_of(out).values()) == [whole(4)] * 3, out


# The program's own use of MPI, by the C functions of the library that it has loaded.
MPI_H = {
    "openmpi": """
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
WORLD, INT, SUM = (ctypes.addressof(ctypes.c_char.in_dll(mpi, name)) for name in ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum"))
WORLD, INT, SUM = (ctypes.c_void_p(address) for address in (WORLD, INT, SUM))
""",
    "mpich": """
mpi = ctypes.CDLL("libmpich.so.12", mode=ctypes.RTLD_GLOBAL)
WORLD, INT, SUM = (ctypes.c_int(number) for number in (0x44000000, 0x4c000405, 0x58000003))
""",
}
OWN_MPI = """
import ctypes, threading
def begin(level):
    got = ctypes.c_int()
    assert mpi.MPI_Init_thread(None, None, level, ctypes.byref(got)) == 0
    return got.value

def reduce(turns=1):
    for turn in range(turns):
        mine, total = ctypes.c_int(1 + turn), ctypes.c_int()
        assert mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(total), 1, INT, SUM, WORLD) == 0
        assert total.value == 4 * (1 + turn), total.value
"""
FIRST = "begin(3); reduce()\nnode = pv.init()\n"
LATER = "node = pv.init()\n"
USES = """
failed = []
def use():
    try:
        reduce(300)
    except BaseException as error:
        failed.append(error)
thread = threading.Thread(target=use)
thread.start()
for turn in range(5):
    train(node, f"sums{turn}")
thread.join()
assert not failed, failed
node.shutdown()
reduce()
say("MPI goes on")
"""
END = "assert mpi.MPI_Finalize() == 0\n"


@pytest.mark.parametrize("begins", [FIRST + USES + END, LATER + USES, LATER + USES + END], ids=["program_first", "library_first", "program_ends_it"])
def test_a_program_that_uses_mpi_is_not_disturbed(mpi, run, begins):
    status, out = run(TRAIN + "import ctypes" + MPI_H[mpi.name] + OWN_MPI + begins)
    assert status == 0 and out.count("MPI goes on") == 4 and len(clusters_of(out)) == 5, out


def test_mpi4py(engine):
    python = "/usr/bin/python3"  # mpi4py is Debian's, built with Open MPI
    if subprocess.run([python, "-c", "import mpi4py, polyverso"], capture_output=True, check=False).returncode != 0:
        pytest.skip("mpi4py is missing: apt install python3-mpi4py")
    mpi = OPEN_MPI
    if mpi.launcher is None or not mpi.plugin.exists():
        pytest.skip("Open MPI is missing: apt install openmpi-bin libopenmpi-dev")
    text = TRAIN + """
from mpi4py import MPI
world = MPI.COMM_WORLD
assert world.allreduce(1) == 4
with pv.init() as node:
    assert (node.rank, node.size) == (world.rank, world.size)
    requests = [world.isend(world.rank, dest=(world.rank + 1) % 4, tag=1)]
    train(node)
    assert world.recv(source=(world.rank - 1) % 4, tag=1) == (world.rank - 1) % 4
    MPI.Request.waitall(requests)
    buffer = np.full(100_000, world.rank, np.float64)
    world.Allreduce(MPI.IN_PLACE, buffer)
    assert (buffer == 6).all()
assert world.allreduce(1) == 4
say("mpi4py goes on")
"""
    status, out = finish(mpi.job(engine, (4, python, "-B", engine.script(text))))
    assert status == 0 and out.count("mpi4py goes on") == 4 and list(clusters_of(out).values()) == [whole(4)], out
    low = "import mpi4py\nmpi4py.rc.thread_level = 'funneled'\nfrom mpi4py import MPI\n" + WHOLE
    status, out = finish(mpi.job(engine, (2, python, "-B", engine.script(low))))
    assert status != 0 and "this program has initialized MPI with MPI_THREAD_FUNNELED" in out and "call MPI_Init_thread()" in out, out
    if MPICH.launcher is not None:
        status, out = finish(MPICH.job(engine, (2, python, "-B", engine.script("from mpi4py import MPI\n" + WHOLE))))
        assert status != 0 and "nodes=2, but the MPI job has 1 process (Open MPI 4." in out, out


def test_too_low_a_thread_level_is_an_error(mpi, run):
    status, out = run(TRAIN + "import ctypes" + MPI_H[mpi.name] + OWN_MPI + "say('level', begin(1))\npv.init()\n", n=2)
    assert status != 0 and "but a node's thread uses MPI at the same time as the program, which takes MPI_THREAD_MULTIPLE" in out, out


def test_a_program_that_finalizes_mpi_too_early_gets_an_error(mpi, run):
    text = TRAIN + "import ctypes" + MPI_H[mpi.name] + OWN_MPI + """
node = pv.init(timeout_ms=20_000)
table = node.array(2, name="own")
train(node)
mpi.MPI_Barrier(WORLD)
assert mpi.MPI_Finalize() == 0
try:
    for turn in range(1000):
        table.add(np.ones(2, np.float32))
        table.get()
except pv.Error as error:
    say("error", error)
os._exit(0)
"""
    status, out = run(text)
    if mpi is MPICH and "Assertion failed in file src/mpi/init/mutex.c" in out:  # the node's thread was in a call of MPI: docs/transports.md
        assert status == 1, out  # and did not hang
    else:
        assert status == 0 and out.count("error ") == 4, out
        assert "MPI has been finalized while the node was running; call shutdown first" in out or "closed the connection" in out or "ended without" in out, out


def test_processes_that_do_not_call_init_are_named_in_an_error(mpi, run):
    text = TRAIN + "import ctypes" + MPI_H[mpi.name] + OWN_MPI + """
begin(3)
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
if rank > 0:
    pv.init(init_timeout_ms=1500)
time.sleep(4)
"""
    status, out = run(text, n=2)
    assert status != 0 and "not all of the 2 processes that the launcher has started called init() with MPI within 1 s" in out, out


def test_another_plug_in_is_an_error(mpi, run):
    other = MPICH if mpi is OPEN_MPI else OPEN_MPI
    if other.plugin.exists():
        status, out = run(WHOLE, n=2, POLYVERSO_MPI_PLUGIN=str(other.plugin))
        assert status != 0 and "nodes=2, but the MPI job has 1 process" in out and not clusters_of(out), out
    status, out = run(WHOLE, n=2, POLYVERSO_MPI_PLUGIN="/nowhere/libpolyverso-mpi.so")
    assert status != 0 and "/nowhere/libpolyverso-mpi.so can't be loaded" in out, out
    ucx = library() / "libpolyverso-ucx.so"
    if ucx.exists():
        status, out = run(WHOLE, n=2, POLYVERSO_MPI_PLUGIN=str(ucx))
        assert status != 0 and "is a plug-in for ucx, not for MPI" in out, out


def test_settings_that_do_not_fit_are_errors(run):
    status, out = run(WHOLE, n=2, POLYVERSO_NODES="3")
    assert status != 0 and "nodes=3, but the MPI job has 2 processes" in out, out
    status, out = run(WHOLE, n=2, POLYVERSO_TLS="psk", POLYVERSO_SECRET="s")
    assert status != 0 and "transport=mpi does not encrypt, and tls=psk demands it: set tls=off" in out, out
    status, out = run("import os\nrank = os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK'))\nos.environ['POLYVERSO_SECRET'] = 's' + rank\n" + WHOLE, n=2,
                      POLYVERSO_INIT_TIMEOUT_MS="3000")
    assert status != 0 and not clusters_of(out) and "secret" in out, out


def test_polyverso_run_starts_no_mpi_job(engine, mpi):
    status, out = engine.run("polyverso", "run", "-n", "2", "--set", "transport=mpi", "--", sys.executable, "-B", engine.script(WHOLE),
                             POLYVERSO_MPI_PLUGIN=str(mpi.plugin), **ROOT, **INSIDE)
    assert status != 0 and "nodes=2, but the MPI job has 1 process" in out and "start all processes by one mpiexec -n 2" in out, out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process a host name")
def test_two_machines_need_tls_off(mpi, engine):
    """Two host names stand for two machines."""
    script = engine.script('rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\nexec unshare -u sh -c "hostname machine$rank; exec ' + f'{sys.executable} -B {engine.script(WHOLE)}"\n', "host.sh")
    status, out = finish(mpi.job(engine, (2, "sh", script)))
    assert status != 0 and "transport=mpi does not encrypt, and the 2 processes of the MPI job are on 2 machines: set tls=off" in out, out
    status, out = finish(mpi.job(engine, (2, "sh", script), POLYVERSO_TLS="off"))
    assert status == 0 and list(clusters_of(out).values()) == [whole(2)], out


KILLED = TRAIN + """
import signal
node = pv.init(heartbeat_timeout_ms=1000)
train(node)
begun = time.monotonic()
if node.rank == 1:
    HOW
try:
    while True:
        node.barrier()
        time.sleep(0.01)
except pv.Error as error:
    say("rank", node.rank, f"after {time.monotonic() - begun:.1f} s:", error)
os._exit(3)
"""


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(4)"], ids=["killed", "exits"])
def test_the_others_notice_a_process_that_ends(engine, how):
    """Where the launcher lets them: MPICH's ends the job in any case."""
    if OPEN_MPI.launcher is None or not OPEN_MPI.plugin.exists():
        pytest.skip("Open MPI is missing: apt install openmpi-bin libopenmpi-dev")
    own = Mpi(OPEN_MPI.name, OPEN_MPI.launcher, ["--enable-recovery", *OPEN_MPI.arguments])
    job = own.job(engine, (3, sys.executable, "-B", engine.script(KILLED.replace("HOW", how))))
    # Only until both have told: the one that exits waits in MPI_Finalize, for ever if the launcher has seen the others end before.
    timer = threading.Timer(60, engine.kill_all)
    timer.start()
    out = ""
    while not ("rank 0 after " in out and "rank 2 after " in out) and (line := job.stdout.readline()):
        out += line
    timer.cancel()
    engine.kill_all()
    for rank in (0, 2):
        assert f"rank {rank} after " in out, out


def test_by_default_the_launcher_ends_the_job(mpi, run):
    begun = time.monotonic()
    status, out = run(KILLED.replace("HOW", "os.kill(os.getpid(), signal.SIGKILL)"), n=3)
    assert status != 0 and time.monotonic() - begun < 20, out
