"""Fixtures for tests with real processes that are killed, stopped, interrupted or disturbed."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # forks.py, hosts.py, ports.py

COMMAND = os.environ.get("POLYVERSO_COMMAND", "polyverso")


@pytest.fixture(scope="session", autouse=True)
def own_runs():
    """The commands of this file's tests find only this file's runs, so that files may be run side by side. Their groups
    have a cache of their own."""
    with tempfile.TemporaryDirectory(prefix="polyverso-runs-") as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", folder)
        environment.setenv("XDG_CACHE_HOME", folder)
        yield


class Run:
    """A `polyverso run` in the background. A mark in their environment identifies all of its processes."""

    def __init__(self, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=None, **more):
        self.mark = f"POLYVERSO_TEST_MARK={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        environment = dict(os.environ, **{name: value}, **(env or {}))
        environment = {key: text for key, text in environment.items() if text is not None}
        self.process = subprocess.Popen(
            [COMMAND, *arguments], stdin=stdin, stdout=stdout, stderr=stderr, env=environment, text=True, **more
        )

    def finish(self, timeout=30):
        """Waits for the end. Returns (status, standard output, standard error)."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def processes(self):
        """The ids of all living processes of this run, including the launcher and reparented processes."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in entry.joinpath("environ").read_bytes().split(b"\0"):
                    state = entry.joinpath("stat").read_text().rpartition(")")[2].split()[0]
                    if state not in "ZX":
                        found.append(int(entry.name))
            except OSError:
                continue
        return found

    def wait_until_gone(self, seconds=10.0):
        deadline = time.monotonic() + seconds
        while self.processes():
            assert time.monotonic() < deadline, f"left behind: {describe(self.processes())}"
            time.sleep(0.02)

    def read_until(self, text, seconds=60.0):
        """Reads standard output up to a line that contains `text`, and returns that line."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            line = self.process.stdout.readline()
            if not line:
                break
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r} on standard output; standard error: {self.finish()[2]}")

    def pid_of(self, rank, seconds=10.0):
        """The process of a rank, the leader of its process group."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:  # a process in the middle of exec is not found
            for pid in self.processes():
                if environment_of(pid).get("POLYVERSO_RANK") == str(rank) and os.getpgid(pid) == pid:
                    return pid
            time.sleep(0.01)
        raise AssertionError(f"no process of rank {rank}")

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def environment_of(pid):
    try:
        entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


def describe(pids):
    lines = []
    for pid in pids:
        try:
            lines.append(f"{pid}: " + pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return lines


@pytest.fixture
def start():
    """start(*arguments): a Run. Fails if one of its processes is left at the end of the test."""
    runs = []

    def begin(*arguments, **more):
        runs.append(Run(*arguments, **more))
        return runs[-1]

    yield begin
    try:
        for run in runs:
            if run.process.poll() is not None:
                run.wait_until_gone()
    finally:
        for run in runs:
            run.end()


@pytest.fixture
def run(start):
    """run(*arguments): (status, standard output, standard error) of a `polyverso run` that ends by itself."""

    def begin(*arguments, timeout=30, **more):
        return start("run", *arguments, **more).finish(timeout)

    return begin


@pytest.fixture
def on_debian(tmp_path):
    """on_debian(command): the command on a machine named "debian", whose /etc/hosts has Debian's line 127.0.1.1."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 debian\n")
    prefix = ["unshare", "--mount", "--uts", "sh", "-c", f'hostname debian && mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("namespaces are not to be had here: this wants root, or a kernel that lets users make them")
    return lambda command: [*prefix, *command]


@pytest.fixture
def cluster():
    """cluster(workers, servers, **settings): a nodes.Cluster."""
    from nodes import Cluster

    clusters = []

    def begin(*arguments, **settings):
        clusters.append(Cluster(*arguments, **settings))
        return clusters[-1]

    yield begin
    for each in clusters:
        each.end()


@pytest.fixture
def narrow_line():
    """narrow_line(rate, *commands): hosts.NarrowLine, from there to the end of the test."""
    import hosts

    with contextlib.ExitStack() as lines:

        def begin(*arguments):
            try:
                lines.callback(hosts.NarrowLine(*arguments).end)
            except hosts.Unavailable as why:
                pytest.skip(str(why))

        yield begin


@pytest.fixture
def network():
    """network(count, rate, families): hosts.Hosts, which vanish at the end of the test."""
    import hosts

    with contextlib.ExitStack() as networks:

        def begin(*arguments, **more):
            try:
                made = hosts.Hosts(*arguments, **more)
            except hosts.Unavailable as why:
                pytest.skip(str(why))
            networks.callback(made.end)
            return made

        yield begin
