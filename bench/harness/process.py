"""Processes that answer with lines of JSON."""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import threading


class Broken(Exception):
    """A benchmark cannot be run. The text is the reason, for the user."""


class Process:
    """One process. Keeps its output that is not JSON, for the error message if it breaks."""

    TAIL = 20  # lines

    def __init__(self, name, command, cpus=None, environment=None):
        self.name = name
        self._lines = queue.Queue()
        self._tail = []
        self._process = subprocess.Popen(
            [*prefix(cpus), *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            process_group=0,  # Ctrl-C reaches only the driver. In sessions of their own, they could not yield to each other (sched_autogroup)
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self):
        return self._process.pid

    def _read(self):
        for line in self._process.stdout:
            at = line.find("{")  # after the launcher's prefix
            try:
                self._lines.put(json.loads(line[at:]) if at >= 0 else self._keep(line))
            except ValueError:
                self._keep(line)
        self._lines.put({"error": "it ended"})

    def _keep(self, line):
        self._tail = [*self._tail, line.rstrip()][-self.TAIL :]

    def say(self, text):
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # hear() will report the end of the process

    def hear(self, seconds=60):
        """Waits for the next line of JSON, and returns it."""
        while True:
            try:
                said = self._lines.get(timeout=seconds)
            except queue.Empty:
                raise Broken(self._story(f"says nothing for {seconds} s")) from None
            if said is None:
                continue
            if "error" in said:
                raise Broken(self._story(said["error"]))
            return said

    def _story(self, what):
        return "\n    ".join([f"{self.name}: {what}", *self._tail])

    def end(self, seconds=10):
        """Closes standard input and waits for the end of the process; escalates to signals. Returns its exit status."""
        try:
            self._process.stdin.close()
        except OSError:
            pass
        for harsher in (self._process.terminate, self._process.kill, lambda: None):
            try:
                status = self._process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                harsher()
        with contextlib.suppress(ProcessLookupError):  # there are none
            os.killpg(self._process.pid, signal.SIGKILL)  # processes that it has left behind
        self._reader.join(seconds)
        return status

    def end_well(self):
        status = self.end()
        if status != 0:
            raise Broken(self._story(f"ended with status {status}"))


def prefix(cpus):
    """The command prefix that pins a process to `cpus` and ends it with the driver."""
    words = []
    if shutil.which("setpriv"):
        words += ["setpriv", "--pdeathsig", "TERM"]
    if cpus is not None:
        words += ["taskset", "--cpu-list", str(cpus)]
    return words


class Party:
    """One side of a comparison: a process that runs batches, and the helper processes that it needs. A context
    manager."""

    def __init__(self, process, helpers=()):
        self.process = process
        self.helpers = list(helpers)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        try:
            if kind is None:
                self.process.end_well()
            else:
                self.process.end(seconds=1)
        finally:
            for helper in self.helpers:
                helper.end(seconds=2)

    def do(self, batch, seconds):
        """Runs a batch. The answer has the seconds per repetition ("median", "mean", "least", "p99") and their
        "count"."""
        self.process.say(f"{batch.operation} {batch.bytes} {seconds} {batch.block}")
        return self.process.hear(60 + 10 * seconds)


def started(make_process, helpers=()):
    """Starts a party and waits until it is ready. On failure, ends all its processes."""
    helpers = list(helpers)
    party = None
    try:
        party = Party(make_process(), helpers)
        party.process.hear()
        return party
    except BaseException:
        for process in [*([party.process] if party else []), *helpers]:
            process.end(seconds=1)
        raise
