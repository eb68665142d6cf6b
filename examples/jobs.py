"""Runs trainings under `polyverso run` for the demos in the folders next to this file. Reads their output line by line,
and kills them where a demo tests recovery."""

import os
import pathlib
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence


class Failure(Exception):
    """An error message for the person who ran `make`."""


def find(*programs: str) -> str:
    """The first of the programs that is on PATH."""
    for program in programs:
        if shutil.which(program):
            return program
    raise Failure(f"{' or '.join(programs)} is not on PATH: use make, or `source build/activate` first")


class Job:
    """One run of a command. It ends by itself, or is killed with all its processes."""

    def __init__(self, name: str, command: Sequence[str], limit_s: float) -> None:
        self.name = name
        self._limit_s = limit_s
        # One thread per worker: NumPy's matrix products would otherwise use the cores of the other workers.
        environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment
        )

    def watch(self, read: Callable[[str], None], is_time_to_kill: Callable[[], object] | None = None) -> None:
        """Calls read(line) for each line of output. Kills all processes as soon as is_time_to_kill() is true."""
        watchdog = threading.Timer(self._limit_s, self._process.terminate)
        watchdog.start()
        killed = False
        try:
            assert self._process.stdout
            for line in self._process.stdout:
                read(line)
                if is_time_to_kill and not killed and is_time_to_kill():
                    kill_all(self._process.pid)
                    killed = True
            status = self._process.wait()
        finally:
            watchdog.cancel()
            if self._process.poll() is None:
                self._process.terminate()
                self._process.wait()
        if is_time_to_kill and not killed:
            raise Failure(f"{self.name}: training ended with status {status} before it could be killed")
        if not is_time_to_kill and status != 0:
            raise Failure(f"{self.name}: training ended with status {status}")


def children(pid: int) -> list[int]:
    try:
        lists = [path.read_text(encoding="ascii") for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def kill_all(pid: int) -> None:
    """Sends SIGKILL to a process and all its descendants, to simulate a power failure."""
    family = [pid]
    for member in family:
        family += children(member)
    for member in family:
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass


def shown(path: pathlib.Path) -> pathlib.Path:
    """The path relative to the working directory if it lies below it, otherwise the path itself."""
    here = pathlib.Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
