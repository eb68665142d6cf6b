#!/usr/bin/env python3
"""Makes one allocation of a server fail while tables go back to a server that took a drained server's place.

A worker adds to two tables and reads them all the time. One of two servers drains, and a new process takes its place, so
its part goes back to it. Meanwhile the N-th allocation of the giver fails, or of the receiver. Then the copy is tried
again, or the process ends and the others report it as lost. Never a crash, a hang, a wrong value or a lost acknowledged
add.

    give_back.py                        every N of both
    give_back.py --sample 20 --seed 7   20 values of N for each, drawn by the seed
    give_back.py --victim giver --n 17  this one, with its output and the place of the allocation
"""

import argparse
import json
import os
import pathlib
import queue
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # ports.py
from ports import free_ports

WORKER = os.environ.get("ALLOCATION_WORKER", "allocation_worker")
VICTIMS = ("giver", "receiver")
PATIENCE = 60


class Process:
    """A member of the cluster, and what it says."""

    def __init__(self, port, rank, role, command, **environment):
        settings = dict(master=f"127.0.0.1:{port}", nodes=3, rank=rank, role=role, secret="of the tests", log_level="info",
                        heartbeat_timeout_ms=3000, init_timeout_ms=20000)
        told = {f"POLYVERSO_{key.upper()}": str(value) for key, value in settings.items()}
        self.lines = []
        self.news = queue.Queue()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, **told, **environment})
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self.news.put(self.lines[-1])
        self.news.put(None)

    def hear(self, *texts, seconds=PATIENCE):
        """The first line with one of the texts; None: the process has ended, or the time is over."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                line = self.news.get(timeout=left)
            except queue.Empty:
                return None
            if line is None or any(text in line for text in texts):
                return line
        return None

    def ends(self):
        """Its status, or None if it does not end."""
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return None
        self.reader.join()
        return status

    def outcome(self):
        for line in self.lines:
            if line.startswith('{"rank"'):
                return json.loads(line)
        return None


def run(victim, n, trace=False):
    """Returns what is wrong, or None; the victim's outcome; and all output."""
    port = free_ports()
    members = {}
    more = {"FAULT_TRACE": "1"} if trace else {}

    def start(name, rank, role, *command):
        members[name] = Process(port, rank, role, [*command], **more)
        return members[name]

    try:
        wrong = play(victim, n, start, members)
    finally:
        for member in members.values():
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()
    output = "\n".join(f"{name}: {line}" for name, member in members.items() for line in member.lines)
    hit = members[victim].outcome() if victim in members else None
    return wrong, hit, output


def play(victim, n, start, members):
    def server(name, rank):
        return start(name, rank, "server", WORKER, "serve", str(rank), str(n if name == victim else 0), "-", *["late"] * (name == "giver"))

    worker = start("worker", 0, "worker", WORKER, "served", "-1", "0", "-")
    giver = server("giver", 1)
    drained = start("drained", 2, "server", "polyverso", "server")
    if worker.hear("up") is None or drained.hear("serving as server") is None:
        return "the cluster does not start"
    drained.process.send_signal(signal.SIGTERM)
    if drained.ends() != 0:
        return "the server does not drain"
    giver.process.send_signal(signal.SIGUSR1)  # its allocations count from now on
    if victim == "giver" and giver.hear("armed") is None:
        return "the giver does not arm its failure"
    server("receiver", 2)
    worker.hear("serves its own part of the tables", "lost", seconds=10)
    worker.process.stdin.close()
    for name, member in members.items():
        if (status := member.ends()) is None:
            return f"hung: the {name} does not end"
        if status < 0 or (name == "worker" and status != 0):
            return f"the {name} has ended with status {status}"
    told = worker.outcome()
    hit = members[victim].outcome()
    if told is None or hit is None:
        return "a process ended without a word"
    if told["trouble"]:
        return f"the worker: {told['trouble']}"
    for what in ("worst", "ended"):
        if told[what] not in ("MV_OK", "MV_EPEERLOST", "MV_ENOMEM") or (told[what] != "MV_OK" and not hit["failed"]):
            return f"the worker: {what} {told[what]}"
    if told["value"] >= 0 and not told["acked"] <= told["value"] <= told["acked"] + told["unknown"]:
        return f"the worker sees {told['value']}, not {told['acked']} .. {told['acked'] + told['unknown']}"
    if not hit["failed"] and not any("serves its own part of the tables" in line for line in worker.lines):
        return "the tables do not go back"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=0, help="so many Ns of each victim; 0: all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="for --sample; printed")
    parser.add_argument("--victim", choices=VICTIMS, help="only this one")
    parser.add_argument("--n", type=int, help="only this allocation, with all output")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    print(f"give_back.py: seed {options.seed}", flush=True)
    failed, endings = 0, {}
    for victim in [options.victim] if options.victim else VICTIMS:
        numbers, total = [options.n], 0
        if options.n is None:
            wrong, whole, output = run(victim, 1 << 60)
            if wrong:
                failed += 1
                print(f"FAILED: {victim}: without a failing allocation: {wrong}\n{output}", flush=True)
                continue
            total = whole["count"]
            numbers = sorted(dice.sample(range(1, total + 1), min(options.sample or total, total)))
        bad = 0
        for n in numbers:
            wrong, hit, output = run(victim, n, trace=options.n is not None)
            noticed = '"worst": "MV_OK"' not in output.split("worker: {")[-1]
            ending = "badly" if wrong else "not reached" if not hit["failed"] else "with a loss" if noticed else "without a loss"
            endings[ending] = endings.get(ending, 0) + 1
            bad += wrong is not None
            if wrong or options.n is not None:
                print(f"{'FAILED' if wrong else 'passed'}: --victim {victim} --n {n}: {wrong}\n{output}", flush=True)
        failed += bad
        print(f"{victim}: {len(numbers)} of {total} allocations failed, {bad} ended badly", flush=True)
    print("how they ended:", ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items())))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
