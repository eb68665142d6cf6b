"""What it costs that another server keeps a copy of each server's tables."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from harness.bench import measurement
from harness.compare import Batch, Spread
from harness.process import Broken, Process, started
from harness.result import Row, at_most, ratio_at_most
from harness.units import microseconds, milliseconds

ONE_FLOAT, MIB = 4, 1 << 20


def side(bench, replicas, words, pinning):
    words = [bench.parties.launcher, "run", "--no-color", "-v", "--servers", 2, "--replicas", replicas, *words]
    return lambda: started(lambda: Process(f"replicas={replicas}", words, pinning.server, bench.environment))


def compared(bench, title, words, batch, target, unit=microseconds):
    """A worker's operation with `replicas=1` and with 0. All processes may use any CPU: there are more of them than CPUs."""
    pinning = bench.parties.any_cpu
    sides = {name: side(bench, replicas, words, pinning) for name, replicas in (("twice", 1), ("once", 0))}
    comparison = bench.compare(sides, {title: dict.fromkeys(sides, batch)})[title]
    return Row(
        name=f"{title}, replicas=1",
        ours=comparison.of("twice").map(unit),
        unit="µs" if unit is microseconds else "ms",
        peer="replicas=0",
        peer_value=comparison.of("once").map(unit),
        ratio=comparison.ratio("twice", "once"),
        target=target,
        runs=comparison.runs,
        note=f"two servers; {pinning}",
    )


@measurement
def replicas(bench):
    """adds, gets, and dist_sync pushes of two workers, with and without back-ups of two servers"""
    table = ["-n", 1, "--", bench.parties.programs / "table_worker"]
    yield compared(bench, "blocking add of one float", table, Batch("add", ONE_FLOAT), ratio_at_most(2.2))
    yield compared(bench, "blocking get of one float", table, Batch("get", ONE_FLOAT), ratio_at_most(1.05))
    yield compared(bench, "add of 64 MiB", table, Batch("add", 64 * MIB), ratio_at_most(round(1 / 0.55, 2)), milliseconds)
    yield compared(bench, "get of 64 MiB", table, Batch("get", 64 * MIB), ratio_at_most(1.05), milliseconds)
    for title, size, unit in (("4 B", 4, microseconds), ("64 MiB", 64 * MIB, milliseconds)):
        store = [sys.executable, bench.sources / "programs" / "kv_worker.py", "polyverso", "dist_sync", "push_pull", size]
        yield compared(bench, f"dist_sync store, two workers: push and pull of {title}", ["-n", 2, "--", *store], Batch("push_pull", size), ratio_at_most(1.3), unit)


class Survived:
    """A run of one worker with a large table and two servers that back each other up. One server is killed, and a fresh process takes its place."""

    VICTIM = 1  # by rank: the first server

    def __init__(self, bench, size):
        self.bench = bench
        words = [bench.parties.launcher, "run", "--no-color", "-v", "--servers", 2, "--replicas", 1, "-n", 1, "--"]
        self.run = Process("polyverso run", [*words, bench.parties.programs / "checkpointer", size], bench.parties.any_cpu.server, bench.environment)
        self.fresh = []
        self.folder = tempfile.TemporaryDirectory(prefix="polyverso-bench-")

    def __enter__(self):
        try:
            self.run.hear(300)
        except BaseException:
            self.run.end(seconds=1)
            raise
        return self

    def __exit__(self, kind, value, traceback):
        try:
            self.run.end_well() if kind is None else self.run.end(seconds=1)
        finally:
            for server in self.fresh:
                server.end(seconds=2)
            self.folder.cleanup()

    def status(self):
        words = [self.bench.parties.launcher, "status", self.run.pid, "--json"]
        return json.loads(subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=60, env=self.bench.environment).stdout or "{}")

    def wait_for(self, what, condition, seconds=120):
        until = time.monotonic() + seconds
        while not condition(self.status()):
            if time.monotonic() > until:
                raise Broken(f"after {seconds} s, {what}")

    def lose_a_server(self):
        """Kills it, and waits until the other one serves its part. Returns the environment of its process."""
        victim = next(member for member in self.status()["members"] if member["rank"] == self.VICTIM)["pid"]
        words = pathlib.Path(f"/proc/{victim}/environ").read_bytes().decode().split("\0")
        os.kill(victim, signal.SIGKILL)
        self.wait_for("a part of the tables is still served by a killed server", lambda state: all(part["served_by"] not in (None, self.VICTIM) for part in state["parts"]))
        return dict(word.split("=", 1) for word in words if "=" in word)

    def replace(self, environment):
        """Starts a fresh server. Returns the seconds until every part has two copies and is served by its own server again, and what the worker has
        seen meanwhile."""
        end = pathlib.Path(self.folder.name) / "end"
        self.run.say(f"add {end}")
        begun = time.monotonic()
        server = Process("polyverso server", [self.bench.parties.launcher, "server"], self.bench.parties.any_cpu.server, environment)
        self.fresh.append(server)
        self.wait_for("the fresh server has no copy of a part", lambda state: all(part["backup"] is not None for part in state["parts"]))
        took = time.monotonic() - begun
        end.touch()
        return took, self.run.hear(120)


@measurement
def rejoin(bench):
    """a fresh server takes the place of a killed one: the time until it is a back-up, and the longest add meanwhile"""
    for size, name in ((100 * MIB, "100 MiB"), (1024 * MIB, "1 GiB")):
        took, longest, adds = [], [], 0
        rounds = 2 if bench.quick else 3
        for at in range(rounds):
            bench.progress(f"{name}, round {at + 1} of {rounds}")
            with Survived(bench, size) as survived:
                seconds, seen = survived.replace(survived.lose_a_server())
                took.append(seconds)
                longest.append(1e3 * seen["longest"])
                adds += seen["adds"]
        note = f"two servers, replicas=1, one worker that adds to 64 random rows of 1 KiB, {adds:,} times in all; {bench.parties.any_cpu}"
        yield Row(name=f"a fresh server, from its start to all back-ups of a table of {name}", ours=Spread.of(took), unit="s", target=at_most(5 * size / (100 * MIB)), runs=rounds, note=note)
        yield Row(name=f"longest add while a fresh server gets its copies of {name}", ours=Spread.of(longest), unit="ms", target=at_most(50), runs=rounds, note=note)
