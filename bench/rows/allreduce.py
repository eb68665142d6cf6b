"""All-reduce on one host, compared with Open MPI and Gloo: of our tensors and of private memory, in place and out of
place."""

import contextlib
import json
import subprocess
import sys
import tempfile

from harness import machine
from harness.bench import measurement
from harness.compare import Batch, Comparison, Spread
from harness.parties import Folder
from harness.process import Process, started
from harness.result import Row, at_most, ratio_at_most, ratio_within
from harness.units import microseconds

KIB, MIB = 1 << 10, 1 << 20
# Bytes, and the number of calls timed together: requesting them from the ranks takes a message.
SIZES = {1 * KIB: 1000, 64 * KIB: 100, MIB: 10, 16 * MIB: 2, 256 * MIB: 1}
LARGEST_QUICK = MIB
WHERE = {"out": "out of place", "in": "in place"}
NO_SINGLE_COPY = ["--mca", "btl_vader_single_copy_mechanism", "none"]
BY_TCP = ["--mca", "btl", "tcp,self", "--mca", "pml", "ob1"]


# The environment of a job of mpirun.
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def any_cpu():
    return ",".join(map(str, machine.cpus()))


def ours(bench, ranks, transport="auto"):
    launcher = [bench.parties.launcher, "run", "--no-color", "-v", "--set", f"transport={transport}", "-n", ranks, "--"]
    command = [*launcher, bench.parties.programs / "group_worker"]
    return lambda: started(lambda: Process("group_worker", command, any_cpu(), bench.environment))


def open_mpi(bench, ranks, words=()):
    return of_mpirun(bench, ranks, "mpi_worker", words)


def of_mpirun(bench, ranks, program, words=(), **settings):
    environment = {**bench.environment, **ROOT, **{f"POLYVERSO_{name.upper()}": value for name, value in settings.items()}}
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", *words, "-n", ranks, bench.parties.programs / program]
    return lambda: started(lambda: Process(program, command, any_cpu(), environment))


def gloo(bench, ranks):
    def start():
        folder = tempfile.TemporaryDirectory(prefix="polyverso-bench-")
        command = [bench.parties.programs / "gloo_worker", folder.name]
        others = [Process("gloo_worker", [*command, rank, ranks], any_cpu()) for rank in range(1, ranks)]
        return started(lambda: Process("gloo_worker", [*command, 0, ranks], any_cpu()), [*others, Folder(folder)])

    return start


def better(comparison, one, other):
    """The side with the lower median."""
    return min((one, other), key=lambda side: comparison.of(side).median)


