"""Training with PyTorch and Theano: the backend of torch.distributed beside Gloo, DiLoCo beside DDP, and Multiverso's
shared variables of Theano beside C."""

import json
import os
import subprocess

from harness import machine
from harness.bench import measurement
from harness.compare import Batch, Comparison, Spread
from harness.frameworks import SKIPPED, interpreter
from harness.process import Broken, Process, started
from harness.result import Row, at_most, ratio_at_most
from harness.units import microseconds

from . import allreduce

ONE_KIB, ONE_MILLION_FLOATS = 1 << 10, 4_000_000
CALLS = 500  # timed together
INNER_STEPS = 50
milliseconds = lambda seconds: 1e3 * seconds  # noqa: E731


def any_cpu():
    return ",".join(map(str, machine.cpus()))


def environment(bench):
    """One thread for each rank: matrix products would otherwise use the processors of the other ranks."""
    flags = f"base_compiledir={bench.output.parent / 'frameworks' / 'compiled'}"
    return {**bench.environment, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "THEANO_FLAGS": flags}


def python_of(bench, name, *modules):
    return interpreter(bench.output.parent, name, modules, environment(bench))


def without(name, unit, target):
    """The row of a measurement whose framework is missing."""
    return Row(name=name, ours=None, unit=unit, target=target, runs=0, note=SKIPPED)


def launched(bench, ranks, *words, servers=()):
    """Starts the words in so many workers. Their first line of JSON says that they are ready."""
    command = [bench.parties.launcher, "run", "--no-color", "-v", "-n", ranks, *servers, "--", *words]
    return lambda: started(lambda: Process(f"{ranks} ranks", command, any_cpu(), environment(bench)))


def torch_ranks(bench, python, ranks):
    return launched(bench, ranks, python, "-B", bench.sources / "programs" / "torch_worker.py")


# ------------------------------------------------------------------ torch.distributed


@measurement
def torch_ddp_step(bench):
    """the communication in a DDP step of 10 million parameters, compared with Gloo's"""
    python = python_of(bench, "torch", "torch")
    for ranks in (2,) if bench.quick else (2, 4):
        name, target = f"communication in a DDP step, 10 M parameters, {ranks} ranks", ratio_at_most(0.7)
        if python is None:
            yield without(name, "ms", target)
            continue
        comparison = Comparison()
        effort = bench.effort.less(rounds=1)
        for round_number in range(effort.rounds):
            bench.progress(f"{ranks} ranks, round {round_number + 1}/{effort.rounds}: starting")
            with torch_ranks(bench, python, ranks)() as party:
                for pair in range(min(effort.pairs, 2 if ranks == 2 else 1)):
                    for side in ("alone", "polyverso", "gloo"):
                        bench.progress(f"{ranks} ranks, round {round_number + 1}/{effort.rounds}, pair {pair + 1}/{effort.pairs}, {side}")
                        comparison.note(side, party.do(Batch(side, 0), 6 * effort.seconds)["median"])
        ours, theirs = (comparison.difference(side, "alone") for side in ("polyverso", "gloo"))
        pairs = zip(*(comparison.seconds[side] for side in ("polyverso", "gloo", "alone")))
        steps = {side: comparison.of(side).map(milliseconds).median for side in comparison.seconds}
        yield Row(
            name=name,
            ours=ours.map(milliseconds),
            unit="ms",
            peer="ms Gloo",
            peer_value=theirs.map(milliseconds),
            ratio=Spread.of([(one - alone) / (other - alone) for one, other, alone in pairs]),
            target=target,
            runs=comparison.runs,
            note=f"a step less one without communication; the step: {steps['polyverso']:.1f} ms, Gloo {steps['gloo']:.1f}, without "
            f"{steps['alone']:.1f}; the losses are Gloo's{' to the bit' if ranks == 2 else ' within 1e-5'}; any CPU",
        )


@measurement
def torch_all_reduce_call(bench):
    """all_reduce of 1 KiB through torch.distributed: the overhead over the C call"""
    python = python_of(bench, "torch", "torch")
    name, target = "torch.distributed: all_reduce of 1 KiB, 2 ranks", at_most(25)
    if python is None:
        yield without(name, "µs above C", target)
        return
    sides = {"C": allreduce.ours(bench, 2), "torch": torch_ranks(bench, python, 2)}
    batches = {"C": Batch("in", ONE_KIB, CALLS), "torch": Batch("all_reduce", ONE_KIB, CALLS)}
    comparison = bench.compare(sides, {"one": batches}, bench.effort.less(rounds=1))["one"]
    yield Row(
        name=name,
        ours=comparison.difference("torch", "C").map(microseconds),
        unit="µs above C",
        peer="µs in C",
        peer_value=comparison.of("C").map(microseconds),
        ratio=comparison.ratio("torch", "C"),
        target=target,
        runs=comparison.runs,
        note=f"{comparison.of('torch').map(microseconds).median:.1f} µs a call; any CPU",
    )


