"""Small blocking calls between two processes."""

from harness.bench import measurement
from harness.compare import Batch
from harness.result import Row, Target, ratio_at_most
from harness.units import microseconds

ONE_FLOAT = 4
MOST_ADDED = 2  # µs
ECHO_BYTES = 64  # a small message; a few hundred more bytes make no difference on loopback


@measurement
def one_float(bench):
    """blocking add, and get, of one float over TCP compared with a raw libuv echo, on one CPU and on two"""
    yield from on(bench, bench.parties.one_cpu, "one CPU")
    if bench.parties.two_cpus:
        yield from on(bench, bench.parties.two_cpus, "two CPUs")


def on(bench, pinning, where):
    echo = Batch("echo", ECHO_BYTES)
    measured = bench.compare(
        {"ours": lambda: bench.parties.table_over_tcp(pinning), "echo": lambda: bench.parties.uv_echo(pinning)},
        {name: {"ours": Batch(name, ONE_FLOAT), "echo": echo} for name in ("add", "get")},
    )
    for name, comparison in measured.items():
        yield Row(
            name=f"blocking {name} of one float over TCP, {where}",
            ours=comparison.of("ours").map(microseconds),
            unit="µs",
            peer="libuv echo",
            peer_value=comparison.of("echo").map(microseconds),
            ratio=comparison.ratio("ours", "echo"),
            target=ratio_at_most(1.6),
            runs=comparison.runs,
            note=f"a worker and a server; {pinning}",
        )


@measurement
def one_float_encrypted(bench):
    """blocking add, and get, of one float over TCP with tls=psk compared with the same without encryption"""
    pinning = bench.parties.two_if_any
    sides = {"ours": lambda: bench.parties.table_encrypted(pinning), "plain": lambda: bench.parties.table_over_tcp(pinning)}
    measured = bench.compare(sides, {name: dict.fromkeys(sides, Batch(name, ONE_FLOAT)) for name in ("add", "get")})
    for name, comparison in measured.items():
        yield Row(
            name=f"blocking {name} of one float over encrypted TCP",
            ours=comparison.of("ours").map(microseconds),
            unit="µs",
            peer="plain TCP",
            peer_value=comparison.of("plain").map(microseconds),
            ratio=comparison.ratio("ours", "plain"),
            target=Target(f"plain + {MOST_ADDED} µs", lambda ours, plain, ratio: ours <= plain + MOST_ADDED),
            runs=comparison.runs,
            note=f"a worker and a server; TLS 1.3, AES-128-GCM; {pinning}",
        )
