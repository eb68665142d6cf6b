"""Third-party launchers: the real mpirun of Open MPI, and the others by the variables that they set."""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from conftest import COMMAND
from ports import free_ports

TRAIN = r"""
import os
import numpy as np, polyverso as pv
with pv.init() as node:
    table = node.array(4, name="sums")
    table.add(np.full(4, 1.0 + node.worker_id, np.float32))
    node.barrier()
    os.write(1, f"worker {node.worker_id} of {node.num_workers} sum {table.get()[0]}\n".encode())  # in one piece
    node.barrier()
"""

LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "DMLC_", "POLYVERSO_", "TORCHELASTIC_")
TORCH = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def environment(**more):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS) and key not in TORCH}
    return dict(clean, POLYVERSO_INIT_TIMEOUT_MS=more.pop("init_timeout", "60000"), **more)


class Processes:
    def __init__(self):
        self.all = []

    def start(self, command=(sys.executable, "-c", TRAIN), **variables):
        process = subprocess.Popen(command, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.all.append(process)
        return process

    def outputs(self):
        """Waits for all processes, which must end with 0. Returns the output of each."""
        texts = [process.communicate(timeout=60)[0] for process in self.all]
        assert [process.returncode for process in self.all] == [0] * len(self.all), texts
        return texts

    def end(self):
        for process in self.all:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def processes():
    them = Processes()
    yield them
    them.end()


def lines_of(workers, total):
    return [f"worker {i} of {workers} sum {float(total)}" for i in range(workers)]


# ---- Open MPI


@pytest.fixture
def mpirun(tmp_path):
    """mpirun(*arguments, **variables): (status, output). Its temporary files go into the test's folder."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing: apt install openmpi-bin")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)

    def begin(*arguments, **variables):
        allowed = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = subprocess.run(
            ["mpirun", "--oversubscribe", *arguments, sys.executable, str(script)], env=environment(**allowed, **variables),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90,
        )
        return done.returncode, done.stdout

    return begin


def test_mpirun_makes_one_cluster_of_four(mpirun):
    status, out = mpirun("-np", "4")
    assert status == 0, out
    assert sorted(out.splitlines()) == lines_of(4, 1 + 2 + 3 + 4)


def test_mpirun_with_a_master_that_is_said(mpirun):
    status, out = mpirun("-np", "2", POLYVERSO_MASTER=f"127.0.0.1:{free_ports()}")
    assert status == 0, out
    assert sorted(out.splitlines()) == lines_of(2, 1 + 2)


def test_mpirun_makes_clusters_of_one_only_when_told(mpirun):
    for off in (dict(POLYVERSO_LAUNCHER="none"), dict(POLYVERSO_NODES="1")):
        status, out = mpirun("-np", "2", **off)
        assert status == 0, out
        assert sorted(out.splitlines()) == lines_of(1, 1) * 2


def test_two_runs_of_mpirun_at_once_do_not_meet(mpirun):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(mpirun, "-np", "2") for _ in range(2)]
    for run in runs:
        status, out = run.result()
        assert status == 0, out
        assert sorted(out.splitlines()) == lines_of(2, 1 + 2)


def test_a_rank_whose_rank_0_never_comes_says_so(processes):
    process = processes.start(
        OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_SIZE="2", PMIX_NAMESPACE="none",
        PMIX_SERVER_TMPDIR=f"/nowhere/{os.getpid()}", init_timeout="300",
    )
    out, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "rank 0 did not publish its address on this machine within 0.3 s" in out


def test_polyverso_run_inside_of_another_launcher_is_a_cluster_of_its_own(processes):
    inside = dict(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4", SLURM_PROCID="7", POLYVERSO_LAUNCHER="slurm")
    processes.start([COMMAND, "run", "-n", "2", "--no-color", "--", sys.executable, "-c", TRAIN], **inside)
    out, = processes.outputs()
    assert sorted(line.partition("] ")[2] for line in out.splitlines()) == lines_of(2, 1 + 2)


# ---- other launchers, by their variables


def test_torchruns_variables(processes):
    port = free_ports()
    for rank in range(2):
        processes.start(RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="t")
    assert sorted("".join(processes.outputs()).splitlines()) == lines_of(2, 1 + 2)


def test_torchruns_variables_across_machines_use_the_port_after_its_stores(processes):
    port = free_ports(2)
    with socket.create_server(("127.0.0.1", port)):  # torchrun's own listener, which stays open
        for rank in range(2):
            processes.start(RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        assert sorted("".join(processes.outputs()).splitlines()) == lines_of(2, 1 + 2)


def test_slurms_variables_on_one_machine(processes):
    for rank in range(3):
        processes.start(SLURM_PROCID=str(rank), SLURM_NTASKS="3", SLURM_STEP_ID="0", SLURM_JOB_ID=str(os.getpid()), SLURM_NNODES="1")
    assert sorted("".join(processes.outputs()).splitlines()) == lines_of(3, 1 + 2 + 3)


def test_dmlcs_scheduler_server_and_workers(processes):
    common = dict(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(free_ports()), DMLC_NUM_WORKER="2", DMLC_NUM_SERVER="1", DMLC_NODE_HOST="127.0.0.1")
    for role in ("scheduler", "server"):
        processes.start([COMMAND, "server"], DMLC_ROLE=role, **common)
    for _ in range(2):
        processes.start(DMLC_ROLE="worker", **common)
    assert sorted("".join(processes.outputs()).splitlines()) == lines_of(2, 1 + 2)


def test_dmlcs_interface_is_listened_on(processes):
    common = dict(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(free_ports()), DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1", DMLC_INTERFACE="lo",
                  POLYVERSO_SECRET="of the tests")
    for role in ("scheduler", "server"):
        processes.start([COMMAND, "server"], DMLC_ROLE=role, **common)
    processes.start(DMLC_ROLE="worker", **common)
    assert "".join(processes.outputs()).splitlines() == lines_of(1, 1)


def test_dmlcs_others_wait_for_the_scheduler_however_late_it_comes(processes):
    common = dict(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(free_ports()), DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1")
    processes.start([COMMAND, "server"], DMLC_ROLE="server", **common)
    processes.start(DMLC_ROLE="worker", **common)
    time.sleep(1)
    processes.start([COMMAND, "server"], DMLC_ROLE="scheduler", **common)
    assert "".join(processes.outputs()).splitlines() == lines_of(1, 1)


STORES = {
    "python3": r"""
from polyverso import kvstore_server
kvstore_server.controller = lambda head, body: print("told", head, body, flush=True)
from polyverso import kv as stores  # servers and scheduler get no further
import numpy as np, polyverso as pv
with pv.init():
    kv = stores.create("dist_sync")
    kv.init(3, np.full(2, 4, np.float32))
    kv._send_command_to_servers(7, "seven")
    kv.pull(3, out=(a := np.zeros(2, np.float32)))
    print("pulled", int(a[1]))
""",
    "luajit": r"""
require("polyverso.kvstore_server").controller = function(head, body) print("told", tonumber(head), body) io.flush() end
local stores, tensor = require("polyverso.kvstore"), require("polyverso.tensor") -- servers and scheduler get no further
local node = require("polyverso").init()
local kv, a = stores.create("dist_sync"), tensor.zeros(2)
kv:init(3, tensor.full({2}, 4))
kv:send_command(7, "seven")
kv:pull(3, a)
print("pulled", ("%d"):format(a[1]))
node:shutdown()
""",
}


@pytest.mark.parametrize("language", STORES)
def test_dmlcs_roles_become_what_they_are_by_the_stores_module(processes, language):
    common = dict(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(free_ports()), DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1", DMLC_NODE_HOST="127.0.0.1")
    interpreter = [sys.executable, "-c"] if language == "python3" else [language, "-e"]
    for role in ("scheduler", "server", "worker"):
        processes.start([*interpreter, STORES[language]], DMLC_ROLE=role, **common)
    assert [text.split() for text in processes.outputs()] == [[], ["told", "7", "seven"], ["pulled", "4"]]


# ---- addresses


def test_ipv6_all_the_way(processes):
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("there is no IPv6 on this machine")
    port = free_ports()
    for rank in range(3):
        processes.start(POLYVERSO_NODES="3", POLYVERSO_RANK=str(rank), POLYVERSO_MASTER=f"[::1]:{port}", POLYVERSO_BIND="::1", POLYVERSO_TRANSPORT="tcp")
    assert sorted("".join(processes.outputs()).splitlines()) == lines_of(3, 1 + 2 + 3)


def test_all_interfaces_are_listened_on_and_one_is_advertised(processes):
    """Ranks 1 and 2 connect to each other at the addresses that they have advertised to the master."""
    port = free_ports()
    for rank in range(3):
        processes.start(
            POLYVERSO_NODES="3", POLYVERSO_RANK=str(rank), POLYVERSO_MASTER=f"{socket.gethostname()}:{port}", POLYVERSO_BIND="0.0.0.0",
            POLYVERSO_SECRET="of the tests", POLYVERSO_TRANSPORT="tcp", **({"POLYVERSO_ADVERTISE": "127.0.0.1"} if rank == 1 else {}),
        )
    assert sorted(line for line in "".join(processes.outputs()).splitlines() if line.startswith("worker")) == lines_of(3, 1 + 2 + 3)


def test_a_host_name_that_means_loopback_to_its_own_machine(processes, on_debian):
    """Rank 0 then listens on all interfaces. The other ranks, elsewhere, resolve the name to another address."""
    port = free_ports()
    common = dict(POLYVERSO_NODES="3", POLYVERSO_BIND="0.0.0.0", POLYVERSO_SECRET="of the tests", POLYVERSO_TRANSPORT="tcp", POLYVERSO_ADVERTISE="127.0.0.1")
    processes.start(on_debian([sys.executable, "-c", TRAIN]), POLYVERSO_RANK="0", POLYVERSO_MASTER=f"debian:{port}", **common)
    for rank in (1, 2):
        processes.start(POLYVERSO_RANK=str(rank), POLYVERSO_MASTER=f"127.0.0.1:{port}", **common)
    assert sorted(line for line in "".join(processes.outputs()).splitlines() if line.startswith("worker")) == lines_of(3, 1 + 2 + 3)


# ---- errors instead of silent clusters of one


def test_a_master_without_a_number_of_nodes_is_refused(processes):
    for _ in range(2):
        processes.start(POLYVERSO_MASTER=f"127.0.0.1:{free_ports()}")
    for process in processes.all:
        out, _ = process.communicate(timeout=30)
        assert process.returncode != 0 and "is set, but nodes is not: set nodes (POLYVERSO_NODES)" in out


# ---- the same command for all of DMLC's roles, as DMLC's trackers start it


def test_one_command_for_scheduler_servers_and_workers(processes):
    common = dict(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(free_ports()), DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1", DMLC_NODE_HOST="127.0.0.1")
    for role in ("scheduler", "server", "worker"):
        command = ["sh", "-c", f'[ "$DMLC_ROLE" = worker ] && exec "$@"; exec {COMMAND} server', "sh", sys.executable, "-c", TRAIN]
        processes.start(command, DMLC_ROLE=role, **common)
    assert "".join(processes.outputs()).splitlines() == lines_of(1, 1)
