"""Large calls between two processes: an add and then a get, both blocking."""

from harness.bench import measurement
from harness.compare import Batch
from harness.result import Row, ratio_at_least
from harness.units import gigabytes_per_second

MIB = 1 << 20
WHAT_MXNET_DOES = "MXNet does push + pull in dist_sync without an updater (dist_async would run Python for each push)"


@measurement
def transfer_4_mib(bench):
    """add + get of 4 MiB over TCP compared with a raw socket that moves the same bytes"""
    yield beside_raw_socket(bench, 4 * MIB, 0.8)


@measurement
def transfer_64_mib(bench):
    """add + get of 64 MiB over TCP compared with a raw socket into reused memory, and with MXNet dist"""
    yield beside_raw_socket(bench, 64 * MIB, 0.6)
    yield beside_mxnet(bench, 64 * MIB, 2)


@measurement
def transfer_encrypted(bench):
    """add + get of 4 and of 64 MiB over TCP with tls=psk compared with the same without encryption"""
    for size in (4 * MIB, 64 * MIB):
        yield beside_plain(bench, size, 0.6)


def beside_plain(bench, size, limit):
    pinning = bench.parties.two_if_any
    sides = {"ours": lambda: bench.parties.table_encrypted(pinning), "peer": lambda: bench.parties.table_over_tcp(pinning)}
    note = f"bytes of both directions; TLS 1.3, AES-128-GCM; {pinning}"
    return row(measure(bench, sides, size), size, "plain TCP", limit, note, "encrypted TCP")


def beside_raw_socket(bench, size, limit):
    pinning = bench.parties.two_if_any
    sides = {"ours": lambda: bench.parties.table_over_tcp(pinning), "peer": lambda: bench.parties.raw_socket(pinning)}
    note = f"bytes of both directions; the socket receives into reused memory; {pinning}"
    return row(measure(bench, sides, size), size, "raw socket", limit, note)


def beside_mxnet(bench, size, limit):
    pinning = bench.parties.any_cpu  # MXNet copies with several threads, and is slower if each process has one CPU
    sides = {"ours": lambda: bench.parties.table_over_tcp(pinning)}
    missing = bench.why_no_mxnet()
    if not missing:
        sides["peer"] = lambda: bench.mxnet(pinning)
    note = f"bytes of both directions; {missing or WHAT_MXNET_DOES}; {pinning}"
    return row(measure(bench, sides, size), size, "MXNet dist", limit, note)


def measure(bench, sides, size):
    case = f"add + get of {size // MIB} MiB"
    return bench.compare(sides, {case: {side: Batch("add_get", size) for side in sides}})[case]


def row(comparison, size, peer, limit, note, over="TCP"):
    speed = gigabytes_per_second(2 * size)
    there = "peer" in comparison.seconds
    return Row(
        name=f"add + get of {size // MIB} MiB over {over}, beside {peer}",
        ours=comparison.of("ours").map(speed),
        unit="GB/s",
        peer=peer,
        peer_value=comparison.of("peer").map(speed) if there else None,
        ratio=comparison.ratio("peer", "ours") if there else None,
        target=ratio_at_least(limit),
        runs=comparison.runs,
        note=note,
    )
