"""How the time of a call grows with its work: with keys, rows, tables, bytes and workers."""

import math

from harness import machine
from harness.bench import measurement
from harness.compare import Batch, Spread
from harness.result import Row, at_most

from .clients import cost_of_add

KIB, GIB = 1 << 10, 1 << 30
DECADES = [10**exponent for exponent in range(2, 7)]
# Proportional growth is 1. What no longer fits into a cache costs more for each element, once.
STEEPEST = 1.2


@measurement
def growth(bench):
    """the time of calls against their work: 100 to 1e6 keys and rows, 1 to 10,000 tables, 4 B to 1 GiB, 1 to 16 workers"""
    panels = {}
    most = DECADES[:3] if bench.quick else DECADES
    yield from by_growth_worker(bench, panels, "add to so many keys", "keys", "keys", most)
    yield from by_growth_worker(bench, panels, "get of so many rows", "rows", "rows", most)
    tables = [1, 10, 100] if bench.quick else [1, 10, 100, 1000, 10_000]
    yield from by_growth_worker(bench, panels, "add to so many tables", "tables", "tables", tables)
    yield from by_growth_worker(bench, panels, "creation of so many tables", "create", "tables", tables)
    largest = 16 * KIB * KIB if bench.quick else min(GIB, machine.available_memory() // 8)
    sizes = [4 * 16**power for power in range(8) if 4 * 16**power <= largest]
    yield from grown(bench, panels, "add and get of so many bytes", "bytes", measure(bench, "table_worker", "add_get", sizes))
    workers = [1, 2, 4] if bench.quick else [1, 2, 4, 8, 16]
    points = [(number, number * cost_of_add(bench, "auto", number, 4 * KIB)["server"]) for number in workers]
    yield from grown(bench, panels, "adds of 4 KiB by so many workers, time of the server", "workers", points)
    bench.pictures["growth"] = lambda path, caption: draw(path, panels, caption)


def by_growth_worker(bench, panels, title, operation, unit, amounts):
    yield from grown(bench, panels, title, unit, measure(bench, "growth_worker", operation, amounts))


def measure(bench, program, operation, amounts):
    """[(amount, seconds of a call)]"""
    sides = {"ours": lambda: bench.parties.worker(program, bench.parties.two_if_any)}
    cases = {amount: {"ours": Batch(operation, amount)} for amount in amounts}
    compared = bench.compare(sides, cases, bench.effort.less(rounds=1, pairs=1, seconds=0.05))
    return [(amount, compared[amount].of("ours").median) for amount in amounts]


def grown(bench, panels, title, unit, points):
    """Where calls are small, their fixed cost hides the growth: the slope is that of the last steps, a hundredfold or less."""
    (few, short) = next(point for point in points if point[0] * 100 >= points[-1][0])
    (many, long) = points[-1]
    slope = math.log(long / short) / math.log(many / few)
    panels[title] = (unit, points, slope)
    text = ", ".join(f"{amount:,}: {1e6 * seconds:,.3g} µs" for amount, seconds in points)
    yield Row(
        name=f"growth: {title}, from {few:,} to {many:,}",
        ours=Spread.of([slope]),
        unit="slope of the logarithms",
        target=at_most(STEEPEST),
        note=f"1 is in proportion; a worker and a server; {text}",
    )


def draw(path, panels, caption):
    from plots import growth as plot  # imported here: matplotlib may be missing, and the figures count without it

    plot.draw(path, panels, caption)
