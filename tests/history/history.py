#!/usr/bin/env python3
"""Records what the workers of real clusters with back-ups see while a server is killed or stopped, and checks the records.

As Jepsen does: each worker writes down when each of its calls began and ended, and what it read. The calls are adds of 1 to counters, and gets
of all counters. No counter may ever show less than the adds that had ended before the get began, or more than those that had begun before it
ended; none may fall; and at the end each shows the number of all adds: nothing is lost, and nothing is applied twice. Between its calls a
worker pauses, so the longest call tells how long tables could not be used. In every second run with enough servers, more of them are killed,
each as soon as all tables have a back-up again. A seed determines the cluster and the faults.

    history.py --seeds 1-1000 --jobs 2
    history.py --seeds 17 --verbose
    history.py --seeds 1-20 --plot history.png     how many calls ended, before and after the fault
"""

import argparse
import bisect
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WORKER = os.environ.get("HISTORY_WORKER", "build/bin/history_worker")
COMMAND = os.environ.get("POLYVERSO_COMMAND", "polyverso")
COUNTERS, CALLS_A_SECOND = 12, 1500
LONGEST = 90  # seconds; a longer run counts as hung
HEARTBEAT_MS = 600  # so long a stopped server may be silent


class Plan:
    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed = seed
        self.workers = draw.choice([2, 3])
        self.servers = draw.choice([2, 3, 4])
        self.transport = draw.choice(["auto", "tcp"])
        self.fault = draw.choice(["kill", "kill", "kill", "stop", "stop and continue"])
        self.victim = draw.randrange(self.servers)
        self.at = draw.uniform(0.2, 0.6)  # seconds after the beginning of the calls
        self.after = 0.4 if self.fault == "kill" else 0.4 + 2 * HEARTBEAT_MS / 1000
        others = [server for server in range(self.servers) if server != self.victim]
        self.more = draw.sample(others, len(others) - 1)[: draw.choice([0, 0, 1, 2])]
        self.seconds = self.at + self.after + 0.8 * len(self.more)

    def __str__(self):
        more = "".join(f", then kill server {server}" for server in self.more)
        return (f"{self.workers} workers, {self.servers} servers, transport={self.transport}, {self.fault} server {self.victim} "
                f"after {self.at:.2f} s{more}")


class Cluster:
    """The processes of one run."""

    def __init__(self, plan, folder):
        self.plan, self.folder, self.processes, self.deaths = plan, folder, [], 1
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for rank in range(plan.workers + plan.servers):
                self.start(rank, listener)

    def start(self, rank, listener):
        plan = self.plan
        self.master = "127.0.0.1:%d" % listener.getsockname()[1]
        told = {"master": self.master, "nodes": plan.workers + plan.servers, "rank": rank, "secret": "of the tests",
                "role": "worker" if rank < plan.workers else "server", "replicas": 1, "transport": plan.transport,
                "heartbeat_timeout_ms": HEARTBEAT_MS, "init_timeout_ms": 60000}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
        environment.update({f"POLYVERSO_{name.upper()}": str(value) for name, value in told.items()})
        if rank == 0:
            environment["POLYVERSO_LISTEN_FD"] = str(listener.fileno())
        command = [WORKER, str(plan.seed), f"{plan.seconds:.3f}", str(CALLS_A_SECOND)] if rank < plan.workers else [COMMAND, "server"]
        self.processes.append(subprocess.Popen(command, env=environment, pass_fds=[listener.fileno()] if rank == 0 else [], cwd=self.folder,
                                               stdin=subprocess.DEVNULL, stdout=open(self.folder / f"out{rank}", "w"),
                                               stderr=open(self.folder / f"err{rank}", "w")))

    def said(self, rank):
        return (self.folder / f"err{rank}").read_text(errors="replace")

    def wait_for_calls(self):
        deadline = time.monotonic() + LONGEST
        while not all("begin\n" in self.said(rank) for rank in range(self.plan.workers)):
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                raise AssertionError("the calls have not begun")
            time.sleep(0.005)

    def disturb(self):
        """Returns the time of the fault."""
        victim = self.processes[self.plan.workers + self.plan.victim]
        time.sleep(self.plan.at)
        at = time.monotonic_ns()
        if self.plan.fault == "kill":
            victim.kill()
        else:
            victim.send_signal(signal.SIGSTOP)
        if self.plan.fault == "stop and continue":  # it takes itself for the primary still
            time.sleep(1.5 * HEARTBEAT_MS / 1000)
            victim.send_signal(signal.SIGCONT)
        for server in self.plan.more:
            if not self.copied_until(at / 1e9 + self.plan.seconds - self.plan.at - 0.4):
                break
            self.processes[self.plan.workers + server].kill()
            self.deaths += 1
        return at

    def copied_until(self, deadline):
        """Waits until the first victim's tables are served by others, and all tables have a back-up. False: they have none by then."""
        environment = dict(os.environ, POLYVERSO_SECRET="of the tests")
        while time.monotonic() < deadline:
            told = subprocess.run([COMMAND, "status", "--json", "--master", self.master], env=environment, capture_output=True, text=True)
            parts = json.loads(told.stdout)["parts"] if told.returncode == 0 else []
            dead = [self.plan.workers + server for server in [self.plan.victim, *self.plan.more][: self.deaths]]
            if parts and all(part["backup"] is not None and part["served_by"] not in dead for part in parts):
                return True
            time.sleep(0.01)
        return False

    def finish(self):
        deadline = time.monotonic() + LONGEST
        for rank, process in enumerate(self.processes[: self.plan.workers]):
            try:
                status = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"worker {rank} has not ended") from None
            assert status == 0, f"worker {rank} ended with {status}"

    def end(self):
        for process in self.processes:
            process.kill()  # also one that is stopped
            process.wait()

    def records(self):
        """[(kind, begin, end, what)] of all workers, and the same by worker."""
        by_worker = []
        for rank in range(self.plan.workers):
            calls = []
            for line in (self.folder / f"out{rank}").read_text().splitlines():
                kind, *numbers = line.split()
                numbers = list(map(int, numbers))
                calls.append((kind, numbers[1], numbers[2], numbers[0]) if kind in "aA" else (kind, numbers[0], numbers[1], numbers[2:]))
            by_worker.append(calls)
        return by_worker


