"""The overhead that a language binding adds to a call."""

import shutil

from harness import machine
from harness.bench import measurement
from harness.compare import Batch, Spread
from harness.result import Row, at_most
from harness.units import microseconds

ONE_FLOAT = 4
BLOCK = 200  # calls between two clock readings: longer than the clock's resolution, shorter than a time slice
MIB = 1 << 20
LARGE = 64 * MIB
SLACK = 16  # MiB: far below 64, above the interpreters' other allocations
SOME = 4 * 4 * 4  # bytes of four rows with four columns
INTERPRETERS = ("python3", "perl", "luajit", "lua5.4")
ARRAYS = {"python3": "arrays of NumPy", "perl": "PDLs", "luajit": "tensors", "lua5.4": "tensors"}


def installed():
    return [name for name in INTERPRETERS if shutil.which(name)]


@measurement
def binding_calls(bench):
    """blocking add and get of one float in a cluster of one from Python, Perl and Lua: the overhead over C"""
    for interpreter in installed():
        cases = {}
        for layer in ("", "method_"):
            for name in ("add", "get"):
                c, own = Batch(name, ONE_FLOAT, BLOCK), Batch(layer + name, ONE_FLOAT, BLOCK)
                cases[layer + name] = {"C": c, "own": own}
        sides = {"C": bench.parties.table_alone, "own": lambda: bench.parties.caller(interpreter)}
        measured = bench.compare(sides, cases, bench.effort.less(rounds=2, pairs=4, seconds=0.1))
        yield calls_row(bench, f"{interpreter}: a call of a C function", measured, "")
        yield calls_row(bench, f"{interpreter}: a call of a table's method", measured, "method_")


@measurement
def binding_calls_on_rows(bench):
    """blocking add and get of four rows, and of four keys, given as arrays, from Python, Perl and Lua: the overhead over C"""
    for interpreter in installed():
        calls = [f"{kind}_{name}" for kind in ("rows", "keys") for name in ("add", "get")]
        cases = {call: dict.fromkeys(("C", "own"), Batch(call, SOME, BLOCK)) for call in calls}
        sides = {"C": bench.parties.small_calls, "own": lambda: bench.parties.caller(interpreter)}
        measured = bench.compare(sides, cases, bench.effort.less(rounds=2, pairs=4, seconds=0.05))
        # Half a microsecond more than for one float: there are two arrays to check. Neither is copied.
        what = f"ids and values in {ARRAYS[interpreter]}, four times four floats"
        for kind in ("rows", "keys"):
            yield calls_row(bench, f"{interpreter}: a call of a table's method on four {kind}", measured, f"{kind}_", what, 1)


def calls_row(bench, name, measured, layer, what="one float", limit=1):
    """The row of the call, add or get, with the larger overhead over C."""
    above = {call: measured[layer + call].difference("own", "C").map(microseconds) for call in ("add", "get")}
    worse = max(above, key=lambda call: above[call].median)
    comparison = measured[layer + worse]
    own, c = comparison.of("own").median * 1e6, comparison.of("C").median * 1e6
    better = min(spread.median for spread in above.values())
    return Row(
        name=name,
        ours=above[worse],
        unit="µs above C",
        peer="µs in C",
        peer_value=comparison.of("C").map(microseconds),
        ratio=comparison.ratio("own", "C"),
        target=at_most(limit),
        runs=comparison.runs,
        note=f"{worse}: {own:.2f} µs, in C {c:.2f} µs (the other of add and get: {better:.2f} µs above C); "
        f"{what}, cluster of one, all on CPU {bench.parties.one_cpu.client}",
    )


@measurement
def binding_copies(bench):
    """memory that an add of 64 MiB takes in Python, Perl and Lua, besides the array and the table"""
    for interpreter in installed():
        bench.progress(interpreter)
        yield Row(
            name=f"{interpreter}: an add of 64 MiB without a copy",
            ours=Spread.of([growth(bench.parties, interpreter) / MIB]),
            unit="MiB more",
            target=at_most(SLACK),
            runs=1,
            note="peak of resident memory, less the array's and the table's own; a copy would be 64",
        )


def growth(parties, interpreter):
    """The bytes that an add of LARGE takes at its peak, or keeps, beyond the array and the table."""
    with parties.caller(interpreter) as party:
        pid = party.process.pid
        party.do(Batch("add", ONE_FLOAT), 0)  # loads what the interpreter loads at its first call
        before = machine.memory(pid, "VmRSS")
        party.do(Batch("add", LARGE), 0)  # makes array and table, which may take more memory for a moment
        machine.forget_peak(pid)
        party.do(Batch("add", LARGE), 0)
        return machine.memory(pid, "VmHWM") - before - 2 * LARGE
