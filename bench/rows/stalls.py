"""The latency tail of asynchronous operations that start and are waited for at random moments."""

from harness import machine
from harness.bench import measurement
from harness.compare import Spread
from harness.process import Process
from harness.result import Row, at_most, ratio_at_most

OPERATIONS = [("allreduce", "wait", 2), ("allreduce", "wait", 4), ("allreduce", "poll", 2), ("allreduce", "fd", 2),
              ("add", "wait", 2), ("get", "wait", 2), ("push", "wait", 2), ("pull", "wait", 2)]


def probe(bench, what, how, ranks, transport, count):
    command = [*bench.parties.run_words(ranks, transport), bench.parties.programs / "wakeup_probe", what, how, count, 1]
    run = Process(f"wakeup_probe {what}", command, ",".join(map(str, machine.cpus())), bench.environment)
    try:
        told = run.hear(600)
        run.end_well()
    except BaseException:
        run.end(seconds=1)
        raise
    return told


@measurement
def stalls(bench):
    """operations of 256 floats at random moments: those above 20 ms, and the slowest in 1,000 against the median"""
    count = 2_000 if bench.quick else 40_000 // len(OPERATIONS)
    for transport, by in (("auto", "shared memory"), ("tcp", "TCP")):
        for what, how, ranks in OPERATIONS:
            bench.progress(f"{what}, {by}")
            told = probe(bench, what, how, ranks, transport, count)
            title = f"asynchronous {what}, {ranks} processes, {by}, ended by {'mv_request_wait' if how == 'wait' else 'mv_poll' if how == 'poll' else 'mv_event_fd'}"
            note = f"of {count:,}; at most {told['most_us'] / 1000:.1f} ms; any CPU"
            yield Row(name=f"{title}: above 20 ms", ours=Spread.of([told["above_20ms"]]), unit="operations", target=at_most(0), note=note)
            yield Row(
                name=f"{title}: slowest in a thousand",
                ours=Spread.of([told["p999_us"]]),
                unit="µs",
                peer="the median",
                peer_value=Spread.of([told["median_us"]]),
                ratio=Spread.of([told["p999_us"] / told["median_us"]]),
                target=ratio_at_most(20),
                note=note,
            )