def reports_of(bench, *words):
    """Runs an example. Returns the lines of JSON that it prints."""
    command = [*map(str, words)]
    done = subprocess.run(command, env=environment(bench), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    reports = [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if "{" in line]
    if done.returncode != 0 or not reports:
        raise Broken(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr[-1000:]}")
    return reports


def train(bench, python, *options):
    """The reports of a training of examples/torch/train.py in two ranks."""
    script = bench.sources.parent / "examples" / "torch" / "train.py"
    words = [bench.parties.launcher, "run", "--no-color", "-n", 2, "--", python, "-B", script, "--steps", 100 if bench.quick else 1000]
    return reports_of(bench, *words, *options)


@measurement
def torch_diloco(bench):
    """DiLoCo that exchanges parameters every 50 steps, compared with DDP: bytes, and the loss after as many steps"""
    python = python_of(bench, "torch", "torch")
    names = f"DiLoCo, H = {INNER_STEPS}: bytes of a rank", f"DiLoCo, H = {INNER_STEPS}: loss of the test set"
    targets = ratio_at_most(1.06 / INNER_STEPS), ratio_at_most(1.02)
    if python is None:
        yield from (without(name, unit, target) for name, unit, target in zip(names, ("MB", ""), targets))
        return
    runs = {}
    for title, options in {"DDP": (), "DiLoCo": ("--diloco", INNER_STEPS)}.items():
        bench.progress(title)
        runs[title] = train(bench, python, *options)
    ddp, diloco = runs["DDP"][-1], runs["DiLoCo"][-1]
    for name, key, unit, scale, target in zip(names, ("bytes", "loss"), ("MB", "nats"), (1e-6, 1), targets):
        yield Row(
            name=name,
            ours=Spread.of([diloco[key] * scale]),
            unit=unit,
            peer="DDP",
            peer_value=Spread.of([ddp[key] * scale]),
            ratio=Spread.of([diloco[key] / ddp[key]]),
            target=target,
            note=f"examples/torch, {ddp['step']} steps, 2 ranks; DiLoCo also sends the first weights",
        )
    bench.pictures["diloco"] = lambda path, caption: draw(path, runs, caption)


def draw(path, runs, caption):
    from plots import losses  # imported here: matplotlib may be missing, and the figures count without it

    losses.draw(path, runs, caption)


# ------------------------------------------------------------------ Theano


@measurement
def theano_sync(bench):
    """Multiverso's mv_sync() of a shared variable of Theano, 1e6 floats, compared with the same sync in C"""
    python = python_of(bench, "theano", "multiverso.theano_ext.sharedvar")
    name, target = "Theano: mv_sync() of 1e6 floats", ratio_at_most(1.5)
    if python is None:
        yield without(name, "µs", target)
        return
    server = ("--servers", 1)
    sides = {
        "C": launched(bench, 1, bench.parties.programs / "table_worker", servers=server),
        "Theano": launched(bench, 1, python, "-B", bench.sources / "programs" / "theano_worker.py", servers=server),
    }
    batches = {"C": Batch("sync", ONE_MILLION_FLOATS), "Theano": Batch("sync", ONE_MILLION_FLOATS)}
    comparison = bench.compare(sides, {"one": batches})["one"]
    yield Row(
        name=name,
        ours=comparison.of("Theano").map(microseconds),
        unit="µs",
        peer="µs in C",
        peer_value=comparison.of("C").map(microseconds),
        ratio=comparison.ratio("Theano", "C"),
        target=target,
        runs=comparison.runs,
        note="the difference, an add, a get, a copy; one worker, one server in another process; any CPU",
    )


@measurement
def theano_logistic_regression(bench):
    """Multiverso's logistic regression in Theano by mpirun -np 4, compared with one process: time, bytes, loss"""
    name = "Theano: logistic regression, mpirun -np 4"
    python = python_of(bench, "theano", "multiverso.theano_ext.sharedvar")
    if python is None:
        yield without(name, "s", None)
        return
    script = bench.sources.parent / "examples" / "multiverso" / "theano_logistic_regression.py"
    epochs = 2 if bench.quick else 20
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", 4]
    last = {}
    for workers, words in ((1, []), (4, mpirun)):
        bench.progress(f"{workers} workers")
        last[workers] = reports_of(bench, *words, python, "-B", script, "--epochs", epochs)[-1]
    yield Row(
        name=name,
        ours=Spread.of([last[4]["seconds"]]),
        unit="s",
        peer="s one process",
        peer_value=Spread.of([last[1]["seconds"]]),
        ratio=Spread.of([last[4]["seconds"] / last[1]["seconds"]]),
        note=f"{epochs} epochs of {os.path.relpath(script, bench.sources.parent)}; {last[4]['bytes'] / 1e6:.2f} MB sent by all; "
        f"loss {last[4]['loss']:.4f}, of one process {last[1]['loss']:.4f}; any CPU",
    )
