#!/usr/bin/env python3
"""Records what the workers of real clusters with back-ups see while a server is killed or stopped, and checks the records.

As Jepsen does: each worker writes down when each of its calls began and ended, and what it read. The calls are adds of 1 to counters, and gets
of all counters. No counter may ever show less than the adds that had ended before the get began, or more than those that had begun before it
ended; none may fall; and at the end each shows the number of all adds: nothing is lost, and nothing is applied twice. Between its calls a
worker pauses, so the longest call tells how long tables could not be used. In every second run with enough servers, more of them are killed,
each as soon as all tables have a back-up again. A seed determines the cluster and the faults.

With --faults N, that many servers and workers are killed one after another, or stopped for longer than the heartbeat, and a fresh process takes
the place of each: only rank 0 is spared. What a killed worker did counts too, as it writes its calls into a mapped file. The add that it was
killed in may have been applied or not.

With --masters, rank 0 is not spared, nor is any later master: each cluster has three servers at least, so that the others choose a new one.
Rank 0 is a server or, in async tables, perhaps a worker. Fresh processes know the addresses of all members.

With --hosts, each server is on a host of its own, which is a network namespace, worker 0 on a further one, and the other workers beside servers
(in merged and sync tables, beside worker 0). Instead of a kill, a host may be cut off until the others have declared all of its processes lost.
Then the line is healed, and fresh processes take their places on the same host, while the old ones may still run.

With --consistency merged or sync, the tables are of that consistency; with any, the seed chooses between these and async. checks.py describes
what gets may show then. Workers of such tables are never killed, because calls of the others then fail.

With --etcd, a real etcd is the keeper of each run. It is killed as well, alone or together with a server, and started again with its data; and
rank 0 is killed like the others.

    history.py --seeds 1-1000 --jobs 2
    history.py --seeds 17 --verbose
    history.py --seeds 1-100 --faults 10
    history.py --seeds 1-100 --faults 10 --etcd
    history.py --seeds 1-100 --faults 10 --masters --hosts --consistency any
    history.py --seeds 1 --faults 10 --plot history.svg     how many calls ended a second, through the faults of the last seed
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from checks import CONSISTENCIES, COUNTERS, UNKNOWN, wrong_in

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from etcd import Etcd  # noqa: E402
from hosts import Hosts, Unavailable  # noqa: E402

WORKER = os.path.abspath(os.environ.get("HISTORY_WORKER", "build/bin/history_worker"))
COMMAND = os.environ.get("POLYVERSO_COMMAND", "polyverso")
CALLS_A_SECOND = 1500
LONGEST = 90  # seconds; a longer run counts as hung
HEARTBEAT_MS = 600  # so long a stopped server may be silent
COLORS = {"kill server": "#cc3311", "kill worker": "#ee9900", "stop server": "#882255", "kill etcd": "#009988", "kill etcd and server": "#332288",
          "kill master": "#ee3377", "stop master": "#aa4499", "cut host": "#0077bb", "unplug host": "#117733"}  # in the picture
CALL = struct.Struct(f"=IIQQ{COUNTERS}q")  # as worker.c writes it
TOO_EARLY = "already complete, and none of its"  # what a process is told that wants the place of one that is not known to be lost yet


class Plan:
    def __init__(self, seed, options):
        draw = random.Random(seed)
        later = random.Random(f"{seed}, later options")  # of its own, so that seeds keep their plans without these options
        self.seed, self.options = seed, options
        self.workers = draw.choice([2, 3])
        self.servers = draw.choice([2, 3, 4])
        if options.masters:
            self.servers = max(self.servers, 3)
        self.transport = draw.choice(["auto", "tcp"])
        self.fault = draw.choice(["kill", "kill", "kill", "stop", "stop and continue"])
        self.victim = draw.randrange(self.servers)
        self.at = draw.uniform(0.2, 0.6)  # seconds after the beginning of the calls
        self.after = 0.4 if self.fault == "kill" else 0.4 + 2 * HEARTBEAT_MS / 1000
        others = [server for server in range(self.servers) if server != self.victim]
        self.more = draw.sample(others, len(others) - 1)[: draw.choice([0, 0, 1, 2])]
        self.seconds = self.at + self.after + 0.8 * len(self.more)
        self.consistency = later.choice(CONSISTENCIES) if options.consistency == "any" else options.consistency
        self.loses_workers = self.consistency == "async"
        servers_first = options.masters and (not self.loses_workers or later.random() < 0.5)
        ranks = range(self.workers + self.servers)
        self.ranks = {"server": ranks[: self.servers], "worker": ranks[self.servers :]} if servers_first else {
            "worker": ranks[: self.workers], "server": ranks[self.workers :]}
        self.host_of = dict(zip(self.ranks["server"], range(self.servers)))  # by rank
        for number, rank in enumerate(self.ranks["worker"]):
            self.host_of[rank] = self.servers if number == 0 or not self.loses_workers else later.randrange(self.servers)
        self.faults = [self.one_of_many(draw, later) for _ in range(options.faults)]  # with returns

    def one_of_many(self, draw, later):
        """(what, the number of the server, worker or host, seconds after all is well again)"""
        what = draw.choice(["kill server", "kill server", "kill server", "kill worker", "kill worker", "stop server"])
        number = draw.randrange(1, self.workers) if what == "kill worker" else draw.randrange(self.servers)
        if self.options.etcd:
            number = draw.randrange(self.workers) if what == "kill worker" else number
            what = draw.choice([what, what, "kill etcd", "kill etcd and server"])
            number = draw.randrange(self.servers) if what == "kill etcd and server" else number
        pause = draw.uniform(0.1, 0.5)
        if what == "kill worker" and self.options.masters:
            number = later.randrange(self.workers)
        if what == "kill worker" and not self.loses_workers:
            what, number = "kill server", later.randrange(self.servers)
        if self.options.masters and later.random() < 0.4:
            what = later.choice(["kill master", "kill master", "stop master"])
        if self.options.hosts and later.random() < 0.5:
            what = later.choice(["cut host", "unplug host"])
            # Worker 0's host is among them if nobody is spared.
            number = later.randrange(self.servers + (self.options.masters and self.loses_workers))
        return what, number, pause

    def __str__(self):
        keys = f"transport={self.transport}{', etcd' if self.options.etcd else ''}"
        cluster = f"{self.workers} workers, {self.servers} servers, {self.consistency} tables, {keys}"
        if self.faults:
            first = "server" if 0 in self.ranks["server"] else "worker"
            which = lambda what, number: what if what == "kill etcd" or "master" in what else f"{what} {number}"
            return f"{cluster}, rank 0 is a {first}; " + ", ".join(which(what, number) for what, number, _ in self.faults)
        more = "".join(f", then kill server {server}" for server in self.more)
        return f"{cluster}, {self.fault} server {self.victim} after {self.at:.2f} s{more}"


class Cluster:
    """The processes of one run."""

    def __init__(self, plan, folder):
        self.plan, self.folder, self.deaths = plan, folder, 1
        self.lives = collections.Counter()  # of each rank
        self.processes = {}  # by rank, the newest
        self.told = {}  # by rank: the file of its standard error
        self.calls = []  # the files of all workers
        self.old = []  # processes whose places others have taken, or shall take
        self.refused = 0  # fresh processes that came before the loss of their predecessors was noticed
        self.etcd = Etcd().start() if plan.options.etcd else None
        self.hosts = Hosts(plan.servers + 1) if plan.options.hosts else None
        with socket.create_server(("127.0.0.1", 0)) if self.hosts is None else self.host(0).listener() as listener:
            self.master = "%s:%d" % listener.getsockname()
            self.addresses = {0: self.master}  # by rank, when all was well
            for rank in range(plan.workers + plan.servers):
                self.start(rank, listener)

    def host(self, rank):
        return self.hosts[self.plan.host_of[rank]]

    def start(self, rank, listener=None):
        plan = self.plan
        is_worker = rank in plan.ranks["worker"]
        self.lives[rank] += 1
        told = {"master": self.master, "nodes": plan.workers + plan.servers, "rank": rank, "secret": "of the tests",
                "role": "worker" if is_worker else "server", "replicas": 1, "transport": plan.transport,
                "heartbeat_timeout_ms": HEARTBEAT_MS, "init_timeout_ms": 60000}
        if self.hosts is not None:
            told["bind"] = self.host(rank).address
        if self.etcd is not None:
            # While etcd is away, the master waits for two heartbeats and 2 s: long enough for etcd to start on a busy machine.
            told = {**told, "master": None, "keeper": self.etcd.keeper("history"), "rank": rank if self.lives[rank] == 1 else None,
                    "heartbeat_timeout_ms": 3 * HEARTBEAT_MS}
        elif plan.options.masters and self.lives[rank] > 1:
            told = {**told, "master": ",".join(self.addresses.values()), "rank": rank or None}  # rank 0 would form a cluster
        environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
        environment.update({f"POLYVERSO_{name.upper()}": str(value) for name, value in told.items() if value is not None})
        listens = listener is not None and rank == 0 and self.etcd is None
        if listens:
            environment["POLYVERSO_LISTEN_FD"] = str(listener.fileno())
        command = [COMMAND, "server"]
        if is_worker:
            self.calls.append(self.folder / f"calls{rank}.{self.lives[rank]}")
            seed = plan.seed if not plan.loses_workers else (plan.seed * 1000 + rank) * 100 + self.lives[rank]
            command = [WORKER, str(self.calls[-1]), str(seed), str(CALLS_A_SECOND), plan.consistency, *["late"] * (self.lives[rank] > 1)]
        if self.hosts is not None:
            command = [*self.host(rank).inside, *command]
        self.told[rank] = self.folder / f"err{rank}.{self.lives[rank]}"
        self.processes[rank] = subprocess.Popen(command, env=environment, pass_fds=[listener.fileno()] if listens else [], cwd=self.folder,
                                                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=open(self.told[rank], "w"))

    def pid(self, process):
        """Of the program. On a host, that is a child of the process that was started."""
        if self.hosts is None:
            return process.pid
        return int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])

    def pid_in_status(self, rank):
        """As the program sees it: each host counts for itself. None: there is no program yet, or any more."""
        try:
            return int(re.search(r"^NSpid:.*\t(\d+)$", pathlib.Path(f"/proc/{self.pid(self.processes[rank])}/status").read_text(), re.MULTILINE)[1])
        except (OSError, IndexError):
            return None

    def said(self, rank):
        return self.told[rank].read_text(errors="replace")

    def wait_for_calls(self):
        deadline = time.monotonic() + LONGEST
        while not all("begin\n" in self.said(rank) for rank in self.plan.ranks["worker"]):
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes.values()):
                raise AssertionError("the calls have not begun")
            time.sleep(0.005)

    def disturb(self):
        """Returns [(the time of a fault, what it was)]."""
        if self.plan.faults:
            return self.disturb_again_and_again()
        servers = self.plan.ranks["server"]
        victim = self.processes[servers[self.plan.victim]]
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
            self.processes[servers[server]].kill()
            self.deaths += 1
        time.sleep(max(0.0, self.plan.seconds - self.plan.at - (time.monotonic_ns() - at) / 1e9))
        return [(at, self.plan.fault)]

    def disturb_again_and_again(self):
        faults, self.deaths = [], 0
        for what, number, pause in self.plan.faults:
            self.wait_until_well()
            time.sleep(pause)
            away = self.victims(what, number)
            victims = [self.processes.pop(rank) for rank in away]
            self.deaths += len(victims)
            self.old += victims
            faults.append((time.monotonic_ns(), what))
            if "etcd" in what:
                self.etcd.kill()
            if what.startswith("kill"):
                for victim in victims:
                    victim.kill()
                    victim.wait()
            else:
                self.silence(what, number, victims)
                self.wait_until(lambda members, parts: all(members[rank]["state"] != "here" for rank in away), f"ranks {away} are lost")
            if "etcd" in what:
                time.sleep(pause)
                self.etcd.start()
            if "host" in what:
                self.hosts.heal(number) if what == "cut host" else self.hosts.plug(number)
            for rank in away:
                self.start(rank)
            if what.startswith("stop"):
                for pid in (self.pid(victims[0]), victims[0].pid):  # nsenter stops when its child does
                    os.kill(pid, signal.SIGCONT)  # it takes itself for the primary still
        self.wait_until_well()
        time.sleep(0.3)
        return faults

    def victims(self, what, number):
        """The ranks of the processes that a fault takes."""
        if what == "kill etcd":
            return []
        if "host" in what:
            return [rank for rank, host in self.plan.host_of.items() if host == number]
        if "master" in what:
            return [self.master_now()]
        return [self.plan.ranks["server" if "server" in what else "worker"][number]]

    def master_now(self):
        """The master's rank. None: another process has not taken its place yet."""
        later = [rank for rank in self.processes if "this process is the master now" in self.said(rank)]
        return later[0] if later else 0 if 0 in self.processes and self.lives[0] == 1 else None

    def silence(self, what, number, victims):
        if what == "cut host":
            self.hosts.cut(number)
        elif what == "unplug host":
            self.hosts.unplug(number)
        else:
            os.kill(self.pid(victims[0]), signal.SIGSTOP)

    def wait_until_well(self):
        """Until the newest process of each rank takes part, and each part of the tables has a back-up."""

        def is_well(members, parts):
            pids = [self.pid_in_status(rank) for rank in range(self.plan.workers + self.plan.servers)]
            if [member["pid"] for member in members if member["state"] == "here"] != pids or any(part["backup"] is None for part in parts):
                return False
            self.addresses = {member["rank"]: member["address"] for member in members}
            return True

        self.wait_until(is_well, "all take part again, with back-ups")
        while not all("begin\n" in self.said(rank) for rank in self.plan.ranks["worker"]):
            self.check()
            time.sleep(0.005)

    def wait_until(self, is_so, what):
        deadline = time.monotonic() + LONGEST / 3
        while (told := self.status()) is None or not is_so(told["members"], told["parts"]):
            self.check()
            if time.monotonic() > deadline:
                raise AssertionError(f"it is not so that {what}: {told}")
            time.sleep(0.01)

    def check(self):
        """Nobody ends by itself. A process that came too early comes again."""
        for rank, process in list(self.processes.items()):
            if process.poll() is None:
                continue
            if self.lives[rank] == 1 or TOO_EARLY not in self.said(rank):
                raise AssertionError(f"rank {rank} ended with {process.poll()}")
            self.refused += 1
            self.start(rank)

    def status(self):
        """As the master sees it: other members may have lost a process that it has not lost. None: there is no answer, or no master."""
        master, inside = self.master_now(), []
        if self.etcd is not None:
            where = {"POLYVERSO_KEEPER": self.etcd.keeper("history")}
        elif master is not None:
            where = {"POLYVERSO_MASTER": self.addresses[master]}
            inside = self.host(master).inside if self.hosts is not None else []
        else:
            return None
        environment = {**os.environ, "POLYVERSO_SECRET": "of the tests", **where}
        told = subprocess.run([*inside, COMMAND, "status", "--json"], env=environment, capture_output=True, text=True)
        return json.loads(told.stdout) if told.returncode == 0 else None

    def copied_until(self, deadline):
        """Waits until the first victim's tables are served by others, and all tables have a back-up. False: they have none by then."""
        while time.monotonic() < deadline:
            parts = (self.status() or {"parts": []})["parts"]
            dead = [self.plan.ranks["server"][server] for server in [self.plan.victim, *self.plan.more][: self.deaths]]
            if parts and all(part["backup"] is not None and part["served_by"] not in dead for part in parts):
                return True
            time.sleep(0.01)
        return False

    def finish(self):
        """Ends the calls; worker 0 reads all counters when all adds have been made."""
        workers = self.plan.ranks["worker"]
        for ranks in (workers[1:], workers[:1]):
            for rank in ranks:
                self.processes[rank].stdin.close()
            for rank in ranks:
                try:
                    status = self.processes[rank].wait(LONGEST)
                except subprocess.TimeoutExpired:
                    raise AssertionError(f"worker {rank} has not ended") from None
                assert status == 0, f"worker {rank} ended with {status}"

    def end(self):
        for process in [*self.processes.values(), *self.old]:
            process.kill()  # also one that is stopped
            process.wait()
        if self.etcd is not None:
            self.etcd.end()
        if self.hosts is not None:
            self.hosts.end()

    def records(self):
        """[(kind, begin, end, what)] of each worker that there was: the counter of an add, the values of a get."""
        by_worker = []
        for path in self.calls:
            calls = []
            for kind, counter, begin, end, *values in CALL.iter_unpack(path.read_bytes()[: os.path.getsize(path) // CALL.size * CALL.size]):
                if kind == 0:
                    break
                is_add = chr(kind) in "aA"
                if is_add or end:
                    calls.append((chr(kind), begin, end or UNKNOWN, counter if is_add else values))
            by_worker.append(calls)
        return by_worker


class Result:
    """Of one run."""

    def __init__(self, plan):
        self.plan = plan
        self.wrong = []
        self.faults = []  # (when, what)
        self.ends = []  # of all calls
        self.longest = []  # of each fault: how long the longest call took until the next one, in seconds
        self.deaths = self.refused = 0


def run(seed, options):
    result = Result(Plan(seed, options))
    with tempfile.TemporaryDirectory(prefix="polyverso-history-") as name:
        cluster = Cluster(result.plan, pathlib.Path(name))
        try:
            cluster.wait_for_calls()
            result.faults = cluster.disturb()
            cluster.finish()
            by_worker = cluster.records()
        except AssertionError as error:
            told = {path.name: path.read_text(errors="replace") for path in sorted(pathlib.Path(name).glob("err*"))}
            told = "".join(f"-- {file}: {text}" for file, text in told.items() if text not in ("", "begin\n"))
            result.wrong = [f"{error}\n{told}"]
            return result
        finally:
            cluster.end()
    result.wrong = wrong_in(by_worker, result.plan.consistency)
    calls = [(begin / 1e9, end / 1e9) for calls in by_worker for _, begin, end, _ in calls if end != UNKNOWN]
    result.faults = [(at / 1e9, what) for at, what in result.faults]
    result.ends = [end for _, end in calls]
    nexts = [at for at, _ in result.faults[1:]] + [float("inf")]
    for (at, _), after in zip(result.faults, nexts):
        result.longest.append(max(min(end, after) - begin for begin, end in calls if end > at and begin < after))
    result.deaths, result.refused = cluster.deaths, cluster.refused
    return result


def spread(values):
    return f"median {statistics.median(values):.3f} s, longest {max(values):.3f} s"


def draw(path, runs):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "polyverso"
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(9, 3.2 if runs[-1].plan.faults else 5.5), layout="constrained")
    draw_faults(figure, runs[-1]) if runs[-1].plan.faults else draw_first_fault(figure, runs)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def draw_faults(figure, run):
    """The calls of one run over time."""
    axes, width = figure.subplots(), 0.05  # seconds
    begun = min(run.ends)
    counts = collections.Counter(int((end - begun) / width) for end in run.ends)
    last = max(counts) - 1
    axes.stairs([counts[i] / width for i in range(last)], [i * width for i in range(last + 1)], color="#4477aa", fill=True)
    for name, color in COLORS.items():
        times = [at - begun for at, what in run.faults if what == name]
        for at in times:
            axes.axvline(at, color=color, linewidth=1.2, label=f"{name} ({len(times)})" if at == times[0] else None)
    axes.set(xlim=(0, last * width), ylim=(0, None), xlabel="seconds", ylabel="calls ended per s")
    figure.legend(loc="outside upper right", ncols=3, fontsize=9, frameon=False)


def draw_first_fault(figure, runs):
    """The mean of the runs with each kind of first fault."""
    kinds = sorted({run.faults[0][1] for run in runs})
    width = 0.01  # seconds
    for panel, fault in zip(figure.subplots(len(kinds), 1, squeeze=False)[:, 0], kinds):
        chosen = [run for run in runs if run.faults[0][1] == fault]
        bins = [i * width for i in range(-20, round(chosen[0].plan.after / width))]
        ends = [end - run.faults[0][0] for run in chosen for end in run.ends]
        panel.hist(ends, bins=bins, weights=[1 / width / len(chosen)] * len(ends), color="#4477aa")
        panel.axvline(0, color="#cc3311")
        panel.set_xlim(bins[0], bins[-1])
        panel.set_title(f"{fault} a server (red): mean of {len(chosen)} runs", loc="left", fontsize=10)
        panel.set_ylabel("calls ended per s")
    panel.set_xlabel("seconds since the fault")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1-20", help="A-B, or one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--faults", type=int, default=0, help="kills and stops in each run, one after another, with a fresh process after each")
    parser.add_argument("--etcd", action="store_true", help="with --faults: an etcd is the keeper, and is killed, too; so is rank 0")
    parser.add_argument("--masters", action="store_true", help="with --faults: rank 0, and any later master, may be lost, too")
    parser.add_argument("--hosts", action="store_true", help="with --faults: each server is in a network of its own, and some are cut off")
    parser.add_argument("--consistency", choices=[*CONSISTENCIES, "any"], default="async", help="of the tables")
    parser.add_argument("--gap", type=float, nargs=2, metavar=("MEDIAN", "WORST"),
                        help="fail if the longest calls after a kill take longer than that, in seconds; not if etcd is killed, too")
    parser.add_argument("--verbose", action="store_true", help="a line for each run")
    parser.add_argument("--plot", metavar="FILE", help="draws the calls over time")
    options = parser.parse_args()
    if options.etcd and shutil.which("etcd") is None:
        print("skipped: etcd is missing: apt install etcd-server")
        return 77
    if (options.masters or options.hosts) and (not options.faults or options.etcd):
        parser.error("--masters and --hosts need --faults, and no --etcd")
    if options.hosts:
        try:
            Hosts(1).end()
        except Unavailable as why:
            print(f"skipped: {why}")
            return 77
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    failed, calls, deaths, refused, longest, good = 0, 0, 0, 0, collections.defaultdict(list), []
    more = f" --faults {options.faults}" if options.faults else ""
    more += "".join(f" --{name}" for name in ("etcd", "masters", "hosts") if vars(options)[name])
    more += f" --consistency {options.consistency}" if options.consistency != "async" else ""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done, result in enumerate(pool.map(lambda seed: run(seed, options), seeds), 1):
            seed = result.plan.seed
            calls += len(result.ends)
            deaths += result.deaths
            refused += result.refused
            if result.wrong:
                failed += 1
                replay = f"{sys.executable} {sys.argv[0]} --seeds {seed}{more} --verbose"
                print(f"FAILED: {replay} ({result.plan})\n" + "\n".join(result.wrong[:10]), flush=True)
            else:
                for (_, what), span in zip(result.faults, result.longest):
                    longest[what].append(span)
                if options.plot:
                    good = [*good, result] if not options.faults else [result]
            if options.verbose and not result.wrong:
                spans = ", ".join(f"{span:.3f}" for span in result.longest)
                print(f"seed {seed}: {result.plan}: {len(result.ends)} calls, {result.deaths} lost, the longest calls {spans} s", flush=True)
            elif done % 50 == 0:
                print(f"history: {done} of {len(seeds)} runs, {failed} failed", flush=True)
    for what, spans in sorted(longest.items()):
        print(f"the longest call after a {what!r} ({len(spans)}): {spread(spans)}")
        if options.gap and "kill" in what and "etcd" not in what and (statistics.median(spans) > options.gap[0] or max(spans) > options.gap[1]):
            failed += 1
            print(f"FAILED: longer than {options.gap[0]} s (median) or {options.gap[1]} s")
    if refused:
        print(f"{refused} fresh processes came before the loss of the old ones was noticed, and came again")
    if good:
        draw(options.plot, good)
    print(f"history: {calls} calls and {deaths} lost processes in {len(seeds)} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