def size_name(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def sizes(bench):
    return {size: block for size, block in SIZES.items() if size <= LARGEST_QUICK or not bench.quick}


def compare_sizes(bench, sides, cases_of):
    """Measures cases_of(size, block) of all sizes. Returns {size: {case: Comparison}}. To start processes takes longer than to measure most
    sizes, so one start serves many; filling and checking the largest arrays takes most of their time, so they have less effort."""
    measured = {}
    for effort, some in (
        (bench.effort.less(rounds=2, pairs=3), [size for size in sizes(bench) if size <= MIB]),
        (bench.effort.less(rounds=2, pairs=2), [size for size in sizes(bench) if MIB < size <= 16 * MIB]),
        (bench.effort.less(rounds=1, pairs=1), [size for size in sizes(bench) if size > 16 * MIB]),
    ):
        cases = {(size, case): batches for size in some for case, batches in cases_of(size, SIZES[size]).items()}
        for (size, case), comparison in (bench.compare(sides, cases, effort) if cases else {}).items():
            measured.setdefault(size, {})[case] = comparison
    return measured


def beside_mpi(bench, ranks):
    sides = {"ours": ours(bench, ranks), "default": open_mpi(bench, ranks), "no single copy": open_mpi(bench, ranks, NO_SINGLE_COPY)}

    def cases_of(size, block):
        cases = {}
        for memory, prefix in (("tensors", "tensor-"), ("private memory", "")):
            for place in ("out", "in"):
                theirs = Batch(place, size, block)
                cases[memory, place] = {"ours": Batch(prefix + place, size, block), "default": theirs, "no single copy": theirs}
        return cases

    for size, measured in compare_sizes(bench, sides, cases_of).items():
        for (memory, place), comparison in measured.items():
            peer = better(comparison, "default", "no single copy")
            limit = 1 if size < 64 * KIB else 0.6 if memory == "tensors" else 0.8
            title = f"all-reduce of {size_name(size)}, {ranks} ranks, {memory}, {WHERE[place]}"
            yield row(title, comparison, peer, "Open MPI", limit, f"Open MPI's better setting: {peer}; any CPU")


def row(title, comparison, side, peer, limit, note):
    return Row(
        name=title,
        ours=comparison.of("ours").map(microseconds),
        unit="µs",
        peer=peer,
        peer_value=comparison.of(side).map(microseconds),
        ratio=comparison.ratio("ours", side),
        target=ratio_at_most(limit) if limit else None,
        runs=comparison.runs,
        note=note,
    )


@measurement
def allreduce_of_two(bench):
    """all-reduce between two processes of one host, compared with Open MPI"""
    yield from beside_mpi(bench, 2)


@measurement
def allreduce_of_four(bench):
    """all-reduce between four processes of one host, compared with Open MPI"""
    yield from beside_mpi(bench, 4)


@measurement
def allreduce_over_tcp(bench):
    """all-reduce over TCP on the loopback device, compared with Gloo and with Open MPI's TCP"""
    limits = {"Gloo": 0.55, "Open MPI over TCP": 0.8}
    for ranks in (2, 4):
        sides = {"ours": ours(bench, ranks, "tcp"), "Gloo": gloo(bench, ranks), "Open MPI over TCP": open_mpi(bench, ranks, BY_TCP)}

        def cases_of(size, block):
            return {place: dict.fromkeys(sides, Batch(place, size, max(1, block // 10))) for place in ("out", "in")}

        for size, measured in compare_sizes(bench, sides, cases_of).items():
            for place, comparison in measured.items():
                title = f"all-reduce of {size_name(size)} over TCP, {ranks} ranks, {WHERE[place]}"
                yield row(title, comparison, "Gloo", "Gloo", limits["Gloo"], "loopback; any CPU")
                yield row(f"{title}, beside Open MPI", comparison, "Open MPI over TCP", "Open MPI over TCP", limits["Open MPI over TCP"], "loopback; any CPU")


@measurement
def allreduce_tail(bench):
    """the slowest all-reduce in a hundred of 8 and 16 ranks, also with a rank that pauses at random, beside Open MPI"""
    pauses = {"": "", "paused-": ", one of which pauses for 1 ms before one call in twenty"}
    for ranks in (8,) if bench.quick else (8, 16):
        sides = {"ours": ours(bench, ranks), "Open MPI": open_mpi(bench, ranks)}
        cases = {(size, pause): dict.fromkeys(sides, Batch(f"each-{pause}in", size, 100)) for size in (KIB, 64 * KIB) for pause in pauses}
        effort = bench.effort.less(rounds=1, pairs=4)
        for (size, pause), comparison in bench.compare(sides, cases, effort, "p99").items():
            title = f"all-reduce of {size_name(size)}, {ranks} ranks{pauses[pause]}: slowest in a hundred"
            note = f"in place, in private memory, on one host; {len(machine.cpus())} CPUs for all ranks; as rank 0 sees it"
            yield row(title, comparison, "Open MPI", "Open MPI", 1.5, note)


@measurement
def allreduce_by_mpi(bench):
    """all-reduce with collective=own and collective=mpi in jobs of mpirun, and by a program that calls Open MPI itself"""
    sides = {
        "own": of_mpirun(bench, 2, "group_worker", collective="own"),
        "messages": of_mpirun(bench, 2, "group_worker", collective="own", transport="tcp"),
        "mpi": of_mpirun(bench, 2, "group_worker", collective="mpi"),
        "Open MPI": open_mpi(bench, 2),
    }
    pairs = (
        ("own", "mpi", "collective=own", "collective=mpi"),
        ("messages", "mpi", "collective=own, transport=tcp", "collective=mpi"),
        ("mpi", "Open MPI", "collective=mpi", "Open MPI itself"),
    )
    cases = {size: dict.fromkeys(sides, Batch("in", size, max(1, SIZES[size] // 10))) for size in (KIB, 64 * KIB, MIB, 16 * MIB)}
    for size, comparison in bench.compare(sides, cases, bench.effort.less(rounds=2, pairs=3)).items():
        for side, peer, what, beside in pairs:
            yield Row(
                name=f"all-reduce of {size_name(size)}, 2 ranks of mpirun, {what}, beside {beside}",
                ours=comparison.of(side).map(microseconds),
                unit="µs",
                peer=beside,
                peer_value=comparison.of(peer).map(microseconds),
                ratio=comparison.ratio(side, peer),
                runs=comparison.runs,
                note="in place, in private memory, on one host; any CPU",
            )


@measurement
def allreduce_of_many(bench):
    """100 tensors of 10 KiB in one call, compared with one tensor of the same total size"""
    size = 100 * 10 * KIB
    with contextlib.ExitStack() as stack:
        party = stack.enter_context(ours(bench, 2)())
        comparison = Comparison()
        for _ in range(2 * bench.effort.pairs):
            for side, operation in (("ours", "many"), ("one", "tensor-in")):
                bench.progress(side)
                comparison.note(side, party.do(Batch(operation, size, 10), bench.effort.seconds)["median"])
    yield row("all-reduce of 100 tensors of 10 KiB in one call, 2 ranks", comparison, "one", "one of 1000 KiB", 1.3, "tensors of ours, in place; any CPU")


def figures(bench, ranks, transport, size, seconds):
    """Runs bench/programs/group_figures.py and returns its result."""
    launcher = [bench.parties.launcher, "run", "--no-color", "--set", f"transport={transport}", "-n", ranks, "--"]
    command = [*launcher, sys.executable, "-B", bench.sources / "programs" / "group_figures.py", size, seconds]
    bench.progress(f"{ranks} ranks, transport={transport}")
    process = Process("group_figures", command, any_cpu(), bench.environment)
    try:
        told = process.hear()
    finally:
        process.end()
    return told


@measurement
def allreduce_bytes(bench):
    """bytes that a rank sends for an all-reduce over TCP, compared with the ring's 2 (n - 1)/n of the value"""
    size = 48 * MIB
    for ranks in (2, 3, 4):
        formula = 2 * (ranks - 1) / ranks * size
        sent = figures(bench, ranks, "tcp", size, 0)["sent"]
        yield Row(
            name=f"bytes that a rank sends for an all-reduce of 48 MiB, {ranks} ranks",
            ours=Spread.of([sent / MIB]),
            unit="MiB",
            peer="2 (n - 1)/n M",
            peer_value=Spread.of([formula / MIB]),
            ratio=Spread.of([sent / formula]),
            target=ratio_at_most(1.03),
            note="values, as counted by mv_group_describe()",
        )


@measurement
def allreduce_waiting(bench):
    """processor time of ranks that wait for another rank"""
    for transport, title in (("auto", "shared memory"), ("tcp", "TCP")):
        cpu = [figures(bench, 4, transport, 4 * KIB, 2)["cpu"] for _ in range(bench.effort.rounds)]
        yield Row(
            name=f"processor time of a rank that waits for 2 s, 4 ranks, {title}",
            ours=Spread.of(cpu).map(lambda seconds: 1000 * seconds),
            unit="ms",
            target=at_most(5),
            runs=len(cpu),
            note="all threads; heartbeats are in it",
        )


@measurement
def allreduce_of_1024(bench):
    """all-reduce among 1,024 simulated ranks, compared with the cost model"""
    bench.progress("bench_collectives")
    told = subprocess.run([bench.parties.programs / "bench_collectives"], capture_output=True, text=True, check=True).stdout
    for line in map(json.loads, told.splitlines()):
        if line["ranks"] != 1024:
            continue
        simulated, modelled = (Spread.of([line[key]]).map(microseconds) for key in ("simulated", "modelled"))
        yield Row(
            name=f"all-reduce of {size_name(line['bytes'])} by {line['algorithm']}, 1,024 ranks simulated",
            ours=simulated,
            unit="µs",
            peer="cost model",
            peer_value=modelled,
            ratio=Spread.of([line["simulated"] / line["modelled"]]),
            target=ratio_within(0.9, 1.1),
            note="every rank reaches every other one by TCP at the default costs; nothing is measured",
        )
