"""Calls between two hosts, over a line of 1 and of 10 Gbit/s, compared with a raw socket over the same line. The hosts are
network namespaces (tests/hosts.py), which take root."""

import contextlib
import pathlib
import sys

from harness.bench import measurement
from harness.compare import Batch, Effort
from harness.process import Broken, Process, started
from harness.result import Row, ratio_at_least

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))

import hosts  # noqa: E402

MIB = 1 << 20
SIZES, QUICK_SIZE = {1: 16 * MIB, 10: 64 * MIB}, 8 * MIB  # by gigabits per second
HERE, THERE = 0, 1  # the hosts of the measuring process and of its peer
FIRST_PORT = 7100
# Our program, its operation, and the operation of the raw socket that takes the same bytes over the line.
CASES = {
    "add": ("table", "add", "add"),
    "get": ("table", "get", "get"),
    "push": ("push", "push", "add"),
    "pull": ("pull", "pull", "get"),
    "all-reduce": ("group", "in", "swap"),
}
# A fast line takes some calls until TCP uses all of it; a slow one hides where memory lies.
EFFORT = Effort(rounds=1, pairs=2, seconds=0.3)


NOTE = "two network namespaces, a router and tc's tbf; all-reduce: bytes in both directions at once; all processes on any CPU"


class Cluster:
    """The processes of one cluster, each on one of the hosts: the measuring one here, the other one there."""

    def __init__(self, bench, network, port, tls):
        self.bench, self.network = bench, network
        self.told = {"MASTER": f"{network[HERE].address}:{port}", "NODES": "2", "SECRET": "of the bench", "TRANSPORT": "tcp", "TLS": tls}

    def process(self, name, host, role, command):
        told = {**self.told, "RANK": str(host), "ROLE": role, "BIND": self.network[host].address}
        environment = {**self.bench.environment, **{f"POLYVERSO_{key}": value for key, value in told.items()}}
        return Process(name, [*self.network[host].inside, *command], self.bench.parties.any_cpu.client, environment)

    def worker(self, name, command):
        """A worker here, and a server there."""
        server = self.process("polyverso server", THERE, "server", [self.bench.parties.launcher, "server"])
        return started(lambda: self.process(name, HERE, "worker", command), [server])

    def group(self):
        """Two ranks of a group."""
        command = [self.bench.parties.programs / "group_worker"]
        other = self.process("group_worker", THERE, "all", command)
        return started(lambda: self.process("group_worker", HERE, "all", command), [other])


def raw_socket(bench, network):
    program, cpus = bench.parties.programs / "raw_socket", bench.parties.any_cpu.client
    address = network[THERE].address
    server = Process("raw_socket server", [*network[THERE].inside, program, "server", address], cpus)
    try:
        port = server.hear()["port"]
    except (Broken, KeyError):
        server.end(seconds=1)
        raise
    command = [*network[HERE].inside, program, "client", port, address]
    return started(lambda: Process("raw_socket client", command, cpus), [server])


def sides(bench, network, tls, size):
    def cluster(number):
        return Cluster(bench, network, FIRST_PORT + number, tls)

    def store(number, case):
        program = bench.sources / "programs" / "kv_worker.py"
        return cluster(number).worker(f"kv_worker {case}", [sys.executable, "-B", program, "polyverso", "dist_sync", case, size])

    return {
        "table": lambda: cluster(0).worker("table_worker", [bench.parties.programs / "table_worker"]),
        "push": lambda: store(1, "push"),
        "pull": lambda: store(2, "pull"),
        "group": lambda: cluster(3).group(),
        "raw": lambda: raw_socket(bench, network),
    }


def rows(bench, gigabits, over, tls, limit):
    size = QUICK_SIZE if bench.quick else SIZES[gigabits]
    with contextlib.ExitStack() as stack:
        network = hosts.Hosts(2, gigabits * 1e9 / 8)
        stack.callback(network.end)
        cases = {title: {side: Batch(ours, size), "raw": Batch(theirs, size)} for title, (side, ours, theirs) in CASES.items()}
        found = bench.compare(sides(bench, network, tls, size), cases, bench.effort if bench.quick else EFFORT)
    for title, comparison in found.items():
        yield row(f"{title} of {size // MIB} MiB over {over}", comparison, CASES[title][0], size, limit)


def row(title, comparison, side, size, limit):
    def megabytes_per_second(seconds):
        return size / seconds / 1e6

    return Row(
        name=title,
        ours=comparison.of(side).map(megabytes_per_second),
        unit="MB/s",
        peer="raw socket",
        peer_value=comparison.of("raw").map(megabytes_per_second),
        ratio=comparison.ratio("raw", side),
        target=ratio_at_least(limit) if limit else None,
        runs=comparison.runs,
        note=NOTE,
    )


def measured(bench, gigabits, tls="off", limit=0.95):
    over = f"a line of {gigabits} Gbit/s" + ("" if tls == "off" else ", encrypted")
    try:
        yield from rows(bench, gigabits, over, tls, limit)
    except hosts.Unavailable as why:
        bench.progress(str(why))
        yield Row(name=f"calls over {over}", ours=None, unit="MB/s", target=ratio_at_least(limit) if limit else None, runs=0, note=str(why))


@measurement
def line_of_1_gbit(bench):
    """add, get, push, pull and all-reduce of 16 MiB between two hosts over 1 Gbit/s, compared with a raw socket"""
    yield from measured(bench, 1)
    yield from measured(bench, 1, "psk")


@measurement
def line_of_10_gbit(bench):
    """add, get, push, pull and all-reduce of 64 MiB between two hosts over 10 Gbit/s, compared with a raw socket"""
    yield from measured(bench, 10)
    yield from measured(bench, 10, "psk", None)
