"""Real launchers: a program that tells which cluster it is in, and processes that are gone when their test is."""

import collections
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # engines.sh ends tests that take too long by it; a background job ignores it
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # ports.py

# Joins, adds, and prints one line. Worker 0 draws the number by which a cluster is known.
TRAIN = r"""
import os, random, sys, time
import numpy as np, polyverso as pv

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # in one piece

def train(node, name="sums"):
    table = node.array(2, name=name)
    drawn = random.SystemRandom().randrange(1, 1 << 24) if node.worker_id == 0 else 0
    table.add(np.array([1 + node.worker_id, drawn], np.float32))
    node.barrier()
    total, cluster = table.get().astype(int)
    say("cluster", cluster, "worker", node.worker_id, "of", node.num_workers, "sum", total)
    node.barrier()
    return cluster
"""
WHOLE = TRAIN + """
with pv.init() as node:
    train(node)
"""
LINE = re.compile(r"cluster (\d+) worker (\d+) of (\d+) sum (\d+)$", re.MULTILINE)

# A busy machine needs more.
PATIENCE = float(os.environ.get("ENGINES_TIMEOUT_S", "120"))

LAUNCHERS = (
    "OMPI_", "PMIX_", "PMI_", "MPI_", "MPIR_", "HYDRA_", "HYDI_", "SLURM", "SBATCH_", "DMLC_", "POLYVERSO_", "TORCHELASTIC_", "RAY_",
)
TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


def clusters_of(text):
    """{cluster: [(worker, workers, sum)...]} of the lines that TRAIN has printed."""
    found = collections.defaultdict(list)
    for cluster, *numbers in LINE.findall(text):
        found[cluster].append(tuple(map(int, numbers)))
    return {cluster: sorted(lines) for cluster, lines in found.items()}


def whole(workers):
    """What clusters_of() has for a cluster of so many workers."""
    return [(worker, workers, workers * (workers + 1) // 2) for worker in range(workers)]


def environment(**more):
    """This process's environment without the variables of any launcher."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS) and key not in TORCH}
    return {**clean, "POLYVERSO_INIT_TIMEOUT_MS": str(int(PATIENCE * 500)), **more}


class Engine:
    """Starts a launcher's processes in a folder of their own. A mark in the environment identifies all of them."""

    def __init__(self, folder):
        self.folder = folder
        self.name, self.value = "POLYVERSO_TEST_MARK", uuid.uuid4().hex
        self.started = []

    def environment(self, **more):
        """The environment of processes of this test."""
        return environment(**{self.name: self.value, "TMPDIR": str(self.folder), "HOME": str(self.folder), **more})

    def script(self, text, name="train.py"):
        """A file with this text in the folder."""
        file = self.folder / name
        file.write_text(text)
        return str(file)

    def start(self, *command, **variables):
        """A process that runs the command; its output can be read from it."""
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment(**variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *command, timeout=PATIENCE, **variables):
        """(status, output) of the command."""
        process = self.start(*command, **variables)
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"{command} still ran after {timeout} s; it said:\n{process.communicate(timeout=20)[0]}") from None
        return process.returncode, out

    def processes(self):
        """The ids of all living processes with the mark."""
        mark = f"{self.name}={self.value}".encode()
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if mark in entry.joinpath("environ").read_bytes().split(b"\0"):
                    if entry.joinpath("stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                        found.append(int(entry.name))
            except OSError:
                continue
        return found

    def wait_until_gone(self, seconds=10.0):
        """Fails if processes are left after so many seconds."""
        deadline = time.monotonic() + seconds
        while left := self.processes():
            assert time.monotonic() < deadline, f"left behind: {[command_line(pid) for pid in left]}"
            time.sleep(0.05)

    def kill_all(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def end(self):
        self.kill_all()
        for process in self.started:
            process.kill()
            process.communicate()


def command_line(pid):
    try:
        return f"{pid}: " + pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"{pid}: gone"


@contextlib.contextmanager
def an_engine():
    """An Engine, whose processes have to be gone in the end."""
    # Sockets' names are short, so the folder is not pytest's.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="engine-"))
    folder.chmod(0o755)
    made = Engine(folder)
    try:
        yield made
        made.wait_until_gone()
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def engine():
    """An Engine. The test fails if it leaves a process behind."""
    with an_engine() as made:
        yield made
