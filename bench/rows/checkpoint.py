"""Checkpoints compared with the disk's own speed, and their effect on training."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from harness.bench import measurement
from harness.compare import Spread
from harness.process import Process
from harness.result import Row, at_most, ratio_at_least

GIB = 1 << 30


def timed_dd(path, size):
    begun = time.monotonic()
    command = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={size >> 20}", "conv=fsync"]
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begun


def fresh(folder, name):
    """An empty folder for the next checkpoint. The last one is removed completely, and nothing is left to be written
    back."""
    path = folder / name
    shutil.rmtree(folder)
    folder.mkdir()
    os.sync()
    return path


@measurement
def checkpoint(bench):
    """saving a table of 1 GiB, compared with dd to the same disk, and the longest add meanwhile"""
    size, rounds = (GIB // 8, 2) if bench.quick else (GIB, 5)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="polyverso-bench-", dir=bench.output))
    command = [*bench.parties.run_words(1, "auto"), bench.parties.programs / "checkpointer", size]
    run = Process("polyverso run", command, bench.parties.any_cpu.client, bench.environment)
    try:
        run.hear(120)
        saves, copies, longest, before, adds = [], [], [], [], 0
        for at in range(rounds):
            bench.progress(f"round {at + 1} of {rounds}")
            run.say(f"save {fresh(folder, 'ours')}")
            saves.append(run.hear(300)["seconds"])
            copies.append(timed_dd(fresh(folder, "peer"), size))
            run.say(f"train {fresh(folder, 'ours')}")
            trained = run.hear(300)
            longest.append(1e3 * max(trained["call"], trained["longest"]))
            before.append(1e3 * trained["before"])
            adds += trained["adds"]
        run.end_well()
    except BaseException:
        run.end(seconds=1)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    speeds = [size / seconds / 1e9 for seconds in saves]
    peers = [size / seconds / 1e9 for seconds in copies]
    yield Row(
        name=f"checkpoint of a {size / GIB:g} GiB table, to the end",
        ours=Spread.of(speeds),
        unit="GB/s",
        peer="GB/s, dd conv=fsync to the same disk",
        peer_value=Spread.of(peers),
        ratio=Spread.of([ours / peer for ours, peer in zip(speeds, peers)]),
        target=ratio_at_least(0.7),
        runs=rounds,
        note="with checksums, the file and the manifest on the disk; one worker, one server, any CPU",
    )
    yield Row(
        name="longest add while a checkpoint is being made",
        ours=Spread.of(longest),
        unit="ms",
        peer="ms, as long before",
        peer_value=Spread.of(before),
        ratio=Spread.of([ours / peer for ours, peer in zip(longest, before)]),
        target=at_most(50),
        runs=rounds,
        note=f"adds of 64 random rows of 1 KiB, {adds:,} in all; the call of the save itself included",
    )
