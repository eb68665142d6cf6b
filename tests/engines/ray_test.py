"""Ray, really run: its actors are one cluster, errors name a worker, and nothing is left in Ray."""

import os
import subprocess

import pytest
from conftest import PATIENCE, an_engine, clusters_of, whole
from ports import free_ports

PYTHON = os.environ.get("ENGINES_PYTHON", "")


def why_not():
    """Why Ray cannot run here, or None."""
    if not PYTHON:
        return "Ray is missing: tools/make/engines.sh installs PyPI's, and sets ENGINES_PYTHON"
    done = subprocess.run([PYTHON, "-B", "-c", "import numpy, polyverso, ray"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{PYTHON} does not load Ray and the library: {done.stderr[-500:]}"


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

DRIVER = """
import os, random, signal, time
import numpy as np, polyverso as pv, polyverso.ray, ray
ray.init()

def train(node, start=0):
    table = node.array(2, name="sums")
    drawn = random.SystemRandom().randrange(1, 1 << 24) if node.worker_id == 0 else 0
    table.add(np.array([1 + node.worker_id, drawn], np.float32))
    node.barrier()
    total, cluster = table.get().astype(int)
    node.barrier()
    return int(cluster), start + node.worker_id, node.num_workers, int(total)

def show(results):
    for result in results:
        print("cluster {} worker {} of {} sum {}".format(*result), flush=True)

def show_error(*arguments, **named):
    try:
        pv.ray.run(*arguments, **named)
    except Exception as error:
        print("raised", type(error).__name__, str(error).splitlines()[0], flush=True)
        return error
"""


class Ray:
    """Ray on this machine: a head, and a node with another address, which is another machine as far as Ray knows."""

    def __init__(self, engine):
        self.engine = engine
        port = free_ports()
        self.variables = dict(
            RAY_ADDRESS=f"127.0.0.2:{port}", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=os.urandom(16).hex(), RAY_USAGE_STATS_ENABLED="0",
            OMP_NUM_THREADS="1",
            # A busy machine starts daemons and workers slowly.
            RAY_raylet_start_wait_time_s="120", RAY_worker_register_timeout_seconds="120",
        )
        head = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={engine.folder}/ray")
        self._node(*head, "--node-ip-address=127.0.0.2", "--num-cpus=4")
        self._node(f"--address=127.0.0.2:{port}", "--node-ip-address=127.0.0.3", "--num-cpus=1")

    def _node(self, *options):
        command = (PYTHON, "-B", "-m", "ray.scripts.scripts", "start", "--num-gpus=0", "--object-store-memory=100000000",
                   "--min-worker-port=0", "--max-worker-port=0", *options)  # any: the usual ones may contain the other ports
        status, out = self.engine.run(*command, **self.variables)
        assert status == 0, out

    def run(self, script, timeout=PATIENCE):
        """(status, output) of a driver."""
        return self.engine.run(PYTHON, "-B", self.engine.script(DRIVER + script, "driver.py"), timeout=timeout, **self.variables)


@pytest.fixture(scope="module")
def ray():
    with an_engine() as engine:
        try:
            yield Ray(engine)
        finally:
            engine.kill_all()


def test_four_workers_are_one_cluster_and_their_results_are_returned(ray):
    status, out = ray.run("show(pv.ray.run(train, workers=4, settings={'sync': True}))")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out
    lines = [line for line in out.splitlines() if line.startswith("cluster")]
    assert [line.split()[3] for line in lines] == ["0", "1", "2", "3"]


def test_two_machines_of_ray_are_one_cluster(ray):
    status, out = ray.run("""
def where(node):
    return *train(node), ray.util.get_node_ip_address()
results = pv.ray.run(where, workers=2, strategy="STRICT_SPREAD")
show(result[:4] for result in results)
print(sorted(result[4] for result in results))
""")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(2)], out
    assert "['127.0.0.2', '127.0.0.3']" in out


def test_one_worker_is_a_cluster_of_one(ray):
    status, out = ray.run("show(pv.ray.run(train, 0, workers=1))")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(1)], out


def test_an_exception_is_named_with_its_worker_and_the_next_run_is_a_new_cluster(ray):
    status, out = ray.run("""
def fails(node):
    node.barrier()
    if node.worker_id == 2:
        raise ValueError("no gradient")
    node.barrier()
error = show_error(fails, workers=3)
assert (error.worker, error.workers, error.reason) == (2, 3, "ValueError: no gradient") and "in fails" in error.trace
show_error(lambda node: __import__("_thread").allocate_lock(), workers=1)
show(pv.ray.run(train, workers=3))
""")
    assert status == 0, out
    assert "raised WorkerError worker 2 of 3: ValueError: no gradient" in out
    assert "raised WorkerError worker 0 of 1: TypeError" in out and "pickle" in out, out
    assert list(clusters_of(out).values()) == [whole(3)], out


def test_a_killed_process_is_named_with_its_worker(ray):
    status, out = ray.run("""
def dies(node):
    node.barrier()
    if node.worker_id == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    node.barrier()
error = show_error(dies, workers=3)
assert error.worker == 1 and isinstance(error.__cause__, ray.exceptions.RayActorError)
""")
    assert status == 0, out
    assert "raised WorkerError worker 1 of 3: its process (pid " in out and ") died, or Ray lost it" in out, out


def test_too_many_workers_are_an_error_that_says_for_what_and_leave_nothing_in_ray(ray):
    status, out = ray.run("""
show_error(train, workers=40, placement_timeout=2)
show_error(train, workers=1, placement_timeout=2, resources={"unobtainium": 1})
show_error(train, workers=2, settings={"master": "127.0.0.1:7000"})
from ray.util import placement_group_table
print("groups", {group["state"] for group in placement_group_table().values()} - {"REMOVED"})
""")
    assert status == 0, out
    assert "raised TimeoutError MV_ETIMEOUT: Ray had no room for 40 workers with 1 CPU each (PACK) within 2 s" in out, out
    assert "raised TimeoutError MV_ETIMEOUT: Ray had no room for 1 workers with 1 CPU, 1 unobtainium each" in out, out
    assert "raised ArgumentError MV_EINVAL: polyverso.ray.run(): settings has master: run() sets these itself" in out, out
    assert "groups set()" in out, out
