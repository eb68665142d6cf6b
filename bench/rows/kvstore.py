"""Key-value stores compared with MXNet's, with the same Python program for both, and with memcpy."""

import sys

from harness import machine, mxnet
from harness.bench import measurement
from harness.compare import Batch, Spread
from harness.process import Process, started
from harness.result import Row, ratio_at_most
from harness.units import microseconds

KIB, MIB = 1 << 10, 1 << 20
ONE_KEY, LARGE, SMALL = 4_000_000, 64 * MIB, 4
MATRIX = 1_000_000 * 64 * 4
KEYS = 10_000 * KIB
# glibc returns memory of this size to the kernel and faults it in again page by page, unless these settings keep it.
KEEPING = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(1 << 40)}
PEER, TUNED = "MXNet", "MXNet, malloc keeping memory"


def ours(bench, kind, case, size, workers=1):
    """Workers and, for dist types, a server; on any CPU, like the peer."""
    words = [sys.executable, bench.sources / "programs" / "kv_worker.py", "polyverso", kind, case, size]
    if kind.startswith("dist"):
        words = [*bench.parties.run_words(workers, "auto"), *words]
    cpus = ",".join(map(str, machine.cpus()))
    return lambda: started(lambda: Process(f"ours, {kind} {case}", words, cpus, bench.environment))


def theirs(bench, kind, case, size, workers=1, extra=None):
    program = [bench.sources / "programs" / "kv_worker.py", "mxnet", kind, case, size]
    pinning = bench.parties.any_cpu
    if kind.startswith("dist"):
        return lambda: mxnet.cluster(bench.mxnet_python, program, pinning, workers, extra)
    return lambda: mxnet.alone(bench.mxnet_python, program, pinning, extra)


def beside_mxnet(bench, title, kind, case, size, limit, workers=1, tuned=None, less=None):
    """Rows for one kind of work, compared with MXNet; with `tuned`, another limit, also with a tuned malloc."""
    sides = {"ours": ours(bench, kind, case, size, workers), PEER: theirs(bench, kind, case, size, workers)}
    if tuned:
        sides[TUNED] = theirs(bench, kind, case, size, workers, KEEPING)
    batch = Batch(case, size)
    effort = bench.effort.less(**(less or {"rounds": 2, "pairs": 2}))
    comparison = bench.compare(sides, {case: dict.fromkeys(sides, batch)}, effort)[case]
    for peer, reach in ((PEER, limit), (TUNED, tuned)):
        if peer in sides:
            yield row(title, comparison, peer, reach)


def row(title, comparison, peer, limit):
    return Row(
        name=title,
        ours=comparison.of("ours").map(microseconds),
        unit="µs",
        peer=peer,
        peer_value=comparison.of(peer).map(microseconds),
        ratio=comparison.ratio("ours", peer),
        target=ratio_at_most(limit) if limit else None,
        runs=comparison.runs,
        note="the same Python program on both sides; any CPU",
    )


def has_mxnet(bench):
    missing = bench.why_no_mxnet()
    if missing:
        bench.progress(missing)
    return not missing


@measurement
def store_in_one_process(bench):
    """push and pull of one key of 1e6 f32 in a local store, compared with two memcpy and MXNet"""
    sides = {"ours": ours(bench, "local", "push_pull", ONE_KEY), "memcpy": bench.parties.memcpy}
    batches = {"ours": Batch("push_pull", ONE_KEY), "memcpy": Batch("copy", 2 * ONE_KEY)}
    if has_mxnet(bench):
        sides[PEER], batches[PEER] = theirs(bench, "local", "push_pull", ONE_KEY), Batch("push_pull", ONE_KEY)
    comparison = bench.compare(sides, {"one": batches})["one"]
    title = "local store, 1e6 f32: push and pull"
    yield row(title + ", beside memcpy of twice as much", comparison, "memcpy", 1.1)
    if PEER in sides:
        yield row(title + ", beside MXNet, which hands out the array itself", comparison, PEER, None)


@measurement
def store_of_devices(bench):
    """the sum of four devices' arrays and the pull into four, in a local store, compared with MXNet"""
    if has_mxnet(bench):
        title = "local store, 1e6 f32: push from four arrays, pull into four"
        yield from beside_mxnet(bench, title, "local", "devices", ONE_KEY, 0.5)


@measurement
def store_of_two_workers(bench):
    """push and pull in a dist_sync store (2 workers, 1 server), compared with MXNet: 64 MiB, 4 B, 64 MiB with Adam"""
    if not has_mxnet(bench):
        return
    slow = {"rounds": 1, "pairs": 2}
    head = "dist_sync store, two workers: push and pull of"
    yield from beside_mxnet(bench, f"{head} 64 MiB", "dist_sync", "push_pull", LARGE, 0.2, 2, 0.5, less=slow)
    yield from beside_mxnet(bench, f"{head} 4 bytes", "dist_sync", "push_pull", SMALL, 0.3, 2)
    yield from beside_mxnet(bench, f"{head} 64 MiB, Adam on the server", "dist_sync", "adam", LARGE, 0.25, 2, less=slow)


@measurement
def rows_of_a_store(bench):
    """row_sparse_pull of 1 % of 1e6 x 64, local and from a server, compared with MXNet"""
    if not has_mxnet(bench):
        return
    size = MATRIX // 10 if bench.quick else MATRIX
    slow = {"rounds": 1, "pairs": 3}
    for kind, limit in (("local", 0.5), ("dist_sync", 0.3)):
        title = f"{kind} store: row_sparse_pull of 1 % of {size // 256:,} x 64"
        yield from beside_mxnet(bench, title, kind, "rows", size, limit, less=slow)


@measurement
def many_keys(bench):
    """push and pull of 10,000 keys of 1 KiB, local and on a server, compared with MXNet"""
    if not has_mxnet(bench):
        return
    size = KEYS // 10 if bench.quick else KEYS
    for kind in ("local", "dist_sync"):
        title = f"{kind} store: push and pull of {size >> 10:,} keys of 1 KiB"
        yield from beside_mxnet(bench, title, kind, "many", size, 0.1, less={"rounds": 1, "pairs": 3})


@measurement
def keys_without_number(bench):
    """cost per key of 64 floats with 100,000 and with 1,000 keys, in a dist_sync store of two workers and a server"""
    few, many, pairs = (1_000, 10_000, 1) if bench.quick else (1_000, 100_000, 3)
    runs = [{count: costs_of_keys(bench, count) for count in (few, many)} for _ in range(pairs)]
    for what, words in (("init", "kv_init"), ("both", "kv_push and kv_pull")):
        ours, peers = ([run[count][what] / 1000 for run in runs] for count in (many, few))
        yield Row(
            name=f"dist_sync store, two workers: {words} of {many:,} keys of 64 floats, per key",
            ours=Spread.of(ours),
            unit="µs",
            peer=f"the same of {few:,} keys",
            peer_value=Spread.of(peers),
            ratio=Spread.of([own / peer for own, peer in zip(ours, peers)]),
            target=ratio_at_most(1.2),
            runs=pairs,
            note="all keys in one call; any CPU" + ("; the fastest of five" if what == "both" else ""),
        )


def costs_of_keys(bench, count):
    """Nanoseconds per key."""
    command = [*bench.parties.run_words(2, "auto"), bench.parties.programs / "many_keys", count, 5]
    run = Process(f"many_keys {count}", command, ",".join(map(str, machine.cpus())), bench.environment)
    try:
        costs = run.hear(300)
        run.end_well()
    except BaseException:
        run.end(seconds=1)
        raise
    return costs
