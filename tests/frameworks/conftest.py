"""Nodes in one process, workers in several, and configurations with free ports."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from ports import free_ports  # noqa: E402


def lone(name, **settings):
    """The configuration of a node without peers, on any free port."""
    return {"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000, **settings}


def introduce(*adapters):
    for one in adapters:
        for other in adapters:
            if one is not other:
                port = int(other.gossip.state["address"].rsplit(":", 1)[1])
                one.gossip.add_peer(other.gossip.name, "127.0.0.1", port)


@pytest.fixture
def sample(tmp_path):
    """The sample configuration with free ports, and a time-out that suits a busy machine."""
    first = free_ports(4)
    text = (ROOT / "samples" / "gossip.yaml").read_text().replace("timeout_ms: 2500", "timeout_ms: 20000")
    for place in range(4):
        text = text.replace(str(45000 + place), str(first + place))
    file = tmp_path / "dpwa.yaml"
    file.write_text(text)
    return str(file)


def command_of(count, script, *arguments):
    command = [os.environ.get("POLYVERSO_COMMAND", "polyverso"), "run", "-n", str(count), "--"]
    return [*command, sys.executable, "-c", script, *arguments]


def run_workers(count, script, timeout=200):
    """Runs `script` in `count` workers, which it must begin and end itself. Returns what they have printed."""
    done = subprocess.run(command_of(count, script), capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ------------------------------------------------------------------ workers for several scripts

ENDED = "the script has ended"
LOOP = f"""
import json, sys
import polyverso
with polyverso.init() as node, open(f"{{sys.argv[1]}}/{{node.worker_id}}") as scripts:
    for script in scripts:
        exec(compile(json.loads(script), "script", "exec"), {{"__name__": "__main__"}})
        print("{ENDED}", flush=True)
"""


class Workers:
    """Workers that run one script after the other. They are in a cluster all the time: an init() of a script is one more."""

    def __init__(self, count):
        self.folder = tempfile.TemporaryDirectory()
        paths = [pathlib.Path(self.folder.name, str(worker)) for worker in range(count)]
        for path in paths:
            os.mkfifo(path)
        self.pipes = [os.open(path, os.O_RDWR) for path in paths]  # for writing alone this would wait for the workers
        self.errors = open(f"{self.folder.name}/errors", "w+")
        self.process = subprocess.Popen(command_of(count, LOOP, self.folder.name), stdout=subprocess.PIPE, stderr=self.errors, text=True)

    def run(self, script, timeout):
        for pipe in self.pipes:
            os.write(pipe, json.dumps(script).encode() + b"\n")
        limit = threading.Timer(timeout, self.process.kill)
        limit.start()
        said, busy = "", len(self.pipes)
        while busy:
            line = self.process.stdout.readline()
            if not line:  # they have failed, or been killed
                break
            busy -= ENDED in line
            said += line.replace(ENDED, "")
        limit.cancel()
        if busy:
            raise AssertionError(f"{said}{self.end()}not all workers have reached the end of the script within {timeout} s")
        return said

    def end(self):
        """Lets the workers end. Returns what they say about it if they fail, or ""."""
        for pipe in self.pipes:
            os.close(pipe)
        try:
            said = self.process.communicate(timeout=60)[0]
        finally:
            self.process.kill()
        self.errors.seek(0)
        errors = self.errors.read()
        self.errors.close()
        self.folder.cleanup()
        return said + errors if self.process.returncode else ""


running = {}  # {count: the Workers that run scripts in so many}


def run_in_workers(count, script, timeout=200):
    """Like run_workers, but in the workers that are there from the module's earlier scripts, because importing a framework takes longer
    than most scripts. If a script fails, the next one gets new workers. A script about the end of its last node or of its process needs
    run_workers."""
    workers = running.pop(count, None) or Workers(count)
    said = workers.run(script, timeout)
    running[count] = workers
    return said


@pytest.fixture(scope="module", autouse=True)
def workers_end_with_the_module():
    yield
    failures = [running.pop(count).end() for count in list(running)]
    assert not any(failures), "\n".join(failures)


@pytest.fixture(scope="module")
def jax_compiles_fast():
    """Without most optimizations, which take longer than all steps of small networks: here, and in the processes started from here."""
    jax = sys.modules.get("jax")  # absent if Keras has another backend
    with pytest.MonkeyPatch.context() as changes:
        changes.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        if jax:
            jax.config.update("jax_disable_most_optimizations", True)
        yield
        if jax:
            jax.config.update("jax_disable_most_optimizations", False)
