"""Adds to 64-bit keys."""

from harness.bench import measurement
from harness.compare import Batch
from harness.parties import REDIS
from harness.process import Broken
from harness.result import Row, ratio_at_least
from harness.units import per_second

KEYS = 1000  # keys per add
ADD = Batch("add", 8 * KEYS)
MILLION = Batch("add", 8 * KEYS, 1000)  # adds between two clock readings: a million keys


@measurement
def key_value_adds(bench):
    """1e7 adds to random keys in batches of 1,000, compared with Redis INCRBYFLOAT pipelined in the same batches"""
    if REDIS is None:
        raise Broken("Redis is not installed: apt install redis-tools")
    pinning = bench.parties.two_if_any
    sides = {"ours": lambda: bench.parties.worker("key_worker", pinning), "redis": lambda: bench.parties.redis(pinning)}
    # At least three samples of each side in each pair, besides the warm-up: more than 1e7 adds of each side in total.
    batch = ADD if bench.quick else MILLION
    effort = bench.effort.less(rounds=2, pairs=2)
    comparison = bench.compare(sides, {"adds": {"ours": batch, "redis": batch}}, effort)["adds"]
    yield Row(
        name="adds to random 64-bit keys, 1,000 to a call",
        ours=comparison.of("ours").map(keys_per_second),
        unit="keys/s",
        peer="Redis INCRBYFLOAT",
        peer_value=comparison.of("redis").map(keys_per_second),
        ratio=comparison.ratio("redis", "ours"),
        target=ratio_at_least(10),
        runs=comparison.runs,
        note="f64, a million different keys, blocking, sums checked; Redis on a unix socket, 1,000 commands in one write and "
        f"without persistence, its client spells them beforehand and only counts the answers; {pinning}",
    )


def keys_per_second(seconds):
    return KEYS * per_second(seconds)
