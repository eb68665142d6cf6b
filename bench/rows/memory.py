"""The memory that a server needs besides the table."""

from harness import machine
from harness.bench import measurement
from harness.compare import Spread
from harness.process import Broken, Process
from harness.result import Row, ratio_at_most

GIB = 1 << 30
WORKERS = 4


@measurement
def server_memory(bench):
    """peak memory of the server of a 1 GiB table while four workers add to all of it"""
    size, adds = (GIB // 8, 1) if bench.quick else (GIB, 2)
    bench.progress(f"{WORKERS} workers, {adds} adds of {size >> 20} MiB each")
    command = [*bench.parties.run_words(WORKERS), bench.parties.programs / "dense_adder", size, adds]
    run = Process("polyverso run", command, ",".join(map(str, machine.cpus())), bench.environment)
    try:
        seconds = run.hear(300)["seconds"]
        peak = machine.memory(server_of(run.pid), "VmHWM")
        run.end_well()
    except BaseException:
        run.end(seconds=1)
        raise
    speed = WORKERS * adds * size / seconds / 1e9
    yield Row(
        name=f"peak memory of the server of a {size / GIB:g} GiB table",
        ours=Spread.of([peak / GIB]),
        unit="GiB",
        peer="GiB, the table",
        peer_value=Spread.of([size / GIB]),
        ratio=Spread.of([peak / size]),
        target=ratio_at_most(1.1),
        runs=1,
        note=f"VmHWM; {WORKERS} workers, each {adds} dense adds of all of it, {speed:.1f} GB/s together; any CPU",
    )


def server_of(launcher):
    """The process of a run that is only a server."""
    for pid in machine.children(launcher):
        with open(f"/proc/{pid}/environ", "rb") as environment:
            if b"POLYVERSO_ROLE=server" in environment.read().split(b"\0"):
                return pid
    raise Broken("polyverso run has no child with POLYVERSO_ROLE=server")