def wrong_in(by_worker):
    """What no sequence of the calls can explain."""
    wrong = []
    calls = [call for calls in by_worker for call in calls]
    for table, add, get in (("dense", "a", "g"), ("keyed", "A", "G")):
        reads = sorted((begin, end, values) for kind, begin, end, values in calls if kind == get)
        for counter in range(COUNTERS):
            adds = [(begin, end) for kind, begin, end, which in calls if kind == add and which == counter]
            begins, ends = sorted(begin for begin, _ in adds), sorted(end for _, end in adds)
            highest = []  # (end of a get, the highest value of all that ended until then)
            for end, value in sorted((end, values[counter]) for _, end, values in reads):
                highest.append((end, max(value, highest[-1][1] if highest else 0)))
            for begin, end, values in reads:
                value, least, most = values[counter], bisect.bisect_left(ends, begin), bisect.bisect_right(begins, end)
                before = bisect.bisect_left(highest, (begin, -1))
                least = max(least, highest[before - 1][1] if before > 0 else 0)
                if not least <= value <= most:
                    wrong.append(f"table {table}, counter {counter}: a get saw {value}, where {least} to {most} adds had been made")
        final = reads[-1][2]
        for counter in range(COUNTERS):
            made = sum(1 for kind, _, _, which in calls if kind == add and which == counter)
            if final[counter] != made:
                wrong.append(f"table {table}, counter {counter}: {final[counter]} at the end, and {made} adds were made")
    return wrong


def run(seed):
    """Returns (what was wrong, the longest call in seconds after the fault, the times of calls' ends relative to it, the number of calls, and of
    lost servers)."""
    plan = Plan(seed)
    with tempfile.TemporaryDirectory(prefix="polyverso-history-") as name:
        cluster = Cluster(plan, pathlib.Path(name))
        try:
            cluster.wait_for_calls()
            at = cluster.disturb()
            cluster.finish()
            by_worker = cluster.records()
        except AssertionError as error:
            told = "".join(f"-- {rank}: {text}" for rank in range(len(cluster.processes)) if (text := cluster.said(rank)))
            return [f"{error}\n{told}"], 0.0, [], 0, 0
        finally:
            cluster.end()
    ends = [(end - at) / 1e9 for calls in by_worker for _, _, end, _ in calls]
    longest = max((end - begin) / 1e9 for calls in by_worker for _, begin, end, _ in calls if end > at)
    return wrong_in(by_worker), longest, ends, len(ends), cluster.deaths


def spread(values):
    return f"median {statistics.median(values):.3f} s, longest {max(values):.3f} s"


def draw(path, runs):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(len(runs), 1, figsize=(8, 2.2 * len(runs)), squeeze=False)
    width = 0.01  # seconds
    for panel, (fault, (after, ends)) in zip(panels[:, 0], sorted(runs.items())):
        bins = [i * width for i in range(-20, round(after / width))]
        panel.hist([end for one in ends for end in one], bins=bins, weights=[1 / width / len(ends)] * sum(map(len, ends)), color="#4477aa")
        panel.axvline(0, color="#cc3311")
        panel.set_xlim(bins[0], bins[-1])
        panel.set_title(f"{fault} a server (red): mean of {len(ends)} runs", loc="left", fontsize=10)
        panel.set_ylabel("calls ended per s")
    panels[-1, 0].set_xlabel("seconds since the fault")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1-20", help="A-B, or one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--verbose", action="store_true", help="a line for each run")
    parser.add_argument("--plot", metavar="FILE", help="draws the calls over time")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    failed, calls, deaths, longest, ends = 0, 0, 0, {}, {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done, (seed, (wrong, span, when, count, lost)) in enumerate(zip(seeds, pool.map(run, seeds)), 1):
            fault = Plan(seed).fault
            calls += count
            deaths += lost
            if wrong:
                failed += 1
                print(f"FAILED: {sys.executable} {sys.argv[0]} --seeds {seed} --verbose ({Plan(seed)})\n" + "\n".join(wrong[:10]), flush=True)
            else:
                longest.setdefault(fault, []).append(span)
                ends.setdefault(fault, (Plan(seed).after, []))[1].append(when)
            if options.verbose:
                print(f"seed {seed}: {Plan(seed)}: {count} calls, {lost} servers lost, the longest call {span:.3f} s", flush=True)
            elif done % 50 == 0:
                print(f"history: {done} of {len(seeds)} runs, {failed} failed", flush=True)
    for fault in sorted(longest):
        print(f"without service after a {fault!r} ({len(longest[fault])} runs): {spread(longest[fault])}")
    if options.plot and ends:
        draw(options.plot, ends)
    print(f"history: {calls} calls and {deaths} lost servers in {len(seeds)} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
