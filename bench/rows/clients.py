"""Several workers at one server: the processor time that the server takes for an add."""

from harness import machine
from harness.bench import measurement
from harness.compare import Spread
from harness.process import Process
from harness.result import Row, ratio_at_least

from .memory import server_of

KIB, MIB = 1 << 10, 1 << 20
MANY = 8
SIZES = {64: "64 bytes", 4 * KIB: "4 KiB", 64 * KIB: "64 KiB", MIB: "1 MiB"}


@measurement
def eight_clients(bench):
    """processor time of a server for blocking adds of 64 bytes to 1 MiB by eight workers, compared with one worker"""
    rounds = 1 if bench.quick else 2
    for transport, by in (("auto", "shared memory"), ("tcp", "TCP")):
        for size, title in SIZES.items():
            costs = [{workers: cost_of_add(bench, transport, workers, size) for workers in (1, MANY)} for _ in range(rounds)]
            yield row(f"{MANY} workers add {title} each, by {by}: processor time of their server", size, costs)


def row(name, size, costs):
    many = Spread.of([cost[MANY]["server"] for cost in costs])
    per_byte = f"; {1e9 * many.median / size:.3g} ns a byte" if size > 64 else ""
    rates = {workers: Spread.of([cost[workers]["rate"] for cost in costs]).median for workers in (1, MANY)}
    return Row(
        name=name,
        ours=many.map(lambda seconds: 1e6 * seconds),
        unit="µs an add",
        peer="one worker",
        peer_value=Spread.of([cost[1]["server"] for cost in costs]).map(lambda seconds: 1e6 * seconds),
        ratio=Spread.of([cost[1]["server"] / cost[MANY]["server"] for cost in costs]),
        target=ratio_at_least(0.8),
        runs=len(costs),
        note=f"the ratio is their efficiency: adds for each second of the server's time{per_byte}; {rates[MANY]:,.0f} adds/s together, "
        f"of one worker {rates[1]:,.0f}; all threads of the server, waits that poll included; any CPU",
    )


def cost_of_add(bench, transport, workers, size):
    """{"server": seconds of the server's processor time for an add, "rate": adds per second of all workers}"""
    bench.progress(f"{workers} workers, {size} bytes, {transport}")
    seconds = 0.2 if bench.quick else 0.5
    command = [*bench.parties.run_words(workers, transport), bench.parties.programs / "many_adders", size, seconds]
    run = Process("many_adders", command, ",".join(map(str, machine.cpus())), bench.environment)
    try:
        run.hear(60)
        server = server_of(run.pid)
        before = machine.processor_seconds(server)
        done = run.hear(60)
        spent = machine.processor_seconds(server) - before
        run.end_well()
    except BaseException:
        run.end(seconds=1)
        raise
    return {"server": spent / done["adds"], "rate": done["adds"] / done["seconds"]}
