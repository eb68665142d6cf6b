"""Calls between processes of one host, over the fastest available transport: shared memory."""

from harness import machine
from harness.bench import measurement
from harness.compare import Batch, Spread
from harness.process import Process
from harness.result import Row, at_least, ratio_at_least, ratio_at_most
from harness.units import gigabytes_per_second, microseconds, per_second

MIB, GIB = 1 << 20, 1 << 30
LARGE = 64 * MIB
ONE_FLOAT, ECHO_BYTES = 4, 64
FORGET = Batch("forget", ONE_FLOAT, 100_000)
READERS = 4


@measurement
def large_calls(bench):
    """get, and add, of 64 MiB from a server in another process, compared with memcpy"""
    pinning = bench.parties.two_if_any
    sides = {"ours": lambda: bench.parties.worker("table_worker", pinning), "memcpy": bench.parties.memcpy}
    limits = {"get": 0.7, "add": 0.6}
    cases = {name: {"ours": Batch(name, LARGE), "memcpy": Batch("copy", LARGE)} for name in limits}
    for name, comparison in bench.compare(sides, cases).items():
        note = f"payload counted once; {pinning}"
        yield speed_row(f"{name} of 64 MiB on one host", comparison, "memcpy", LARGE, limits[name], note)


@measurement
def first_touch(bench):
    """get of 64 MiB into memory that the kernel has just given, compared with memcpy to such memory"""
    pinning = bench.parties.two_if_any
    where = {"get_fresh": "fresh memory", "get_tensor": "a new tensor"}
    for transport, by, limit in (("auto", "on one host", 0.8), ("tcp", "over TCP", None)):
        sides = {"ours": lambda by=transport: bench.parties.worker("table_worker", pinning, by), "memcpy": bench.parties.memcpy}
        cases = {name: {"ours": Batch(name, LARGE), "memcpy": Batch("fresh", LARGE)} for name in where}
        for name, comparison in bench.compare(sides, cases).items():
            note = f"payload counted once; most of it is the kernel's time, which clears pages; {pinning}"
            yield speed_row(f"get of 64 MiB {by} into {where[name]}", comparison, "memcpy to fresh memory", LARGE, limit, note, "memcpy")


@measurement
def large_calls_beside_mxnet(bench):
    """get, and add, of 64 MiB on one host, compared with MXNet's dist pull and push"""
    missing = bench.why_no_mxnet()
    if missing:
        bench.progress(missing)
        return
    pinning = bench.parties.any_cpu  # MXNet is slower where each process has one CPU
    sides = {"ours": lambda: bench.parties.worker("table_worker", pinning), "MXNet dist": lambda: bench.mxnet(pinning)}
    theirs, limits = {"get": "pull", "add": "push"}, {"get": 10, "add": 4}
    cases = {name: {"ours": Batch(name, LARGE), "MXNet dist": Batch(theirs[name], LARGE)} for name in theirs}
    for name, comparison in bench.compare(sides, cases).items():
        title = f"{name} of 64 MiB on one host, beside MXNet"
        yield speed_row(title, comparison, "MXNet dist", LARGE, limits[name], str(pinning))


def speed_row(name, comparison, peer, size, limit, note, side=None):
    speed = gigabytes_per_second(size)
    return Row(
        name=name,
        ours=comparison.of("ours").map(speed),
        unit="GB/s",
        peer=peer,
        peer_value=comparison.of(side or peer).map(speed),
        ratio=comparison.ratio(side or peer, "ours"),
        target=ratio_at_least(limit) if limit else None,
        runs=comparison.runs,
        note=note,
    )


@measurement
def one_float_on_one_host(bench):
    """blocking get, and add, of one float on one host, compared with a raw libuv echo, on one CPU and on two"""
    yield from beside_echo(bench, bench.parties.one_cpu, "one CPU", 0.5)
    if bench.parties.two_cpus:
        yield from beside_echo(bench, bench.parties.two_cpus, "two CPUs", 0.9)


def beside_echo(bench, pinning, where, add_limit):
    parties = bench.parties
    sides = {"ours": lambda: parties.worker("table_worker", pinning), "libuv echo": lambda: parties.uv_echo(pinning)}
    limits = {"get": 0.1, "add": add_limit}
    cases = {name: {"ours": Batch(name, ONE_FLOAT), "libuv echo": Batch("echo", ECHO_BYTES)} for name in limits}
    for name, comparison in bench.compare(sides, cases).items():
        yield Row(
            name=f"blocking {name} of one float on one host, {where}",
            ours=comparison.of("ours").map(microseconds),
            unit="µs",
            peer="libuv echo",
            peer_value=comparison.of("libuv echo").map(microseconds),
            ratio=comparison.ratio("ours", "libuv echo"),
            target=ratio_at_most(limits[name]),
            runs=comparison.runs,
            note=f"a worker and a server; {pinning}",
        )


@measurement
def forgotten_adds_on_one_host(bench):
    """fire-and-forget adds of one float by one client on one host, order checked"""
    pinning = bench.parties.any_cpu
    sides = {"ours": lambda: bench.parties.worker("table_worker", pinning)}
    comparison = bench.compare(sides, {"adds": {"ours": FORGET}})["adds"]
    yield Row(
        name="fire-and-forget adds of one float on one host",
        ours=comparison.of("ours").map(per_second),
        unit="/s",
        target=at_least(10_000_000),
        runs=comparison.runs,
        note=f"the wait for the last of {FORGET.block:,} is in the time; applied in order; {pinning}",
    )


def many_readers(bench, size, rounds, seconds):
    program = bench.parties.programs / "many_readers"
    command = [*bench.parties.run_words(READERS, "auto"), program, size, rounds, seconds]
    return Process("polyverso run", command, ",".join(map(str, machine.cpus())), bench.environment)


@measurement
def four_readers(bench):
    """four workers that get 64 MiB at once, compared with two threads of memcpy"""
    rounds = 2 if bench.quick else 9
    run = many_readers(bench, LARGE, rounds, 0.1 if bench.quick else 0.4)
    try:
        measured = [run.hear(120) for _ in range(rounds)]
        run.end_well()
    except BaseException:
        run.end(seconds=1)
        raise
    yield Row(
        name=f"{READERS} workers get 64 MiB at once",
        ours=Spread.of([each["gets"] / 1e9 for each in measured]),
        unit="GB/s",
        peer="two memcpy",
        peer_value=Spread.of([each["copies"] / 1e9 for each in measured]),
        ratio=Spread.of([each["gets"] / each["copies"] for each in measured]),
        target=ratio_at_least(0.8),
        runs=rounds,
        note="all together, payload counted once; the copies are two processes', between warm buffers; any CPU",
    )


@measurement
def mapped_memory(bench):
    """memory of all processes together while four workers have a table of 1 GiB mapped"""
    size = GIB // 8 if bench.quick else GIB
    run = many_readers(bench, size, 0, 0)
    try:
        run.hear(120)
        together = sum(machine.proportional_memory(pid) for pid in [run.pid, *machine.children(run.pid)])
        run.end_well()
    except BaseException:
        run.end(seconds=1)
        raise
    yield Row(
        name=f"memory of a {size / GIB:g} GiB table with {READERS} workers",
        ours=Spread.of([together / GIB]),
        unit="GiB",
        peer="GiB, the table",
        peer_value=Spread.of([size / GIB]),
        ratio=Spread.of([together / size]),
        target=ratio_at_most(1.1) if size == GIB else None,  # a process's fixed memory weighs more in a small one
        runs=1,
        note="launcher, server and workers, pages that they share counted once (Pss); each has read every page",
    )
