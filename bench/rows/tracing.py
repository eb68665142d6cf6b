"""What it costs that a process keeps its last events for `polyverso trace`."""

import sys

from harness.bench import measurement
from harness.compare import Batch, Effort
from harness.process import Process, started
from harness.result import Row, ratio_at_most
from harness.units import microseconds

ONE_FLOAT, MIB, MODEL = 4, 1 << 20, 4_000_000
MANY = Effort(rounds=3, pairs=10, seconds=0.1)  # a few percent are looked for
EVENTS = "16384"  # as with the setting `metrics`


def side(bench, events, words, pinning):
    environment = {**bench.environment, "POLYVERSO_TRACE_EVENTS": events}
    return lambda: started(lambda: Process(f"trace_events={events}", words, pinning.server, environment))


def compared(bench, title, words, batch, pinning):
    sides = {name: side(bench, events, words, pinning) for name, events in (("on", EVENTS), ("off", "0"))}
    effort = bench.effort if bench.quick else MANY
    comparison = bench.compare(sides, {title: dict.fromkeys(sides, batch)}, effort)[title]
    return Row(
        name=f"{title}, with a trace",
        ours=comparison.of("on").map(microseconds),
        unit="µs",
        peer="without",
        peer_value=comparison.of("off").map(microseconds),
        ratio=comparison.ratio("on", "off"),
        target=ratio_at_most(1.03),
        runs=comparison.runs,
        note=f"trace_events={EVENTS}; {pinning}",
    )


@measurement
def tracing(bench):
    """a blocking add, an all-reduce of 1 MiB, and a push and pull of a model, with the trace on and off"""
    parties = bench.parties
    pinning = parties.two_if_any
    run = [parties.launcher, "run", "--no-color", "-v"]
    pinned = ["taskset", "--cpu-list", pinning.client]
    add = [*run, "-n", 1, "--servers", 1, "--", *pinned, parties.programs / "table_worker"]
    yield compared(bench, "blocking add of one float", add, Batch("add", ONE_FLOAT), pinning)
    group = [*run, "-n", 2, "--", parties.programs / "group_worker"]
    yield compared(bench, "all-reduce of 1 MiB, two ranks", group, Batch("in", MIB), parties.any_cpu)
    store = [sys.executable, bench.sources / "programs" / "kv_worker.py", "polyverso", "dist_sync", "push_pull", MODEL]
    store = [*parties.run_words(1, "auto"), *store]
    yield compared(bench, "push and pull of 4 MB, dist_sync", store, Batch("push_pull", MODEL), parties.any_cpu)
