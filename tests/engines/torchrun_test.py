"""torchrun, really run: its processes are one cluster, and after an elastic restart they are one again, a new one."""

import os
import subprocess
import sys

import pytest
from conftest import PATIENCE, TRAIN, WHOLE, clusters_of, whole
from ports import free_ports


def interpreter():
    """The first Python that has PyTorch and loads the library, or None. Importing PyTorch would take seconds."""
    look = "import importlib.util, sys, numpy, polyverso; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run([python, "-B", "-c", look], capture_output=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return python
    return None


PYTHON = interpreter()
pytestmark = pytest.mark.skipif(PYTHON is None, reason="PyTorch is missing: apt install python3-torch")

# PyTorch 1.13 on Python 3.11, as Debian 12 has them, fails on the default "0" of the first two. There is no process 9.
# By default, an agent looks at its processes every 5 s.
ALWAYS = ("--redirects=9:1", "--tee=9:1", "--monitor_interval=1")


@pytest.fixture
def torchrun(engine):
    """torchrun(*options, script=WHOLE, **variables): (status, output)."""

    def begin(*options, script=WHOLE, **variables):
        return engine.run(
            PYTHON, "-B", "-m", "torch.distributed.run", *options, engine.script(script), OMP_NUM_THREADS="1", **variables
        )

    return begin


def one_machine(processes, *more):
    """Options of torchrun for one agent. Its store takes a free port."""
    return (*ALWAYS, "--nnodes=1", f"--nproc_per_node={processes}", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_ports()}", *more)


def test_four_processes_are_one_cluster(torchrun):
    status, out = torchrun(*one_machine(4))
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_one_process_is_a_cluster_of_one(torchrun):
    status, out = torchrun(*one_machine(1))
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(1)], out


# In the first attempt worker 2 dies, and the others go on or wait until torchrun ends them.
RESTARTED = TRAIN + """
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
with pv.init() as node:
    train(node)
    if attempt == 0 and node.worker_id == 2:
        os._exit(3)
    try:
        node.barrier()
    except pv.PeerError as error:
        say("worker", node.worker_id, "hears:", error)
        time.sleep(600)
    say("attempt", attempt, "is done by", node.worker_id)
"""


def test_after_a_restart_all_are_in_one_new_cluster(torchrun):
    status, out = torchrun(*one_machine(4, "--max_restarts=1"), script=RESTARTED)
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4), whole(4)], out
    assert sorted(line for line in out.splitlines() if line.startswith("attempt")) == [f"attempt 1 is done by {worker}" for worker in range(4)], out


# In the first attempt one process dies while the others wait for it in init().
NEVER_JOINED = TRAIN + """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "{rank}":
    time.sleep(2)
    os._exit(3)
with pv.init() as node:
    train(node)
"""


@pytest.mark.parametrize("rank", [0, 3])
def test_a_process_that_dies_before_it_joins_leaves_no_smaller_cluster(torchrun, rank):
    status, out = torchrun(*one_machine(4, "--max_restarts=1"), script=NEVER_JOINED.format(rank=rank))
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_two_agents_are_two_machines_and_one_cluster(engine):
    """Each agent starts two of the four processes, so they meet at MASTER_ADDR, at the port after MASTER_PORT's. torchrun takes MASTER_PORT from the
    system, which may have given the port after it to some other process: rank 0 then says so, and the next run has other ports."""
    for _ in range(3):
        statuses, outs = two_agents(engine)
        if "can't listen on" not in outs[0] + outs[1]:
            break
    assert statuses == [0, 0], outs
    assert list(clusters_of("".join(outs)).values()) == [whole(4)], outs


def two_agents(engine):
    endpoint = f"127.0.0.1:{free_ports()}"
    options = (*ALWAYS, "--nnodes=2", "--nproc_per_node=2", "--rdzv_backend=c10d", f"--rdzv_endpoint={endpoint}", "--rdzv_id=two")
    command = (PYTHON, "-B", "-m", "torch.distributed.run", *options, engine.script(WHOLE))
    secret = os.urandom(16).hex()
    agents = [engine.start(*command, OMP_NUM_THREADS="1", POLYVERSO_SECRET=secret) for _ in range(2)]
    outs = [agent.communicate(timeout=PATIENCE)[0] for agent in agents]
    return [agent.returncode for agent in agents], outs


def test_the_backend_of_torch_distributed_and_the_library_share_a_cluster(torchrun):
    """init_process_group("polyverso") makes the cluster through torch's store; init() then joins the same one."""
    status, out = torchrun(*one_machine(4), script="import torch, torch.distributed as dist, polyverso.torch\n" + TRAIN + """
dist.init_process_group("polyverso")
ones = torch.ones(3)
dist.all_reduce(ones)
assert ones.tolist() == [4.0] * 3
with pv.init() as node:
    assert node.worker_id == dist.get_rank()
    train(node)
dist.destroy_process_group()
""")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out
